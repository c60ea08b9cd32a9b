//! Plays the host of a large deployment, for measuring the dashboard alone: a thousand nodes,
//! five hundred tasks, a hundred thousand items that wait.
//!
//!     feed SOCKET [still|alive|stirred]
//!
//! It serves the admin API at that Unix socket with the host's own code; only what is known
//! comes from a generator instead of a store. `still`: nothing changes but the time. `alive`:
//! each second a fifth of the nodes give a sign of life, as those of a deployment without work
//! do. `stirred`: each second every node and every task has changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use besom_core::command::Action;
use besom_engine::api::Listener;
use besom_engine::api::admin::{Admin, Source, router};
use besom_engine::gather::answer::Caller;
use besom_engine::host::clock;
use besom_samples::{large_at, stirred};
use besom_snapshot::{Answer, Query, Refusal, Snapshot};
use tokio::sync::{Notify, watch};

/// How often there is a new picture, as a host has one.
const EVERY: Duration = Duration::from_secs(1);
/// A node gives a sign of life once in so many pictures.
const SIGN_EVERY: u64 = 5;

/// What changes from picture to picture.
#[derive(Clone, Copy)]
enum Life {
    Still,
    Alive,
    Stirred,
}

impl Life {
    fn parse(text: &str) -> Result<Life> {
        Ok(match text {
            "still" => Life::Still,
            "alive" => Life::Alive,
            "stirred" => Life::Stirred,
            _ => bail!("`{text}`: there are still, alive and stirred"),
        })
    }

    /// The picture after the last one.
    fn next(self, first: &Snapshot, last: &Snapshot, round: u64) -> Snapshot {
        let now = clock::wall();
        let mut next = match self {
            Life::Still | Life::Alive => last.clone(),
            Life::Stirred => stirred(first, round),
        };
        next.at = now;
        if let Life::Alive = self {
            let turn = |place: usize| place as u64 % SIGN_EVERY == round % SIGN_EVERY;
            let whose = next.nodes.iter_mut().enumerate().filter(|(place, _)| turn(*place));
            for (_, node) in whose {
                Arc::make_mut(node).seen_at = now;
            }
        }
        next
    }
}

/// A deployment that is made up.
struct Sample {
    latest: watch::Sender<Option<Arc<Snapshot>>>,
    /// Somebody has begun to look.
    wake: Notify,
}

impl Sample {
    /// Makes pictures, until the future is dropped.
    async fn run(&self, life: Life) {
        let first = large_at(clock::wall());
        let mut last = Arc::new(first.clone());
        for round in 1.. {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = self.wake.notified() => {}
            }
            last = Arc::new(life.next(&first, &last, round));
            self.latest.send_replace(Some(Arc::clone(&last)));
        }
    }
}

#[async_trait]
impl Source for Sample {
    fn look(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        let receiver = self.latest.subscribe();
        self.wake.notify_one();
        receiver
    }

    async fn answer(&self, _: &Caller, _: Query) -> Answer {
        made_up()
    }

    async fn act(&self, _: &Caller, _: Action, _: &str) -> Answer {
        made_up()
    }
}

fn made_up() -> Answer {
    Answer::Refused(Refusal { message: "this deployment is made up".into() })
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let socket: PathBuf = args.next().context("feed SOCKET [still|alive|stirred]")?.into();
    let life = args.next().map_or(Ok(Life::Still), |text| Life::parse(&text))?;
    let (latest, _) = watch::channel(None);
    let sample = Arc::new(Sample { latest, wake: Notify::new() });
    let (_stop, stopping) = watch::channel(false);
    let source = Arc::clone(&sample) as Arc<dyn Source>;
    let admin = Admin { source, readonly: true, stopping: stopping.clone() };
    let listener = Listener::unix(&socket).await?;
    tokio::select! {
        () = listener.serve(router(admin), stopping) => Ok(()),
        () = sample.run(life) => Ok(()),
    }
}
