//! A campaign: one fault after the other in a cluster of real processes under load, with a ledger
//! that triggers keep in the database, independent of the books.
//!
//! After each fault everything due is executed within a bound; after the last one nothing was
//! early, doubled, lost or set aside, and every lasting fault was reported. `scripts/campaign` runs
//! any number of faults, or for a chosen time; the gate runs a few. At the end it prints a report.

mod faults;
mod load;
mod report;

use std::time::{Duration, Instant};

use besom_demo::cluster::Host;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use self::faults::{Disk, Fault};
use self::load::Load;
use self::report::Report;
use crate::proxy::Proxy;
use crate::site::Site;
use crate::wait::{wait_at_most, wait_for};

/// Hosts of the cluster.
const HOSTS: usize = 3;
/// The hosts' role: neither a superuser nor the owner of the product's tables.
const ROLE: &str = "housekeeper";
/// How late a share may end while there is no fault.
const LATE_MAX_S: u32 = 3;
/// How long it may take after a fault until everything due is executed.
const DRAIN_MAX: Duration = Duration::from_secs(90);
/// The most faults of a campaign that runs for a chosen time: a fault takes 5 s at least.
const SOAK_FAULTS_MAX: usize = 100_000;

/// The end of each share, and when it was due at that moment.
const LEDGER: &str = "
CREATE TABLE ledger (share text, at timestamptz, due timestamptz, by text);
CREATE FUNCTION note_in_ledger() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO ledger VALUES (new.project_id || '/' || new.share_id, clock_timestamp(),
        new.start_date + interval '7 days', current_setting('application_name'));
    RETURN NULL;
END $$;
CREATE TRIGGER note_in_ledger AFTER UPDATE OF unshared_at ON shares
    FOR EACH ROW EXECUTE FUNCTION note_in_ledger();
";

/// The books' entries of late shares.
const LATE: &str = "
SELECT concat_ws(' ', s.share_id, s.start_date + interval '7 days', 'waits:',
  (SELECT string_agg(concat_ws('/', i.place, to_timestamp(i.run_at / 1e6), i.part, i.version), ', ')
   FROM besom.item i WHERE i.key LIKE '%' || s.share_id || '%'), 'settled:',
  (SELECT string_agg(concat_ws('/', to_timestamp(t.at / 1e6), t.version), ', ')
   FROM besom.settled t WHERE t.key LIKE '%' || s.share_id || '%'), 'history:',
  (SELECT string_agg(concat_ws('/', to_timestamp(c.at / 1e6), h.outcome, h.reason, c.node), ', ')
   FROM besom.history h JOIN besom.commit c ON c.no = h.commit_no
   WHERE h.key LIKE '%' || s.share_id || '%'))
FROM shares s WHERE s.unshared_at IS NULL AND s.start_date + interval '7 days' < now()";

/// The proxies between one host and the servers.
struct Paths {
    store: Proxy,
    etcd: Vec<Proxy>,
}

/// The cluster under faults.
struct Campaign {
    site: Site,
    paths: Vec<Paths>,
    /// A configuration that bypasses the proxies; no host uses it.
    observer: Host,
    /// The file system with the product's shares; none: this user may not mount one.
    disk: Option<Disk>,
    random: StdRng,
}

#[test]
fn faults_leave_nothing_early_doubled_lost_set_aside_or_untold() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect(name));
    let seed: u64 = number("BESOM_SEED").unwrap_or(42);
    let mut campaign = Campaign::new(seed);
    let named = std::env::var("BESOM_CAMPAIGN_KINDS").unwrap_or_default();
    let span = number("BESOM_CAMPAIGN_SECONDS").map(Duration::from_secs);
    let faults = match number("BESOM_CAMPAIGN_FAULTS") {
        _ if !named.is_empty() => named.split(',').map(Fault::named).collect(),
        // More than any time has room for.
        _ if span.is_some() => campaign.plan(SOAK_FAULTS_MAX),
        Some(count) => campaign.plan(count as usize),
        None => Fault::GATE.to_vec(),
    };
    campaign.run(&faults, span.unwrap_or(Duration::MAX));
}

