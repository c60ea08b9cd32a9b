//! A cluster of real hosts on real servers: what happens to it when any part of it is killed,
//! frozen or taken away, and how it is put together wrongly.
//!
//! `site` is the cluster, `faults` what is done to it, `cut` a node without the store (by a `proxy`), `refusals` what it refuses, `operators`
//! the verbs, `campaign` one fault after the other under load, `dashboard` what is seen of it meanwhile, `demo` the one that
//! Besom starts by itself. One cluster runs at a time: each has three members of etcd, two other servers
//! and three hosts.

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
