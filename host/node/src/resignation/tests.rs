//! A node that is asked to resign: it marks the command as applied, releases the lease, stays out
//! of the election for a while, and leads again if no other node does.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use besom_core::election::{CampaignResult, Timing};
use besom_core::ids::{FencingToken, Incarnation, RunId, Term};
use besom_core::plan::{Run, Trigger};
use besom_core::time::{Mono, Time};

use super::super::fixture;
use super::super::holdings;
use super::super::planner::{self, Loaded, Scheduled};
use super::super::{Bar, Command, Event, Node, Now, Raise, Role, Settings, Work};
use super::Resignation;
use besom_ports::guests::Lane;
use besom_ports::store::{self, Applied, CommandEffect, CommandRow, Planned};

const TIMING: Timing = Timing { ttl: Duration::from_secs(15), renew: Duration::from_secs(5) };
/// The clock when the node is created.
const BEGIN: Time = Time::from_secs(1_750_000_000);

struct World {
    node: Node,
    elapsed: Duration,
}

impl World {
    fn new() -> World {
        World::with(Work::default())
    }

    fn with(work: Work) -> World {
        World::of(work, None)
    }

    fn in_a_cluster() -> World {
        let cluster = holdings::Settings {
            partitions: NonZeroU32::MIN,
            verify_every: Duration::from_secs(30),
            poll_every: Duration::from_secs(1),
        };
        World::of(Work::default(), Some(cluster))
    }

    fn of(work: Work, cluster: Option<holdings::Settings>) -> World {
        let settings = Settings {
            node: Incarnation::from("one-00000001"),
            timing: TIMING,
            executor: super::super::executor::Settings::default(),
            planner: planner::Settings::default(),
            drain_max: Duration::from_secs(10),
            prune_every: Duration::from_secs(3_600),
            cluster,
        };
        let now = Now { wall: BEGIN, mono: Mono::START };
        World { node: Node::new(settings, work, [7; 32], now), elapsed: Duration::ZERO }
    }

    fn now(&self) -> Now {
        Now { wall: BEGIN + self.elapsed, mono: Mono::START + self.elapsed }
    }

    fn step(&mut self, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        self.node.step(self.now(), event, &mut out);
        out
    }

    fn advance(&mut self, by: Duration) -> Vec<Command> {
        self.elapsed += by;
        self.step(Event::Tick)
    }

    /// The node wins its election, under that term.
    fn leads(&mut self, term: u64) -> FencingToken {
        self.leads_with(term, Vec::new())
    }

    fn leads_with(&mut self, term: u64, runs: Vec<Run>) -> FencingToken {
        let fence = fence(term);
        let won = CampaignResult::Won(fence.clone());
        let sent = self.now().mono;
        assert_eq!(self.step(Event::Campaigned(sent, won)), [Command::Raise(fence.clone())]);
        let raised = self.step(Event::Raised(fence.clone(), Raise::Done(Vec::new())));
        assert!(raised.contains(&Command::Load(fence.clone())), "{raised:?}");
        let loaded = Loaded { runs, ..Loaded::default() };
        self.step(Event::Loaded(fence.clone(), Ok(loaded)));
        assert_eq!(self.node.role(), Role::Leading);
        fence
    }

    /// The leader reads these commands; returns what it wants to apply.
    fn reads(&mut self, fence: &FencingToken, rows: Vec<CommandRow>) -> Vec<planner::Applying> {
        let event = planner::Event::Commands(Ok(rows));
        let out = self.step(Event::Planner(fence.term, event));
        let applies = out.into_iter().filter_map(|command| match command {
            Command::Planner(_, planner::Command::Apply(_, applying)) => Some(*applying),
            _ => None,
        });
        applies.collect()
    }

    fn applied(
        &mut self,
        fence: &FencingToken,
        applying: planner::Applying,
        result: store::Result<Applied>,
    ) -> Vec<Command> {
        let event = planner::Event::Applied(Box::new(applying), result);
        self.step(Event::Planner(fence.term, event))
    }

    /// A leader that has marked the request to resign as applied.
    fn resigned() -> (World, FencingToken, Vec<Command>) {
        let mut world = World::new();
        world.step(Event::Tick);
        let fence = world.leads(4);
        let mut asked = world.reads(&fence, vec![resign(BEGIN)]);
        assert_eq!(asked.len(), 1);
        let out = world.applied(&fence, asked.remove(0), Ok(Applied::default()));
        (world, fence, out)
    }
}

fn fence(term: u64) -> FencingToken {
    FencingToken { term: Term(term), token_hash: [7; 32] }
}

fn resign(at: Time) -> CommandRow {
    CommandRow {
        id: 1,
        command: store::Command::Resign,
        by: "ann".into(),
        reason: "maintenance".into(),
        at,
        applied_at: None,
        result: None,
        refused: false,
    }
}

