//! The host can end a guest at any time; a guest delays no other, and sees only its call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::item::Item;
use besom_core::proposal::Verdict;
use besom_core::time::Time;
use besom_ports::guests::{Call, Error, Fault, Guests as _, Limits, StopFlag};
use besom_runtime::Settings;
use besom_snapshot::Cause;

use super::host::{
    Mood, Nobody, Things, act, behaved, call, hostile, items, limits, start, things, told,
};

/// Only the host ends the call.
fn endless() -> Limits {
    Limits { fuel: u64::MAX / 2, ..limits() }
}

#[tokio::test]
async fn losing_the_lease_stops_a_guest_that_spins() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, endless());
    let spinning = items(["one", "spin"]);
    let acting = runtime.act(&call, things(), Arc::new(Nobody), &spinning);
    let stop = async { call.stop.raise("the lease is lost") };
    let (acted, ()) = tokio::join!(acting, stop);
    assert!(matches!(&acted, Err(Error::Stopped(why)) if why == "the lease is lost"), "{acted:?}");
}

#[tokio::test]
async fn losing_the_lease_stops_a_guest_that_waits_for_the_store() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, endless());
    let stuck = Things::in_mood(Mood::Stuck);
    let waiting = items(["delete-read"]);
    let acting = runtime.act(&call, stuck.clone(), Arc::new(Nobody), &waiting);
    let stop = async {
        while stuck.reads.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        call.stop.raise("the partition is another's");
    };
    let (acted, ()) = tokio::join!(acting, stop);
    assert!(matches!(acted, Err(Error::Stopped(_))), "{acted:?}");
}

#[tokio::test]
async fn a_call_that_is_stopped_before_it_began_does_not_begin() {
    let (runtime, loaded) = hostile().await;
    let stop = StopFlag::default();
    stop.raise("the node stops");
    let call = Call { stop, ..call(&loaded.digest, limits()) };
    let view = things();
    let acted = runtime.act(&call, view.clone(), Arc::new(Nobody), &items(["delete-read"])).await;
    assert!(matches!(acted, Err(Error::Stopped(_))), "{acted:?}");
    assert_eq!(view.reads.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn dropping_the_call_ends_the_guest_and_makes_room() {
    let (runtime, loaded) =
        start(Settings { threads: 1, instances_max: 1, ..Settings::default() }).await;
    let call = call(&loaded.digest, endless());
    let spinning = items(["spin"]);
    {
        let acting = runtime.act(&call, things(), Arc::new(Nobody), &spinning);
        let given_up = tokio::time::timeout(Duration::from_millis(20), acting).await;
        assert!(given_up.is_err());
    }
    // There is one permit and one thread: the next call gets both only if the guest has ended.
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &items(["one"])).await.unwrap();
    assert_eq!(acted.verdicts, [behaved()]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_guest_that_spins_delays_neither_its_caller_nor_its_neighbours() {
    let (runtime, loaded) = start(Settings { threads: 1, ..Settings::default() }).await;
    let call = call(&loaded.digest, endless());
    let (spinning, behaving) = (items(["spin"]), items(["one"]));
    let acting = runtime.act(&call, things(), Arc::new(Nobody), &spinning);
    let neighbour = async {
        // Both share one guest thread, and the caller has only one thread itself.
        for _ in 0..10 {
            let acted = runtime.act(&call, things(), Arc::new(Nobody), &behaving).await.unwrap();
            assert_eq!(acted.verdicts, [behaved()]);
        }
        assert_eq!(runtime.stalled(), None);
        call.stop.raise("the neighbour is done");
    };
    let (acted, ()) = tokio::join!(acting, neighbour);
    assert!(matches!(acted, Err(Error::Stopped(_))), "{acted:?}");
}

#[tokio::test]
async fn a_failing_store_is_nobodys_fault_and_is_not_bisected() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, limits());
    let gone = Things::in_mood(Mood::Gone);
    let batch = items(["one", "delete-read", "three", "delete-read"]);
    let acted = runtime.act(&call, gone.clone(), Arc::new(Nobody), &batch).await;
    let Err(Error::Infrastructure(message)) = acted else { panic!("{acted:?}") };
    assert!(message.contains("the disk is gone"), "{message}");
    assert_eq!(gone.reads.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_store_that_hangs_is_not_the_guests_deadline() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, Limits { wall_ms: 100, ..limits() });
    let stuck = Things::in_mood(Mood::Stuck);
    let acted = runtime.act(&call, stuck, Arc::new(Nobody), &items(["delete-read"])).await;
    let Err(Error::Refused(Cause::Slow, message)) = acted else { panic!("{acted:?}") };
    assert!(message.contains("the store answered too slowly"), "{message}");
}

/// A read in progress at the deadline does not excuse a guest that has used the time itself.
#[tokio::test]
async fn a_guest_that_has_used_its_time_is_not_excused_by_its_last_read() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, limits());
    let late = Things::in_mood(Mood::Late);
    let acted = runtime.act(&call, late, Arc::new(Nobody), &items(["delete-read"])).await.unwrap();
    let fault = acted.verdicts[0].as_ref().unwrap_err();
    assert_eq!(fault.cause, "deadline", "{}", fault.message);
}

