use super::*;

const TIMING: Timing = Timing { ttl: Duration::from_secs(15), renew: Duration::from_secs(5) };

fn ms(ms: u64) -> Mono {
    Mono(ms * 1_000)
}

/// A node whose probes are answered, or not, at once.
struct World {
    reach: Reach,
    now: Mono,
    answers: bool,
    /// Whether every other probe is answered.
    alternates: bool,
    told: bool,
    log: Vec<(u64, &'static str)>,
}

impl World {
    fn new(others: bool) -> World {
        let reach = Reach::new(TIMING, ms(0));
        let (answers, alternates, told) = (true, false, true);
        let mut world = World { reach, now: ms(0), answers, alternates, told, log: Vec::new() };
        world.step(Event::Others(others));
        world
    }

    fn step(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut out = Vec::new();
            let wall = Time(self.now.0 as i64);
            self.reach.step(self.now, wall, event, &mut out);
            for command in out {
                let word = match command {
                    Command::Probe(sent, _) => {
                        self.answers ^= self.alternates;
                        events.push(Event::Probed(sent, self.answers));
                        continue;
                    }
                    Command::Tell(away) => {
                        events.push(Event::Told(away, self.told));
                        match away {
                            None => "reaches",
                            Some(Away { aside: false, .. }) => "misses",
                            Some(Away { aside: true, .. }) => "is aside",
                        }
                    }
                    Command::StandAside => "stand aside",
                    Command::ComeBack => "come back",
                };
                self.log.push((self.now.0 / 1_000, word));
            }
        }
    }

    fn until(&mut self, end: u64) {
        while self.reach.deadline() <= ms(end) {
            self.now = self.reach.deadline().max(self.now);
            self.step(Event::Tick);
        }
        self.now = ms(end);
    }

    #[track_caller]
    fn said(&mut self, expected: &[(u64, &'static str)]) {
        assert_eq!(std::mem::take(&mut self.log), expected);
    }
}

#[test]
fn a_node_that_alone_misses_the_store_stands_aside_after_a_lease_and_comes_back() {
    let mut world = World::new(true);
    world.until(4_000);
    world.answers = false;
    world.until(40_000);
    world.said(&[(5_000, "misses"), (20_000, "stand aside"), (20_000, "is aside")]);
    // The reason may be another.
    world.until(100_000);
    world.said(&[(50_000, "is aside"), (80_000, "is aside")]);
    assert_eq!(world.reach.away().map(|away| away.aside), Some(true));
    assert_eq!(world.reach.away().map(|away| away.since), Some(Time(5_000_000)));
    world.answers = true;
    world.until(110_000);
    let back = world.log.iter().map(|(_, word)| *word).collect::<Vec<_>>();
    assert_eq!(back, ["come back", "reaches"]);
    assert!(world.log[0].0 < 103_000, "{:?}", world.log);
}

#[test]
fn where_nobody_reaches_the_store_nobody_stands_aside() {
    let mut world = World::new(true);
    world.answers = false;
    world.until(8_000);
    world.step(Event::Others(false));
    world.until(100_000);
    world.said(&[(5_000, "misses"), (35_000, "misses"), (65_000, "misses"), (95_000, "misses")]);
    // The store is back, and another node was a moment faster.
    world.step(Event::Others(true));
    world.until(101_000);
    world.answers = true;
    world.until(200_000);
    assert_eq!(world.log.len(), 1, "{:?}", world.log);
    assert_eq!(world.log[0].1, "reaches");
}

#[test]
fn who_is_the_only_one_left_without_the_store_stands_aside_a_lease_later() {
    let mut world = World::new(false);
    world.answers = false;
    world.until(50_000);
    world.said(&[(5_000, "misses"), (35_000, "misses")]);
    world.step(Event::Others(true));
    world.until(64_000);
    world.said(&[]);
    world.until(66_000);
    world.said(&[(65_000, "stand aside"), (65_000, "is aside")]);
}

#[test]
fn a_store_that_answers_every_other_time_is_missed() {
    let mut world = World::new(true);
    world.alternates = true;
    world.until(40_000);
    assert_eq!(world.reach.away().map(|away| away.aside), Some(true));
    let changes = world.log.iter().filter(|(_, word)| *word == "come back").count();
    assert_eq!(changes, 0, "{:?}", world.log);
}

#[test]
fn a_probe_without_an_answer_is_missed_and_its_late_answer_counts_for_nothing() {
    let mut reach = Reach::new(TIMING, ms(0));
    let mut out = Vec::new();
    reach.step(ms(0), Time(0), Event::Tick, &mut out);
    assert_eq!(out, [Command::Probe(ms(0), TIMING.renew)]);
    out.clear();
    reach.step(ms(5_000), Time(5_000_000), Event::Tick, &mut out);
    let away = Away { since: Time(0), aside: false };
    assert_eq!(out, [Command::Tell(Some(away))]);
    reach.step(ms(5_001), Time(5_001_000), Event::Probed(ms(0), true), &mut out);
    assert_eq!(reach.away(), Some(away));
}

#[test]
fn what_the_others_were_not_told_is_told_again() {
    let mut world = World::new(true);
    (world.answers, world.told) = (false, false);
    world.until(7_600);
    world.said(&[(5_000, "misses"), (6_250, "misses"), (7_500, "misses")]);
    world.told = true;
    world.until(14_000);
    world.said(&[(8_750, "misses")]);
}

#[test]
fn who_reaches_the_store_again_says_so_if_it_is_not_known_what_the_others_were_told() {
    let mut world = World::new(true);
    (world.answers, world.told) = (false, false);
    world.until(5_000);
    world.said(&[(5_000, "misses")]);
    world.answers = true;
    world.until(8_750);
    world.said(&[(6_250, "misses"), (7_500, "misses"), (8_750, "reaches")]);
    world.told = true;
    world.until(30_000);
    world.said(&[(10_000, "reaches")]);
}

#[test]
fn who_is_registered_as_without_the_store_and_reaches_it_says_so() {
    let mut world = World::new(true);
    world.until(1_000);
    world.step(Event::Registered(Some(Away { since: Time(0), aside: true })));
    world.said(&[(1_000, "reaches")]);
    world.step(Event::Registered(None));
    world.until(30_000);
    world.said(&[]);
}
