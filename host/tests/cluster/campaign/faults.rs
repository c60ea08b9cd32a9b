//! The faults of the campaign: what each does to the cluster, for how long, and what `besom status`
//! has to report meanwhile.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use besom_demo::cluster::Which;
use rustix::process::Signal;

use super::{Campaign, ROLE};
use crate::wait::wait_at_most;

/// How long a fault lasts: longer than a lease of the tests.
const HOLD: Duration = Duration::from_secs(8);
/// How long a fault of the tables lasts: longer than all attempts of an item take.
const HOLD_TABLES: Duration = Duration::from_secs(20);
/// How long it may take until the cause is reported.
const TOLD_MAX: Duration = Duration::from_secs(30);
/// Debian's path of the library that changes the time of a program.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillLeader,
    KillFollower,
    KillAll,
    FreezeLeader,
    FreezeFollower,
    StopLeader,
    CutLeaderFromStore,
    CutFollowerFromStore,
    CutLeaderFromEtcd,
    CutFollowerFromEtcd,
    KillEtcdMember,
    KillPostgres,
    FreezePostgres,
    ReadOnly,
    TerminateBackends,
    LockRows,
    AlterType,
    Revoke,
    Rename,
    LeaderAhead,
    LeaderAheadABit,
    FollowerAhead,
    LeaderBehind,
    Restore,
    DiskFull,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Fault; 25] = [
        Fault::KillLeader,
        Fault::KillFollower,
        Fault::KillAll,
        Fault::FreezeLeader,
        Fault::FreezeFollower,
        Fault::StopLeader,
        Fault::CutLeaderFromStore,
        Fault::CutFollowerFromStore,
        Fault::CutLeaderFromEtcd,
        Fault::CutFollowerFromEtcd,
        Fault::KillEtcdMember,
        Fault::KillPostgres,
        Fault::FreezePostgres,
        Fault::ReadOnly,
        Fault::TerminateBackends,
        Fault::LockRows,
        Fault::AlterType,
        Fault::Revoke,
        Fault::Rename,
        Fault::LeaderAhead,
        Fault::LeaderAheadABit,
        Fault::FollowerAhead,
        Fault::LeaderBehind,
        Fault::Restore,
        Fault::DiskFull,
    ];

    /// The kinds that the gate injects.
    pub const GATE: [Fault; 6] = [
        Fault::FollowerAhead,
        Fault::Rename,
        Fault::Revoke,
        Fault::LeaderAheadABit,
        Fault::KillPostgres,
        Fault::KillLeader,
    ];

    /// The kind with this name.
    pub fn named(name: &str) -> Fault {
        let found = Fault::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
        found.unwrap_or_else(|| panic!("there is no fault {name}"))
    }

    /// Words of which `status` has to contain one while the fault lasts; none: the fault is too
    /// short.
    fn told(self) -> &'static [&'static str] {
        match self {
            Fault::CutLeaderFromStore | Fault::CutFollowerFromStore => &["cannot reach the store"],
            Fault::FreezePostgres => &["no answer", "timed out", "cannot reach the store"],
            Fault::ReadOnly => &["read-only"],
            Fault::Revoke => &["permission denied"],
            Fault::Rename => &["does not exist"],
            Fault::LeaderAhead
            | Fault::LeaderAheadABit
            | Fault::FollowerAhead
            | Fault::LeaderBehind => &["clock"],
            Fault::Restore => &["restored"],
            Fault::DiskFull => &["No space left"],
            _ => &[],
        }
    }
}