fn resigns(out: &[Command], fence: &FencingToken) -> bool {
    out.contains(&Command::Resign(fence.clone()))
}

#[test]
fn the_command_is_marked_before_the_lease_is_given_up() {
    let mut world = World::new();
    world.step(Event::Tick);
    let fence = world.leads(4);
    let mut asked = world.reads(&fence, vec![resign(BEGIN)]);
    let applying = asked.remove(0);
    assert_eq!(
        (&applying.effect, applying.result.as_str()),
        (&CommandEffect::Note, "resigned term 4")
    );
    assert_eq!(world.node.role(), Role::Leading, "not before the store has the mark");

    // A store that does not answer is asked again; the lease is kept.
    let failed = world.applied(&fence, applying, Err(store::Error::Busy("busy".into())));
    assert!(!resigns(&failed, &fence), "{failed:?}");
    let again = world.advance(Duration::from_secs(1));
    let applying = again.into_iter().find_map(|command| match command {
        Command::Planner(_, planner::Command::Apply(_, applying)) => Some(*applying),
        _ => None,
    });
    let out = world.applied(&fence, applying.expect("tried again"), Ok(Applied::default()));
    assert!(resigns(&out, &fence), "{out:?}");
    assert_eq!(world.node.role(), Role::Following);
}

#[test]
fn who_has_resigned_stays_out_for_a_while_and_leads_again_if_nobody_else_does() {
    let (mut world, first, out) = World::resigned();
    assert!(resigns(&out, &first), "{out:?}");
    assert!(world.step(Event::Resigned).is_empty());
    // The lease is free, and another node should get it.
    assert!(!stands(&world.step(Event::LeaderChanged)));
    assert!(!stands(&world.advance(TIMING.renew - Duration::from_millis(1))));
    let wake = world.node.sleep(world.now()).expect("it wakes by itself");
    assert_eq!(wake, Duration::from_millis(1));
    assert!(stands(&world.advance(wake)));
    let second = world.leads(5);
    assert_eq!(world.node.fence(), Some(&second));
    // The request was not meant for the new leader.
    let asked = world.reads(&second, vec![resign(BEGIN)]);
    assert!(
        matches!(&asked[0].effect, CommandEffect::Refuse(why) if why.contains("term 5 has begun"))
    );
}

fn stands(out: &[Command]) -> bool {
    out.iter().any(|c| matches!(c, Command::Campaign { .. }))
}

#[test]
fn a_node_with_a_wrong_clock_resigns_and_stands_again_when_it_is_set() {
    let mut world = World::new();
    world.step(Event::Tick);
    let fence = world.leads(4);
    let out = world.step(Event::Barred(Bar::Clock, true));
    assert!(resigns(&out, &fence), "{out:?}");
    assert_eq!(world.node.role(), Role::Following);
    world.step(Event::Resigned);
    assert!(!stands(&world.advance(TIMING.ttl)));
    assert!(!stands(&world.step(Event::LeaderChanged)));
    assert!(!stands(&world.step(Event::Barred(Bar::Clock, true))));
    assert!(stands(&world.step(Event::Barred(Bar::Clock, false))));
    world.leads(5);
}

/// In a cluster the membership keeps the lease alive: it does not expire by itself.
#[test]
fn a_lease_that_could_not_be_given_up_is_given_up_later() {
    let (mut world, fence, _) = World::resigned();
    let out = world.step(Event::NotResigned(fence.clone()));
    assert!(!resigns(&out, &fence), "{out:?}");
    assert!(!resigns(&world.advance(TIMING.renew - Duration::from_millis(1)), &fence));
    assert!(resigns(&world.advance(Duration::from_millis(1)), &fence));
    world.step(Event::Resigned);
    assert!(!resigns(&world.advance(TIMING.renew * 2), &fence));
}

#[test]
fn a_node_that_starts_with_a_wrong_clock_does_not_stand() {
    let mut world = World::new();
    assert!(!stands(&world.step(Event::Barred(Bar::Clock, true))));
    assert!(!stands(&world.advance(TIMING.ttl)));
    assert!(stands(&world.step(Event::Barred(Bar::Clock, false))));
}

/// A node that was also asked to resign stays out until both conditions are over.
#[test]
fn a_wrong_clock_and_a_request_to_resign_do_not_end_each_other() {
    let (mut world, _, _) = World::resigned();
    world.step(Event::Resigned);
    world.step(Event::Barred(Bar::Clock, true));
    assert!(!stands(&world.advance(TIMING.renew * 2)), "the request is over, the clock is wrong");
    assert!(stands(&world.step(Event::Barred(Bar::Clock, false))));

    let (mut world, _, _) = World::resigned();
    world.step(Event::Resigned);
    world.step(Event::Barred(Bar::Clock, true));
    assert!(!stands(&world.step(Event::Barred(Bar::Clock, false))), "the request is not over");
    assert!(stands(&world.advance(TIMING.renew)));
}

