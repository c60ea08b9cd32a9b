//! One attempt at a batch, from the first round trip to COMMIT.

use std::collections::{BTreeMap, BTreeSet};

use besom_core::books::{Blocks, Closed, Judged, Tally, Write, close};
use besom_core::brake::{Dependants, Used, used};
use besom_core::ids::RunId;
use besom_core::proposal::Change;
use besom_core::time::Time;
use tokio_postgres::Row;

use super::carefully::applied;
use super::{
    Attempt, Care, Committed, Decided, NotApplied, Setting, Step, Stop, blames_items, mark, opening,
};
use crate::brakes;
use crate::direct;
use crate::effects::{self, Done, Effect};
use crate::error::{
    Failure, Fault as Blame, Job, classify_commit, fault, invalid, is_raised_in_a_function, words,
};
use crate::fault::Fault;
use crate::guards::{self, Verdict};
use crate::leadership;
use crate::ledger::{self, Ledger, numbers_needed};
use crate::ownership;
use crate::session::{Pipeline, Session, params};
use crate::tally::{self, END_RUNS, RUN_FACTS, ending, runs_left, write_runs};
use crate::whole;
use crate::work::{Work, waves};
use besom_ports::store::{Decision, Entry, Error, Given, LeftOut, LockedRows};
use besom_record::Changed;

/// What is known after the first round trip.
struct Opened<'a> {
    now: Time,
    /// Unused numbers for the books.
    ids: Vec<i64>,
    blocks: Blocks,
    /// Why entries are left out.
    left_out: Vec<Option<LeftOut>>,
    /// In a trial: the rows of ranges that other sessions have locked.
    locked: BTreeMap<usize, LockedRows>,
    /// What remains to be changed.
    waves: Vec<Vec<Work<'a>>>,
    decided: Decided,
    /// The guards of the first wave and the answers, if they were sent with the first round trip.
    guards: Option<(guards::Asked, Vec<Vec<Row>>)>,
}

/// The changes of the last wave, which are not sent yet.
#[derive(Default)]
struct Last<'a> {
    works: Vec<Work<'a>>,
    pipeline: Pipeline<'a>,
    asked: Option<effects::Asked>,
}

impl<'a> Attempt<'a> {
    pub(super) async fn run(&self, session: &mut Session) -> Step<Committed> {
        // They may have changed since the catalog was read.
        self.tables_fit().inspect_err(|_| session.doubt())?;
        let (restores, works): (Vec<Work<'a>>, _) =
            self.works().into_iter().partition(|work| work.proposal.restores());
        let waves = waves(works, self.setting.collections);
        let idle = self.idle(session, &waves).await?;
        let is_idle = |work: &Work<'_>, key: &str| {
            idle.iter().any(|(entry, idle)| entry.is_none_or(|e| e == work.entry) && idle == key)
        };
        let mut opened = self.open(session, waves, &is_idle).await?;
        let last = self.change(session, &mut opened, &is_idle).await?;
        let Opened { left_out, decided, .. } = &mut opened;
        let mine = restores.iter().filter(|work| left_out[work.entry].is_none());
        self.restored(session, &mine.collect::<Vec<_>>(), decided).await?;
        if self.setting.trial {
            let Opened { decided, locked, blocks, .. } = opened;
            return Err(Stop::Tried(self.taken_back(decided, locked, blocks)?));
        }
        self.settle(session, opened, last).await
    }

