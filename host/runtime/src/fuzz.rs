//! Random guest results and random component bytes: every input gets an answer and never causes a
//! panic, and accepted values are within the limits. `BESOM_FUZZ_SEEDS` sets the number of seeds.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use besom_core::collection::Operations;
use besom_core::ids::Tenant;
use besom_core::item::PAYLOAD_BYTES_MAX;
use besom_core::proposal::{Change, Verdict};

use super::access::Access;
use super::bindings::besom::task::types as wit;
use super::readset::ReadSets;
use super::shape::Shape;
use super::verdict::Court;
use super::{contract, convert, lines, manifest, page};
use besom_ports::guests::{Limits, Manifest};

/// The seeds of each test.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("BESOM_FUZZ_SEEDS").map_or(1_000, |n| n.parse().expect("a number"))
}

/// Generates values as a guest might return them, mostly close to valid ones.
struct Noise(StdRng);

impl Noise {
    fn new(seed: u64) -> Noise {
        Noise(StdRng::seed_from_u64(seed))
    }

    fn chance(&mut self, of: u32) -> bool {
        self.0.random_ratio(1, of)
    }

    fn some<T>(&mut self, make: impl FnOnce(&mut Noise) -> T) -> Option<T> {
        (!self.chance(3)).then(|| make(self))
    }

    fn list<T>(&mut self, most: usize, make: impl Fn(&mut Noise) -> T) -> Vec<T> {
        let most = if self.chance(50) { most * 300 } else { most };
        (0..self.0.random_range(0..=most)).map(|_| make(self)).collect()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = *[0, 8, 8, 64, 5_000, 70_000].choose(&mut self.0).expect("one");
        let mut bytes = vec![0; self.0.random_range(0..=most)];
        self.0.fill(&mut bytes[..]);
        bytes
    }

    fn text(&mut self) -> String {
        const WORDS: [&str; 14] = [
            "things",
            "id",
            "name",
            "state",
            "cleaned",
            "k",
            "",
            "\0",
            "ü\u{301}",
            "1e3",
            "-12.50",
            "'; DROP TABLE things; --",
            "\u{1b}[2J",
            "acme",
        ];
        match self.0.random_range(0..20) {
            0 => String::from_utf8_lossy(&self.bytes()).into_owned(),
            1 => "x".repeat(self.0.random_range(0..3_000)),
            _ => (*WORDS.choose(&mut self.0).expect("one")).to_owned(),
        }
    }

    fn integer(&mut self) -> i64 {
        *[0, 1, -1, 7, i64::MAX, i64::MIN, self.0.random()].choose(&mut self.0).expect("one")
    }

    fn value(&mut self) -> wit::Value {
        match self.0.random_range(0..11) {
            0 => wit::Value::Null,
            1 => wit::Value::Bool(self.0.random()),
            2 => wit::Value::Integer(self.integer()),
            3 => wit::Value::Float(f64::from_bits(self.0.random())),
            4 => wit::Value::Decimal(self.text()),
            5 => wit::Value::Text(self.text()),
            6 => wit::Value::Bytes(self.bytes()),
            7 => wit::Value::Timestamp(self.integer()),
            8 => wit::Value::Uuid((self.0.random(), self.0.random())),
            9 => wit::Value::Date(self.0.random()),
            _ => wit::Value::Json(self.text()),
        }
    }

    fn field(&mut self) -> wit::Field {
        wit::Field { name: self.text(), value: self.value() }
    }

    fn key(&mut self) -> Vec<wit::Value> {
        self.list(2, Noise::value)
    }

