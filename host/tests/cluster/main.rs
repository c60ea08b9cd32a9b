//! A cluster of real hosts on real servers: parts of it are killed, frozen or stopped, and it is
//! misconfigured.
//!
//! `site` is the cluster; `faults` and `restored` harm it; `cut` separates a node from the store
//! (with `proxy`); `refusals` tests wrong configurations, `operators` the verbs, `campaign` one
//! fault after the other under load, `dashboard` the admin API and the dashboard, and `demo` the
//! cluster that Besom starts by itself. One cluster runs at a time: each has three members of etcd,
//! two other servers and three hosts.

mod campaign;
mod cut;
mod dashboard;
mod demo;
mod faults;
mod operators;
mod proxy;
mod refusals;
mod restored;
mod site;
#[path = "../common/terminal.rs"]
mod terminal;
#[path = "../common/wait.rs"]
mod wait;