    /// The first round trip: locks owners and anchors, and judges and changes what can be judged and changed at
    /// once.
    async fn open(
        &self,
        session: &mut Session,
        mut waves: Vec<Vec<Work<'a>>>,
        is_idle: &(dyn Fn(&Work<'_>, &str) -> bool + Sync),
    ) -> Step<Opened<'a>> {
        let (batch, mapping, bounds) = (self.batch, self.setting.mapping, self.setting.bounds);
        let mut first = Pipeline::default();
        let tasks: Vec<i32> = self.setting.tasks.values().copied().collect();
        let needed = numbers_needed(batch.entries.len()) as i32;
        let runs: BTreeSet<i64> = batch.entries.iter().map(|e| e.item.run.0 as i64).collect();
        let runs: Vec<i64> = runs.into_iter().collect();
        let asked = params![self.setting.clock.given(), mark(batch.id), needed, tasks, runs];
        first.push(opening(), asked);
        let above = batch.unqueued()?.map(|term| leadership::ask_above(&mut first, term));
        let owners = ownership::ask(&mut first, batch, self.tasks, self.care.look_up);
        let together = !self.care.savepoints;
        let direct = (together && !self.care.stepwise)
            .then(|| direct::ask(&mut first, mapping, &waves, is_idle))
            .flatten();
        let in_steps = together && direct.is_none();
        let guards = waves.split_first().filter(|_| in_steps).map(|(wave, later)| {
            guards::ask(&mut first, mapping, wave, later.iter().flatten(), is_idle, bounds)
        });
        // After the rows are locked: a key that was idle when it was asked about may be active
        // again.
        let awaited = self.awaited(&waves, is_idle);
        let still_idle = together.then(|| self.hold_idle(&mut first, &awaited)).flatten();
        let mut answers = session.begin(first).await.map_err(|e| self.blamed(e))?;
        let opened = answers[0].first().ok_or_else(|| invalid("the database gave no answer"))?;
        self.known(opened)?;
        if let Some(above) = above {
            leadership::not_above(&answers[above])?;
        }
        let now = Time(opened.try_get(0)?);
        if let Some(ahead) = batch.ahead_of(now) {
            return Err(Stop::Known(ahead));
        }
        if opened.try_get(opened.len() - 1)? {
            return Err(Stop::Known(batch.all_left(LeftOut::Braked, now)));
        }
        let ids = opened.try_get::<_, Option<Vec<i64>>>(3)?.unwrap_or_default();
        let blocks = ledger::blocks(opened, 4)?;
        let left_out = owners.read(&answers, batch, self.setting.tasks, now)?;
        let locked = self.locked(session, &waves).await?;
        if self.care.savepoints {
            self.lock(session, &waves).await?;
            let mut pipeline = Pipeline::default();
            if let Some(asked) = self.hold_idle(&mut pipeline, &awaited) {
                let answers = session.run(pipeline).await?;
                self.still_idle(&asked, &answers, &awaited, &waves)?;
            }
        } else if let Some(asked) = &still_idle {
            self.still_idle(asked, &answers, &awaited, &waves)?;
        }

        let mut decided = Decided::new();
        if let (Some(direct), [wave]) = (direct, waves.as_mut_slice()) {
            let done = direct.read(&mut answers, wave)?;
            let not_ours = done.iter().any(|(entry, _)| left_out[*entry].is_some());
            let changed = done.len();
            let one = |images| Done { images, rows: 1, ..Done::default() };
            decided.extend(done.into_iter().map(|(entry, images)| (entry, Ok(one(images)))));
            // A key may be that of several rows: in steps, the item is named.
            if not_ours || decided.len() < changed {
                return Err(Stop::Repeat(Care { stepwise: true, ..self.care.clone() }));
            }
            wave.retain(|work| !decided.contains_key(&work.entry));
        }
        waves.retain(|wave| !wave.is_empty());
        let guards = guards.map(|asked| (asked, answers));
        Ok(Opened { now, ids, blocks, left_out, locked, waves, decided, guards })
    }

    /// Judges and changes the waves in order, except for the changes of the last one: they are sent with what
    /// follows. Under savepoints, all changes are applied here.
    async fn change(
        &self,
        session: &Session,
        opened: &mut Opened<'a>,
        is_idle: &(dyn Fn(&Work<'_>, &str) -> bool + Sync),
    ) -> Step<Last<'a>> {
        let Opened { left_out, waves, decided, guards, .. } = opened;
        let mut last: Option<Last<'a>> = None;
        for wave in waves {
            let all = wave.len();
            let is_mine = |work: &Work<'_>| left_out[work.entry].is_none();
            let mine: Vec<Work<'a>> = wave.iter().filter(|work| is_mine(work)).copied().collect();
            if self.care.savepoints {
                self.carefully(session, mine, is_idle, decided).await?;
                continue;
            }
            if let Some(Last { works, pipeline, asked: Some(asked) }) = last.take() {
                self.apply(session, &works, pipeline, asked, decided).await?;
            }
            let (verdicts, images) = match guards.take() {
                // Those of the first wave.
                Some((asked, mut answers)) => {
                    let (verdicts, images) = asked.read(&mut answers, all)?;
                    let of_mine = wave.iter().zip(verdicts).filter(|(work, _)| is_mine(work));
                    (of_mine.map(|(_, verdict)| verdict).collect(), images)
                }
                None => {
                    let mut pipeline = Pipeline::default();
                    let Setting { mapping, bounds, .. } = self.setting;
                    let none = [].iter();
                    let asked = guards::ask(&mut pipeline, mapping, &mine, none, is_idle, *bounds);
                    let mut answers = session.run(pipeline).await.map_err(|e| self.blamed(e))?;
                    asked.read(&mut answers, mine.len())?
                }
            };
            let works = judged(mine, verdicts, decided);
            let mut pipeline = Pipeline::default();
            let asked = effects::ask(&mut pipeline, self.setting.mapping, &works, images);
            last = Some(Last { works, pipeline, asked: Some(asked) });
        }
        Ok(last.unwrap_or_default())
    }

    /// Applies the changes of the last wave, removes the items, writes the books and commits. All results are known
    /// except the images, so the items can be removed in the round trip of the last changes.
    async fn settle(
        &self,
        session: &mut Session,
        opened: Opened<'a>,
        last: Last<'a>,
    ) -> Step<Committed> {
        let batch = self.batch;
        let Opened { now, ids, blocks, left_out, mut decided, .. } = opened;
        let Last { works, mut pipeline, asked } = last;
        let last_wave: Vec<usize> = works.iter().map(|work| work.entry).collect();
        let judged = left_out.into_iter().enumerate().map(|(at, left_out)| match left_out {
            Some(why) => Err(why),
            None => Ok(self.judged(at, &last_wave, &decided)),
        });
        let Closed { writes, mut tally, outcomes } =
            close(&batch.entries, judged, |_| blocks, &batch.node);
        let rows_of = |at: usize, decided: &Decided| {
            let done = decided.get(&at)?.as_ref().ok()?;
            Some((done.rows, done.dependants.clone()))
        };
        let mut rows: BTreeMap<usize, (u64, Dependants)> = BTreeMap::new();
        if batch.braked {
            rows.extend(decided.keys().filter_map(|at| Some((*at, rows_of(*at, &decided)?))));
        }
        let mut ledger = Ledger::open(ids, self.setting.tasks, now)?;
        let (moves, records): (Vec<_>, Vec<_>) = writes.into_iter().partition(Write::moves);
        for write in moves {
            ledger.push(write, Changed::default())?;
        }
        let columns = whole::Asked::send(&mut pipeline, self.kept_tables());
        let reach = self.ask_reach(&mut pipeline);
        let taken = ledger.take_all(&mut pipeline, self.care.look_up);
        write_runs(&tally, &mut pipeline);
        let left = runs_left(&tally);
        let runs = (!left.is_empty()).then(|| pipeline.push(RUN_FACTS, params![left]));
        // The history of the last wave needs its images first. The server removes the items while
        // the other records are built here.
        let awaits_images = |write: &Write<'_>| match write {
            Write::History { at, .. } => last_wave.binary_search(at).is_ok(),
            _ => false,
        };
        let (late, early): (Vec<_>, Vec<_>) = records.into_iter().partition(awaits_images);
        let mut record = |ledger: &mut Ledger<'a>, decided: &mut Decided, write| {
            self.record(ledger, &mut tally, decided, write)
        };
        let (answers, recorded) = futures::future::join(session.run(pipeline), async {
            early.into_iter().try_for_each(|write| record(&mut ledger, &mut decided, write))
        })
        .await;
        let mut answers = answers.map_err(|e| self.blamed(e))?;
        recorded?;
        if !columns.are_known(&answers)? {
            session.doubt();
            let words = "the columns of a table have changed a moment ago";
            return Err(Error::Busy(words.into()).into());
        }
        self.reaches_no_other(&reach, &answers)?;
        if let Some(asked) = asked {
            self.read_effects(&works, asked, &mut answers, &mut decided)?;
        }
        if !taken.is_complete(&answers)? {
            return Err(match self.care.look_up {
                true => Stop::Overtaken,
                false => Stop::Repeat(self.care.clone()),
            });
        }
        if batch.braked {
            rows.extend(last_wave.iter().filter_map(|at| Some((*at, rows_of(*at, &decided)?))));
            let of =
                |at: usize| rows.get(&at).map_or((0, None), |(rows, went)| (*rows, Some(went)));
            let used = used(&batch.entries, &outcomes, of);
            if !used.is_empty() && !brakes::add(session, &used).await? {
                return Err(Stop::Known(batch.stopped(used, now)));
            }
        }
        for write in late {
            record(&mut ledger, &mut decided, write)?;
        }
        let ending = runs.map_or_else(|| Ok(Vec::new()), |runs| ending(&answers[runs]))?;
        let runs_ended = ending.iter().map(|run| RunId(*run as u64)).collect();
        let committed = Committed { outcomes, at: now, runs_ended, braked: Used::new() };
        self.close(session, ledger, &tally, committed).await
    }