#[test]
fn a_node_that_stops_meanwhile_does_not_stand_again() {
    let (mut world, _, _) = World::resigned();
    world.step(Event::Resigned);
    assert!(world.step(Event::Shutdown).contains(&Command::Finished));
    assert!(world.advance(TIMING.renew * 2).is_empty());
    assert_eq!(world.node.role(), Role::Stopped);
}

#[test]
fn what_is_in_flight_is_finished_first_but_not_waited_for_without_end() {
    let at = |seconds| Mono::START + Duration::from_secs(seconds);
    let mut asked = Resignation::None;
    asked.ask(at(10));
    asked.ask(at(99));
    assert!(asked.is_asked());
    assert_eq!((asked.deadline(), asked.step(at(9), false, at(20))), (Some(at(10)), None));
    let mut finished = asked;
    assert_eq!(finished.step(at(9), true, at(20)), Some(besom_core::election::Event::Resign));
    assert_eq!(asked.step(at(10), false, at(20)), Some(besom_core::election::Event::Resign));
    assert_eq!((asked.is_asked(), asked.deadline()), (false, Some(at(20))));

    // If the lease was lost in the meantime, there is nothing to release.
    let mut lost = Resignation::Asked { until: at(10) };
    lost.ceased();
    assert_eq!((lost, lost.step(at(99), true, at(100))), (Resignation::None, None));
}

fn run() -> Run {
    Run {
        id: RunId(7),
        task: "task".into(),
        slot: BEGIN,
        trigger: Trigger::Schedule,
        term: Term(1),
        digest: "d".into(),
        definition: String::new(),
        started_at: BEGIN,
        ended_at: None,
        scan_done: false,
        error: None,
        planned: 0,
        deduplicated: 0,
        blocked: 0,
        open: 0,
        scanned: 0,
        mode: Default::default(),
        held: false,
    }
}

/// A process that was stopped for longer than its lease receives an answer first.
#[test]
fn nothing_follows_from_an_answer_after_the_end_of_the_lease() {
    let run = run();
    let definition = Arc::new(fixture::definition("task", Lane::Normal));
    let scheduled = Scheduled { definition, schedule: None };
    for (after, goes_on) in [(Duration::from_secs(1), true), (TIMING.ttl, false)] {
        let tasks = [("task".into(), scheduled.clone())].into();
        let mut world = World::with(Work { tasks, ..Work::default() });
        world.step(Event::Tick);
        let fence = world.leads_with(4, vec![run.clone()]);
        world.elapsed += after;
        let page = planner::Event::Planned(run.id, Ok((Planned::default(), true)));
        let out = world.step(Event::Planner(fence.term, page));
        let scans = |c: &Command| matches!(c, Command::Planner(_, planner::Command::Scan(_)));
        assert_eq!(out.iter().any(scans), goes_on, "{out:?}");
        let ceases = |c: &Command| matches!(c, Command::StopGuests { .. });
        assert_eq!(out.iter().any(ceases), !goes_on, "{out:?}");
    }
}

#[test]
fn nothing_follows_from_the_state_of_the_tasks_after_the_end_of_the_lease() {
    let definition = Arc::new(fixture::definition("task", Lane::Normal));
    let scheduled = Scheduled { definition, schedule: None };
    for (after, goes_on) in [(Duration::from_secs(1), true), (TIMING.ttl, false)] {
        let tasks = [("task".into(), scheduled.clone())].into();
        let mut world = World::with(Work { tasks, ..Work::default() });
        world.step(Event::Tick);
        let (fence, sent) = (fence(4), world.now().mono);
        world.step(Event::Campaigned(sent, CampaignResult::Won(fence.clone())));
        world.step(Event::Raised(fence.clone(), Raise::Done(Vec::new())));
        world.elapsed += after;
        let loaded = Loaded { runs: vec![run()], ..Loaded::default() };
        let out = world.step(Event::Loaded(fence, Ok(loaded)));
        let plans = out.iter().any(|command| matches!(command, Command::Planner(..)));
        assert_eq!(plans, goes_on, "{out:?}");
    }
}

#[test]
fn no_death_is_counted_after_the_end_of_the_lease() {
    for (after, goes_on) in [(Duration::from_secs(1), true), (TIMING.ttl, false)] {
        let mut world = World::in_a_cluster();
        world.step(Event::Tick);
        let fence = world.leads(4);
        world.elapsed += after;
        // Another incarnation of its own node: it has been replaced, so that it is dead.
        let dead = vec![Incarnation::from("one-00000000")];
        let out = world.step(Event::Begun(fence.clone(), Ok(dead.clone())));
        let buries = out.contains(&Command::Bury(fence, dead));
        assert_eq!(buries, goes_on, "{out:?}");
    }
}