    fn condition(&mut self) -> wit::Condition {
        let comparison = *[
            wit::Comparison::Equal,
            wit::Comparison::NotEqual,
            wit::Comparison::Below,
            wit::Comparison::AtMost,
            wit::Comparison::AtLeast,
            wit::Comparison::Above,
        ]
        .choose(&mut self.0)
        .expect("one");
        let test = match self.0.random_range(0..8) {
            0 => wit::Test::OneOf(self.list(3, Noise::value)),
            1 => wit::Test::NoneOf(self.list(3, Noise::value)),
            2 => wit::Test::StartsWith(self.text()),
            3 => wit::Test::Column(wit::ColumnTest { comparison, column: self.text() }),
            _ => wit::Test::Value(wit::ValueTest { comparison, value: self.value() }),
        };
        wit::Condition { column: self.text(), test }
    }

    fn filter(&mut self) -> wit::Filter {
        wit::Filter { collection: self.text(), conditions: self.list(3, Noise::condition) }
    }

    fn guard(&mut self) -> wit::Guard {
        let counted =
            |noise: &mut Noise| wit::Counted { filter: noise.filter(), rows: noise.0.random() };
        match self.0.random_range(0..8) {
            0 => wit::Guard::Columns(wit::ColumnGuard {
                collection: self.text(),
                key: self.key(),
                conditions: self.list(3, Noise::condition),
            }),
            1 => wit::Guard::Exists(self.filter()),
            2 => wit::Guard::Absent(self.filter()),
            3 => wit::Guard::Complete(self.0.random()),
            4 => wit::Guard::AtLeast(counted(self)),
            5 => wit::Guard::AtMost(counted(self)),
            6 => {
                wit::Guard::Missing(wit::RowReference { collection: self.text(), key: self.key() })
            }
            _ => wit::Guard::Idle(self.text()),
        }
    }

    fn change(&mut self) -> wit::Change {
        let collection = self.text();
        match self.0.random_range(0..10) {
            0 => wit::Change::Insert(wit::RowChange {
                collection,
                fields: self.list(3, Noise::field),
            }),
            1 => wit::Change::Upsert(wit::RowChange {
                collection,
                fields: self.list(3, Noise::field),
            }),
            2 => {
                let (key, fields) = (self.key(), self.list(3, Noise::field));
                wit::Change::Update(wit::KeyedChange { collection, key, fields })
            }
            3 => {
                let (key, fields) = (self.key(), self.list(3, Noise::field));
                wit::Change::Increment(wit::KeyedChange { collection, key, fields })
            }
            4 => wit::Change::Delete(wit::RowReference { collection, key: self.key() }),
            5 => wit::Change::DeleteReadSet(self.0.random()),
            6 => wit::Change::DeleteRange(self.range(collection)),
            7 => {
                let (range, fields) = (self.range(collection), self.list(3, Noise::field));
                let increments = self.list(2, Noise::field);
                wit::Change::UpdateRange(wit::RangeChange { range, fields, increments })
            }
            8 => {
                let (range, into) = (self.range(collection), self.text());
                wit::Change::MoveRange(wit::RangeMove { range, into })
            }
            _ => {
                let (key, payload) = (self.text(), self.bytes());
                let extra = self.list(2, Noise::field);
                wit::Change::Emit(wit::Message { topic: collection, key, payload, extra })
            }
        }
    }

    fn range(&mut self, collection: String) -> wit::RowRange {
        wit::RowRange {
            collection,
            index: self.0.random::<bool>().then(|| self.text()),
            prefix: self.key(),
            lower: self.key().pop(),
            upper: self.key().pop(),
            conditions: self.list(2, Noise::condition),
            after: self.0.random::<bool>().then(|| self.bytes()),
            until: self.0.random::<bool>().then(|| self.bytes()),
            rows: self.0.random(),
            extra: self.list(2, Noise::field),
        }
    }

