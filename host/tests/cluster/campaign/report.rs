//! The report of a campaign: faults by kind, items, violations, pick-up times, memory and descriptors.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use besom_demo::cluster::Host;
use serde_json::Value;

use super::faults::Fault;

/// By how many open descriptors a host may exceed its first measurement: connections of a pool, of an attempt
/// to lead, and of the operators' requests.
const DESCRIPTORS_MORE_MAX: usize = 200;
/// By how much memory a host may exceed its first measurement, in KiB.
const MEMORY_MORE_MAX: u64 = 256 << 10;

/// What is due so shortly before a fault may be under way as the fault begins.
const SOON: Duration = Duration::from_secs(3);

/// A fault as it happened.
struct Struck {
    fault: Fault,
    begun: Instant,
    /// When nothing was late any more.
    over: Instant,
    drain: Duration,
}

/// What a process uses.
#[derive(Clone, Copy)]
struct Usage {
    resident_kib: u64,
    peak_kib: u64,
    descriptors: usize,
}

/// What was measured of one host over all its processes.
struct Used {
    first: Usage,
    last: Usage,
    most: Usage,
}

/// What has happened so far.
pub struct Report {
    begun: Instant,
    struck: Vec<Struck>,
    used: BTreeMap<String, Used>,
}

impl Report {
    pub fn new() -> Report {
        Report { begun: Instant::now(), struck: Vec::new(), used: BTreeMap::new() }
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A fault is over: everything due is executed.
    pub fn add(&mut self, fault: Fault, begun: Instant, drain: Duration) {
        self.struck.push(Struck { fault, begun, over: Instant::now(), drain });
    }

    /// Measures the hosts, which have to run.
    pub fn measure(&mut self, hosts: &[Host]) {
        for host in hosts {
            let Some(process) = host.process() else { continue };
            let usage = usage(process.id());
            let used = self.used.entry(host.name().to_owned());
            let used = used.or_insert(Used { first: usage, last: usage, most: usage });
            used.last = usage;
            used.most.resident_kib = used.most.resident_kib.max(usage.resident_kib);
            used.most.peak_kib = used.most.peak_kib.max(usage.peak_kib);
            used.most.descriptors = used.most.descriptors.max(usage.descriptors);
        }
    }

    /// The faults by kind.
    pub fn faults(&self) -> String {
        let minutes = self.elapsed().as_secs_f64() / 60.0;
        let mut out = format!("report: {} faults in {minutes:.1} minutes\n", self.struck.len());
        let _ = writeln!(out, "{:<24}{:>4}{:>12}", "fault", "n", "drain max s");
        let mut kinds: BTreeMap<Fault, (usize, Duration)> = BTreeMap::new();
        for struck in &self.struck {
            let (count, drain) = kinds.entry(struck.fault).or_default();
            (*count, *drain) = (*count + 1, (*drain).max(struck.drain));
        }
        for (fault, (count, drain)) in &kinds {
            let (name, drain) = (format!("{fault:?}"), drain.as_secs_f64());
            let _ = writeln!(out, "{name:<24}{count:>4}{drain:>12.1}");
        }
        out
    }

    /// Everything else, given the audit, the violations by kind, and for each share that a host has ended how long
    /// ago it was due and how late it ended, in seconds.
    pub fn figures(
        &self,
        audit: &Value,
        violations: &[(&str, i64)],
        late: Vec<(f64, f64)>,
    ) -> String {
        let (now, mut out) = (Instant::now(), String::new());
        let mut line = |text: String| {
            let _ = writeln!(out, "{text}");
        };
        for books in audit["tasks"].as_array().expect("the audit has tasks") {
            let task = books["task"].as_str().unwrap_or_default();
            let parts = ["planned", "committed", "skipped", "dead", "discarded", "pending"];
            let parts = parts.map(|part| format!("{} {part}", books[part].as_u64().unwrap_or(0)));
            line(format!("items of {task}: {}", parts.join(", ")));
        }
        let violations: Vec<String> =
            violations.iter().map(|(what, count)| format!("{count} {what}")).collect();
        line(format!("violations: {}", violations.join(", ")));
        let during = |ago: f64| {
            let due = now.checked_sub(Duration::from_secs_f64(ago.max(0.0)));
            let hits = |s: &Struck, due| s.begun <= due + SOON && due <= s.over;
            due.is_some_and(|due| self.struck.iter().any(|struck| hits(struck, due)))
        };
        let (disturbed, quiet): (Vec<_>, Vec<_>) = late.iter().partition(|(ago, _)| during(*ago));
        for (what, late) in [("between faults", quiet), ("during faults", disturbed)] {
            let late = late.into_iter().map(|(_, late)| late).collect();
            line(format!("pick-up of items due {what}: {}", spread(late)));
        }
        let (memory, open) = ("memory MiB first/last/peak", "descriptors first/last/most");
        line(format!("{:<10}{memory:>30}{open:>30}", "host"));
        for (host, Used { first, last, most }) in &self.used {
            let mib = |kib: u64| kib >> 10;
            let (at_first, at_last) = (mib(first.resident_kib), mib(last.resident_kib));
            let memory = format!("{at_first}/{at_last}/{}", mib(most.peak_kib));
            let open = format!("{}/{}/{}", first.descriptors, last.descriptors, most.descriptors);
            line(format!("{host:<10}{memory:>30}{open:>30}"));
        }
        out
    }

    /// No host uses far more memory or descriptors than at the beginning.
    #[track_caller]
    pub fn stays_within_bounds(&self) {
        for (host, Used { first, most, .. }) in &self.used {
            let more = most.resident_kib.saturating_sub(first.resident_kib);
            assert!(more < MEMORY_MORE_MAX, "{host}: {more} KiB more than at the beginning");
            let more = most.descriptors.saturating_sub(first.descriptors);
            assert!(more < DESCRIPTORS_MORE_MAX, "{host}: {more} descriptors more than at first");
        }
    }
}

/// A campaign that fails tells what has happened before.
impl Drop for Report {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprint!("{}", self.faults());
        }
    }
}

/// The median, the 99th percentile and the most.
fn spread(mut late: Vec<f64>) -> String {
    late.sort_by(f64::total_cmp);
    let Some(most) = late.last() else { return "none".to_owned() };
    let at = |part: f64| late[((late.len() - 1) as f64 * part) as usize] * 1e3;
    let (count, most) = (late.len(), most * 1e3);
    format!("{count}, p50 {:.0} ms, p99 {:.0} ms, most {most:.0} ms", at(0.5), at(0.99))
}

fn usage(pid: i32) -> Usage {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim_end_matches("kB").trim().parse().ok());
        kib.unwrap_or_else(|| panic!("{path} has no {name}"))
    };
    let path = format!("/proc/{pid}/fd");
    let descriptors = std::fs::read_dir(&path).unwrap_or_else(|e| panic!("{path}: {e}")).count();
    Usage { resident_kib: kib("VmRSS:"), peak_kib: kib("VmHWM:"), descriptors }
}
