//! Operators' commands to the leader, and their application under the fence.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;

use besom_core::books::{self, LetterContext, LetterPage, Progress, Tally};
use besom_core::command::DeadCriteria;
use besom_core::ids::{FencingToken, Incarnation, RunId, TaskName};
use besom_core::item::Source;
use besom_core::plan::last_slot_on_resume;
use besom_core::review::State;
use besom_core::time::Time;
use besom_snapshot::DeadGroup;
use tokio_postgres::Row;

use super::arrivals;
use super::brakes;
use super::clock::{Clock, NOW};
use super::error::{Job, invalid};
use super::items;
use super::ledger::{Ledger, numbers_needed};
use super::outbox;
use super::purge;
use super::reviews;
use super::runs::{close_scan, named, write_decision};
use super::session::{Param, Pipeline, Session, Tx, cell, params};
use super::streams;
use super::tally::{Counters, end_runs, write_runs};
use super::tasks::Tasks;
use super::text::{due_number, escaped, plain, tenant_text};
use super::waiting;
use besom_ports::store::{
    Applied, Command, CommandEffect, CommandRow, DeadLetter, DeadSelector, Error, Letters, LogRoom,
    Result, Waiting, broken, command_of, decided_or,
};
use besom_record::Changed;
use besom_record::text::{json, parse};

/// Number of timers read at a time.
const TIMERS_PAGE: u32 = 10_000;

/// Records a command.
pub(super) async fn submit(
    session: &Session,
    clock: &Clock,
    command: &Command,
    by: &str,
    reason: &str,
) -> Job<u64> {
    let sql = format!(
        "INSERT INTO @.command (command, by, reason, at) VALUES ($2, $3, $4, {NOW}) RETURNING id"
    );
    let values = params![
        clock.given(),
        json(command)?,
        escaped(by).into_owned(),
        escaped(reason).into_owned()
    ];
    Ok(session.one::<i64>(&sql, values).await? as u64)
}

const COMMAND: &str =
    "SELECT id, command, by, reason, at, applied_at, result, refused, done FROM @.command";

/// Commands that no leader has applied yet, oldest first.
pub(super) async fn pending(session: &Session, limit: u32) -> Job<Vec<CommandRow>> {
    let sql = format!("{COMMAND} WHERE applied_at IS NULL ORDER BY id LIMIT $1");
    session.all(&sql, params![i64::from(limit)], read).await
}

/// Commands, newest first.
pub(super) async fn newest(
    session: &Session,
    before: Option<u64>,
    limit: u32,
) -> Job<Vec<CommandRow>> {
    let before = before.map_or(i64::MAX, |id| i64::try_from(id).unwrap_or(i64::MAX));
    let sql = format!("{COMMAND} WHERE id < $1 ORDER BY id DESC LIMIT $2");
    session.all(&sql, params![before, i64::from(limit)], read).await
}

/// One command.
pub(super) async fn command(session: &Session, id: u64) -> Job<Option<CommandRow>> {
    let id = i64::try_from(id).unwrap_or(i64::MAX);
    let sql = format!("{COMMAND} WHERE id = $1");
    session.maybe(&sql, params![id], read).await
}

fn read(r: &Row) -> Job<CommandRow> {
    Ok(CommandRow {
        id: r.try_get::<_, i64>(0)? as u64,
        command: command_of(&r.try_get::<_, String>(1)?),
        by: plain(r.try_get(2)?),
        reason: plain(r.try_get(3)?),
        at: Time(r.try_get(4)?),
        applied_at: r.try_get::<_, Option<i64>>(5)?.map(Time),
        result: r.try_get::<_, Option<String>>(6)?.map(plain),
        refused: r.try_get(7)?,
    })
}

/// A command to be applied, with the leader's decision about it.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) command: &'a CommandRow,
    pub(super) effect: &'a CommandEffect,
    pub(super) result: &'a str,
    /// Maximum number of dead letters that the transaction takes.
    pub(super) letters: NonZeroU32,
}