#[tokio::test]
async fn a_batch_full_of_poison_ends_in_time() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, Limits { wall_ms: 50, ..endless() });
    let batch = items(vec!["spin"; 64]);
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &batch).await.unwrap();
    assert!(acted.usage.instances <= 3, "{:?}", acted.usage);
    assert!(acted.verdicts.iter().all(not_reached), "{:?}", acted.verdicts);
}

fn not_reached(verdict: &Result<Verdict, Fault>) -> bool {
    verdict.as_ref().is_err_and(Fault::is_not_reached)
}

/// A call without `all_tenants`.
fn apart(digest: &str, limits: Limits) -> Call {
    Call { all_tenants: false, ..call(digest, limits) }
}

/// Items with these keys, each of a tenant.
fn of_tenants<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Item> {
    let of_tenant = |(tenant, key)| {
        let mut item = items([key]).remove(0);
        item.identity.tenant = Some(Tenant::from(tenant));
        item
    };
    pairs.into_iter().map(of_tenant).collect()
}

/// Even without any time for bisection, each tenant gets its call.
#[tokio::test]
async fn tenants_that_are_apart_need_no_time_for_halving_before_one_of_them_fails() {
    let settings = Settings { bisect_walls_max: 0, ..Settings::default() };
    let (runtime, loaded) = start(settings).await;
    let call = apart(&loaded.digest, limits());
    let batch = of_tenants([("c", "1"), ("a", "2"), ("b", "3"), ("d", "4"), ("a", "5")]);
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &batch).await.unwrap();
    assert_eq!(acted.verdicts, vec![behaved(); 5]);
    assert_eq!(acted.usage.instances, 4);

    let batch = of_tenants([("b", "panic"), ("a", "2"), ("b", "3"), ("c", "4")]);
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &batch).await.unwrap();
    assert_eq!(acted.verdicts[1], behaved());
    for at in [0, 2, 3] {
        assert!(not_reached(&acted.verdicts[at]), "{at}: {:?}", acted.verdicts);
    }
    assert_eq!(acted.usage.instances, 2);
}

#[tokio::test]
async fn what_is_finished_of_one_tenant_stands_where_the_call_of_another_cannot_take_place() {
    let (runtime, loaded) = hostile().await;
    for (mood, wall_ms) in [(Mood::Gone, 60_000), (Mood::Stuck, 500)] {
        let call = apart(&loaded.digest, Limits { wall_ms, ..limits() });
        let view = Things::in_mood(mood);
        let batch = of_tenants([("b", "delete-read"), ("a", "2"), ("c", "3"), ("a", "4")]);
        let acted = runtime.act(&call, view.clone(), Arc::new(Nobody), &batch).await.unwrap();
        assert_eq!([&acted.verdicts[1], &acted.verdicts[3]], [&behaved(), &behaved()]);
        assert!(not_reached(&acted.verdicts[0]) && not_reached(&acted.verdicts[2]));
        // If nothing was finished, the error is reported.
        let batch = of_tenants([("a", "delete-read"), ("b", "2")]);
        let acted = runtime.act(&call, view, Arc::new(Nobody), &batch).await;
        assert!(matches!(acted, Err(Error::Infrastructure(_) | Error::Refused(..))), "{acted:?}");
    }
}

