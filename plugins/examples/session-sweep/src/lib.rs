//! A drop-in task that deletes expired rows, such as login sessions or password reset tokens.
//! `besom.toml` maps a table of yours as the collection `sessions`; the settings name its key
//! columns and its expiry column. The host adds the tenant, if the mapping names a tenant column.

mod decide;

use besom_sdk::prelude::*;
use decide::{Decision, decide};

#[derive(Debug)]
struct SessionSweep;

impl Task for SessionSweep {
    fn describe() -> Manifest {
        Manifest::new("session-sweep", env!("CARGO_PKG_VERSION"))
            .doc("Deletes sessions that expired longer ago than `keep`.")
            .setting(Setting::duration("keep", "0s").doc("How long an expired session is kept."))
            .setting(
                Setting::text("key", "session_id").doc("The key columns, with commas between."),
            )
            .setting(Setting::text("expiry", "expires_at").doc("A timestamp; null never expires."))
            .setting(Setting::text("index", "by_expiry").doc("An index that begins with `expiry`."))
            .collection(Access::to("sessions").read().delete())
    }

    /// Selects the candidates by an index range, so rows outside it are never read.
    fn candidates(ctx: &Context) -> Result<Range> {
        let latest = ctx.now.minus_ms(ctx.duration_ms("keep")?);
        let (key, expiry) = (text(ctx, "key")?, text(ctx, "expiry")?);
        Ok(Range::of("sessions")
            .index(&text(ctx, "index")?)
            .upper(latest)
            .columns(names(&key).chain([&*expiry])))
    }

    fn candidate(ctx: &Context, row: &Row) -> Result<Option<Candidate>> {
        let expiry: Option<Time> = row.get(&text(ctx, "expiry")?)?;
        let Some(expiry) = expiry else { return Ok(None) };
        let key = text(ctx, "key")?;
        let key = names(&key).map(|column| row.value(column)).collect::<Result<Vec<_>>>()?;
        Ok(Some(Candidate::of(&key)?.version(expiry)))
    }

    /// Reads all rows again in one call and guards each deletion with the expiry that it read:
    /// a session that is extended before the commit is kept.
    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
        let (expiry, keep_ms) = (text(ctx, "expiry")?, ctx.duration_ms("keep")?);
        let rows = store::get_each(items, "sessions", &[&*expiry], Item::key_values)?;
        each(items, rows, |item, row| {
            let seen = row.map(|row| row.get::<Option<Time>>(&expiry)).transpose()?;
            Ok(match decide(seen, ctx.now, keep_ms) {
                Decision::Leave(reason) => Verdict::skip(reason),
                Decision::Delete(expired_at) => {
                    let key = item.key_values()?;
                    Proposal::new()
                        .guard(Guard::row("sessions", key.clone()).equal(&expiry, expired_at))
                        .delete("sessions", key)
                        .or_skip("extended since it was read")
                        .note("expired_at", expired_at)
                        .into()
                }
            })
        })
    }
}

fn text(ctx: &Context, setting: &str) -> Result<String> {
    ctx.setting(setting)
}

/// The key columns in the order of the mapping's `key`.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

besom_sdk::export!(SessionSweep);

#[cfg(test)]
mod tests;
