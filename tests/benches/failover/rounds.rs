//! The rounds: one host ends, and the others continue.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use besom_demo::cluster::PATIENCE;
use rand::Rng as _;
use rustix::process::Signal;

use crate::books::{Before, Micros, Since};
use crate::limit::Bare;
use crate::report::{Series, show};
use crate::site::{LOOK_EVERY, Site};

/// The leader is killed, so often.
pub async fn kill_leader(site: &mut Site, rounds: usize) -> Result<()> {
    let mut all: [Series; 10] = Default::default();
    let [
        limit,
        raised,
        raised_from_renewal,
        planned,
        from_renewal,
        executed,
        first_owned,
        owned,
        effect,
        age,
    ] = &mut all;
    for _ in 0..rounds {
        any_moment(site).await?;
        let leader = site.leader().await?;
        let bare = Bare::grant(&site.etcd, site.span.ttl()?).await?;
        let before = site.books.before(&leader.incarnation).await?;
        let killed = site.signal(leader.host, Signal::KILL)?;
        let bare = bare.expire().await?;
        // The record goes with the lease; until then it tells the last renewal.
        let record = site.leader_now().await?.context("the leader's lease has ended at once")?;
        ensure!(record.incarnation == leader.incarnation, "another leads already");
        let since = wait(site, before, &leader.incarnation, killed, |since| {
            since.executed.is_some() && since.all_owned.is_some() && since.first_effect.is_some()
        })
        .await?;
        limit.add(bare.await??.as_secs_f64());
        age.add(killed.since(record.renewed_at));
        raised.add(after(since.raised, killed)?);
        raised_from_renewal.add(after(since.raised, record.renewed_at)?);
        planned.add(after(since.planned, killed)?);
        from_renewal.add(after(since.planned, record.renewed_at)?);
        executed.add(after(since.executed, killed)?);
        first_owned.add(after(since.first_owned, killed)?);
        owned.add(after(since.all_owned, killed)?);
        effect.add(after(since.first_effect, killed)?);
        site.start_host(leader.host)?;
        site.shared_out().await?;
    }
    show(
        &format!("leader killed, {}", site.span.shown()),
        &[
            ("limit: a bare lease, renewal to its end seen", limit),
            ("last renewal to the next leader's first commit", raised_from_renewal),
            ("kill to the next leader's first commit", raised),
            ("last renewal to the next leader's first run", from_renewal),
            ("kill to the next leader's first run", planned),
            ("kill to the first commit of its item", executed),
            ("kill to its first partition's next owner", first_owned),
            ("kill to its last partition's next owner", owned),
            ("kill to the first effect in its partitions", effect),
            ("the last renewal before the kill", age),
        ],
    );
    Ok(())
}

/// A follower is killed, so often.
pub async fn kill_follower(site: &mut Site, rounds: usize) -> Result<()> {
    let mut all: [Series; 4] = Default::default();
    let [limit, first_owned, owned, effect] = &mut all;
    for round in 0..rounds {
        any_moment(site).await?;
        let leader = site.leader().await?.host;
        let others = site.hosts() - 1;
        let victim = (leader + 1 + round % others) % site.hosts();
        let incarnation = site.incarnation(victim).await?;
        let bare = Bare::grant(&site.etcd, site.span.ttl()?).await?;
        let before = site.books.before(&incarnation).await?;
        let killed = site.signal(victim, Signal::KILL)?;
        let bare = bare.expire().await?;
        let since = wait(site, before, &incarnation, killed, |since| {
            since.all_owned.is_some() && since.first_effect.is_some()
        })
        .await?;
        limit.add(bare.await??.as_secs_f64());
        first_owned.add(after(since.first_owned, killed)?);
        owned.add(after(since.all_owned, killed)?);
        effect.add(after(since.first_effect, killed)?);
        site.start_host(victim)?;
        site.shared_out().await?;
    }
    show(
        &format!("follower killed, {}", site.span.shown()),
        &[
            ("limit: a bare lease, renewal to its end seen", limit),
            ("kill to its first partition's next owner", first_owned),
            ("kill to its last partition's next owner", owned),
            ("kill to the first effect in its partitions", effect),
        ],
    );
    Ok(())
}

/// The leader is asked to stop, so often.
pub async fn hand_over(site: &mut Site, rounds: usize) -> Result<()> {
    let mut all: [Series; 7] = Default::default();
    let [limit, raised, planned, executed, first_owned, owned, effect] = &mut all;
    for _ in 0..rounds {
        any_moment(site).await?;
        let leader = site.leader().await?;
        let bare = Bare::grant(&site.etcd, site.span.ttl()?).await?;
        limit.add(bare.revoke().await?.as_secs_f64());
        let before = site.books.before(&leader.incarnation).await?;
        let asked = site.signal(leader.host, Signal::TERM)?;
        let since = wait(site, before, &leader.incarnation, asked, |since| {
            since.executed.is_some() && since.all_owned.is_some() && since.first_effect.is_some()
        })
        .await?;
        raised.add(after(since.raised, asked)?);
        planned.add(after(since.planned, asked)?);
        executed.add(after(since.executed, asked)?);
        first_owned.add(after(since.first_owned, asked)?);
        owned.add(after(since.all_owned, asked)?);
        effect.add(after(since.first_effect, asked)?);
        site.start_host(leader.host)?;
        site.shared_out().await?;
    }
    show(
        &format!("leader stops, {}", site.span.shown()),
        &[
            ("limit: a bare lease, given up to its end seen", limit),
            ("SIGTERM to the next leader's first commit", raised),
            ("SIGTERM to the next leader's first run", planned),
            ("SIGTERM to the first commit of its item", executed),
            ("SIGTERM to its first partition's next owner", first_owned),
            ("SIGTERM to its last partition's next owner", owned),
            ("SIGTERM to the first effect of another there", effect),
        ],
    );
    Ok(())
}

/// Waits for any moment between two renewals: a host that has just started renews in step with
/// what the round before waited for.
async fn any_moment(site: &Site) -> Result<()> {
    let most = site.span.renew()?;
    let pause = rand::rng().random_range(Duration::ZERO..most);
    tokio::time::sleep(pause).await;
    Ok(())
}

/// Waits until all of it has happened.
async fn wait(
    site: &Site,
    before: Before,
    gone: &str,
    at: Micros,
    done: impl Fn(&Since) -> bool,
) -> Result<Since> {
    let asked = Instant::now();
    loop {
        let since = site.books.since(before, gone, at).await?;
        if done(&since) {
            return Ok(since);
        }
        ensure!(asked.elapsed() < PATIENCE, "{gone} is gone, and {since:?}\n{}", site.logs());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn after(what: Option<Micros>, at: Micros) -> Result<f64> {
    Ok(what.context("it has not happened")?.since(at))
}