    fn verdict(&mut self) -> wit::Verdict {
        match self.0.random_range(0..8) {
            0 => wit::Verdict::Skip(wit::Skipped {
                reason: self.text(),
                settled: self.0.random(),
                extra: self.list(2, Noise::field),
            }),
            1 => wit::Verdict::Retry(wit::Retried {
                after: self.0.random(),
                reason: self.text(),
                extra: self.list(2, Noise::field),
            }),
            2 => wit::Verdict::Dead(self.text()),
            _ => wit::Verdict::Propose(wit::Proposal {
                guards: self.list(2, Noise::guard),
                changes: self.list(3, Noise::change),
                on_guard_failed: match self.0.random() {
                    true => wit::GuardFailed::Skip(self.text()),
                    false => wit::GuardFailed::Retry(self.0.random()),
                },
                notes: self.list(2, Noise::field),
                extra: self.list(2, Noise::field),
            }),
        }
    }

    fn candidate(&mut self) -> wit::Candidate {
        wit::Candidate {
            key: self.text(),
            tenant: self.some(Noise::text),
            route: self.some(Noise::text),
            due: self.some(Noise::integer),
            version: self.text(),
            payload: self.bytes(),
            extra: self.list(2, Noise::field),
        }
    }

    fn manifest(&mut self) -> wit::Manifest {
        let setting = |noise: &mut Noise| wit::Setting {
            name: noise.text(),
            kind: *[
                wit::SettingKind::Bool,
                wit::SettingKind::Integer,
                wit::SettingKind::Float,
                wit::SettingKind::Text,
                wit::SettingKind::Duration,
                wit::SettingKind::Texts,
            ]
            .choose(&mut noise.0)
            .expect("one"),
            default: noise.some(Noise::value),
            minimum: noise.some(Noise::value),
            maximum: noise.some(Noise::value),
            choices: noise.list(2, Noise::text),
            doc: noise.text(),
            extra: noise.list(2, Noise::field),
        };
        let request = |noise: &mut Noise| wit::CollectionRequest {
            collection: noise.text(),
            operations: wit::Operations::READ | wit::Operations::DELETE,
            columns: noise.list(3, Noise::text),
            optional_columns: noise.list(2, Noise::text),
            optional: noise.0.random(),
            described: noise.0.random(),
            extra: noise.list(2, Noise::field),
        };
        wit::Manifest {
            name: self.text(),
            version: self.text(),
            doc: self.text(),
            settings: self.list(3, setting),
            collections: self.list(3, request),
            topics: self.list(2, Noise::text),
            activity: self.0.random(),
            per_tenant: self.0.random(),
            lane: wit::Lane::Normal,
            extra: self.list(2, Noise::field),
        }
    }
}

fn access() -> Access {
    let manifest = Manifest {
        name: "fuzzed".into(),
        version: "1".into(),
        doc: String::new(),
        settings: vec![],
        collections: vec![besom_ports::guests::CollectionRequest {
            collection: "things".into(),
            operations: Operations { read: true, update: true, delete: true, insert: false },
            columns: vec!["id".into(), "state".into()],
            ..Default::default()
        }],
        topics: vec!["cleaned".into()],
        activity: true,
        per_tenant: false,
        lane: besom_ports::guests::Lane::Normal,
        extra: vec![],
    };
    let granted = Operations { read: true, update: true, delete: true, insert: false };
    Access {
        grants: std::sync::Arc::new([("things".to_owned(), granted)].into()),
        aliases: std::sync::Arc::default(),
        columns: std::sync::Arc::default(),
        activity: true,
        manifest: manifest.into(),
        topics: vec!["cleaned".into()],
    }
}