impl Campaign {
    fn new(seed: u64) -> Campaign {
        let mut site = Site::new(0);
        let postgres = site.servers.postgres();
        let store_port = port(postgres.trim_end_matches("/demo?sslmode=disable"));
        let etcd = site.servers.etcd();
        site.sql(&format!(
            "CREATE ROLE {ROLE} LOGIN PASSWORD '{}'; GRANT CREATE ON DATABASE demo TO {ROLE}; \
             GRANT CREATE ON SCHEMA public TO {ROLE}",
            site.servers.password()
        ));
        let as_role = postgres.replace("postgres@", &format!("{ROLE}@"));
        let observer = site.prepare("observer", |config| config.replace(&postgres, &as_role));
        let mut paths = Vec::new();
        for number in 1..=HOSTS {
            let store = Proxy::to(store_port);
            let etcds: Vec<Proxy> = etcd.iter().map(|url| Proxy::to(port(url))).collect();
            let host = site.prepare(&format!("node-{number}"), |config| {
                let config = config.replace(&postgres, &as_role);
                let config =
                    config.replace(&format!(":{store_port}/"), &format!(":{}/", store.port()));
                etcd.iter().zip(&etcds).fold(config, |config, (url, proxy)| {
                    config.replace(url, &format!("http://127.0.0.1:{}", proxy.port()))
                })
            });
            site.hosts.push(host);
            paths.push(Paths { store, etcd: etcds });
        }
        site.create_model();
        // The product owns its tables; the role has the privileges of `besom grants`.
        site.sql(&format!(
            "DO $$ DECLARE t text; BEGIN
               FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
                 EXECUTE format('ALTER TABLE public.%I OWNER TO postgres', t);
                 EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON public.%I TO {ROLE}', t);
               END LOOP;
             END $$;
             INSERT INTO projects SELECT 'tenant-' || n FROM generate_series(0, 3) n;"
        ));
        site.sql(LEDGER);
        let data = site.as_ref().join("servers/postgres").join("data");
        let small = data.canonicalize().expect("PostgreSQL's data").with_file_name("small");
        let disk = Disk::mount(small, &data);
        if let Some(disk) = &disk {
            let space = disk.path().join("space");
            site.sql(&format!("CREATE TABLESPACE small LOCATION '{}'", space.display()));
            site.sql("ALTER TABLE shares SET TABLESPACE small");
        }
        let mut campaign =
            Campaign { site, paths, observer, disk, random: StdRng::seed_from_u64(seed) };
        campaign.site.start();
        campaign
    }

    /// A plan of this many faults: every kind once before any is repeated, in random order.
    fn plan(&mut self, count: usize) -> Vec<Fault> {
        let mut kinds = Fault::ALL.to_vec();
        if self.disk.is_none() {
            eprintln!("a full disk is left out: this user may not mount one");
            kinds.retain(|fault| *fault != Fault::DiskFull);
        }
        let mut faults = Vec::new();
        while faults.len() < count {
            kinds.shuffle(&mut self.random);
            faults.extend_from_slice(&kinds);
        }
        faults.truncate(count);
        faults
    }

    /// Injects the faults, as many of them as begin within this time, and prints the report.
    fn run(&mut self, faults: &[Fault], span: Duration) {
        let mut product = self.site.servers.connection();
        product.application_name("product");
        let load = Load::start(product);
        self.wait(Duration::from_secs(3));
        let mut report = Report::new();
        report.measure(&self.site.hosts);
        for (index, fault) in faults.iter().enumerate() {
            if report.elapsed() >= span {
                break;
            }
            let begun = Instant::now();
            self.strike(*fault);
            let healed = Instant::now();
            self.drained(&format!("{fault:?}"));
            // The next fault starts on a complete cluster.
            for host in &self.site.hosts {
                assert!(host.is_alive(), "{} has ended after {fault:?}", host.name());
            }
            self.site.shared_out();
            let (took, drain) = (begun.elapsed(), healed.elapsed());
            eprintln!(
                "{:>3} of {} {fault:?}: {:.1} s, of these {:.1} s until nothing was late",
                index + 1,
                if span == Duration::MAX { faults.len().to_string() } else { "many".to_owned() },
                took.as_secs_f64(),
                drain.as_secs_f64()
            );
            report.add(*fault, begun, drain);
            report.measure(&self.site.hosts);
            self.judge(fault);
        }
        drop(load);
        self.site.shared_out();
        wait_at_most(DRAIN_MAX, "every share to end", || {
            let open = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
            (self.site.number(open) == 0).then_some(())
        });
        self.judge(&"the end");
        let unknown = self.unknown();
        report.measure(&self.site.hosts);
        let (audit, late) = (self.audit(), self.latenesses());
        let mut violations = self.violations().to_vec();
        violations.push(("ended shares that the ledger lacks", unknown));
        eprintln!("{}{}", report.faults(), report.figures(&audit, &violations, late));
        report.stays_within_bounds();
        assert_eq!(unknown, 0, "shares that ended, and those that the ledger knows");
    }

