//! The parts of the host have defaults of their own, which tests and other callers use: they are
//! those of the configuration.

use besom_core::activity::Timeouts;

use super::*;
use crate::activity::redis;
use crate::coordination::store_lease;
use crate::host::{lines, quota, setup};
use crate::node::{executor, planner};
use crate::ports::lines::LINES_MAX_DEFAULT;
use crate::runtime;
use crate::store::postgres;

#[test]
fn a_node_is_bounded_as_by_an_empty_file() {
    let config = load("").unwrap();
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
    assert_eq!(config.api.connections_max, crate::api::CONNECTIONS_MAX_DEFAULT);
    let runtime = runtime::Settings::default();
    assert_eq!(config.host.guest_slice, runtime.slice);
    assert_eq!(config.plugins.bytes_max, runtime.component_bytes_max);
}

#[test]
fn a_store_and_its_activity_are_bounded_as_by_an_empty_file() {
    let config = load("").unwrap();
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

/// The default of every key that the manual's table of limits names, as the table writes it.
#[test]
fn the_manual_names_the_defaults() {
    let shown = |default: &str| default.trim_matches('"').to_owned();
    let mut known = std::collections::BTreeMap::new();
    for section in sections::SECTIONS {
        for key in section.keys {
            known.insert(format!("{}.{}", section.name, key.name), shown(key.default));
        }
    }
    for key in task::RETRY_KEYS {
        known.insert(format!("retry.{}", key.name), shown(key.default));
    }
    for key in limits::KEYS {
        known.insert(format!("limits.{}", key.name), shown(key.default));
    }
    for key in task::KEYS {
        known.insert(key.name.to_owned(), shown(key.default));
    }
    let manual = include_str!("../../../../docs/reference.md");
    let (_, rest) = manual.split_once("\n## Limits\n").expect("the section");
    let (section, _) = rest.split_once("\n## ").expect("the next one");
    let mut compared = 0;
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.split('|').skip(1);
        let (keys, defaults) = (cells.next().unwrap_or(""), cells.next().unwrap_or(""));
        let keys: Vec<&str> = keys.split(", ").map(|key| key.trim().trim_matches('`')).collect();
        let defaults: Vec<&str> = defaults.split(", ").map(str::trim).collect();
        assert_eq!(keys.len(), defaults.len(), "{row}");
        let (table, _) = keys[0].split_once('.').expect("a table");
        for (key, default) in keys.iter().zip(defaults) {
            let name = if key.contains('.') { (*key).to_owned() } else { format!("{table}.{key}") };
            // The settings of a plugin are its own.
            if table != "settings" {
                let expected = known.get(&name).or_else(|| known.get(*key));
                assert_eq!(Some(&default.replace(' ', "")), expected, "{name}");
                compared += 1;
            }
        }
    }
    assert!(compared > 25, "{compared} defaults were compared");
}
