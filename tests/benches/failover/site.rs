//! A cluster at work: servers, hosts, and a product that adds shares all the time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use besom_demo::cluster::{
    Host, NAME, PATIENCE, Programs, Servers, Shape, Which, configuration, stop_all,
};
use etcd_client::Client as Etcd;
use rustix::process::Signal;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::books::{Books, Micros, now};

/// How far ahead shares are planned: longer than any fail-over, so that most of what falls due
/// while nobody leads is planned already.
/// (The window is a tenth of the shortest limit.)
const LIMIT_MIN: &str = "limit_min = \"10m\"";
/// When most new shares fall due, in seconds from now; within what is planned ahead.
const DUE_LATER_S: u32 = 40;
/// Shares that are added at once: so many that fall due then, and so many in a second's time.
const ADDED: (u32, u32) = (8, 2);
const ADD_EVERY: Duration = Duration::from_millis(100);
/// How often something that is waited for is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A lease's time to live, and how often it is renewed.
#[derive(Debug, Clone)]
pub struct Span {
    ttl: String,
    renew: String,
}

impl Span {
    /// `5s/1s`, say.
    pub fn parse(text: &str) -> Result<Span> {
        let (ttl, renew) = text.split_once('/').context("--lease: TTL/RENEW, as in 5s/1s")?;
        let span = Span { ttl: ttl.into(), renew: renew.into() };
        seconds(&span.ttl).and(seconds(&span.renew))?;
        Ok(span)
    }

    /// The time to live.
    pub fn ttl(&self) -> Result<Duration> {
        seconds(&self.ttl)
    }

    /// The time between two renewals.
    pub fn renew(&self) -> Result<Duration> {
        seconds(&self.renew)
    }

    /// For people.
    pub fn shown(&self) -> String {
        format!("TTL {}, renewed every {}", self.ttl, self.renew)
    }
}

fn seconds(text: &str) -> Result<Duration> {
    let number = text.strip_suffix('s').and_then(|number| number.parse().ok());
    number.map(Duration::from_secs).with_context(|| format!("`{text}`: whole seconds, as in 5s"))
}

/// The leader, as it wrote itself down.
#[derive(Debug, Clone)]
pub struct Leader {
    /// The index of its host.
    pub host: usize,
    /// Its incarnation.
    pub incarnation: String,
    /// Its last renewal.
    pub renewed_at: Micros,
}

/// A cluster; everything ends with it.
pub struct Site {
    pub span: Span,
    pub books: Books,
    pub etcd: Etcd,
    hosts: Vec<Host>,
    binary: PathBuf,
    feeder: JoinHandle<Result<()>>,
    _servers: Servers,
    dir: tempfile::TempDir,
}