/// Applies a command's effect, once.
pub(super) async fn apply(
    session: Session,
    clock: &Clock,
    tasks: &Tasks,
    fence: &FencingToken,
    asked: Asked<'_>,
) -> Result<Applied> {
    let numbers = match asked.effect {
        CommandEffect::Slots(decision) => tasks.numbers(&session, named(decision)).await?,
        CommandEffect::Pause(task) | CommandEffect::Resume(task, _) => {
            tasks.numbers(&session, std::iter::once(task)).await?
        }
        // A task that was never seen has no items, and the question must not create it.
        CommandEffect::RepairStreams(task)
        | CommandEffect::DiscardPlanned(task, _)
        | CommandEffect::Reject { task, .. } => {
            let known = tasks.find(&session, task).await?;
            known.map(|number| (task.clone(), number)).into_iter().collect()
        }
        _ => HashMap::new(),
    };
    let tx = Tx::fenced(session, clock, fence).await?;
    let done = applied(&tx, &numbers, tasks, fence, asked).await;
    tx.finish(done).await
}

async fn applied(
    tx: &Tx,
    tasks: &HashMap<TaskName, i32>,
    cache: &Tasks,
    fence: &FencingToken,
    Asked { command, effect, result, letters }: Asked<'_>,
) -> Job<Applied> {
    let id = command.id;
    // Waits for a copy of this that has not finished its COMMIT.
    let sql = format!("{COMMAND} WHERE id = $1 FOR UPDATE");
    let number = i64::try_from(id).unwrap_or(i64::MAX);
    let Some(row) = tx.row(&sql, params![number]).await? else {
        return Err(invalid(format!("there is no command {id}")));
    };
    let done: Option<String> = row.try_get(8)?;
    let row = read(&row)?;
    command.check_is(&row)?;
    let done: Applied = done.map_or_else(|| Ok(Applied::default()), |done| parse(&done))?;
    if row.applied_at.is_some() {
        return Ok(done);
    }
    let number = |task: &TaskName| tasks.get(task).copied().unwrap_or(0);
    let mut applied = Applied { dead: done.dead, purged: done.purged, ..Applied::default() };
    let begun = done.progress;
    match effect {
        CommandEffect::Slots(decision) => {
            applied.runs = write_decision(tx, tasks, fence.term, decision).await?;
        }
        CommandEffect::Pause(task) => pause(tx, number(task), &row).await?,
        CommandEffect::Resume(task, brakes) => {
            resume(tx, number(task)).await?;
            brakes::resume(tx, task, brakes).await?;
        }
        CommandEffect::DiscardPlanned(task, error) => {
            if begun.is_none() {
                reviews::reject_all(tx, number(task), &row).await?;
                end_scans(tx, number(task), error).await?;
            }
            match discard_planned(tx, (tasks, cache), (task, None), &row, letters).await? {
                Ok(discarded) => applied.planned_discarded(discarded, letters),
                Err(why) => applied.refused = Some(why),
            }
        }
        CommandEffect::Approve(run, brakes) => {
            applied.refused = reviews::decide(tx, *run, State::Approved, &row).await?.err();
            if applied.refused.is_none() {
                brakes::approve(tx, *run, brakes).await?;
            }
        }
        CommandEffect::Reject { task, run, state, error } => {
            if begun.is_none() {
                applied.refused = reviews::decide(tx, *run, *state, &row).await?.err();
            }
            if applied.refused.is_none() {
                close_scan(tx, *run, error.as_deref()).await?;
                let of = (task, Some(*run));
                match discard_planned(tx, (tasks, cache), of, &row, letters).await? {
                    Ok(discarded) => applied.planned_discarded(discarded, letters),
                    Err(why) => applied.refused = Some(why),
                }
                end_runs(&tx.session, vec![run.0 as i64], Some(tx.now)).await?;
            }
        }
        CommandEffect::Cancel(run, error) => {
            close_scan(tx, *run, Some(error)).await?;
            end_runs(&tx.session, vec![run.0 as i64], Some(tx.now)).await?;
        }
        CommandEffect::RetryDead(selector) => match page(tx, selector, begun, letters).await? {
            Ok(page) => retry_dead(tx, page, &mut applied).await?,
            Err(why) => applied.refused = Some(why),
        },
        CommandEffect::DiscardDead(selector) => match page(tx, selector, begun, letters).await? {
            Ok(page) => discard_dead(tx, page, &row, &mut applied).await?,
            Err(why) => applied.refused = Some(why),
        },
        CommandEffect::RetryMessages(selector) => {
            applied.messages = outbox::retry(tx, selector).await?;
        }
        CommandEffect::DiscardMessages(selector) => {
            applied.messages = outbox::discard(tx, selector).await?;
        }
        CommandEffect::RepairStreams(task) => {
            applied.repaired = streams::repair(tx, number(task)).await?;
            applied.refused = applied.repaired.refusal(task);
        }
        CommandEffect::Purge(which) => purge::purge(tx, which, &mut applied, letters).await?,
        CommandEffect::NotWaiting(run, why) => {
            let found = reviews::standing(tx, *run).await?;
            applied.refused = Some(decided_or(*run, found, why));
        }
        CommandEffect::Note | CommandEffect::Refuse(_) => {}
    }
    let (refused, result) = effect.outcome(result, &applied);
    let at = applied.progress.is_none().then_some(tx.now.0);
    tx.execute(
        "UPDATE @.command SET applied_at = $2, result = $3, refused = $4, done = $5
         WHERE id = $1",
        params![id as i64, at, escaped(&result).into_owned(), refused, json(&applied)?],
    )
    .await?;
    Ok(applied)
}

