//! A failure is named, and is attributed to the item that caused it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use besom_core::proposal::Verdict;
use besom_core::value::{Field, Value};
use besom_ports::guests::{Acted, Call, Error, Fault, Guests as _, Limits};
use besom_runtime::Settings;
use besom_system::child;

use super::host::{
    Mood, Nobody, Things, act, behaved, call, hostile, items, limits, start, things,
};

/// The result of each item, as in a host: items for which a batch had no time are tried alone.
async fn act_on(limits: Limits, keys: &[&str]) -> Acted {
    let mut acted = act(limits.clone(), keys).await.unwrap();
    for (verdict, key) in acted.verdicts.iter_mut().zip(keys) {
        if verdict.as_ref().is_err_and(Fault::is_not_reached) {
            *verdict = act(limits.clone(), &[key]).await.unwrap().verdicts.remove(0);
        }
    }
    acted
}

#[tokio::test]
async fn a_misdeed_is_named_and_its_neighbours_go_on() {
    let little_fuel = || Limits { fuel: 50_000_000, ..limits() };
    let little_time = || Limits { wall_ms: 500, fuel: u64::MAX / 2, ..limits() };
    // (key, limits, cause, what the message says)
    let cases: Vec<(&str, Limits, &str, &[&str])> = vec![
        (
            "spin",
            little_fuel(),
            "fuel",
            &["act: used up its fuel of ", "(`limits.fuel`)", "at besom_hostile::spin"],
        ),
        (
            "spin",
            little_time(),
            "deadline",
            &["the call has reached its deadline", "besom_hostile::spin"],
        ),
        ("sleep", little_time(), "deadline", &["the call has reached its deadline"]),
        ("remember", limits(), "memory", &["the limit is 67108864"]),
        ("recurse", limits(), "stack", &["at besom_hostile::recurse", "and 12 more"]),
        ("panic", limits(), "unreachable", &["besom_hostile::", "the poison panic of 1"]),
        ("divide", limits(), "unreachable", &["divide by zero"]),
        ("exit", limits(), "trap", &["called exit(1)", "at besom_hostile::misdeed"]),
        ("error", limits(), "error", &["`broken`: this batch is broken"]),
        ("flood-stderr", limits(), "unreachable", &["line 19999", "after the flood"]),
        ("long-line", limits(), "limit", &["hostcall_fuel"]),
        ("too-many-verdicts", limits(), "limit", &["hostcall_fuel"]),
        ("no-verdict", limits(), "contract", &["0 verdicts on 1 items"]),
        ("two-verdicts", limits(), "contract", &["2 verdicts on 1 items"]),
        ("call-home", limits(), "limit", &["more than 1000 calls to imports"]),
    ];
    for (key, limits, cause, says) in cases {
        let acted = act_on(limits, &["one", key, "three"]).await;
        assert_eq!(acted.verdicts[0], behaved(), "before {key}");
        assert_eq!(acted.verdicts[2], behaved(), "after {key}");
        let fault = acted.verdicts[1].as_ref().expect_err(key);
        assert_eq!(fault.cause, cause, "{key}: {}", fault.message);
        for part in says {
            assert!(fault.message.contains(part), "{key}: no {part:?} in: {}", fault.message);
        }
    }
}

/// The message is cut off where it enters the host, because it is logged and stored from there.
#[tokio::test]
async fn a_long_message_of_a_plugin_is_cut_off() {
    let (runtime, loaded) = hostile().await;
    let setting = |text: &str| {
        let settings = vec![Field::new("scan", Value::Text(text.into()))];
        Call { settings, ..call(&loaded.digest, limits()) }
    };
    let scan = setting("long-error");
    let scan = runtime.scan(&scan, things(), Arc::new(Nobody), None, None, 10).await.map(drop);
    let tenants = setting("tenants-long-error");
    let tenants = runtime.tenants(&tenants, things(), Arc::new(Nobody), None, 10).await.map(drop);
    let acted = act(limits(), &["long-error"]).await.unwrap().verdicts.remove(0);
    let acted = acted.map(drop).map_err(Error::Guest);
    for (export, result) in [("scan", scan), ("tenants", tenants), ("act", acted)] {
        let Err(Error::Guest(fault)) = result else { panic!("{export}: {result:?}") };
        assert_eq!(fault.cause, "error", "{export}");
        assert!(fault.message.starts_with("the plugin reports `broken"), "{export}");
        let bytes = fault.message.len();
        assert!((1_024..=4_096).contains(&bytes), "{export}: {bytes} bytes");
    }
}

#[tokio::test]
async fn without_fuel_every_other_bound_holds() {
    let uncounted = || Limits { fuel: 0, ..limits() };
    for (key, limits, cause) in [
        ("spin", Limits { wall_ms: 500, ..uncounted() }, "deadline"),
        ("sleep", Limits { wall_ms: 500, ..uncounted() }, "deadline"),
        ("remember", uncounted(), "memory"),
        ("recurse", uncounted(), "stack"),
        ("long-line", uncounted(), "limit"),
        ("call-home", uncounted(), "limit"),
    ] {
        let acted = act_on(limits, &["one", key, "three"]).await;
        assert_eq!((&acted.verdicts[0], &acted.verdicts[2]), (&behaved(), &behaved()), "{key}");
        assert_eq!(acted.verdicts[1].as_ref().expect_err(key).cause, cause, "{key}");
        assert_eq!(acted.usage.fuel, 0, "{key}");
    }
    // The same plugin with fuel counting, as it was loaded.
    assert!(act(limits(), &["one"]).await.unwrap().usage.fuel > 0);
}

