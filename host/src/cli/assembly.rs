//! Builds a host from a configuration: opens the adapters, loads the plugins and checks the mapping.
//! Building a host does not start it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use besom_core::brake::Brakes;
use besom_core::delivery::Settings;
use besom_core::ids::TaskName;
use tokio::sync::{mpsc, watch};

use super::open::{self, Loader, Purpose};
use super::patience::telling;
use super::{Failure, Global, cluster, endpoints};
use besom_config::delivery::Receiver;
use besom_config::diagnostic::Place;
use besom_config::{Config, Diagnostic, Problems};
use besom_engine::host::clock::StoreTime;
use besom_engine::host::deliver::{Delivery, ToBroker};
use besom_engine::host::feed::{self, Feed};
use besom_engine::host::lines::Lines;
use besom_engine::host::perform::Ports;
use besom_engine::host::quota::{Bounds, Quota};
use besom_engine::host::recorder::Recorder;
use besom_engine::host::undo::{self, Proposer, Undoing};
use besom_engine::host::{Control, Ended, Live, Lost, keep_removed, setup};
use besom_node::{Role, Work};
use besom_ports::coordination::Coordination;
use besom_ports::courier::Broker;
use besom_ports::store::Store;
use besom_services::coordination::etcd::Etcd;
use besom_services::courier::HttpCourier;
use besom_services::courier::kafka::KafkaTopic;
use besom_services::courier::redis::RedisStream;

/// The parts of a host that is ready to start.
pub struct Assembly {
    /// The validated configuration.
    pub config: Config,
    /// Loads plugins into the runtime; kept for reloads.
    pub loader: Loader,
    /// The tasks of the configuration that a pass leaves out, with their brakes.
    pub left_out: BTreeMap<TaskName, Brakes>,
    /// The opened adapters.
    pub ports: Ports,
    /// Takes messages of the product.
    pub feed: Arc<Feed>,
    /// The cluster's etcd; `None` if this host is not part of a cluster.
    pub etcd: Option<Arc<Etcd>>,
}

impl Assembly {
    /// Reads the configuration, loads the plugins, opens the adapters and compares the mapping with
    /// the database.
    ///
    /// # Errors
    /// All problems of the configuration at once, or a store or etcd that cannot be reached.
    pub async fn new(global: &Global, purpose: Purpose) -> Result<Assembly, Failure> {
        let (config, loader, store) = open::checked(global, purpose).await?;
        let serving = purpose == Purpose::Serve;
        if serving {
            // Checked before this node joins the cluster and may lead it.
            let place = || Place::File { file: global.config.display().to_string() };
            let faults = endpoints::faults(&config).into_iter();
            let faults = faults.map(|words| Diagnostic::error(place(), words).fix(endpoints::FIX));
            let faults: Vec<_> = faults.collect();
            if !faults.is_empty() {
                return Err(Problems(faults).into());
            }
        }
        let node = setup::incarnation(&config);
        let clock = StoreTime::of_machine(config.clock.bounds());
        let wait_max = config.host.connect_wait_max;
        telling("reading the clock of the store", wait_max, clock.read(store.as_ref())).await??;
        let etcd = cluster::etcd(&config, &node, &clock)?;
        let cluster = match &etcd {
            Some(etcd) if serving => {
                let joined = cluster::join(&config, etcd, store.as_ref());
                // It has the same patience with etcd, and with a registration that has to end.
                let wait_max = wait_max * 2 + config.lease.ttl * 2;
                Some(telling("joining the cluster", wait_max, joined).await??)
            }
            Some(_) | None => None,
        };
        let coordination = match &etcd {
            Some(etcd) => Arc::clone(etcd) as Arc<dyn Coordination>,
            None => open::store_lease(&config, &store, &node, &clock),
        };
        let health = Arc::default();
        let feed = feed(&config, store.clone());
        let delivery = Some(delivery(&config, store.identity(), &feed)?);
        let recorder: Arc<Recorder> = Arc::default();
        recorder.config_taken(&global.config.display().to_string());
        let lines = Lines::new(
            &setup::node_name(&config),
            NonZeroU32::new(config.host.log_lines_per_s).unwrap_or(NonZeroU32::MIN),
            config.host.log_lines_max,
        );
        let undoing = Proposer::new(store.clone(), config.topics.keys());
        let ports = Ports {
            coordination,
            cluster,
            activity: open::activity(&config, &store, serving, &health).await?,
            guests: Arc::new(Undoing::new(Arc::new(loader.runtime().clone()), undoing)),
            store,
            clock,
            clock_read_every: config.clock.read_every,
            health,
            node,
            snapshot_max: config.host.act_snapshot_max,
            history_retention: config.retention.history,
            node_retention: config.retention.nodes,
            keep_removed: Vec::new(),
            recorder,
            lines: Arc::new(lines),
            quota: Arc::new(Quota::new(quota_bounds(&config))),
            braking: Arc::default(),
            pacing: Arc::default(),
            trying: Arc::default(),
            routed: config.topics.keys().cloned().collect(),
            delivery,
        };
        let left_out = BTreeMap::new();
        Ok(Assembly { config, loader, left_out, ports, feed, etcd })
    }