    /// What is known about an entry before the changes of the last wave are applied: if one of them
    /// fails, the batch is repeated.
    pub(super) fn judged(&self, at: usize, last_wave: &[usize], decided: &Decided) -> Judged {
        if let Some(said) = self.care.violated.get(&at) {
            return Judged::Violated(said.clone());
        }
        let Decision::Apply { proposal, .. } = &self.batch.entries[at].decision else {
            return Judged::Held;
        };
        if last_wave.binary_search(&at).is_ok() {
            return Judged::Held;
        }
        match decided.get(&at) {
            Some(Ok(done)) => {
                let judged = Judged::of_rows(proposal, done.rows, done.said.as_deref(), done.keep);
                if self.setting.trial { judged.of_trial() } else { judged }
            }
            Some(Err(NotApplied::Violation(said))) => Judged::Violated(said.clone()),
            Some(Err(NotApplied::Refused(error))) => Judged::Violated(error.to_string()),
            Some(Err(NotApplied::Guard | NotApplied::Locked)) | None => Judged::GuardFailed,
        }
    }

    fn works(&self) -> Vec<Work<'a>> {
        let entries = self.batch.entries.iter().enumerate();
        entries
            .filter(|(at, _)| {
                !self.care.violated.contains_key(at) && !self.care.failed.contains(at)
            })
            .filter_map(|(entry, Entry { item, decision, .. })| match decision {
                Decision::Apply { proposal, undo, .. } => {
                    let tenant = item.identity.tenant.as_ref();
                    let rows_max = self.care.rows_max.unwrap_or(u32::MAX);
                    Some(Work { entry, tenant, proposal, undo: *undo, rows_max })
                }
                Decision::Settle(_) => None,
            })
            .collect()
    }

    fn known(&self, opened: &Row) -> Step<()> {
        if !opened.try_get::<_, bool>(1)? {
            return Ok(());
        }
        match opened.try_get::<_, Option<Vec<u8>>>(2)? {
            Some(result) => Err(Stop::Known(postcard::from_bytes(&result).map_err(Failure::from)?)),
            None => Err(invalid(format!("the commit {} was abandoned", self.batch.id)).into()),
        }
    }

    /// Decides what follows from an error of a statement for many items: a careful repetition to
    /// find the item, or an end.
    fn blamed(&self, failure: Failure) -> Stop {
        match &failure {
            Failure::Sql(e) if blames_items(e) && !self.care.savepoints => {
                Stop::Repeat(Care { savepoints: true, ..self.care.clone() })
            }
            _ => Stop::Failed(failure),
        }
    }

    /// Applies the changes of a wave that is not the last.
    async fn apply(
        &self,
        session: &Session,
        works: &[Work<'a>],
        pipeline: Pipeline<'a>,
        asked: effects::Asked,
        decided: &mut Decided,
    ) -> Step<()> {
        let mut answers = session.run(pipeline).await.map_err(|e| self.blamed(e))?;
        self.read_effects(works, asked, &mut answers, decided)
    }

    /// Reads the results of the changes. What failed is excluded from the next attempt.
    fn read_effects(
        &self,
        works: &[Work<'a>],
        asked: effects::Asked,
        answers: &mut [Vec<Row>],
        decided: &mut Decided,
    ) -> Step<()> {
        let mut care = self.care.clone();
        let mut again = false;
        for (work, effect) in works.iter().zip(asked.read(answers, works)?) {
            match effect {
                Effect::Done(done) if applied(work, &done).is_err() => care.failed.push(work.entry),
                Effect::Done(done) => {
                    decided.insert(work.entry, Ok(done));
                    continue;
                }
                Effect::Violated(said) => {
                    care.violated.insert(work.entry, said);
                }
                Effect::Kept(said) if self.care.savepoints => {
                    care.violated.insert(work.entry, said);
                }
                Effect::Kept(_) => care.savepoints = true,
                Effect::Incomplete if self.care.savepoints => care.failed.push(work.entry),
                // Whether the rows are gone or were kept is found out carefully.
                Effect::Incomplete => care.savepoints = true,
                // The next attempt reads the row that another transaction has inserted.
                Effect::Overtaken => return Err(Stop::Overtaken),
                Effect::Unclear => care.savepoints = true,
            }
            again = true;
        }
        if again { Err(Stop::Repeat(care)) } else { Ok(()) }
    }

    /// Adds a record to the ledger, with the images of its entry.
    fn record(
        &self,
        ledger: &mut Ledger<'a>,
        tally: &mut Tally<'a>,
        decided: &mut Decided,
        write: Write<'a>,
    ) -> Job<()> {
        let batch = self.batch;
        let applied = match &write {
            Write::History { at, item, .. } => {
                let done = decided.remove(at).and_then(Result::ok).unwrap_or_default();
                let given =
                    || batch.entries.get(*at).and_then(|entry| Given::of(entry, batch.as_of));
                let undo = done.images.map(|images| images.pack(&item.version, given().as_ref()));
                let delta = tally.of(&item.identity);
                delta.undo_bytes += undo.as_ref().map_or(0, Vec::len) as i64;
                delta.rows += done.rows as i64;
                let said = done.said.or_else(|| self.fewer(*at));
                Changed { undo, rows: done.rows, dependants: done.dependants, said }
            }
            _ => Changed::default(),
        };
        ledger.push(write, applied)
    }

    /// Why an item has changed fewer rows than planned.
    pub(super) fn fewer(&self, at: usize) -> Option<String> {
        let max = self.care.rows_max?;
        let Decision::Apply { proposal, .. } = &self.batch.entries.get(at)?.decision else {
            return None;
        };
        let more = proposal.changes.iter().filter_map(Change::of_range);
        more.into_iter().any(|(range, _)| range.rows > max).then(|| {
            format!("{max} rows at once at most, because more take longer than `store.statement_timeout`: lower `chunk`")
        })
    }

    /// Writes the books and commits in one round trip; the runs are looked at once more afterwards.
    async fn close(
        &self,
        session: &mut Session,
        ledger: Ledger<'a>,
        tally: &Tally<'a>,
        mut committed: Committed,
    ) -> Step<Committed> {
        let (left, ended) = (runs_left(tally), &committed.runs_ended);
        let mut pipeline = Pipeline::default();
        if !ended.is_empty() {
            let runs: Vec<i64> = ended.iter().map(|run| run.0 as i64).collect();
            pipeline.push(END_RUNS, params![runs, Some(committed.at.0)]);
        }
        let result = postcard::to_stdvec(&committed).map_err(Failure::from)?;
        ledger.close(&mut pipeline, tally, Some(self.batch.id), &self.batch.node, result);
        pipeline.push("DELETE FROM @.inflight WHERE commit_id = $1", params![mark(self.batch.id)]);
        if self.setting.fault == Some(Fault::CommitLost) {
            session.sever();
            return Err(Error::Unknown("the connection broke during COMMIT".into()).into());
        }
        let written = pipeline.len();
        pipeline.simple("COMMIT");
        let again = (!left.is_empty()).then(|| pipeline.push(RUN_FACTS, params![left]));
        match session.run_until(pipeline, written).await {
            Ok(answers) => {
                session.ended();
                if self.setting.fault == Some(Fault::CommitUnconfirmed) {
                    session.sever();
                    return Err(Error::Unknown("the connection broke after COMMIT".into()).into());
                }
                // The commit has succeeded, whatever happens to the look behind it.
                if let Some(Ok(rows)) = again.and_then(|again| answers.get(again)) {
                    let more = tally::end(session, ending(rows)?, Some(committed.at)).await;
                    match more {
                        Ok(runs) => committed.runs_ended.extend(runs),
                        Err(failure) => session.doubted(&failure),
                    }
                }
                Ok(committed)
            }
            // A copy of this batch has written the same mark: the next lookup finds it.
            Err((at, Failure::Sql(e))) if at < written && is_mark(&e) => Err(Stop::Overtaken),
            Err((at, Failure::Sql(e))) if at >= written => {
                // A deferred constraint, checked at the end of the transaction.
                if blames_items(&e) && !self.care.savepoints {
                    return Err(Stop::Repeat(Care { savepoints: true, ..self.care.clone() }));
                }
                // A deferred trigger: the answer means that nothing was committed.
                if is_raised_in_a_function(&e) {
                    return Err(e.into());
                }
                Err(classify_commit(&e).into())
            }
            // The connection may have broken before or after the server read COMMIT.
            Err((_, Failure::Sql(e))) if fault(&e) == Blame::Away => {
                Err(Error::Unknown(words(&e)).into())
            }
            Err((_, failure)) => Err(Stop::Failed(failure)),
        }
    }
}

/// Splits works by the results of their guards.
pub(super) fn judged<'a>(
    works: Vec<Work<'a>>,
    verdicts: Vec<Verdict>,
    decided: &mut Decided,
) -> Vec<Work<'a>> {
    let mut holding = Vec::with_capacity(works.len());
    for (work, verdict) in works.into_iter().zip(verdicts) {
        match verdict {
            Verdict::Hold => holding.push(work),
            Verdict::Fail => {
                decided.insert(work.entry, Err(NotApplied::Guard));
            }
            Verdict::Refused(said) => {
                decided.insert(work.entry, Err(NotApplied::Violation(said)));
            }
        }
    }
    holding
}

fn is_mark(e: &tokio_postgres::Error) -> bool {
    e.as_db_error().is_some_and(|e| e.constraint() == Some("commit_id_key"))
}
