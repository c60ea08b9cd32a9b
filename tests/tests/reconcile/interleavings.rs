//! A user, both tasks and an orchestrator, in random order: each reads, decides and commits at
//! random moments, after the rows may have changed. The tasks' own code runs natively; guards and
//! changes mean the same as in a commit.
//!
//! The tasks always write only their own columns, and once the user changes nothing more, the
//! workspace reaches its desired state.

use std::collections::{BTreeMap, VecDeque};

use besom_reconciler::Reconciler;
use besom_sdk::deliveries::Delivery;
use besom_sdk::testing::Fixture;
use besom_sdk::{
    Candidate, Change, Comparison, Condition, Guard, Proposal, Task, Time, Value, Verdict,
    activity::State,
};
use besom_ttl_transitions::TtlTransitions;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const STATES: [&str; 3] = ["RUNNING", "STANDBY", "PENDING"];
const SEC: i64 = 1_000_000;
/// The steps with all actors, then the steps without the user.
const BUSY: usize = 200;
const QUIET: usize = 600;

type Row = BTreeMap<&'static str, Value>;

struct World {
    random: StdRng,
    now: i64,
    row: Row,
    used: State,
    /// Decided and not committed yet.
    in_flight: VecDeque<(&'static str, Proposal)>,
    deliveries: BTreeMap<String, Delivery>,
    /// How often the orchestrator has performed each operation.
    done: BTreeMap<String, u32>,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64) -> World {
        let status = STATES[(seed % 3) as usize];
        let row = [
            ("workspace_id", Value::from("w")),
            ("status", status.into()),
            ("operation", "NONE".into()),
            ("desired_state", status.into()),
            ("version", 0i64.into()),
            ("standby_ttl_seconds", Value::Null),
            ("archive_ttl_seconds", 60i64.into()),
            ("last_access_at", Time(0).into()),
            ("last_manual_change_at", Value::Null),
            ("archive_key", Value::Null),
            ("unsettled", 0i64.into()),
        ];
        World {
            random: StdRng::seed_from_u64(seed),
            now: 0,
            row: row.into(),
            used: State::Idle,
            in_flight: VecDeque::new(),
            deliveries: BTreeMap::new(),
            done: BTreeMap::new(),
            trace: Vec::new(),
        }
    }

    fn word(&self, column: &str) -> &str {
        match &self.row[column] {
            Value::Text(text) => text,
            other => panic!("{column}: {other:?}"),
        }
    }

    fn fixture(&self) -> Fixture {
        let mut fixture = Fixture::new(Time(self.now))
            .setting("failed_retry", 120_000i64)
            .table("workspaces", &["workspace_id"], &[])
            .row("workspaces", "t", self.row.iter().map(|(name, value)| (*name, value.clone())))
            .activity("w", self.used);
        for (topic, delivery) in &self.deliveries {
            fixture = fixture.delivery("t", topic, "w", delivery.clone());
        }
        fixture
    }

    fn decide<T: Task>(&mut self, who: &'static str) -> bool {
        // An item is never executed twice at once.
        if self.in_flight.iter().any(|(other, _)| *other == who) {
            return false;
        }
        let candidate = Candidate::of(&["w".into()]).unwrap();
        let verdict = self.fixture().act::<T>(&[("t", candidate)]).unwrap().remove(0);
        if let Verdict::Propose(proposal) = verdict {
            self.in_flight.push_back((who, proposal));
            return true;
        }
        false
    }

