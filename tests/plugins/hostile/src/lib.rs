//! A task that does what no task should: each item key names one misdeed, every other key
//! is behaved. `tests/tests/runtime.rs` holds the host to what it has to do about it.

use std::hint::black_box;

use besom_sdk::prelude::*;

struct Hostile;

impl Task for Hostile {
    fn describe() -> Manifest {
        Manifest::new("hostile", env!("CARGO_PKG_VERSION"))
            .doc("Misbehaves on demand.")
            .setting(Setting::text("scan", "well"))
            .setting(Setting::texts("words", ["well"]).choices(["well", "ill"]))
            .extra("nobody_knows", true)
            .collection(
                Access::to("things")
                    .read()
                    .update()
                    .delete()
                    .columns(["id", "name", "data", "state"]),
            )
            .collection(Access::to("secrets").read())
            .topic("cleaned")
    }

    fn candidates(_: &Context) -> Result<Range> {
        Ok(Range::of("things").columns(["id"]))
    }

    fn candidate(_: &Context, row: &Row) -> Result<Option<Candidate>> {
        Ok(Some(Candidate::of(&[row.value("id")?])?))
    }

    fn tenants(ctx: &Context, after: Option<&str>, limit: u32) -> Result<Vec<String>> {
        let things = || Range::of("things").columns(["id"]);
        let mut tenants = store::tenants(&things(), after, limit)?;
        match ctx.setting::<String>("scan")?.as_str() {
            // What is read of one tenant, told to whoever is scanned by that name.
            "tenants-read" => drop(store::rows(None, things()).collect::<Result<Vec<_>>>()?),
            "tenants-get" => {
                drop(store::get_many(None, "things", &[vec![Value::Integer(1)]], &["id"])?);
            }
            "tenants-distinct" => drop(store::distinct(None, &Range::of("things"), None, 9)?),
            "tenants-exists" => drop(store::exists(None, &Filter::of("things"))?),
            "tenants-deliveries" => drop(deliveries::latest(None, "cleaned", &["k".to_owned()])?),
            "tenants-activity" => drop(activity::states(None, &["room".to_owned()])?),
            "tenants-invented" => tenants.push("SECRET".to_owned()),
            "tenants-long-error" => return Err(long_error()),
            "tenants-fewer" => tenants.truncate(1),
            _ => {}
        }
        Ok(tenants)
    }

    fn scan(ctx: &Context, _: Option<Vec<u8>>, limit: u32) -> Result<besom_sdk::Page> {
        let setting = ctx.setting::<String>("scan")?;
        if setting == "sleep" {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
        if setting == "long-error" {
            return Err(long_error());
        }
        if let Some(keys) = setting.strip_prefix("keys:") {
            // Another version for each call: what was settled or is dead does not block it.
            let version = ctx.now.micros();
            let candidates = keys.split(',').map(|key| Candidate::new(key).version(version));
            let candidates: Vec<_> = candidates.collect();
            let scanned = candidates.len() as u64;
            return Ok(besom_sdk::Page { candidates, next: None, scanned, extra: vec![] });
        }
        let count = match setting.as_str() {
            "too-many" => limit + 1,
            _ => limit,
        };
        let candidate = |index: u32| match setting.as_str() {
            "fat" => Ok(Candidate::new("fat").payload(vec![0; 4097])),
            _ => Ok(Candidate::new(format!("k{index}")).extra("nobody_knows", 1_i64)),
        };
        let candidates = (0..count).map(candidate).collect::<Result<_>>()?;
        let scanned = if setting == "scanned" { u64::MAX } else { 7 };
        Ok(besom_sdk::Page { candidates, next: None, scanned, extra: vec![] })
    }

    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
        let mut verdicts = Vec::new();
        for item in items {
            match item.key.as_str() {
                "no-verdict" => {}
                "two-verdicts" => verdicts.extend([Verdict::skip("a"), Verdict::skip("b")]),
                "too-many-verdicts" => {
                    verdicts.extend((0..200_000).map(|_| Verdict::skip("an endless list")));
                }
                key => verdicts.push(misdeed(key, ctx, item)?),
            }
        }
        Ok(verdicts)
    }
}

/// More text than anybody reads.
/// One more than a query may name.
const KEYS: usize = 10_001;

fn long_error() -> Error {
    Error::permanent("broken", "x".repeat(700_000))
}