impl Campaign {
    /// Injects the fault, waits, and undoes it.
    pub fn strike(&mut self, fault: Fault) {
        let leader = self.leader();
        let follower = (leader + 1) % self.site.hosts.len();
        let all = 0..self.site.hosts.len();
        match fault {
            Fault::KillLeader => self.kill(&[leader]),
            Fault::KillFollower => self.kill(&[follower]),
            Fault::KillAll => self.kill(&all.collect::<Vec<_>>()),
            Fault::FreezeLeader => self.freeze(leader),
            Fault::FreezeFollower => self.freeze(follower),
            Fault::StopLeader => {
                self.site.hosts[leader].stop();
                self.site.start_host(leader);
            }
            Fault::CutLeaderFromStore => self.cut_from_store(fault, leader),
            Fault::CutFollowerFromStore => self.cut_from_store(fault, follower),
            Fault::CutLeaderFromEtcd => self.cut_from_etcd(leader),
            Fault::CutFollowerFromEtcd => self.cut_from_etcd(follower),
            Fault::KillEtcdMember => {
                let member = Which::Etcd(self.random(3));
                self.kill_server(member);
                self.wait(HOLD);
                self.site.servers.restart(member).expect("it starts again");
            }
            Fault::KillPostgres => {
                self.kill_server(Which::Postgres);
                self.wait(Duration::from_secs(2));
                self.site.servers.restart(Which::Postgres).expect("it recovers");
            }
            Fault::FreezePostgres => self.freeze_postgres(fault),
            Fault::ReadOnly => {
                self.sql("ALTER DATABASE demo SET default_transaction_read_only = on");
                self.end_backends();
                self.hold(fault, HOLD);
                self.sql(
                    "SET default_transaction_read_only = off; \
                     ALTER DATABASE demo RESET default_transaction_read_only",
                );
                self.end_backends();
            }
            Fault::TerminateBackends => {
                for _ in 0..5 {
                    self.end_backends();
                    self.wait(Duration::from_millis(300));
                }
            }
            Fault::LockRows => {
                let lock = self.site.transaction("SELECT * FROM shares FOR UPDATE");
                self.wait(Duration::from_secs(6));
                lock.roll_back();
            }
            Fault::AlterType => {
                let now = self.number(
                    "SELECT (atttypid = 'int8'::regtype)::int::int8 FROM pg_attribute \
                     WHERE attrelid = 'shares'::regclass AND attname = 'limit_seconds'",
                );
                let to = if now == 1 { "integer" } else { "bigint" };
                self.sql(&format!("ALTER TABLE shares ALTER COLUMN limit_seconds TYPE {to}"));
                self.wait(HOLD);
            }
            Fault::Revoke => {
                self.sql(&format!("REVOKE UPDATE ON shares FROM {ROLE}"));
                self.hold(fault, HOLD_TABLES);
                self.sql(&format!("GRANT UPDATE ON shares TO {ROLE}"));
            }
            Fault::Rename => {
                self.sql("ALTER TABLE shares RENAME TO shares_elsewhere");
                self.hold(fault, HOLD_TABLES);
                self.sql("ALTER TABLE shares_elsewhere RENAME TO shares");
            }
            Fault::LeaderAhead => self.shift_clock(fault, leader, "+1h"),
            // The host may lead with this difference.
            Fault::LeaderAheadABit => self.shift_clock(fault, leader, "+8s"),
            Fault::FollowerAhead => self.shift_clock(fault, follower, "+30s"),
            Fault::LeaderBehind => self.shift_clock(fault, leader, "-1h"),
            Fault::Restore => self.restore(fault),
            Fault::DiskFull => self.fill_disk(fault),
        }
    }

    /// Waits for this time, and until `status` reports the cause.
    fn hold(&mut self, fault: Fault, span: Duration) {
        self.wait(span);
        self.is_told(fault);
    }

    fn is_told(&self, fault: Fault) {
        let words = fault.told();
        wait_at_most(TOLD_MAX, &format!("{fault:?} to be told: {words:?}"), || {
            let said = self.everything_said();
            words.iter().any(|word| said.contains(word)).then_some(())
        });
    }

    fn kill(&mut self, hosts: &[usize]) {
        for host in hosts {
            self.site.signal(*host, Signal::KILL);
        }
        let span = Duration::from_millis(500 + self.random(6_000) as u64);
        self.wait(span);
        for host in hosts {
            self.site.start_host(*host);
        }
    }

    fn freeze(&mut self, host: usize) {
        self.site.signal(host, Signal::STOP);
        self.wait(HOLD);
        self.site.signal(host, Signal::CONT);
    }