#[tokio::test]
async fn a_trap_names_the_line_of_the_plugins_source() {
    const SOURCE: &str = include_str!("../../plugins/hostile/src/lib.rs");
    for (key, code) in
        [("panic", "panic!(\"the poison"), ("flood-stderr", "panic!(\"after the flood")]
    {
        let line = SOURCE.lines().position(|line| line.contains(code)).expect(code) + 1;
        let acted = act(limits(), &[key]).await.unwrap();
        let fault = acted.verdicts[0].as_ref().expect_err(key);
        let place = format!("hostile/src/lib.rs:{line})");
        assert!(fault.message.contains(&place), "{key}: no {place} in: {}", fault.message);
    }
}

/// A program that records that it was called. A shell writes it, because a file that this process
/// has open for writing cannot be executed.
fn noting(directory: &Path) -> PathBuf {
    let (program, calls) = (directory.join("program"), directory.join("calls"));
    let line = r#"printf '#!/bin/sh\necho called >>%s\nexit 4\n' "$2" >"$1" && chmod 700 "$1""#;
    let written = Command::new("sh").args(["-c", line, "sh"]).arg(&program).arg(calls).status();
    assert!(written.unwrap().success());
    program
}

#[tokio::test]
async fn only_where_a_guest_is_at_fault_is_its_place_looked_up() {
    // It is already compiled.
    hostile().await;
    let directory = tempfile::tempdir().unwrap();
    let (program, processor) = (noting(directory.path()), Duration::from_secs(1));
    let compiler = Some(child::Limits { program, memory_bytes: 1 << 30, processor });
    let (runtime, loaded) = start(Settings { compiler, ..Settings::default() }).await;
    let was_called = || directory.path().join("calls").exists();

    let call = call(&loaded.digest, limits());
    let gone = Things::in_mood(Mood::Gone);
    let acted = runtime.act(&call, gone, Arc::new(Nobody), &items(["delete-read"])).await;
    assert!(matches!(acted, Err(Error::Infrastructure(_))) && !was_called(), "{acted:?}");

    let acted = runtime.act(&call, things(), Arc::new(Nobody), &items(["panic"])).await.unwrap();
    let fault = acted.verdicts[0].as_ref().unwrap_err();
    assert!(was_called() && fault.message.contains("besom_hostile::"), "{}", fault.message);
}

/// A panic of the host is attributed like a fault of the plugin: to the item that causes it.
#[tokio::test]
async fn a_panic_of_the_host_is_held_against_the_item_that_brought_it_about() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, limits());
    let view = Things::in_mood(Mood::Panics);
    let batch = items(["one", "delete-read", "three"]);
    let acted = runtime.act(&call, view.clone(), Arc::new(Nobody), &batch).await.unwrap();
    assert_eq!((&acted.verdicts[0], &acted.verdicts[2]), (&behaved(), &behaved()));
    let fault = acted.verdicts[1].as_ref().unwrap_err();
    assert_eq!(fault.cause, "host-panic");
    let words = "act: the host panicked in a call from the plugin: a bug of the store";
    assert_eq!(fault.message, words);
    assert!(view.reads.load(Ordering::Relaxed) > 1);
}

#[tokio::test]
async fn one_poison_among_64_is_found() {
    for place in [0, 31, 63] {
        let mut keys = vec!["fine"; 64];
        keys[place] = "panic";
        let acted = act(limits(), &keys).await.unwrap();
        for (index, verdict) in acted.verdicts.iter().enumerate() {
            assert_eq!(verdict.is_err(), index == place, "item {index}: {verdict:?}");
        }
        assert_eq!(acted.usage.instances, 13);
    }
}

#[tokio::test]
async fn several_poisons_are_told_apart() {
    let keys = ["panic", "fine", "recurse", "fine", "fine", "exit", "no-verdict", "fine"];
    let acted = act(limits(), &keys).await.unwrap();
    let causes: Vec<Option<&str>> = acted
        .verdicts
        .iter()
        .map(|verdict| verdict.as_ref().err().map(|fault| fault.cause.as_str()))
        .collect();
    let expected = [
        Some("unreachable"),
        None,
        Some("stack"),
        None,
        None,
        Some("trap"),
        Some("contract"),
        None,
    ];
    assert_eq!(causes, expected);
}

#[tokio::test]
async fn a_retryable_error_is_a_retry_for_all_and_no_fault() {
    let acted = act(limits(), &["one", "later", "three"]).await.unwrap();
    assert_eq!(acted.usage.instances, 1);
    for verdict in acted.verdicts {
        let Ok(Verdict::Retry { reason, .. }) = verdict else { panic!("{verdict:?}") };
        assert!(reason.contains("`not-now`: ask me later"), "{reason}");
    }
}

#[tokio::test]
async fn a_batch_that_is_only_too_large_for_its_fuel_gets_all_its_verdicts() {
    let alone = act(limits(), &["fine"]).await.unwrap().usage.fuel;
    let together = act(limits(), &["fine"; 256]).await.unwrap().usage.fuel;
    let half = Limits { fuel: alone + (together - alone) * 3 / 4, ..limits() };
    let acted = act(half, &["fine"; 256]).await.unwrap();
    assert!(acted.verdicts.iter().all(|verdict| *verdict == behaved()));
    assert_eq!(acted.usage.instances, 3);
}