impl Site {
    /// Starts it, and waits until each host has its part and shares fall due.
    pub async fn start(binary: &Path, hosts: usize, span: &Span) -> Result<Site> {
        let dir = tempfile::tempdir()?;
        let shape = Shape { etcd_members: 3, durable: true, etcd_password: false };
        let mut servers = Servers::start(Programs::find()?, &dir.path().join("servers"), shape)?;
        // The server tells to the microsecond when a row's transaction was committed.
        connect(&servers)
            .await?
            .batch_execute("ALTER SYSTEM SET track_commit_timestamp = on")
            .await?;
        servers.restart(Which::Postgres)?;
        let lease = Some((span.ttl.as_str(), span.renew.as_str()));
        let cache = dir.path().join("plugins");
        let hosts: Vec<Host> = (1..=hosts)
            .map(|number| {
                let name = format!("node-{number}");
                let config = planned_ahead(&configuration(&servers, &name, &cache, lease))?;
                Ok(Host::prepare(dir.path(), &name, &config)?)
            })
            .collect::<Result<_>>()?;
        create_tables(binary, &hosts[0], dir.path())?;
        let feeder = tokio::spawn(feed(connect(&servers).await?));
        let mut site = Site {
            span: span.clone(),
            books: Books::new(connect(&servers).await?),
            etcd: Etcd::connect(servers.etcd(), None).await?,
            hosts,
            binary: binary.to_owned(),
            feeder,
            _servers: servers,
            dir,
        };
        for index in 0..site.hosts.len() {
            site.start_host(index)?;
        }
        site.shared_out().await?;
        site.books.open().await?;
        // The first shares that were planned long before fall due.
        tokio::time::sleep(Duration::from_secs(DUE_LATER_S.into())).await;
        site.shared_out().await?;
        Ok(site)
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Starts a host, or starts it again.
    pub fn start_host(&mut self, index: usize) -> Result<()> {
        Ok(self.hosts[index].start(&self.binary, &[])?)
    }

    /// Sends a host a signal, and says when.
    pub fn signal(&self, index: usize, signal: Signal) -> Result<Micros> {
        let process = self.hosts[index].process().context("it was never started")?;
        let at = now()?;
        process.signal(signal)?;
        Ok(at)
    }

    /// Whoever leads.
    pub async fn leader(&mut self) -> Result<Leader> {
        let asked = Instant::now();
        loop {
            if let Some(leader) = self.leader_now().await? {
                return Ok(leader);
            }
            ensure!(asked.elapsed() < PATIENCE, "nobody leads\n{}", self.logs());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Whoever leads now, if anybody does.
    pub async fn leader_now(&mut self) -> Result<Option<Leader>> {
        let answer = self.etcd.get(format!("/besom/{NAME}/leader"), None).await?;
        let Some(found) = answer.kvs().first() else { return Ok(None) };
        let record: Value = serde_json::from_slice(found.value())?;
        let incarnation = record["node"].as_str().context("the leader has no name")?.to_owned();
        let is_it = |host: &Host| incarnation.starts_with(&format!("{}-", host.name()));
        let host = self.hosts.iter().position(is_it).context("an unknown leader")?;
        let renewed_at = record["renewed_at"].as_i64().context("the leader never renewed")?;
        Ok(Some(Leader { host, incarnation, renewed_at: Micros(renewed_at) }))
    }

    /// The name under which a host owns partitions now.
    pub async fn incarnation(&self, index: usize) -> Result<String> {
        self.books.owner_like(self.hosts[index].name()).await
    }

    /// Waits until every host has about its share of the partitions.
    pub async fn shared_out(&mut self) -> Result<()> {
        let asked = Instant::now();
        loop {
            let names: Vec<&str> = self.hosts.iter().map(Host::name).collect();
            if self.books.shared_out(&names).await? && self.leader_now().await?.is_some() {
                return Ok(());
            }
            let all = self.hosts.iter().all(Host::is_alive);
            ensure!(all && asked.elapsed() < PATIENCE, "not shared out\n{}", self.logs());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The last words of the hosts.
    pub fn logs(&self) -> String {
        let mut out = String::new();
        for host in &self.hosts {
            let log = std::fs::read_to_string(host.log()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(30)..];
            out.push_str(&format!("{}:\n{}\n", host.name(), last.join("\n")));
        }
        out
    }

    /// Ends the load, waits until everything is done, and compares the books.
    pub async fn balanced(mut self) -> Result<()> {
        self.feeder.abort();
        let fed = (&mut self.feeder).await;
        ensure!(fed.is_err_and(|e| e.is_cancelled()), "the product failed meanwhile");
        let asked = Instant::now();
        while self.books.open_shares().await? > 0 {
            ensure!(asked.elapsed() < PATIENCE, "work is left undone\n{}", self.logs());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let ended = self.books.every_effect_once().await?;
        let mut audit = Command::new(&self.binary);
        audit.arg("--config").arg(self.hosts[0].config()).args(["audit", "--output", "json"]);
        let out = audit.current_dir(self.dir.path()).output()?;
        let said: Value = serde_json::from_slice(&out.stdout).context("besom audit")?;
        if said["balanced"] != true {
            bail!("the books do not balance: {said:#}");
        }
        crate::report::say(&format!(
            "{}: {ended} shares ended, each once, none early; the books balance",
            self.span.shown()
        ));
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.feeder.abort();
        stop_all(&mut self.hosts);
    }
}

async fn connect(servers: &Servers) -> Result<Client> {
    let (client, connection) = servers.connection().connect(NoTls).await?;
    // Its end is seen by whoever asks next.
    tokio::spawn(connection);
    Ok(client)
}

/// The configuration with shares planned further ahead than the demo's.
fn planned_ahead(config: &str) -> Result<String> {
    let is_it = |line: &&str| line.starts_with("limit_min = ");
    let line = config.lines().find(is_it).context("the demo does not set limit_min")?;
    Ok(config.replace(line, LIMIT_MIN))
}

/// The first import into an empty database creates the tables.
fn create_tables(binary: &Path, host: &Host, dir: &Path) -> Result<()> {
    std::fs::write(dir.join("first.log"), [1, 0, 0, 0, 2, 0, 0, 0, 0, 0])?;
    let mut import = Command::new(binary);
    import.arg("--config").arg(host.config());
    import.args(["doc", "import", "first.log", "--tenant", "first"]).current_dir(dir);
    let out = import.output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

/// A product at work: about a hundred shares fall due every second.
async fn feed(product: Client) -> Result<()> {
    let (later, soon) = ADDED;
    product
        .batch_execute(
            "INSERT INTO projects VALUES ('acme') ON CONFLICT DO NOTHING;
             CREATE SEQUENCE share_number",
        )
        .await?;
    let sql = format!(
        "INSERT INTO shares (project_id, share_id, file_id, start_date)
         SELECT 'acme', 's-' || nextval('share_number'), 'f', now() - interval '7 days'
           + CASE WHEN n <= {later} THEN {DUE_LATER_S} + n * 0.0125 ELSE 1 END * interval '1 second'
         FROM generate_series(1, {later} + {soon}) n"
    );
    let statement = product.prepare(&sql).await?;
    let mut tick = tokio::time::interval(ADD_EVERY);
    loop {
        tick.tick().await;
        product.execute(&statement, &[]).await?;
    }
}