async fn pause(tx: &Tx, task: i32, row: &CommandRow) -> Job<()> {
    tx.execute(
        "UPDATE @.task SET paused_by = $2, paused_reason = $3, paused_since = $4,
           schedule = coalesce(schedule, '') WHERE id = $1",
        params![task, escaped(&row.by).into_owned(), escaped(&row.reason).into_owned(), row.at.0],
    )
    .await?;
    Ok(())
}

/// Ends a pause, if there is one.
async fn resume(tx: &Tx, task: i32) -> Job<()> {
    let paused = "SELECT last_slot FROM @.task WHERE id = $1 AND paused_since IS NOT NULL
       FOR NO KEY UPDATE";
    let Some(row) = tx.row(paused, params![task]).await? else { return Ok(()) };
    let last_slot = row.try_get::<_, Option<i64>>(0)?.map(Time);
    tx.execute(
        "UPDATE @.task SET paused_by = NULL, paused_reason = NULL, paused_since = NULL,
           last_slot = $2 WHERE id = $1",
        params![task, last_slot_on_resume(last_slot, tx.now).0],
    )
    .await?;
    Ok(())
}

/// Ends the scans of a task's active runs.
async fn end_scans(tx: &Tx, task: i32, error: &str) -> Job<()> {
    let active = "SELECT id FROM @.run WHERE task = $1 AND ended_at IS NULL";
    let runs: Vec<i64> = tx.all(active, params![task], cell).await?;
    for run in &runs {
        close_scan(tx, RunId(*run as u64), Some(error)).await?;
    }
    end_runs(&tx.session, runs, Some(tx.now)).await?;
    Ok(())
}