/// A question that a database takes the square of its length to plan.
fn many_conditions(count: i64) -> Filter {
    (0..count).fold(Filter::of("things"), |filter, id| filter.equal("id", Value::Integer(id)))
}

/// Never inlined: the host has to name it where it fails.
#[inline(never)]
fn misdeed(key: &str, ctx: &Context, item: &Item) -> Result<Verdict> {
    Ok(match key {
        "spin" => spin(),
        "remember" => remember(),
        "recurse" => Verdict::skip(recurse(1).to_string()),
        "panic" => panic!("the poison {key} of {}", item.attempt),
        "divide" => Verdict::skip((black_box(1) / black_box(0)).to_string()),
        "exit" => std::process::exit(3),
        "long-error" => return Err(long_error()),
        "error" => return Err(Error::permanent("broken", "this batch is broken")),
        "later" => return Err(Error::transient("not-now", "ask me later")),
        "flood-stderr" => {
            for line in 0..20_000 {
                eprintln!("line {line}");
            }
            panic!("after the flood");
        }
        "flood-log" => {
            for line in 0..900 {
                log::info(format!("line {line}"));
            }
            Verdict::skip("logged")
        }
        "long-line" => {
            log::info("x".repeat(4 << 20));
            Verdict::skip("logged")
        }
        "call-home" => loop {
            black_box(store::exists(Some(item), &Filter::of("things"))).ok();
        },
        "read-slow" => loop {
            let nothing = Filter::of("things").equal("state", Value::Integer(-1));
            black_box(store::exists(Some(item), &nothing)).ok();
        },
        "emit-flood" => {
            let message = vec![0; 1 << 20];
            (0..3).fold(Proposal::new(), |p, _| p.emit("cleaned", "k", message.as_slice())).into()
        }
        "sleep" => {
            std::thread::sleep(std::time::Duration::from_secs(3600));
            Verdict::skip("slept")
        }
        "look-around" => look_around(),
        "clock" => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            Verdict::skip(format!("{}", now.map_or(0, |since| since.as_micros())))
        }
        "random" => {
            use std::hash::BuildHasher as _;
            Verdict::skip(std::collections::hash_map::RandomState::new().hash_one(7).to_string())
        }
        "read-secrets" => told(store::exists(Some(item), &Filter::of("secrets"))),
        "read-others" => told(store::exists(Some(item), &Filter::of("elsewhere"))),
        "read-column" => {
            told(store::exists(Some(item), &Filter::of("things").equal("hidden", Value::Null)))
        }
        "count" => {
            let filter = Filter::of("things");
            let filters = [filter.clone(), filter.is_null("state").one_of("id", [1_i64, 2])];
            Verdict::skip(format!("{:?}", store::count(Some(item), &filters, 5)?))
        }
        "distinct" => {
            let from = Value::Integer(4);
            let range = Range::of("things").descending();
            Verdict::skip(format!("{:?}", store::distinct(Some(item), &range, Some(&from), 3)?))
        }
        "distinct-all" => {
            let found = store::distinct(Some(item), &Range::of("things"), None, 100)?;
            Verdict::skip(found.len().to_string())
        }
        "distinct-secrets" => told(store::distinct(Some(item), &Range::of("secrets"), None, 10)),
        "distinct-too-many" => {
            told(store::distinct(Some(item), &Range::of("things"), None, 1 << 20))
        }
        "read-many-values" => {
            told(store::exists(Some(item), &Filter::of("things").one_of("id", 0..1_000_i64)))
        }
        "read-hidden-column" => told(store::exists(
            Some(item),
            &Filter::of("things").compares("id", Comparison::Below, "hidden"),
        )),
        "read-for-nobody" => told(store::exists(None, &Filter::of("things"))),
        "read-deliveries" => {
            let found = deliveries::latest(Some(item), "cleaned", &["k".to_owned()])?;
            Verdict::skip(answer_of(found))
        }
        "read-gossip" => told(deliveries::latest(Some(item), "gossip", &["k".to_owned()])),
        "deliveries-for-nobody" => told(deliveries::latest(None, "cleaned", &["k".to_owned()])),
        "tenants" => told(store::tenants(&Range::of("things").columns(["id"]), None, 10)),
        "deliveries-long-key" => {
            told(deliveries::latest(Some(item), "cleaned", &["k".repeat(2_000)]))
        }
        "activity" => {
            told(activity::states_each(std::slice::from_ref(item), |_| Ok("room".to_owned())))
        }
        "read-all" => told(
            store::rows(Some(item), Range::of("things").columns(["id"]).limit(1_000_000))
                .collect::<Result<Vec<_>>>(),
        ),
        "read-columns" => columns(item)?,
        "read-secret-columns" => told(
            store::columns(Some(item), Range::of("secrets").columns(["id"])).next().transpose(),
        ),
        "read-many-conditions" => told(store::exists(Some(item), &many_conditions(1_000))),
        "read-many-columns" => told(
            store::rows(Some(item), Range::of("things").columns(vec!["id"; 2_000]))
                .collect::<Result<Vec<_>>>(),
        ),
        "read-many-keys" => {
            let keys = vec![vec![Value::Integer(1)]; KEYS];
            told(store::get_many(Some(item), "things", &keys, &["id"]))
        }
        "deliveries-many-keys" => {
            told(deliveries::latest(Some(item), "cleaned", &vec!["k".to_owned(); KEYS]))
        }
        "read-long-prefix" => {
            let range = Range::of("things").columns(["id"]);
            let range = (0..40).fold(range, |range, at| range.prefix(Value::Integer(at)));
            told(store::rows(Some(item), range).collect::<Result<Vec<_>>>())
        }
        "read-long-value" => {
            let long = Value::Text("x".repeat(100_000));
            told(store::exists(Some(item), &Filter::of("things").equal("id", long)))
        }
        "guard-many-conditions" => Proposal::new().guard(Guard::Exists(many_conditions(65))).into(),
        "guard-many-rows" => {
            Proposal::new().guard(Filter::of("things").at_least_rows(1_001)).into()
        }
        "guard-rows" => Proposal::new()
            .guard(Guard::missing("things", vec![Value::Integer(99)]))
            .guard(Filter::of("things").at_least_rows(2))
            .guard(Filter::of("things").equal("id", 1_i64).at_most_rows(1_000))
            .into(),
        "guard-secrets" => {
            Proposal::new().guard(Guard::missing("elsewhere", vec![Value::Integer(1)])).into()
        }
        "add-to-range" => {
            let range = Range::of("things").extra("nobody_knows", "x").part(None, None, 10);
            let name = [("name", Value::from("older"))];
            Proposal::new().update_range_adding(range, name, [("state", 2)]).into()
        }
        "add-a-text" => {
            let change = Proposal::new().update_range_adding(
                Range::of("things").part(None, None, 10),
                [],
                [("state", 1)],
            );
            Verdict::Propose(with_text(change))
        }
        "add-twice" => {
            let range = Range::of("things").part(None, None, 10);
            let state = [("state", Value::Integer(1))];
            Proposal::new().update_range_adding(range, state, [("state", 2)]).into()
        }
        "extras" => {
            store::rows(Some(item), Range::of("things").columns(["id"]).extra("nobody_knows", 1.5))
                .try_for_each(|row| row.map(drop))?;
            let known = ctx.extra.len() + item.extra.len();
            Proposal::new()
                .note("known", i64::try_from(known).unwrap_or(-1))
                .extra("much", "x")
                .into()
        }
        "words" => Verdict::skip(ctx.setting::<Vec<String>>("words")?.join(" and ")),
        "guard-long-key" => Proposal::new().guard(Guard::Idle("x".repeat(2_000))).into(),
        "emit-long-key" => {
            Proposal::new().emit("cleaned", "k".repeat(2_000), b"x".as_slice()).into()
        }
        "emit-nul-key" => Proposal::new().emit("cleaned", "k\0", b"x".as_slice()).into(),
        "emit-much" => (0..5)
            .fold(Proposal::new(), |p, at| {
                p.emit("cleaned", format!("k{at}"), vec![0; 1 << 20].as_slice())
            })
            .into(),
        "insert" => Proposal::new().insert("things", [("id", Value::Integer(1))]).into(),
        "delete-elsewhere" => Proposal::new().delete("elsewhere", vec![Value::Integer(1)]).into(),
        "delete-secrets" => Proposal::new().delete("secrets", vec![Value::Integer(1)]).into(),
        "update-column" => Proposal::new()
            .update("things", vec![Value::Integer(1)], [("hidden", Value::Integer(1))])
            .into(),
        "emit-undeclared" => Proposal::new().emit("gossip", "k", b"x".as_slice()).into(),
        "sweep-and-tell" => Proposal::new()
            .delete("things", vec![Value::Integer(1)])
            .emit("cleaned", "k", b"x".as_slice())
            .into(),
        "emit" => Proposal::new().emit("cleaned", "k", b"x".as_slice()).into(),
        "guard-idle" => Proposal::new().guard(Guard::Idle("room".into())).into(),
        "bad-decimal" => Proposal::new()
            .update("things", vec![Value::Integer(1)], [("state", Value::Decimal("1e3".into()))])
            .into(),
        "unknown-read-set" => Proposal::new().delete_read_set(99).into(),
        "delete-many" => (0..11)
            .fold(Proposal::new(), |p, id| p.delete("things", vec![Value::Integer(id)]))
            .into(),
        "delete-read" => {
            let mut rows =
                store::rows(Some(item), Range::of("things").columns(["id"]).collecting());
            rows.by_ref().try_for_each(|row| row.map(drop))?;
            let Some(set) = rows.read_set() else { return Ok(Verdict::skip("nothing to delete")) };
            Proposal::new().delete_read_set(set).into()
        }
        "change-many" => (0..101)
            .fold(Proposal::new(), |p, id| {
                p.update("things", vec![Value::Integer(id)], [("state", Value::Integer(0))])
            })
            .into(),
        "settings" => Verdict::skip(ctx.setting::<String>("scan")?),
        // The key of `things` has one column.
        key if key.starts_with("two-values") => {
            let key = vec![Value::Integer(1), Value::Integer(2)];
            Proposal::new().delete("things", key).into()
        }
        key if key.starts_with("skipped") => Verdict::skip("not now"),
        _ => Verdict::skip_settled("behaved"),
    })
}

