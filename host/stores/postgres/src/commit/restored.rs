//! Rows that are put back.

use besom_core::proposal::{Change, Restore};

use super::{Attempt, Decided, Step};
use crate::effects::Done;
use crate::error::Job;
use crate::restore;
use crate::scene::Scene;
use crate::session::Session;
use crate::work::Work;
use besom_record::restore::Ended;

impl<'a> Attempt<'a> {
    /// Puts back the rows of items, as far as that is possible. While the server executes a statement, what was kept
    /// of the next item is unpacked here, and what the one before it has changed is recorded.
    pub(super) async fn restored(
        &self,
        session: &Session,
        works: &[&Work<'a>],
        decided: &mut Decided,
    ) -> Step<()> {
        let each = |work: &&Work<'a>| {
            let (work, changes) = (**work, &work.proposal.changes);
            changes.iter().filter_map(Change::restore).map(move |restore| (work, restore))
        };
        let parts: Vec<_> = works.iter().flat_map(each).collect();
        let restores: Vec<&Restore> = parts.iter().map(|(_, restore)| *restore).collect();
        if restores.is_empty() {
            return Ok(());
        }
        let mapping = self.setting.mapping;
        let mut scene = Scene::of(session, mapping, &restores).await?;
        scene.read_ahead(session, &restores).await?;
        let unpack = |packed: Option<Option<Vec<u8>>>| packed.map(restore::unpacked).transpose();
        let mut images = unpack(scene.take(restores[0].history))?;
        let mut ended = None;
        let record = |ended: Option<(Work<'a>, Ended)>, decided: &mut Decided| -> Job<()> {
            let Some((work, ended)) = ended else { return Ok(()) };
            let (rows, said) = (ended.restored.rows, besom_record::restore::said(&ended.restored));
            let images = work.undo.then(|| restore::images_of(mapping, work.tenant, ended));
            let (images, before) = (images.transpose()?, decided.remove(&work.entry));
            let done = match before.and_then(std::result::Result::ok) {
                None => Done { images, rows, said, ..Done::default() },
                Some(mut done) => {
                    done.rows += rows;
                    let both = done.said.into_iter().chain(said).collect::<Vec<_>>();
                    done.said = (!both.is_empty()).then(|| both.join("; "));
                    if let (Some(all), Some(more)) = (&mut done.images, images) {
                        all.append(more);
                    }
                    done
                }
            };
            decided.insert(work.entry, Ok(done));
            Ok(())
        };
        for (at, (work, part)) in parts.iter().enumerate() {
            let next = restores.get(at + 1).and_then(|next| scene.take(next.history));
            let applied =
                restore::apply(session, (mapping, &scene), work.tenant, (part, images.take()));
            let (before, beside) = (ended.take(), &mut *decided);
            let meanwhile = async { (unpack(next), record(before, beside)) };
            let (done, (unpacked, recorded)) = futures::future::join(applied, meanwhile).await;
            ended = Some((*work, done.inspect_err(|_| session.doubt())?));
            recorded?;
            images = unpacked?;
        }
        record(ended, decided)?;
        Ok(())
    }
}