/// Discards planned items of a task, or only those of one run that is held, and returns their number; the
/// inner error is why the command is refused. The heads of its streams are locked, so that no commit acknowledges the same items.
async fn discard_planned(
    tx: &Tx,
    (numbers, cache): (&HashMap<TaskName, i32>, &Tasks),
    (task, run): (&TaskName, Option<RunId>),
    row: &CommandRow,
    limit: NonZeroU32,
) -> Job<std::result::Result<u64, String>> {
    let Some(number) = numbers.get(task).copied() else { return Ok(Ok(0)) };
    let tasks = std::slice::from_ref(task);
    let limit = limit.get();
    let room = |found: usize| limit.saturating_sub(u32::try_from(found).unwrap_or(u32::MAX));
    let heads = "SELECT 1 FROM @.stream_head WHERE task = $1 ORDER BY part FOR UPDATE";
    tx.query(heads, params![number]).await?;
    let session = &tx.session;
    let mut waiting = match run {
        // Nothing of a held run has been executed.
        Some(run) => timers_of(session, tasks, run, limit).await?,
        None => waiting::read_retries(session, Some(tasks), None, None, limit).await?,
    };
    let left = room(waiting.len());
    if left > 0 && run.is_none() {
        waiting.extend(waiting::read_timers(session, Some(tasks), None, None, left).await?);
    }
    let left = room(waiting.len());
    if left > 0 {
        let streams: Vec<_> = waiting::backlog(session, None)
            .await?
            .into_iter()
            .filter(|stream| stream.task == *task)
            .map(|stream| (stream.partition, stream.acked))
            .collect();
        let found = LogRoom::new(left, left, usize::MAX);
        let read = waiting::read_logs(session, cache, task, &streams, found).await?;
        if let Some(stream) = read.broken.first() {
            return Ok(Err(broken(task, &stream.why)));
        }
        // A stream has no gaps, and the items of a held run are the first in theirs.
        let mut others = HashSet::new();
        let is_other = |w: &Waiting| run.is_some_and(|run| w.item.run != run);
        waiting.extend(read.items.into_iter().filter(|w| {
            let partition = w.item.partition;
            !(others.contains(&partition) || is_other(w) && others.insert(partition))
        }));
    }
    let waiting: Vec<_> = waiting.into_iter().map(|w| (w.source, w.item)).collect();
    if !waiting.is_empty() {
        let ids = tx.numbers(numbers_needed(waiting.len())).await?;
        let reason = format!("{}: {}", row.by, row.reason);
        let (writes, tally) = books::discard_planned(&waiting, &reason);
        let mut ledger = Ledger::open(ids, numbers, tx.now)?;
        for write in writes {
            ledger.push(write, Changed::default())?;
        }
        let mut pipeline = Pipeline::default();
        let taken = ledger.take_all(&mut pipeline, true);
        write_runs(&tally, &mut pipeline);
        let answers = session.run(pipeline).await?;
        if !taken.is_complete(&answers)? {
            let words = "a commit has taken some of the items in the meantime";
            return Err(Error::Busy(words.into()).into());
        }
        let node: String = tx.one("SELECT node FROM @.fence", params![]).await?;
        let mut pipeline = Pipeline::default();
        ledger.close(&mut pipeline, &tally, None, &Incarnation::from(node), Vec::new());
        session.run(pipeline).await?;
        let runs = tally.runs_left().map(|run| run.0 as i64).collect();
        end_runs(session, runs, Some(tx.now)).await?;
    }
    Ok(Ok(waiting.len() as u64))
}

/// At most so many timers of a run.
async fn timers_of(
    session: &Session,
    tasks: &[TaskName],
    run: RunId,
    limit: u32,
) -> Job<Vec<Waiting>> {
    let (mut found, mut after) = (Vec::new(), None);
    while found.len() < limit as usize {
        let page = waiting::read_timers(session, Some(tasks), None, after, TIMERS_PAGE).await?;
        let Some(Waiting { source: Source::Timer(id), run_at, .. }) = page.last() else { break };
        after = Some((*run_at, *id));
        found.extend(page.into_iter().filter(|waiting| waiting.item.run == run));
    }
    found.truncate(limit as usize);
    Ok(found)
}

async fn retry_dead(tx: &Tx, (page, tasks): Numbered, applied: &mut Applied) -> Job<()> {
    let mut ids = HashSet::new();
    if !page.letters.is_empty() {
        let letters = &page.letters;
        let numbers = tx.numbers(numbers_needed(letters.len())).await?;
        let mut ledger = Ledger::open(numbers, &tasks, tx.now)?;
        for write in books::retry(letters, page.after(), tx.now) {
            ledger.push(write, Changed::default())?;
        }
        let mut pipeline = Pipeline::default();
        let moved = ledger.revive(&mut pipeline);
        let answers = tx.session.run(pipeline).await?;
        for row in &answers[moved] {
            ids.insert(row.try_get::<_, i64>(0)? as u64);
        }
        let mut tally = Tally::default();
        for letter in letters.iter().filter(|letter| ids.contains(&letter.id)) {
            tally.revived(&letter.item.identity);
        }
        let mut pipeline = Pipeline::default();
        Counters::of(&tally, |task| tasks.get(task).copied().unwrap_or(0)).write(&mut pipeline);
        arrivals::note(&mut pipeline, false, None, (!ids.is_empty()).then_some(tx.now));
        tx.session.run(pipeline).await?;
    }
    (applied.dead, applied.progress) = page.end(ids.len() as u64);
    Ok(())
}