    /// Keeps only the named tasks; an empty list keeps all of them. Those that are refused or held stay so, and do not
    /// hinder the others.
    ///
    /// # Errors
    /// A task that is not in the configuration; the message suggests the closest name.
    pub fn only(&mut self, tasks: &[String]) -> Result<(), Failure> {
        if tasks.is_empty() {
            return Ok(());
        }
        let mut kept: BTreeSet<TaskName> = BTreeSet::new();
        for name in tasks {
            let Config { refused, unmatched, .. } = &self.config;
            if refused.contains_key(name.as_str()) || unmatched.contains_key(name.as_str()) {
                continue;
            }
            let Some((name, _)) = self.config.tasks.get_key_value(name.as_str()) else {
                let names: Vec<&str> = self.config.tasks.keys().map(TaskName::as_str).collect();
                let fix = match besom_config::keys::nearest(name, names.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("available: {}", names.join(", ")),
                };
                return Err(Failure::Usage(format!("there is no task `{name}`; {fix}")));
            };
            kept.insert(name.clone());
        }
        self.leave_out(|name| !kept.contains(name));
        let is_named = |task: &TaskName| tasks.iter().any(|name| name == task.as_str());
        self.config.refused.retain(|task, _| is_named(task));
        self.config.unmatched.retain(|task, _| is_named(task));
        Ok(())
    }

    /// Leaves tasks out of a pass, which still applies commands about them.
    pub fn leave_out(&mut self, is_left_out: impl Fn(&TaskName) -> bool) {
        let left_out = self.config.tasks.extract_if(.., |name, _| is_left_out(name));
        self.left_out.extend(left_out.map(|(name, definition)| (name, definition.brakes)));
    }

    /// Returns the tasks and collections of the configuration as work for a node.
    pub fn work(&self) -> Work {
        setup::work(&self.config)
    }

    /// Starts a node on the current Tokio runtime. With `pass`, the node plans everything at once and
    /// ends when nothing new is planned.
    pub fn start(&self, pass: bool) -> Running {
        // A pass runs alone and owns every partition.
        let partitions = NonZeroU32::new(self.ports.store.partitions());
        let partitions = partitions.filter(|_| self.ports.cluster.is_some());
        let settings = setup::settings(&self.config, self.ports.node.clone(), partitions, pass);
        let mut work = self.work();
        // A pass undoes only what `besom undo` has asked for.
        match pass {
            true => work.left_out.clone_from(&self.left_out),
            false => undo::add(&mut work),
        }
        // A pass executes items but does not wait for receivers of messages.
        let delivery = self.ports.delivery.clone().filter(|_| !pass);
        let keep_removed = keep_removed(&work);
        let ports = Ports { keep_removed, delivery, ..self.ports.clone() };
        let (control, asked) = mpsc::channel(16);
        let (live, watched) = watch::channel(Live { role: Role::Following, term: None });
        let digest = self.config.digest();
        let ended =
            tokio::spawn(besom_engine::host::run(ports, settings, work, digest, asked, live));
        Running { control, live: watched, ended }
    }
}

/// Limits of what tasks may leave in the store.
fn quota_bounds(config: &Config) -> Bounds {
    let is_file = config.store.url.is_none();
    Bounds {
        pending_messages: config.delivery.pending_max,
        pending_bytes: config.delivery.pending_bytes_max,
        routed: config.topics.keys().cloned().collect(),
        history_text: config.host.history_text_max,
        disk: is_file.then(|| (config.store.path.clone(), config.store.disk_free_min)),
    }
}

/// What takes messages of the product.
fn feed(config: &Config, store: Arc<dyn Store>) -> Arc<Feed> {
    let topics = config.topics.iter().filter(|(_, route)| route.feed);
    let topics = topics.map(|(name, _)| name.clone()).collect();
    let bounds = feed::Bounds {
        pending_messages: config.delivery.pending_max,
        pending_bytes: config.delivery.pending_bytes_max,
        poll: config.delivery.poll,
    };
    Feed::new(store, topics, bounds)
}

/// The delivery of messages.
fn delivery(config: &Config, store: &str, feed: &Arc<Feed>) -> Result<Delivery, Failure> {
    let wrong = |error: anyhow::Error| Failure::Setting(format!("{error:#}"));
    let courier = HttpCourier::new(config, store).map_err(wrong)?;
    let (mut topics, mut brokers) = (BTreeMap::new(), Vec::new());
    let ca = config.delivery.ca.as_deref();
    for (name, route) in &config.topics {
        let broker: Arc<dyn Broker> = match Receiver::parse(&route.url) {
            Ok(Receiver::Redis(servers)) => {
                Arc::new(RedisStream::new(name, route, &servers, ca, store).map_err(wrong)?)
            }
            Ok(Receiver::Kafka(servers)) => {
                Arc::new(KafkaTopic::new(name, route, &servers, ca, store).map_err(wrong)?)
            }
            // Invalid URLs were reported with the configuration.
            Ok(Receiver::Http(_)) | Err(_) => {
                topics.insert(name.clone(), route.rules());
                continue;
            }
        };
        let rules = route.broker_rules(config.delivery.poll);
        brokers.push(ToBroker { topic: name.clone(), rules, broker });
    }
    let (concurrency, poll) = (config.delivery.concurrency, config.delivery.poll);
    let settings = Settings { topics, concurrency, poll };
    let (courier, feed) = (Arc::new(courier), Arc::clone(feed));
    Ok(Delivery { courier, settings, brokers, feed })
}

/// Handles of a running node.
pub struct Running {
    /// Sends requests to the node.
    pub control: mpsc::Sender<Control>,
    /// The current role and term of the node.
    pub live: watch::Receiver<Live>,
    /// Resolves when the node has ended.
    pub ended: tokio::task::JoinHandle<Result<Ended, Lost>>,
}

impl Running {
    /// Requests a shutdown; the node finishes the work in flight first.
    pub async fn shutdown(&self) {
        // Sending fails only if the node has already ended.
        let _ = self.control.send(Control::Shutdown).await;
    }
}

/// Waits for SIGTERM or SIGINT and returns the name of the signal.
pub async fn asked_to_stop() -> std::io::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
    }
}
