//! The small steps around every batch: recording it as begun, opening a snapshot.

use std::time::{Duration, Instant};

use anyhow::Result;
use besom_core::ids::{CommitId, Incarnation, Partition, RunId, Seq};
use besom_core::item::{Identity, Item, Source};
use besom_core::time::Time;
use besom_ports::guests::Lane;
use besom_ports::store::Store as _;

use super::report::{Figures, percentile};
use super::{bare, place};

const ROUNDS: u32 = 500;

/// Both, beside a bare commit.
pub async fn run() -> Result<()> {
    let place = place::Place::new(&place::shipped()).await?;
    let store = place.store()?;
    let node = Incarnation::from("bench");
    let items: Vec<Item> = (0..1_000).map(item).collect();
    for size in [1, 100, 1_000] {
        let begun: Vec<(Source, &Item)> =
            items[..size].iter().map(|item| (Source::Log(Seq(1)), item)).collect();
        let mut spans = Vec::new();
        for round in 0..ROUNDS {
            let id = CommitId(u128::from(round) + 1);
            let began = Instant::now();
            store.begin(id, &node, Lane::Normal, &begun).await?;
            spans.push(began.elapsed().as_secs_f64() * 1e6);
            store.abandon(id).await?;
        }
        show(format!("begin, {size} items"), spans);
    }
    let mut spans = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        drop(store.snapshot(Duration::from_secs(10)).await?);
        spans.push(began.elapsed().as_secs_f64() * 1e6);
    }
    show("open and close a snapshot".into(), spans);
    let commits = bare::commits(&place.file("bare.db"), ROUNDS)?;
    show("bare commit".into(), commits.into_iter().map(|ms| ms * 1_000.0).collect());
    Ok(())
}

fn show(case: String, mut spans: Vec<f64>) {
    spans.sort_by(f64::total_cmp);
    Figures::of("steps", case)
        .with("p50_us", percentile(&spans, 50.0))
        .with("p99_us", percentile(&spans, 99.0))
        .show();
}

fn item(number: u32) -> Item {
    let key = super::queue::key(number);
    Item {
        route: key.clone(),
        identity: Identity {
            task: "bench".into(),
            tenant: Some(place::TENANT.into()),
            key,
            due: None,
        },
        partition: Partition(0),
        version: "1".into(),
        payload: Vec::new(),
        run: RunId(1),
        planned_at: Time::EPOCH,
        attempts: 0,
        guard_retries: 0,
        deaths: 0,
        errors: Vec::new(),
    }
}