/// The same proposal, whose increments are texts.
fn with_text(mut proposal: Proposal) -> Proposal {
    for change in &mut proposal.changes {
        let besom_sdk::Change::UpdateRange(change) = change else { continue };
        change.increments.iter_mut().for_each(|field| field.value = Value::from("1"));
    }
    proposal
}

/// The rows of `things` by columns: how many, the sum of their ids, and what is packed.
fn columns(item: &Item) -> Result<Verdict> {
    let range = Range::of("things").columns(["id", "name", "data", "state"]).limit(3).collecting();
    let mut pages = store::columns(Some(item), range);
    let (mut rows, mut ids, mut names, mut data, mut states) = (0, 0, String::new(), 0, 0);
    for page in pages.by_ref() {
        let mut page = page?;
        rows += page.len();
        ids += page.integers("id")?.iter().sum::<i64>();
        for row in 0..page.len() {
            names.push_str(&page.get::<String>(row, "name")?);
            states += page.get::<Option<i64>>(row, "state")?.unwrap_or(1_000);
        }
        data += page.take_bytes("data")?.bytes.len();
    }
    let collected = pages.read_set().is_some();
    Ok(Verdict::skip(format!("{rows} rows, {ids}, {names}, {data}, {states}, {collected}")))
}

/// What was answered to the only message.
fn answer_of(found: Vec<Option<deliveries::Delivery>>) -> String {
    let reply = found.into_iter().flatten().find_map(|delivery| delivery.reply);
    reply.map_or_else(String::new, |reply| String::from_utf8_lossy(&reply.body).into_owned())
}

fn told<T>(answer: Result<T>) -> Verdict {
    match answer {
        Ok(_) => Verdict::skip("answered"),
        Err(error) => Verdict::skip(error.code),
    }
}

#[inline(never)]
fn spin() -> Verdict {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

#[inline(never)]
fn remember() -> Verdict {
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        all.push(black_box(vec![1; 1 << 20]));
    }
}

#[inline(never)]
#[expect(unconditional_recursion, reason = "that is the misdeed")]
fn recurse(depth: u64) -> u64 {
    black_box(recurse(black_box(depth + 1))) + 1
}

fn look_around() -> Verdict {
    let variables = std::env::vars().count();
    let arguments = std::env::args().count();
    let files = std::fs::read_dir("/").map_or(0, Iterator::count);
    let file = std::fs::read("/etc/passwd").is_ok();
    let socket = std::net::TcpStream::connect(("127.0.0.1", 22)).is_ok();
    Verdict::skip(format!("{variables} {arguments} {files} {file} {socket}"))
}

besom_sdk::export!(Hostile);
