use super::*;

const VERIFY_EVERY: Duration = Duration::from_secs(10);

fn at(seconds: f64) -> Mono {
    Mono::START + Duration::from_secs_f64(seconds)
}

fn position(revision: u64) -> RingPosition {
    RingPosition { term: Term(1), revision }
}

fn set(partitions: &[u32]) -> BTreeSet<Partition> {
    partitions.iter().map(|partition| Partition(*partition)).collect()
}

fn row(partition: u32, owner: Option<&str>, epoch: u64, revision: u64) -> PartitionRow {
    PartitionRow {
        partition: Partition(partition),
        owner: owner.map(Incarnation::from),
        epoch: OwnerEpoch(epoch),
        at: position(revision),
    }
}

fn owner() -> Ownership {
    Ownership::new(Incarnation::from("me"), VERIFY_EVERY)
}

fn step(ownership: &mut Ownership, now: f64, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    ownership.step(at(now), event, &mut out);
    out
}

fn own(partition: u32, epoch: u64) -> Command {
    Command::Own(vec![(Partition(partition), OwnerEpoch(epoch))])
}

/// A node that owns partition 0 under epoch 4, by the ring at revision 7.
fn owning() -> Ownership {
    let mut ownership = owner();
    let ring = Event::Ring(position(7), set(&[0]));
    assert_eq!(step(&mut ownership, 0.0, ring), [Command::ReadTable]);
    let table = Event::Table(Some(vec![row(0, Some("other"), 3, 6), row(1, None, 0, 0)]));
    let claims = vec![Claim { partition: Partition(0), seen: OwnerEpoch(3) }];
    assert_eq!(
        step(&mut ownership, 0.1, table),
        [Command::Claim { at: position(7), claims }],
        "only what the ring gives is claimed"
    );
    let claimed = Event::Claimed(Some(vec![(Partition(0), OwnerEpoch(4))]));
    assert_eq!(step(&mut ownership, 0.2, claimed), [own(0, 4)]);
    ownership
}

#[test]
fn a_partition_is_owned_only_once_the_store_says_so() {
    let ownership = owning();
    assert_eq!(ownership.owned()[&Partition(0)], OwnerEpoch(4));
    assert_eq!(ownership.missing(), 0);
    assert_eq!(ownership.deadline(), Some(at(0.2) + VERIFY_EVERY));
}

#[test]
fn a_newer_ring_takes_a_partition_away_before_anything_is_asked() {
    let mut ownership = owning();
    assert_eq!(
        step(&mut ownership, 1.0, Event::Ring(position(8), set(&[1]))),
        [Command::Disown(vec![Partition(0)]), Command::ReadTable]
    );
}

#[test]
fn an_older_ring_changes_nothing() {
    let mut ownership = owning();
    for revision in [6, 7] {
        assert_eq!(step(&mut ownership, 1.0, Event::Ring(position(revision), set(&[]))), []);
    }
    let restored = RingPosition { term: Term(2), revision: 1 };
    let commands = step(&mut ownership, 1.0, Event::Ring(restored, set(&[])));
    assert_eq!(commands[0], Command::Disown(vec![Partition(0)]), "a later term goes first");
}

#[test]
fn what_a_newer_ring_gave_to_another_is_not_claimed() {
    let mut ownership = owner();
    step(&mut ownership, 0.0, Event::Ring(position(7), set(&[0])));
    let table = Event::Table(Some(vec![row(0, Some("other"), 3, 8)]));
    assert_eq!(step(&mut ownership, 0.1, table), []);
    assert_eq!(ownership.missing(), 1);
    let commands = step(&mut ownership, 0.2, Event::Ring(position(9), set(&[0])));
    assert_eq!(commands, [Command::ReadTable], "its own newer ring lets it try");
}

#[test]
fn a_doubt_reads_the_table_and_gives_up_what_is_another_s() {
    let mut ownership = owning();
    assert_eq!(step(&mut ownership, 1.0, Event::Doubted), [Command::ReadTable]);
    let table = Event::Table(Some(vec![row(0, Some("other"), 5, 8)]));
    assert_eq!(step(&mut ownership, 1.1, table), [Command::Disown(vec![Partition(0)])]);
}

