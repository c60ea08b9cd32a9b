//! A Redis Cluster of three primaries, each with a replica.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use redis::{Client, FromRedisValue, RedisResult, cmd};

use super::process::{Process, free_ports, wait_for};

const PRIMARIES: usize = 3;
const SERVERS: usize = 2 * PRIMARIES;
/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The servers, which are killed when this is dropped.
pub(super) struct Redis {
    pub(super) servers: Vec<Process>,
    ports: Vec<u16>,
}

impl Redis {
    /// Starts them, and waits until they are a cluster.
    pub(super) fn start(place: &Path) -> Result<Redis> {
        let ports = free_ports(2 * SERVERS)?;
        let (ports, buses) = ports.split_at(SERVERS);
        let mut redis = Redis { servers: Vec::new(), ports: ports.to_vec() };
        for (number, (port, bus)) in (1..).zip(ports.iter().zip(buses)) {
            let name = format!("redis-{number}");
            std::fs::create_dir(place.join(&name))?;
            let arguments = format!(
                "--bind 127.0.0.1 --port {port} --cluster-port {bus} --cluster-enabled yes \
                 --cluster-node-timeout 2000 --repl-diskless-sync-delay 0 --appendonly yes \
                 --auto-aof-rewrite-percentage 0 --dir {name}"
            );
            let arguments: Vec<&str> = arguments.split(' ').collect();
            let server = Process::start(place, &name, "redis-server", &arguments)?;
            redis.servers.push(server);
        }
        wait_for("redis-server answers", || {
            redis.servers.iter_mut().try_for_each(Process::check).context(
                "redis-server: install it (apt-get install redis-server), or use servers of your own \
                 with --redis",
            )?;
            Ok(ports.iter().all(|&port| ask::<String>(port, "PING").is_ok()))
        })?;
        let slots = ["0 5460", "5461 10922", "10923 16383"];
        for (number, (&port, slots)) in (1..).zip(ports.iter().zip(slots)) {
            ask::<()>(port, &format!("CLUSTER ADDSLOTSRANGE {slots}"))?;
            ask::<()>(port, &format!("CLUSTER SET-CONFIG-EPOCH {number}"))?;
        }
        for (port, bus) in ports.iter().zip(buses).skip(1) {
            ask::<()>(ports[0], &format!("CLUSTER MEET 127.0.0.1 {port} {bus}"))?;
        }
        let known = format!("cluster_known_nodes:{SERVERS}");
        wait_for("the servers of Redis know each other", || {
            Ok(ports.iter().all(|&port| says(port, "CLUSTER INFO", &known)))
        })?;
        for (&primary, &replica) in ports.iter().zip(&ports[PRIMARIES..]) {
            let id: String = ask(primary, "CLUSTER MYID")?;
            ask::<()>(replica, &format!("CLUSTER REPLICATE {id}"))?;
        }
        redis.await_whole()?;
        Ok(redis)
    }

    /// Their addresses.
    pub(super) fn urls(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect()
    }

    /// Kills one of the primaries, starts it again as soon as its replica has taken over, and waits until it
    /// is a replica in sync. A primary that came back earlier would go on with what it has on disk, and there
    /// would be no failover.
    pub(super) fn kill_primary(&mut self, which: usize) -> Result<String> {
        let primaries: Vec<usize> =
            (0..SERVERS).filter(|&one| is_primary(self.ports[one])).collect();
        ensure!(primaries.len() == PRIMARIES, "Redis has {} primaries", primaries.len());
        let killed = primaries[which % PRIMARIES];
        self.servers[killed].kill();
        let others = || (0..SERVERS).filter(|one| *one != killed).map(|one| self.ports[one]);
        wait_for("a replica of Redis has taken over", || {
            let primaries = others().filter(|&port| is_primary(port)).count();
            let is_ok = |port| says(port, "CLUSTER INFO", "cluster_state:ok");
            Ok(primaries == PRIMARIES && others().all(is_ok))
        })?;
        let server = &mut self.servers[killed];
        server.resume()?;
        let name = server.name.clone();
        self.await_whole()?;
        Ok(name)
    }

    /// Waits until all servers say that the cluster is complete, and each primary has a replica in sync.
    pub(super) fn await_whole(&mut self) -> Result<()> {
        let (servers, ports) = (&mut self.servers, &self.ports);
        wait_for("the Redis Cluster is whole", || {
            servers.iter_mut().try_for_each(Process::check)?;
            let is_ok = |&port: &u16| says(port, "CLUSTER INFO", "cluster_state:ok");
            let primaries = ports.iter().filter(|&&port| is_primary(port));
            let with_replica = primaries.filter(|&&port| says(port, REPLICATION, "state=online"));
            let replicas =
                ports.iter().filter(|&&port| says(port, REPLICATION, "master_link_status:up"));
            Ok(ports.iter().all(is_ok)
                && with_replica.count() == PRIMARIES
                && replicas.count() == PRIMARIES)
        })
    }
}

const REPLICATION: &str = "INFO replication";

fn is_primary(port: u16) -> bool {
    says(port, REPLICATION, "role:master")
}

/// Whether the answer of a server contains these words.
fn says(port: u16, command: &str, words: &str) -> bool {
    ask::<String>(port, command).is_ok_and(|answer| answer.contains(words))
}

/// One command, as typed in `redis-cli`.
fn ask<T: FromRedisValue>(port: u16, line: &str) -> RedisResult<T> {
    let client = Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_connection_with_timeout(ANSWER_MAX)?;
    connection.set_read_timeout(Some(ANSWER_MAX))?;
    let mut words = line.split(' ');
    let mut command = cmd(words.next().unwrap_or_default());
    words.for_each(|word| _ = command.arg(word));
    command.query(&mut connection)
}