    fn end_backends(&mut self) {
        self.sql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'"
        ));
    }

    /// The server and its connections remain but do not answer.
    fn freeze_postgres(&mut self, fault: Fault) {
        let pid = self.site.as_ref().join("servers/postgres/data/postmaster.pid");
        let pid = std::fs::read_to_string(pid).expect("it runs");
        let pid = PathBuf::from(pid.lines().next().expect("its number"));
        for signal in ["-STOP", "-CONT"] {
            run("kill", &[Path::new(signal), &pid]);
            run("pkill", &[Path::new(signal), Path::new("-P"), &pid]);
            if signal == "-STOP" {
                self.wait(HOLD);
                self.is_told(fault);
            }
        }
    }

    fn kill_server(&self, which: Which) {
        let process = self.site.servers.process(which).expect("it runs");
        process.signal(Signal::KILL).expect("killed");
    }

    /// One node cannot reach PostgreSQL: the others take over its share while the cut lasts.
    fn cut_from_store(&mut self, fault: Fault, host: usize) {
        self.paths[host].store.set_cut(true);
        self.hold(fault, HOLD);
        // Everything is executed in time again while the cut still lasts.
        self.drained("while a node is cut from the store");
        self.paths[host].store.set_cut(false);
    }

    fn cut_from_etcd(&mut self, host: usize) {
        for path in &self.paths[host].etcd {
            path.set_cut(true);
        }
        self.wait(HOLD);
        for path in &self.paths[host].etcd {
            path.set_cut(false);
        }
    }

    /// A host is started with a wrong clock, and later with the right one.
    fn shift_clock(&mut self, fault: Fault, host: usize, by: &str) {
        assert!(
            Path::new(FAKETIME).exists(),
            "faketime is not installed: apt-get install faketime"
        );
        self.site.hosts[host].stop();
        let program = self.site.as_ref().join("besom-at-another-time");
        let besom = env!("CARGO_BIN_EXE_besom");
        let script = format!(
            "#!/bin/sh\nLD_PRELOAD={FAKETIME} FAKETIME={by} DONT_FAKE_MONOTONIC=1 exec {besom} \"$@\"\n"
        );
        std::fs::write(&program, script).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("executable");
        self.site.hosts[host].start(&program, &[]).expect("started");
        self.hold(fault, HOLD);
        self.drained("while a clock is wrong");
        self.site.hosts[host].stop();
        self.site.start_host(host);
    }

    /// The database is restored to its state of some seconds ago while the hosts run.
    fn restore(&mut self, fault: Fault) {
        let data = self.site.as_ref().join("servers/postgres").join("data");
        let copy = data.with_file_name("copy");
        self.site.servers.stop(Which::Postgres);
        run("cp", &["-a".as_ref(), &data, &copy]);
        // The tablespace is in another directory, and is copied at the same moment.
        let space = self.disk.as_ref().map(|disk| disk.path().join("space"));
        let space_copy = data.with_file_name("space-copy");
        if let Some(space) = &space {
            run("cp", &["-a".as_ref(), space, &space_copy]);
        }
        self.site.servers.restart(Which::Postgres).expect("it starts again");
        // Reports that the copy lacks: every node finds its own missing.
        self.wait(HOLD);
        self.drained("before the restore");
        // Terms that the copy lacks.
        let leader = self.leader();
        self.site.hosts[leader].stop();
        self.site.start_host(leader);
        self.drained("before the restore");
        self.site.servers.stop(Which::Postgres);
        std::fs::remove_dir_all(&data).expect("removed");
        std::fs::rename(&copy, &data).expect("put back");
        if let Some(space) = &space {
            std::fs::remove_dir_all(space).expect("removed");
            run("cp", &["-a".as_ref(), &space_copy, space]);
            std::fs::remove_dir_all(&space_copy).expect("removed");
        }
        self.site.servers.restart(Which::Postgres).expect("the copy starts");
        self.is_told(fault);
    }

    /// The disk of the product's table is full.
    fn fill_disk(&mut self, fault: Fault) {
        let Some(disk) = &self.disk else { return };
        let filler = disk.path().join("filler");
        // All of the free space.
        let _ = Command::new("dd")
            .args(["if=/dev/zero", "bs=64k", &format!("of={}", filler.display())])
            .output();
        self.wait(HOLD);
        // Rows that fit into the table's existing pages need no disk space.
        if self.late() > 0 {
            self.is_told(fault);
        }
        std::fs::remove_file(&filler).expect("removed");
    }
}

/// A small file system in memory, for the tables of the product: about 10 MB for each hour of the campaign, and as much
/// again while a table is rewritten.
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts it if this user may; it gets the owner of PostgreSQL's data directory `owner`.
    pub fn mount(path: PathBuf, owner: &Path) -> Option<Disk> {
        std::fs::create_dir_all(&path).ok()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256m", "tmpfs"])
            .arg(&path)
            .output()
            .ok()?;
        if !mounted.status.success() {
            return None;
        }
        let disk = Disk { path };
        let meta = std::fs::metadata(owner).ok()?;
        let (uid, gid) = {
            use std::os::unix::fs::MetadataExt as _;
            (meta.uid(), meta.gid())
        };
        let space = disk.path.join("space");
        std::fs::create_dir(&space).ok()?;
        std::os::unix::fs::chown(&space, Some(uid), Some(gid)).ok()?;
        Some(disk)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
    }
}

fn run(program: &str, args: &[&Path]) {
    let output = Command::new(program).args(args).output().expect("it runs");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}