#[test]
fn a_claim_that_was_not_won_is_looked_at_again() {
    let mut ownership = owner();
    step(&mut ownership, 0.0, Event::Ring(position(7), set(&[0])));
    step(&mut ownership, 0.1, Event::Table(Some(vec![row(0, None, 0, 0)])));
    assert_eq!(step(&mut ownership, 0.2, Event::Claimed(Some(vec![]))), []);
    assert_eq!(step(&mut ownership, 0.7, Event::Tick), [Command::ReadTable]);
}

#[test]
fn a_claim_without_an_answer_may_have_been_won_and_the_table_tells() {
    let mut ownership = owner();
    step(&mut ownership, 0.0, Event::Ring(position(7), set(&[0])));
    step(&mut ownership, 0.1, Event::Table(Some(vec![row(0, None, 0, 0)])));
    step(&mut ownership, 0.2, Event::Claimed(None));
    step(&mut ownership, 0.7, Event::Tick);
    let table = Event::Table(Some(vec![row(0, Some("me"), 1, 7)]));
    assert_eq!(step(&mut ownership, 0.8, table), [own(0, 1)]);
}

#[test]
fn what_the_ring_took_away_during_a_claim_is_not_owned() {
    let mut ownership = owner();
    step(&mut ownership, 0.0, Event::Ring(position(7), set(&[0])));
    step(&mut ownership, 0.1, Event::Table(Some(vec![row(0, None, 0, 0)])));
    assert_eq!(step(&mut ownership, 0.2, Event::Ring(position(8), set(&[]))), []);
    let claimed = Event::Claimed(Some(vec![(Partition(0), OwnerEpoch(1))]));
    assert_eq!(step(&mut ownership, 0.3, claimed), [Command::ReadTable]);
    assert!(ownership.owned().is_empty());
}

#[test]
fn a_node_that_is_no_member_owns_nothing_and_asks_nothing() {
    let mut ownership = owning();
    assert_eq!(step(&mut ownership, 1.0, Event::Cease), [Command::Disown(vec![Partition(0)])]);
    assert_eq!(ownership.deadline(), None);
    let late = Event::Claimed(Some(vec![(Partition(0), OwnerEpoch(9))]));
    assert_eq!(step(&mut ownership, 2.0, late), []);
    assert!(ownership.owned().is_empty());
}

#[test]
fn back_in_the_ring_it_takes_up_what_the_table_still_has_under_its_name() {
    let mut ownership = owning();
    step(&mut ownership, 1.0, Event::Cease);
    step(&mut ownership, 2.0, Event::Ring(position(7), set(&[0])));
    let table = Event::Table(Some(vec![row(0, Some("me"), 4, 7)]));
    assert_eq!(step(&mut ownership, 2.1, table), [own(0, 4)]);
}

/// Several nodes over one table, with views of the ring that reach them late and in any
/// order, lost answers and pauses.
mod together {
    use super::*;

    const PARTITIONS: u32 = 16;
    const NODES: usize = 4;

