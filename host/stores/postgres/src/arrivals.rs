//! A short journal of a leader's additions to the queues, for the owners that do not lead.
//!
//! A mark is drawn from a counter's row, whose lock is held until the transaction ends. Marks
//! therefore become visible in order, and a reader that has read up to one has missed none before
//! it. (The numbers of a sequence would become visible in any order.)

use besom_core::time::Time;

use super::error::{Job, invalid};
use super::session::{Pipeline, Session, params};
use besom_ports::store::Arrivals;

/// The number of entries kept. A reader that is further behind is told to read everything.
const KEPT: i64 = 1_024;

const NOTE: &str = "WITH next AS (UPDATE @.arrival_mark SET mark = mark + 1 RETURNING mark),
  gone AS (DELETE FROM @.arrival a USING next WHERE a.mark <= next.mark - $4)
  INSERT INTO @.arrival (mark, log, timer, retry)
  SELECT mark, $1::boolean, $2::int8, $3::int8 FROM next";

/// Records an arrival. It is the last statement of the transaction, because others wait for its
/// lock.
pub(super) fn note(
    pipeline: &mut Pipeline<'_>,
    log: bool,
    timer: Option<Time>,
    retry: Option<Time>,
) {
    if log || timer.is_some() || retry.is_some() {
        pipeline.push(NOTE, params![log, timer.map(|t| t.0), retry.map(|t| t.0), KEPT]);
    }
}

/// The arrivals since a mark; everything, if the journal does not reach back to it.
pub(super) async fn since(session: &Session, mark: u64) -> Job<Arrivals> {
    let row = session
        .row(
            "SELECT m.mark, count(a.mark) = m.mark - $1, coalesce(bool_or(a.log), false),
               min(a.timer), min(a.retry)
             FROM @.arrival_mark m LEFT JOIN @.arrival a ON a.mark > $1 GROUP BY m.mark",
            params![i64::try_from(mark).unwrap_or(i64::MAX)],
        )
        .await?;
    let row = row.ok_or_else(|| invalid("the store returned no answer about arrivals"))?;
    let mark = row.try_get::<_, i64>(0)? as u64;
    let time =
        |at: usize| -> Job<Option<Time>> { Ok(row.try_get::<_, Option<i64>>(at)?.map(Time)) };
    if row.try_get(1)? {
        return Ok(Arrivals { mark, log: row.try_get(2)?, timer: time(3)?, retry: time(4)? });
    }
    let any = Some(Time(i64::MIN));
    Ok(Arrivals { mark, log: true, timer: any, retry: any })
}