async fn discard_dead(
    tx: &Tx,
    (page, tasks): Numbered,
    row: &CommandRow,
    applied: &mut Applied,
) -> Job<()> {
    if !page.letters.is_empty() {
        let numbers = tx.numbers(numbers_needed(page.letters.len())).await?;
        let reason = format!("{}: {}", row.by, row.reason);
        let (writes, tally) = books::discard(&page.letters, &reason);
        let mut ledger = Ledger::open(numbers, &tasks, tx.now)?;
        for write in writes {
            ledger.push(write, Changed::default())?;
        }
        let node: String = tx.one("SELECT node FROM @.fence", params![]).await?;
        let mut pipeline = Pipeline::default();
        write_runs(&tally, &mut pipeline);
        ledger.close(&mut pipeline, &tally, None, &Incarnation::from(node), Vec::new());
        tx.session.run(pipeline).await?;
    }
    let all = page.letters.len() as u64;
    (applied.dead, applied.progress) = page.end(all);
    Ok(())
}

/// A page of letters, with the numbers of their tasks.
type Numbered = (LetterPage, HashMap<TaskName, i32>);

/// The next page of a command; the inner error is why it is refused. The letters are locked, so that
/// no other transaction resolves, moves or discards them.
async fn page(
    tx: &Tx,
    selector: &DeadSelector,
    begun: Option<Progress>,
    limit: NonZeroU32,
) -> Job<std::result::Result<Numbered, String>> {
    let newest = "SELECT coalesce(max(id), 0) FROM @.dead";
    let progress = match begun {
        Some(begun) => begun,
        None => Progress::begin(tx.one::<i64>(newest, params![]).await? as u64),
    };
    let (matching, mut values) = matching(selector, progress.newest);
    let mut rest = String::new();
    let asked = values.len();
    if let Some(after) = &progress.after {
        let of = &after.identity;
        values.extend(params![
            of.task.as_str().to_owned(),
            tenant_text(of.tenant.as_ref()).into_owned(),
            escaped(&of.key).into_owned(),
            due_number(of.due),
            after.letter as i64
        ]);
        let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|more| asked + more);
        let place = format!("((SELECT id FROM @.task WHERE name = ${a}), ${b}, ${c}, ${d})");
        rest = format!(
            " AND (d.task, d.tenant, d.key, d.due) >= {place}
                 AND ((d.task, d.tenant, d.key, d.due) > {place} OR d.id < ${e})"
        );
    }
    let limit = limit.get();
    let sql = format!(
        "SELECT d.task, d.id, d.at, t.name, d.resolved_at, d.context, {} FROM @.dead d
         JOIN @.task t ON t.id = d.task WHERE {matching}{rest}
         ORDER BY d.task, d.tenant, d.key, d.due, d.id DESC LIMIT {limit} FOR UPDATE OF d",
        items::COLUMNS
    );
    let found: Vec<(i32, DeadLetter)> = tx.all(&sql, values, letter).await?;
    let mut matched = found.len() as u64;
    if progress.after.is_none() && matched >= u64::from(limit) {
        let (matching, values) = self::matching(selector, progress.newest);
        let sql = format!("SELECT count(*) FROM @.dead d WHERE {matching}");
        matched = tx.one::<i64>(&sql, values).await? as u64;
    }
    let numbered = |(no, letter): &(i32, DeadLetter)| (letter.item.identity.task.clone(), *no);
    let tasks = found.iter().map(numbered).collect();
    let letters = found.into_iter().map(|(_, letter)| letter).collect();
    let page = LetterPage::new(progress, selector, letters, matched, limit);
    Ok(page.map(|page| (page, tasks)))
}

