//! The careful way: the effects of items under savepoints, in halves until the failing item is alone.

use std::collections::BTreeSet;

use besom_core::books::Judged;
use besom_core::proposal::{Change, Fate, RowRange};
use tokio_postgres::error::SqlState;

use super::attempt::judged;
use super::{Attempt, Decided, NotApplied, Setting, Step, Stop, blames_items};
use crate::effects::{self, Done, Effect};
use crate::error::{Failure, Fault as Blame, Job, classify, fault, words};
use crate::guards;
use crate::range_change;
use crate::readset;
use crate::session::{Pipeline, Session, only, params};
use crate::work::Work;
use besom_ports::store::Error;
use besom_record::images::Images;
use besom_record::{Refused, kept};

/// The end of the database's words if a foreign key keeps a row: its code.
const REFERRED_TO: &str = "(23503)";
/// The maximum number of items of a batch that are tried alone when the database refuses the
/// statement itself.
const REFUSED_MAX: usize = 16;

impl<'a> Attempt<'a> {
    /// Locks the anchors of all waves in order, before they are applied in parts. If that fails,
    /// the failing part reports it.
    pub(super) async fn lock(&self, session: &Session, waves: &[Vec<Work<'a>>]) -> Step<()> {
        let mut pipeline = Pipeline::default();
        guards::lock(
            &mut pipeline,
            self.setting.mapping,
            waves.iter().flatten(),
            self.setting.bounds,
        );
        session.batch("SAVEPOINT item").await?;
        let end = match self.theirs(session.run(pipeline).await)? {
            Ok(_) => "RELEASE item",
            Err(_) => "ROLLBACK TO item; RELEASE item",
        };
        Ok(session.batch(end).await?)
    }

    /// Applies a wave under savepoints, in halves if it cannot be applied at once.
    pub(super) async fn carefully(
        &self,
        session: &Session,
        wave: Vec<Work<'a>>,
        is_idle: &(dyn Fn(&Work<'_>, &str) -> bool + Sync),
        decided: &mut Decided,
    ) -> Step<()> {
        let deferred = Deferred::of(session).await?;
        let mut rest = Vec::with_capacity(wave.len());
        for work in &wave {
            if !self.sorted_apart(session, work, &deferred, decided).await? {
                rest.push(*work);
            }
        }
        let mut open = vec![rest];
        let mut refused: Vec<(Work<'a>, Error)> = Vec::new();
        while let Some(mut works) = open.pop() {
            if works.is_empty() {
                continue;
            }
            session.batch("SAVEPOINT item").await?;
            let room = session.room();
            match self.tried(session, &works, is_idle, &deferred).await? {
                Ok(done) => {
                    session.batch(&deferred.again("item")).await?;
                    decided.extend(done);
                    for work in &works {
                        let done = decided.get(&work.entry).and_then(|done| done.as_ref().ok());
                        if let Some(Err(not)) = done.map(|done| applied(work, done)) {
                            decided.insert(work.entry, Err(not));
                        }
                    }
                }
                Err(said) => {
                    session.batch("ROLLBACK TO item; RELEASE item").await?;
                    session.set_room(room);
                    if let [alone] = works.as_slice() {
                        let is_violation = matches!(said, NotApplied::Violation(_));
                        let mut ranges = ranges_of(alone);
                        ranges.retain(|(range, _)| {
                            let table = self.setting.mapping.table(&range.collection);
                            table.is_ok_and(|table| range_change::has_ranges(table))
                        });
                        if is_violation && alone.proposal.rows_may_stay() && !ranges.is_empty() {
                            let done = self.bisected(session, alone, ranges, &deferred).await?;
                            let done = applied(alone, &done).map(|()| done);
                            decided.insert(alone.entry, done);
                            continue;
                        }
                        if let NotApplied::Refused(error) = &said {
                            refused.push((*alone, error.clone()));
                        }
                        decided.insert(alone.entry, Err(said));
                        // It is not plausible that all of these items are at fault.
                        if refused.len() >= REFUSED_MAX && !decided.values().any(Result::is_ok) {
                            break;
                        }
                    } else {
                        let second = works.split_off(works.len() / 2);
                        open.push(second);
                        open.push(works);
                    }
                }
            }
        }
        // A missing privilege, table or column is an item's fault only if another item could do the
        // same.
        let able = |work: &Work<'_>| matches!(decided.get(&work.entry), Some(Ok(_)));
        let reached: BTreeSet<&str> =
            wave.iter().filter(|work| able(work)).flat_map(Work::collections).collect();
        for (work, error) in refused {
            let mut asked = work.collections().peekable();
            if asked.peek().is_none() || !asked.all(|name| reached.contains(name)) {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Changes the rows of ranges at once but those that foreign keys keep, if there are such keys: tried with them,
    /// each part of the rows would be an error in the server's log. Returns whether it has done so.
    pub(super) async fn sorted_apart(
        &self,
        session: &Session,
        work: &Work<'a>,
        deferred: &Deferred,
        decided: &mut Decided,
    ) -> Step<bool> {
        let ranges = ranges_of(work);
        if self.setting.trial || ranges.is_empty() || !work.proposal.rows_may_stay() {
            return Ok(false);
        }
        let mut is_kept = false;
        for range in &ranges {
            is_kept |= range_change::is_kept(session, self.setting.mapping, *range).await?;
        }
        if !is_kept {
            return Ok(false);
        }
        session.batch("SAVEPOINT item").await?;
        let room = session.room();
        match self.bisected(session, work, ranges, deferred).await {
            Ok(done) => {
                session.batch("RELEASE item").await?;
                let done = applied(work, &done).map(|()| done);
                decided.insert(work.entry, done);
                Ok(true)
            }
            Err(Stop::Failed(Failure::Sql(e))) if blames_items(&e) => {
                session.batch("ROLLBACK TO item; RELEASE item").await?;
                session.set_room(room);
                Ok(false)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Changes the rows of ranges but those that foreign keys keep; if they are refused, in halves. Leaves those that
    /// are refused alone.
    pub(super) async fn bisected(
        &self,
        session: &Session,
        work: &Work<'a>,
        ranges: Vec<(&RowRange, Fate<'_>)>,
        deferred: &Deferred,
    ) -> Step<Done> {
        let mut all = Done { images: work.undo.then(Images::default), ..Done::default() };
        let mut refused = Refused::default();
        for (range, fate) in ranges {
            let mapping = self.setting.mapping;
            let sorted = range_change::sorted(session, mapping, work, (range, fate)).await?;
            for (key, said) in sorted.kept {
                refused.push_kept(&key, said);
            }
            let mut open = vec![sorted.open];
            while let Some(mut keys) = open.pop() {
                if keys.is_empty() || !refused.goes_on() {
                    continue;
                }
                let proposal = range_change::of_keys(range, fate, &keys);
                let part = Work { proposal: &proposal, ..*work };
                session.batch("SAVEPOINT part").await?;
                let room = session.room();
                match self.tried(session, &[part], &|_, _| false, deferred).await? {
                    Ok(mut done) => {
                        session.batch(&deferred.again("part")).await?;
                        let done = done.remove(&work.entry).and_then(Result::ok);
                        let done = done.unwrap_or_default();
                        all.rows += done.rows;
                        for (collection, rows) in done.dependants {
                            *all.dependants.entry(collection).or_default() += rows;
                        }
                        if let (Some(images), Some(more)) = (&mut all.images, done.images) {
                            images.append(more);
                        }
                    }
                    Err(said) => {
                        session.batch("ROLLBACK TO part; RELEASE part").await?;
                        session.set_room(room);
                        match (said, &keys[..]) {
                            // A foreign key that this role cannot look through, or a row that came in between.
                            (NotApplied::Violation(said), [key]) if said.ends_with(REFERRED_TO) => {
                                refused.push_kept(key, said);
                            }
                            (NotApplied::Violation(said), [key]) => refused.push(key, said),
                            (NotApplied::Refused(error), _) => return Err(error.into()),
                            (NotApplied::Guard | NotApplied::Locked, [_]) => {}
                            (_, _) => {
                                let second = keys.split_off(keys.len() / 2);
                                open.push(second);
                                open.push(keys);
                            }
                        }
                    }
                }
            }
        }
        all.keep = refused.is_kept();
        all.said = refused.said();
        if all.rows == 0 {
            all.images = None;
        }
        Ok(all)
    }

    /// Separates the items' own errors, in the database's words, from the infrastructure's.
    pub(super) fn theirs<T>(&self, done: Job<T>) -> Step<std::result::Result<T, NotApplied>> {
        match done {
            Ok(value) => Ok(Ok(value)),
            Err(Failure::Sql(e)) if fault(&e) == Blame::Program => {
                Ok(Err(NotApplied::Refused(classify(&e))))
            }
            Err(Failure::Sql(e)) if blames_items(&e) => Ok(Err(NotApplied::Violation(words(&e)))),
            Err(Failure::Sql(e))
                if self.setting.trial && e.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) =>
            {
                Ok(Err(NotApplied::Locked))
            }
            Err(failure) => Err(Stop::Failed(failure)),
        }
    }

    /// Evaluates guards and applies changes of some items; the inner error is an item's.
    pub(super) async fn tried(
        &self,
        session: &Session,
        works: &[Work<'_>],
        is_idle: &(dyn Fn(&Work<'_>, &str) -> bool + Sync),
        deferred: &Deferred,
    ) -> Step<std::result::Result<Decided, NotApplied>> {
        let mut decided = Decided::new();
        let mut pipeline = Pipeline::default();
        let Setting { mapping, bounds, .. } = self.setting;
        let asked = guards::ask(&mut pipeline, mapping, works, [].iter(), is_idle, *bounds);
        let mut answers = match self.theirs(session.run(pipeline).await)? {
            Ok(answers) => answers,
            Err(said) => return Ok(Err(said)),
        };
        let (verdicts, images) = asked.read(&mut answers, works.len())?;
        let holding = judged(works.to_vec(), verdicts, &mut decided);
        let mut pipeline = Pipeline::default();
        let asked = effects::ask(&mut pipeline, self.setting.mapping, &holding, images);
        let mut answers = match self.theirs(session.run(pipeline).await)? {
            Ok(answers) => answers,
            Err(said) => return Ok(Err(said)),
        };
        // Checks deferred constraints here, while they can be attributed to one item; not in the round trip before,
        // where it would follow a statement that was refused.
        if deferred.any
            && let Err(said) = self.theirs(session.batch("SET CONSTRAINTS ALL IMMEDIATE").await)?
        {
            return Ok(Err(said));
        }
        for (work, effect) in holding.iter().zip(asked.read(&mut answers, &holding)?) {
            let done = match effect {
                Effect::Done(done) => done,
                Effect::Violated(said) | Effect::Kept(said) => {
                    return Ok(Err(NotApplied::Violation(said)));
                }
                Effect::Incomplete => {
                    let kept = self.kept_rows(session, work).await?;
                    return Ok(Err(kept.map_or(NotApplied::Guard, NotApplied::Violation)));
                }
                Effect::Overtaken => return Err(Stop::Overtaken),
                Effect::Unclear => {
                    let said = "a row was not inserted".to_owned();
                    return Ok(Err(NotApplied::Violation(said)));
                }
            };
            decided.insert(work.entry, Ok(done));
        }
        Ok(Ok(decided))
    }

    /// Why rows of a read set still exist that this work has just deleted, if any do: a trigger or a
    /// policy may keep them.
    pub(super) async fn kept_rows(
        &self,
        session: &Session,
        work: &Work<'_>,
    ) -> Step<Option<String>> {
        for change in &work.proposal.changes {
            let Change::DeleteReadSet(set) = change else { continue };
            let Ok(table) = self.setting.mapping.table(&set.collection) else { continue };
            let Ok((counting, _)) = readset::count(table, work.tenant, set, false) else {
                continue;
            };
            let rows = session.query(&counting.sql, counting.params).await?;
            if only::<i64>(&rows)? > 0 {
                return Ok(Some(kept(&set.collection)));
            }
        }
        Ok(None)
    }
}

/// The constraints that are checked later than at the end of a statement. They are those of the whole database, because
/// a change may fire triggers that change other tables.
#[derive(Default)]
pub(crate) struct Deferred {
    /// Whether any can be.
    pub(crate) any: bool,
    /// Defers again those that are at first, except in schemas that this role cannot access.
    again: String,
}

impl Deferred {
    pub(crate) async fn of(session: &Session) -> Job<Deferred> {
        let rows = session
            .query(
                "SELECT count(*) > 0, 'SET CONSTRAINTS ' || string_agg(format('%I.%I', n.nspname, c.conname), ', ')
                   FILTER (WHERE c.condeferred AND has_schema_privilege(n.oid, 'USAGE')) || ' DEFERRED'
                 FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace
                 WHERE c.condeferrable",
                params![],
            )
            .await?;
        let Some(row) = rows.first() else { return Ok(Deferred::default()) };
        let again: Option<String> = row.try_get(1)?;
        Ok(Deferred { any: row.try_get(0)?, again: again.unwrap_or_default() })
    }

    /// Ends a savepoint, and defers the constraints again.
    pub(crate) fn again(&self, savepoint: &str) -> String {
        format!("RELEASE {savepoint}; {}", self.again)
    }

    /// Checks the constraints, and ends a savepoint.
    pub(crate) fn checked(&self, savepoint: &str) -> String {
        let check = if self.any { "SET CONSTRAINTS ALL IMMEDIATE; " } else { "" };
        format!("{check}{}", self.again(savepoint))
    }
}

/// Whether changes that the database has applied count as applied.
pub(super) fn applied(work: &Work<'_>, done: &Done) -> std::result::Result<(), NotApplied> {
    match Judged::of_rows(work.proposal, done.rows, done.said.as_deref(), done.keep) {
        Judged::Held | Judged::Unchanged | Judged::Kept(_) => Ok(()),
        Judged::GuardFailed => Err(NotApplied::Guard),
        Judged::Violated(said) => Err(NotApplied::Violation(said)),
    }
}

pub(super) fn ranges_of<'a>(work: &Work<'a>) -> Vec<(&'a RowRange, Fate<'a>)> {
    work.proposal.changes.iter().filter_map(Change::of_range).collect()
}