    /// Numbers that look random, from a seed (SplitMix64).
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % bound as u64) as usize
        }

        fn one_in(&mut self, count: usize) -> bool {
            self.below(count) == 0
        }
    }

    struct World {
        now: Mono,
        random: Draw,
        table: Vec<PartitionRow>,
        nodes: Vec<Ownership>,
        /// Events in transit.
        post: Vec<(usize, Event)>,
    }

    /// The owner of a partition by the ring at that revision, whose bits determine the members.
    fn ring(revision: u64, partition: u32) -> usize {
        let members: Vec<usize> =
            (0..NODES).filter(|node| (revision >> node) & 1 == 1 || *node == 0).collect();
        members[(partition as usize + revision as usize) % members.len()]
    }

    fn mine(revision: u64, node: usize) -> BTreeSet<Partition> {
        (0..PARTITIONS).filter(|p| ring(revision, *p) == node).map(Partition).collect()
    }

    impl World {
        fn new(seed: u64) -> World {
            World {
                now: at(0.0),
                random: Draw(seed),
                table: (0..PARTITIONS).map(|partition| row(partition, None, 0, 0)).collect(),
                nodes: (0..NODES).map(|node| Ownership::new(name(node), VERIFY_EVERY)).collect(),
                post: Vec::new(),
            }
        }

        fn feed(&mut self, node: usize, event: Event) {
            let mut out = Vec::new();
            self.nodes[node].step(self.now, event, &mut out);
            for command in out {
                let lost = self.random.one_in(10);
                match command {
                    Command::ReadTable => {
                        let rows = (!lost).then(|| self.table.clone());
                        self.post.push((node, Event::Table(rows)));
                    }
                    Command::Claim { at, claims } => {
                        let won = self.claim(node, at, &claims);
                        self.post.push((node, Event::Claimed((!lost).then_some(won))));
                    }
                    Command::Own(_) | Command::Disown(_) => {}
                }
            }
        }

        fn claim(
            &mut self,
            node: usize,
            at: RingPosition,
            claims: &[Claim],
        ) -> Vec<(Partition, OwnerEpoch)> {
            let mut won = Vec::new();
            for claim in claims {
                let row = &mut self.table[claim.partition.0 as usize];
                if row.epoch == claim.seen && row.at < at {
                    row.epoch = OwnerEpoch(row.epoch.0 + 1);
                    (row.owner, row.at) = (Some(name(node)), at);
                    won.push((claim.partition, row.epoch));
                }
            }
            won
        }

        fn deliver_one(&mut self) {
            if !self.post.is_empty() {
                let index = self.random.below(self.post.len());
                let (node, event) = self.post.swap_remove(index);
                self.feed(node, event);
            }
        }

        /// No node believes that it owns a partition that the table assigns to another under that
        /// epoch.
        fn check(&self) {
            let mut seen = BTreeMap::new();
            for (index, node) in self.nodes.iter().enumerate() {
                for (partition, epoch) in node.owned() {
                    let row = &self.table[partition.0 as usize];
                    assert!(*epoch <= row.epoch, "an epoch that the store never gave");
                    if *epoch == row.epoch {
                        assert_eq!(row.owner, Some(name(index)));
                        assert_eq!(seen.insert(partition, index), None, "owned twice");
                    }
                }
            }
        }
    }

    fn name(node: usize) -> Incarnation {
        Incarnation::from(format!("node-{node}"))
    }

    #[test]
    fn they_agree_with_the_last_ring_and_nobody_owns_under_another_s_epoch() {
        for seed in 0..300 {
            let mut world = World::new(seed);
            let last = 12;
            for revision in 1..=last {
                for node in 0..NODES {
                    let event = Event::Ring(position(revision), mine(revision, node));
                    world.post.push((node, event));
                }
                for _ in 0..world.random.below(30) {
                    world.now = world.now + Duration::from_millis(100);
                    let node = world.random.below(NODES);
                    let event = if world.random.one_in(50) { Event::Cease } else { Event::Tick };
                    world.feed(node, event);
                    world.deliver_one();
                    world.check();
                }
            }
            // Members that were lost learn the ring again when they return.
            for node in 0..NODES {
                world.post.push((node, Event::Ring(position(last), mine(last, node))));
            }
            for _ in 0..400 {
                world.now = world.now + Duration::from_millis(500);
                world.deliver_one();
                for node in 0..NODES {
                    world.feed(node, Event::Tick);
                }
                world.check();
            }
            for partition in 0..PARTITIONS {
                let owner = ring(last, partition);
                let row = &world.table[partition as usize];
                assert_eq!(row.owner, Some(name(owner)), "seed {seed}, partition {partition}");
                let owned = world.nodes[owner].owned().get(&Partition(partition));
                assert_eq!(owned, Some(&row.epoch), "seed {seed}, partition {partition}");
            }
        }
    }
}