    /// When each share was due that a host has ended, and how late it ended, in seconds.
    fn latenesses(&mut self) -> Vec<(f64, f64)> {
        let sql = "SELECT concat_ws(' ', extract(epoch FROM clock_timestamp() - due),
                                    extract(epoch FROM at - due))
                   FROM ledger WHERE by LIKE 'besom%'";
        let number = |text: &str| text.parse::<f64>().expect("seconds");
        let rows = self.site.text(sql).into_iter().map(|row| {
            let (ago, late) = row.split_once(' ').expect("two numbers");
            (number(ago), number(late))
        });
        rows.collect()
    }

    fn audit(&self) -> serde_json::Value {
        let out = self.site.command(&self.observer, &["audit", "--output", "json"]).output();
        serde_json::from_slice(&out.expect("it runs").stdout).expect("JSON")
    }

    /// Shares that should have ended by now.
    fn late(&mut self) -> i64 {
        self.site.number(&format!(
            "SELECT count(*) FROM shares WHERE unshared_at IS NULL
             AND start_date + interval '7 days' < clock_timestamp() - interval '{LATE_MAX_S} s'"
        ))
    }

    /// Waits until no share is late.
    #[track_caller]
    fn drained(&mut self, after: &str) {
        let begun = Instant::now();
        while self.late() > 0 {
            if begun.elapsed() > DRAIN_MAX {
                panic!("late after {after}:\n{}", self.site.text(LATE).join("\n"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// No effect in the ledger is early or doubled, and no item was set aside.
    #[track_caller]
    fn judge(&mut self, after: &impl std::fmt::Debug) {
        for (what, count) in self.violations() {
            assert_eq!(count, 0, "{what} after {after:?}");
        }
    }

    /// What must not have happened, and how often it has.
    fn violations(&mut self) -> [(&'static str, i64); 3] {
        let early = "SELECT count(*) FROM ledger WHERE at < due AND by LIKE 'besom%'";
        let doubled = "SELECT count(*) FROM (SELECT share FROM ledger WHERE by LIKE 'besom%'
                       GROUP BY share HAVING count(*) > 1) AS doubled";
        [
            ("early effects", self.number(early)),
            ("doubled effects", self.number(doubled)),
            ("dead letters", self.number("SELECT count(*) FROM besom.dead")),
        ]
    }

    /// The shares that ended without an entry in the ledger, after the audit has found no difference in the books.
    fn unknown(&mut self) -> i64 {
        let audit = self.site.command(&self.observer, &["audit"]).output().expect("it runs");
        assert!(audit.status.success(), "{}", String::from_utf8_lossy(&audit.stdout));
        let ended = self.number("SELECT count(*) FROM shares WHERE unshared_at IS NOT NULL");
        ended - self.number("SELECT count(DISTINCT share) FROM ledger")
    }

    /// The index of the leader, by the store's fence.
    fn leader(&mut self) -> usize {
        wait_for("somebody to lead", || {
            let out = self
                .site
                .command(&self.observer, &["node", "ls", "--output", "json"])
                .output()
                .expect("it runs");
            let members: serde_json::Value = serde_json::from_slice(&out.stdout).ok()?;
            let leads = members.as_array()?.iter().find(|member| member["leads"] == true)?;
            self.site.hosts.iter().position(|host| leads["name"] == host.name())
        })
    }

    /// The output of `status`: from any machine, and on the machine of each host, which reports
    /// there what it cannot write into the store.
    fn everything_said(&self) -> String {
        let mut said = String::new();
        for host in std::iter::once(&self.observer).chain(&self.site.hosts) {
            let out = self.site.command(host, &["status"]).output().expect("it runs");
            said.push_str(&String::from_utf8_lossy(&out.stdout));
            said.push_str(&String::from_utf8_lossy(&out.stderr));
        }
        said
    }

    fn wait(&self, span: Duration) {
        std::thread::sleep(span);
    }

    fn random(&mut self, below: usize) -> usize {
        self.random.random_range(0..below)
    }

    fn sql(&mut self, sql: &str) {
        self.site.sql(sql);
    }

    fn number(&mut self, sql: &str) -> i64 {
        self.site.number(sql)
    }
}

/// The port at the end of an address.
fn port(address: &str) -> u16 {
    let (_, port) = address.rsplit_once(':').expect("an address with a port");
    port.parse().expect("a port")
}