/// The condition of open letters that match, with its values. It contains only what is asked: a
/// clause that may be absent would keep the server from using an index.
fn matching(selector: &DeadSelector, newest: u64) -> (String, Vec<Param<'static>>) {
    let DeadCriteria { ids, task, error } = selector.criteria();
    let mut matching = "d.resolved_at IS NULL AND d.id <= $1".to_owned();
    let mut values = params![i64::try_from(newest).unwrap_or(i64::MAX)];
    if let Some(ids) = ids {
        let ids: Vec<i64> = ids.iter().map(|id| i64::try_from(*id).unwrap_or(i64::MAX)).collect();
        values.extend(params![ids]);
        matching.push_str(&format!(" AND d.id = ANY(${})", values.len()));
    }
    if let Some(task) = task {
        values.extend(params![task.as_str().to_owned()]);
        let at = values.len();
        matching.push_str(&format!(" AND d.task = (SELECT id FROM @.task WHERE name = ${at})"));
    }
    if let Some(error) = error {
        values.extend(params![escaped(error).into_owned()]);
        let at = values.len();
        matching.push_str(&format!(" AND d.error_hash = md5(${at}) AND d.error = ${at}"));
    }
    (matching, values)
}

/// Matching dead letters older than `before`, newest first, with the numbers of their tasks; at
/// most `limit`, if given.
pub(super) async fn dead_letters(
    session: &Session,
    selector: &DeadSelector,
    letters: Letters,
    before: Option<u64>,
    limit: Option<u32>,
) -> Job<Vec<(i32, DeadLetter)>> {
    let DeadCriteria { ids, task, error } = selector.criteria();
    let ids: Option<Vec<i64>> =
        ids.map(|ids| ids.iter().map(|id| i64::try_from(*id).unwrap_or(i64::MAX)).collect());
    let before = before.map_or(i64::MAX, |id| i64::try_from(id).unwrap_or(i64::MAX));
    let task = task.map(|task| task.as_str().to_owned());
    let error = error.map(|error| escaped(error).into_owned());
    let sql = format!(
        "SELECT d.task, d.id, d.at, t.name, d.resolved_at, d.context, {} FROM @.dead d
         JOIN @.task t ON t.id = d.task
         WHERE ($1::int8[] IS NULL OR d.id = ANY($1)) AND ($2::text IS NULL OR t.name = $2)
           AND ($3::text IS NULL OR (d.error_hash = md5($3) AND d.error = $3))
           AND ($5 OR d.resolved_at IS NULL) AND d.id < $6
         ORDER BY d.id DESC LIMIT $4",
        items::COLUMNS
    );
    let limit = limit.map(i64::from);
    let asked = params![ids, task, error, limit, letters == Letters::All, before];
    session.all(&sql, asked, letter).await
}

fn letter(row: &Row) -> Job<(i32, DeadLetter)> {
    let task = TaskName::from(row.try_get::<_, String>(3)?);
    let (id, at) = (row.try_get::<_, i64>(1)? as u64, Time(row.try_get(2)?));
    let resolved_at = row.try_get::<_, Option<i64>>(4)?.map(Time);
    let context = LetterContext::unpack(row.try_get::<_, Option<String>>(5)?.map(plain).as_deref());
    let item = items::read(&task, row, 6)?;
    Ok((row.try_get(0)?, DeadLetter { id, item, at, resolved_at, context }))
}

/// Open dead letters grouped by task and last error, ordered by their newest letter: a scan of an
/// index, then one letter per group for its text.
pub(super) async fn dead_groups(session: &Session, limit: u32) -> Job<Vec<DeadGroup>> {
    let sql = "SELECT t.name, d.error, g.count, g.first, g.last FROM (
          SELECT task, count(*) AS count, min(at) AS first, max(at) AS last, max(id) AS id
          FROM @.dead WHERE resolved_at IS NULL GROUP BY task, error_hash
          ORDER BY max(at) DESC, max(id) DESC LIMIT $1) g
        JOIN @.dead d ON d.id = g.id JOIN @.task t ON t.id = g.task
        ORDER BY g.last DESC, g.id DESC";
    let group = |r: &Row| -> Job<DeadGroup> {
        Ok(DeadGroup {
            task: r.try_get(0)?,
            error: plain(r.try_get(1)?),
            count: r.try_get::<_, i64>(2)? as u64,
            first: Time(r.try_get(3)?),
            last: Time(r.try_get(4)?),
        })
    };
    session.all(sql, params![i64::from(limit)], group).await
}