/// Each of these verdicts has 3 MiB. Two fit into one answer, and fill more than one commit.
#[tokio::test]
async fn once_verdicts_fill_a_commit_no_other_call_is_made_for_the_batch() {
    let (runtime, loaded) =
        start(Settings { verdict_bytes_max: 4 << 20, ..Settings::default() }).await;
    let limits = Limits { hostcall_fuel: 8 << 20, ..limits() };
    let batch = items(["emit-flood"; 8]);
    let call = call(&loaded.digest, limits.clone());
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &batch).await.unwrap();
    assert!(acted.verdicts[..2].iter().all(Result::is_ok), "{:?}", told_of(&acted.verdicts));
    let no_room = |verdict: &Result<Verdict, Fault>| verdict.as_ref().is_err_and(Fault::is_no_room);
    assert!(acted.verdicts[2..].iter().all(no_room), "{:?}", told_of(&acted.verdicts));
    assert_eq!(acted.usage.instances, 3);

    let batch = of_tenants(["a", "b", "c", "d"].map(|tenant| (tenant, "emit-flood")));
    let call = apart(&loaded.digest, limits);
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &batch).await.unwrap();
    assert!(acted.verdicts[..2].iter().all(Result::is_ok), "{:?}", told_of(&acted.verdicts));
    assert!(acted.verdicts[2..].iter().all(no_room), "{:?}", told_of(&acted.verdicts));
    assert_eq!(acted.usage.instances, 2);
}

/// The causes of the faults; none: a verdict.
fn told_of(verdicts: &[Result<Verdict, Fault>]) -> Vec<Option<&str>> {
    verdicts.iter().map(|verdict| verdict.as_ref().err().map(|fault| &*fault.cause)).collect()
}

#[tokio::test]
async fn of_a_call_that_is_stopped_nothing_stands() {
    let (runtime, loaded) = hostile().await;
    let call = apart(&loaded.digest, endless());
    let stuck = Things::in_mood(Mood::Stuck);
    let batch = of_tenants([("a", "1"), ("b", "delete-read")]);
    let acting = runtime.act(&call, stuck.clone(), Arc::new(Nobody), &batch);
    let stop = async {
        while stuck.reads.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        call.stop.raise("the lease is lost");
    };
    let (acted, ()) = tokio::join!(acting, stop);
    assert!(matches!(acted, Err(Error::Stopped(_))), "{acted:?}");
}

#[tokio::test]
async fn a_guest_sees_no_environment_file_or_network() {
    assert_eq!(told("look-around").await, "0 0 0 false false");
}

#[tokio::test]
async fn the_same_call_sees_the_same_clock_and_randomness() {
    let (runtime, loaded) = hostile().await;
    let ask = async |now: Time, seed: u64| {
        let call = Call { now, seed, ..call(&loaded.digest, limits()) };
        let keys = items(["clock", "random"]);
        let acted = runtime.act(&call, things(), Arc::new(Nobody), &keys).await.unwrap();
        let reason = |verdict| match verdict {
            Ok(Verdict::Skip { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        (acted.verdicts.into_iter().map(reason).collect::<Vec<_>>(), acted.usage.fuel)
    };
    let first = ask(Time(1_234_567), 1).await;
    assert_eq!(first.0[0], "1234567");
    assert_eq!(first, ask(Time(1_234_567), 1).await);
    assert_ne!(first.0[1], ask(Time(1_234_567), 2).await.0[1]);
}

#[tokio::test]
async fn what_a_call_used_is_told() {
    let acted = act(limits(), &["one", "delete-read"]).await.unwrap();
    let usage = acted.usage;
    assert!(usage.fuel > 1_000, "{usage:?}");
    assert!(usage.memory_bytes >= 64 << 10, "{usage:?}");
    assert_eq!((usage.rows_read, usage.host_calls, usage.instances), (10, 1, 1));
}

#[tokio::test]
async fn a_flood_of_log_lines_is_no_fault() {
    let acted = act(Limits { log_bytes: 100, ..limits() }, &["flood-log"]).await.unwrap();
    let logged = Verdict::Skip { reason: "logged".into(), settled: false };
    assert_eq!(acted.verdicts, [Ok(logged)]);
    assert_eq!(acted.usage.host_calls, 900);
}
