//! A cluster on one machine: servers, and hosts that share them, each with its own directory.
//!
//! ```text
//! DIR/servers/             logs and data of etcd, PostgreSQL and Redis
//! DIR/node-1/besom.toml    one for each host, beside its log and its sockets
//! DIR/node-2/...
//! ```
//!
//! Servers and hosts end with this process, and so does their data: the demo starts from scratch
//! each time.

mod process;
mod servers;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};

pub use process::{Process, Start};
pub use servers::{Programs, Servers, Shape, Which, tail};

use super::config;
use super::orchestrator::Orchestrator;
use besom_config::template::Template;

/// Maximum number of hosts: each compiles its plugins and has its own connections.
pub const NODES_MAX: usize = 9;

/// The name of the cluster.
pub const NAME: &str = "demo";

/// The lease of the demo's hosts: duration and renewal interval. (Shipped: 15 s and 5 s.)
pub const LEASE: (&str, &str) = ("5s", "1s");

/// The duration and the renewal interval of a lease; `None`: those of the demo.
pub type Lease<'a> = Option<(&'a str, &'a str)>;

/// A host of the cluster.
#[derive(Debug)]
pub struct Host {
    name: String,
    dir: PathBuf,
    process: Option<Process>,
}

/// Claims an empty or new directory.
///
/// # Errors
/// The directory is not empty.
pub fn claim(dir: &Path) -> anyhow::Result<()> {
    let name = || dir.display().to_string();
    std::fs::create_dir_all(dir).with_context(name)?;
    if let Some(found) = std::fs::read_dir(dir).with_context(name)?.next() {
        let found = found.with_context(name)?.file_name();
        bail!(
            "{}: contains `{}`; the cluster demo starts from scratch each time: use an empty or a \
             new directory",
            dir.display(),
            found.to_string_lossy()
        );
    }
    Ok(())
}

/// The configuration of a host.
pub fn configuration(servers: &Servers, name: &str, cache: &Path, lease: Lease<'_>) -> String {
    config::marked(&template(servers, name, cache, lease))
}

/// The configuration of a host in a demo that keeps running, with an orchestrator to call.
pub fn lively_configuration(
    servers: &Servers,
    name: &str,
    cache: &Path,
    orchestrator: &Orchestrator,
) -> String {
    let token = orchestrator.token();
    config::marked(&config::lively(template(servers, name, cache, None), orchestrator, token))
}

fn template(servers: &Servers, name: &str, cache: &Path, lease: Lease<'_>) -> Template {
    let quoted = |text: &str| format!("{text:?}");
    let (ttl, renew) = lease.unwrap_or(LEASE);
    let secret = quoted(&servers.password_file().display().to_string());
    let mut template = config::shortened();
    if let Some(user) = servers.etcd_user() {
        template = template.set("coordination.user", quoted(user));
        template = template.set("coordination.password_file", &secret);
    }
    template
        .unset("store.path")
        .set("store.password_file", &secret)
        .set("activity.redis_password_file", &secret)
        .set("store.url", quoted(&servers.postgres()))
        .set("activity.redis", format!("[{}]", quoted(&servers.redis())))
        .set("coordination.etcd", format!("{:?}", servers.etcd()))
        .set("coordination.cluster", quoted(NAME))
        .set("node.name", quoted(name))
        .set("runtime.cache", quoted(&cache.display().to_string()))
        .set("lease.ttl", quoted(ttl))
        .set("lease.renew", quoted(renew))
}

impl Host {
    /// Writes a host's configuration.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn prepare(dir: &Path, name: &str, config: &str) -> io::Result<Host> {
        let dir = std::path::absolute(dir)?.join(name);
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join("besom.toml"), config)?;
        Ok(Host { name: name.to_owned(), dir, process: None })
    }

    /// The permanent name of the host.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of its configuration.
    pub fn config(&self) -> PathBuf {
        self.dir.join("besom.toml")
    }

    /// The path of its log.
    pub fn log(&self) -> PathBuf {
        self.dir.join("besom.log")
    }

    /// Starts or restarts the host, with `besom` as the program.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn start(&mut self, besom: &Path, args: &[&str]) -> io::Result<()> {
        self.process = None;
        let args = ["serve", "--config", "besom.toml"].iter().chain(args);
        self.process = Some(Process::start(Start {
            program: besom,
            args: args.map(ToString::to_string).collect(),
            dir: &self.dir,
            log: self.log(),
            stop: "TERM",
            user: None,
        })?);
        Ok(())
    }

    /// The process of the host; `None`: it was never started, or was stopped.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Whether the process is running.
    pub fn is_alive(&self) -> bool {
        self.process.as_ref().is_some_and(Process::is_alive)
    }

    /// Stops the host as an operator would, and waits until it has ended.
    pub fn stop(&mut self) {
        self.process = None;
    }
}

/// Stops all hosts at once: one after the other, each would hand its partitions to the next.
pub fn stop_all(hosts: &mut [Host]) {
    for process in hosts.iter().filter_map(Host::process) {
        // A host that has already ended needs no signal.
        let _ = process.signal(rustix::process::Signal::TERM);
    }
    for host in hosts {
        host.stop();
    }
}

/// How long to wait for the cluster.
pub const PATIENCE: Duration = Duration::from_secs(120);
