//! The crates of the host have defaults of their own, which tests and other callers use. These tests
//! compare them with the defaults of the configuration.

use std::path::Path;

use besom_config::{Config, Overrides, RawConfig};
use besom_core::activity::Timeouts;
use besom_engine::host::{lines, quota, setup};
use besom_node::{executor, planner};
use besom_ports::lines::LINES_MAX_DEFAULT;
use besom_postgres as postgres;
use besom_product::model::default_collections;
use besom_runtime as runtime;
use besom_services::activity::redis;
use besom_services::coordination::store_lease;

/// The configuration of an empty file.
fn config() -> Config {
    let written = RawConfig::parse("", Path::new("besom.toml"), &Overrides::default());
    written.outline(&default_collections()).finish().expect("an empty file is valid")
}

#[test]
fn a_node_is_bounded_as_by_an_empty_file() {
    let config = config();
    let node = setup::settings(&config, "a".into(), None, false);
    assert_eq!(node.executor, executor::Settings::default());
    assert_eq!(node.planner, planner::Settings::default());
    assert_eq!(node.timing.ttl, store_lease::LEASE_TTL_DEFAULT);
    assert_eq!(config.host.log_lines_per_s, lines::LINES_PER_S_DEFAULT.get());
    assert_eq!(config.host.log_lines_max, LINES_MAX_DEFAULT);
    let bounds = quota::Bounds::default();
    assert_eq!(config.delivery.pending_max, bounds.pending_messages);
    assert_eq!(config.delivery.pending_bytes_max, bounds.pending_bytes);
    assert_eq!(config.host.history_text_max, bounds.history_text);
    assert_eq!(config.api.connections_max, besom_engine::api::CONNECTIONS_MAX_DEFAULT);
    let runtime = runtime::Settings::default();
    assert_eq!(config.host.guest_slice, runtime.slice);
    assert_eq!(config.host.batch_bytes, runtime.verdict_bytes_max as u64);
    assert_eq!(config.plugins.bytes_max, runtime.component_bytes_max);
}

#[test]
fn a_store_and_its_activity_are_bounded_as_by_an_empty_file() {
    let config = config();
    let (store, options) = (&config.store, postgres::Options::default());
    assert_eq!((&store.schema, store.partitions), (&options.schema, options.partitions));
    let connections = [store.commit_connections, store.act_connections, store.read_connections];
    let pools = [options.writers_max, options.snapshots_max, options.readers_max];
    assert_eq!(connections.map(|most| most as usize), pools);
    assert_eq!(
        [
            store.connect_timeout,
            store.statement_timeout,
            store.lock_timeout,
            store.guard_timeout,
            store.idle_in_transaction_timeout,
            store.tcp_user_timeout,
        ],
        [
            options.connect_timeout,
            options.statement_timeout,
            options.lock_timeout,
            options.guard_timeout,
            options.idle_in_transaction_timeout,
            options.tcp_user_timeout,
        ]
    );
    assert_eq!(store.undo_bytes, options.undo_bytes);
    let (activity, options) = (&config.activity, redis::Options::default());
    let timeouts = Timeouts { idle: activity.idle_timeout, heartbeat: activity.heartbeat_timeout };
    assert_eq!(timeouts, options.timeouts);
    assert_eq!(activity.redis_connections, options.connections_key);
    assert_eq!(activity.redis_timer, options.timer_key);
    assert_eq!(activity.redis_connect_timeout, options.connect_timeout);
    assert_eq!(activity.redis_timeout, options.call_timeout);
    assert_eq!(activity.redis_backoff_max, options.backoff_max);
    assert_eq!(activity.redis_batch as usize, options.batch_max);
}
