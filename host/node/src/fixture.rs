//! The definition of a task for the tests of this crate.

use std::time::Duration;

use besom_core::mode::Mode;
use besom_core::plan::{CatchUp, Overlap};
use besom_core::queue::RetryPolicy;
use besom_ports::guests::{Lane, Limits};
use besom_ports::task::{APPROVE_WITHIN_DEFAULT, TaskDefinition};

/// A task without a schedule, with batches of up to four items.
pub(crate) fn definition(name: &str, lane: Lane) -> TaskDefinition {
    TaskDefinition {
        name: name.into(),
        plugin: name.into(),
        digest: name.into(),
        schedule: None,
        timezone: "UTC".into(),
        overlap: Overlap::Skip,
        catch_up: CatchUp::Skip,
        jitter: Duration::ZERO,
        at_start: false,
        horizon: Duration::from_secs(60),
        settings: Vec::new(),
        limits: Limits {
            memory_bytes: 1,
            fuel: 1,
            hostcall_fuel: 1,
            wall_ms: 1,
            batch_items: 4,
            batch_bytes: 1 << 20,
            rows_read: 1,
            read_bytes: 16 << 20,
            changes: 1,
            deletes: 1,
            log_bytes: 1,
        },
        dependants: Vec::new(),
        grants: Default::default(),
        topics: Vec::new(),
        columns: Default::default(),
        all_tenants: true,
        aliases: Default::default(),
        unmapped: Vec::new(),
        described: Vec::new(),
        per_tenant: false,
        activity: false,
        lane,
        tenants_per_run: 1,
        candidates_per_tenant: 1,
        retry: RetryPolicy {
            attempts_max: 3,
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            guard_retries_max: 3,
            deaths_max: 3,
        },
        keep_removed: Duration::ZERO,
        queue_max: besom_ports::task::QUEUE_MAX_DEFAULT,
        timers_max: Lane::Normal.row().timers_max,
        dead_max: besom_ports::task::DEAD_MAX_DEFAULT,
        rows_per_second: None,
        yields: None,
        brakes: Default::default(),
        windows: Default::default(),
        mode: Mode::Live,
        approve_within: APPROVE_WITHIN_DEFAULT,
        mapping: String::new(),
    }
}