    fn holds(&self, guard: &Guard) -> bool {
        match guard {
            Guard::Columns(guard) => guard.conditions.iter().all(|condition| {
                let is = self.row[condition.column.as_str()].clone();
                *condition == Condition::of(&condition.column, Comparison::Equal, is)
            }),
            Guard::Idle(_) => self.used == State::Idle,
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self) {
        let Some((who, proposal)) = self.in_flight.pop_front() else { return };
        if !proposal.guards.iter().all(|guard| self.holds(guard)) {
            return self.trace.push(format!("{who}: too late"));
        }
        let may: &[&str] = match who {
            "ttl" => &["desired_state"],
            _ => &["status", "operation", "archive_key"],
        };
        for change in proposal.changes {
            match change {
                Change::Update(update) => {
                    for field in update.fields {
                        let column = may.iter().find(|column| **column == field.name);
                        let column =
                            column.unwrap_or_else(|| panic!("{who} writes {}", field.name));
                        self.trace.push(format!("{who}: {column} = {:?}", field.value));
                        self.row.insert(column, field.value);
                    }
                }
                Change::Emit(message) => {
                    self.trace.push(format!("{who}: {}", message.topic));
                    let delivery = Delivery::pending(Time(self.now), message.payload);
                    self.deliveries.insert(message.topic, delivery);
                }
                other => panic!("{who}: {other:?}"),
            }
        }
    }

    fn user(&mut self) {
        let wants = STATES[self.random.random_range(0..3)];
        let version = match self.row["version"] {
            Value::Integer(version) => version + 1,
            _ => 0,
        };
        self.trace.push(format!("user: {wants}"));
        self.row.insert("desired_state", wants.into());
        self.row.insert("version", version.into());
        self.row.insert("last_access_at", Time(self.now).into());
        self.used = if self.random.random_bool(0.5) { State::Active } else { State::Idle };
    }

    /// One message is answered, sometimes with a failure.
    fn orchestrator(&mut self, reliable: bool) {
        let now = Time(self.now);
        let fate = if reliable { 9 } else { self.random.random_range(0..10) };
        let pending = |d: &&mut Delivery| d.state == besom_sdk::deliveries::State::Pending;
        let Some(delivery) = self.deliveries.values_mut().find(pending) else { return };
        let said: serde_json::Value = serde_json::from_slice(&delivery.payload).unwrap();
        let id = said["operation_id"].as_str().unwrap().to_owned();
        *delivery = match fate {
            0 => delivery.clone().given_up(now, "away"),
            1 | 2 => delivery.clone().answered(now, 202, ""),
            _ => {
                // An operation is performed once, however often it is requested.
                *self.done.entry(id.clone()).or_default() = 1;
                let body = format!("{{\"archive_key\":\"archive of {id}\"}}");
                delivery.clone().answered(now, 200, body)
            }
        };
        self.trace.push(format!("orchestrator: {} {fate}", said["operation"]));
    }

    fn step(&mut self, quiet: bool) {
        self.now += self.random.random_range(0..5) * SEC;
        match self.random.random_range(0..8) {
            0 if !quiet => self.user(),
            1 => {
                self.decide::<TtlTransitions>("ttl");
            }
            2 | 3 => {
                self.decide::<Reconciler>("reconciler");
            }
            4 | 5 => self.commit(),
            _ => self.orchestrator(quiet),
        }
    }
}

fn check(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..BUSY {
        world.step(false);
    }
    // From here on the workspace is in use: the desired state stays as the user chose it.
    world.used = State::Active;
    let wanted = STATES[world.random.random_range(0..3)];
    world.in_flight.retain(|(who, _)| *who != "ttl");
    world.row.insert("archive_ttl_seconds", Value::Null);
    world.row.insert("desired_state", wanted.into());
    for _ in 0..QUIET {
        world.step(true);
    }
    let tell = |world: &World| format!("seed {seed}, wanted {wanted}\n{}", world.trace.join("\n"));
    while !world.in_flight.is_empty() {
        world.commit();
    }
    assert_eq!(world.word("status"), wanted, "{}", tell(&world));
    assert_eq!(world.word("operation"), "NONE", "{}", tell(&world));
    let has_archive = world.row["archive_key"] != Value::Null;
    let archived = wanted == "PENDING" && has_archive;
    assert!(archived || !has_archive, "{}", tell(&world));
    // It stays there.
    assert!(!world.decide::<TtlTransitions>("ttl"), "{}", tell(&world));
    assert!(!world.decide::<Reconciler>("reconciler"), "{}", tell(&world));
}

#[test]
fn the_tasks_keep_to_their_columns_and_come_to_rest_whatever_the_order() {
    if let Ok(seed) = std::env::var("BESOM_SEED") {
        return check(seed.parse().expect("a number"));
    }
    for seed in 0..2_000 {
        check(seed);
    }
}