#[test]
fn any_verdict_is_taken_within_its_bounds_or_refused() {
    let limits = Limits { changes: 100, deletes: 10, ..super::Settings::default().describe };
    let (access, sets) = (access(), ReadSets::default());
    let court = Court { access: &access, limits: &limits, sets: &sets };
    let mut taken = 0;
    for seed in seeds() {
        let mut noise = Noise::new(seed);
        let tenant = noise.some(|noise| Tenant::from(noise.text()));
        let Ok(Verdict::Propose(proposal)) = court.hear(tenant.as_ref(), noise.verdict()) else {
            continue;
        };
        taken += 1;
        assert!(proposal.changes.len() <= 100, "seed {seed}");
        for change in &proposal.changes {
            let (collection, fields) = match change {
                Change::Emit { topic, key, payload } => {
                    let fits = key.len() <= 1_024 && payload.len() <= 1 << 20;
                    assert!(fits && topic == "cleaned" && !key.contains('\0'), "seed {seed}");
                    continue;
                }
                Change::Update { collection, fields, .. }
                | Change::Increment { collection, fields, .. } => (collection, fields.as_slice()),
                Change::Delete { collection, .. } => (collection, &[][..]),
                // Neither inserts nor read sets that were not read were granted.
                other => panic!("seed {seed}: {other:?}"),
            };
            let granted = |name: &str| name == "id" || name == "state";
            assert!(collection == "things", "seed {seed}");
            assert!(fields.iter().all(|field| granted(&field.name)), "seed {seed}: {fields:?}");
        }
    }
    assert!(taken > 10, "{taken} were taken: the noise is too far from what is expected");
}

#[test]
fn any_page_is_taken_within_its_bounds_or_refused() {
    let mut taken = 0;
    for seed in seeds() {
        let mut noise = Noise::new(seed);
        let scanned = noise.some(|noise| Tenant::from(noise.text()));
        let limit = noise.0.random_range(0..20);
        let found = wit::Page {
            candidates: noise.list(2, Noise::candidate),
            next: noise.some(Noise::bytes),
            scanned: noise.0.random(),
            extra: noise.list(2, Noise::field),
        };
        if let Ok((candidates, next, _)) = page::candidates(found, scanned.as_ref(), limit) {
            taken += 1;
            assert!(candidates.len() <= limit as usize, "seed {seed}");
            assert!(next.is_none_or(|next| next.len() <= 4 << 10), "seed {seed}");
            for candidate in candidates {
                let names = [&candidate.key, &candidate.route, &candidate.version];
                let fits = |name: &&String| name.len() <= 1_024 && !name.contains('\0');
                assert!(names.iter().all(fits), "seed {seed}: {candidate:?}");
                assert!(candidate.payload.len() <= PAYLOAD_BYTES_MAX, "seed {seed}");
                assert!(scanned.is_none() || candidate.tenant == scanned, "seed {seed}");
            }
        }
        let names = noise.list(3, Noise::text);
        if let Ok(tenants) = page::tenants(names, limit, None) {
            assert!(tenants.len() <= limit as usize, "seed {seed}");
        }
    }
    assert!(taken > 10, "{taken} were taken: the noise is too far from what is expected");
}

#[test]
fn any_manifest_is_judged() {
    for seed in seeds() {
        if let Ok(described) = convert::manifest(Noise::new(seed).manifest()) {
            let faults = manifest::faults(&described);
            assert!(faults.iter().all(|fault| !fault.is_empty()), "seed {seed}");
        }
    }
}

/// The component of the smallest task, corrupted at some places.
#[test]
fn any_bytes_are_looked_at_before_they_are_compiled() {
    let found = crate::built_in::find("share-expiry").expect("it is known");
    let whole = found.expect("it is built").component();
    let shape = Shape::default();
    shape.check(whole).expect("it is whole");
    let places = ["0".to_owned(), (whole.len() / 2).to_string(), whole.len().to_string()];
    for seed in seeds().take(200) {
        let mut noise = Noise::new(seed);
        let mut bytes = whole.to_vec();
        for _ in 0..noise.0.random_range(1..20) {
            let at = noise.0.random_range(0..bytes.len());
            match noise.0.random_range(0..3) {
                0 => bytes[at] = noise.0.random(),
                1 => bytes.truncate(at.max(16)),
                _ => {
                    let end = (at + noise.0.random_range(0..64)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
            }
        }
        // Each one is rejected with a message, or left to the compiler.
        let _ = shape.check(&bytes);
        let _ = contract::preamble(&bytes);
        if noise.chance(20) {
            let _ = (lines::LOOKING_UP.function)(&places, bytes);
        }
    }
}
