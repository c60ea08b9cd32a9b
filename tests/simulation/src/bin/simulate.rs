//! Runs worlds of the simulation, or replays one and prints its steps.

use std::io::{self, Write as _};
use std::process::ExitCode;

use besom_simulation::{Broken, Plan, Report, Sum, simulate, simulate_traced};

const USAGE: &str = "\
usage: simulate [--seed N] [--seeds COUNT] [--cluster] [--broken DEFECT] [--steps | --sum COUNT]

  --seed N         the first seed (default: 0)
  --seeds COUNT    the number of seeds (default: 1)
  --cluster        the nodes share the partitions; otherwise the leader owns all of them
  --broken DEFECT  a defect of the store: fence, epoch, purge-first, early-numbers,
                   early-messages, slots, undo or budget
  --steps          print every step: its number, the time in seconds, and what happens
  --sum COUNT      instead of a line for each world, print the violations, and after every COUNT worlds and
                   at the end what has happened in all of them

Exit code 1: an invariant was violated. 2: invalid usage.
";

/// Violations of one world that are shown.
const SHOWN: usize = 8;

struct Asked {
    seed: u64,
    seeds: u64,
    cluster: bool,
    broken: Option<Broken>,
    steps: bool,
    sum_every: Option<u64>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked =
        Asked { seed: 0, seeds: 1, cluster: false, broken: None, steps: false, sum_every: None };
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().ok_or(format!("{argument} needs a number"))?;
            value.parse().map_err(|_| format!("{argument} {value}: this is not a number"))
        };
        match argument.as_str() {
            "--seed" => asked.seed = number()?,
            "--seeds" => asked.seeds = number()?,
            "--cluster" => asked.cluster = true,
            "--steps" => asked.steps = true,
            "--sum" => asked.sum_every = Some(number()?).filter(|every| *every > 0),
            "--broken" => {
                let name = arguments.next().ok_or("--broken needs the name of a defect")?;
                let known = Broken::ALL.into_iter().find(|broken| broken.name() == name);
                asked.broken = Some(known.ok_or(format!("{name}: this defect is unknown"))?);
            }
            other => return Err(format!("{other}: this argument is unknown")),
        }
    }
    Ok(asked)
}

fn show(plan: Plan, report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let troubles: u64 = report.troubles.values().sum();
    let faults: u64 =
        report.writes.values().map(|hits| hits.applied + hits.not_applied + hits.refused).sum();
    writeln!(
        out,
        "seed {}: {} events, {} things, {} terms, {troubles} faults, {faults} failed writes, {}",
        plan.seed,
        report.events,
        report.things,
        report.terms,
        match report.violations.len() {
            0 => "no violation".to_owned(),
            count => format!("{count} violations"),
        }
    )?;
    for violation in report.violations.iter().take(SHOWN) {
        writeln!(out, "  {violation}")?;
    }
    if !report.violations.is_empty() {
        writeln!(out, "  {}", plan.replay())?;
    }
    Ok(())
}

fn main() -> io::Result<ExitCode> {
    let asked = match parse(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(why) => {
            write!(io::stderr(), "{why}\n\n{USAGE}")?;
            return Ok(ExitCode::from(2));
        }
    };
    let mut sum = Sum::default();
    let end = asked.seed.saturating_add(asked.seeds);
    for seed in asked.seed..end {
        let plan = Plan { cluster: asked.cluster, broken: asked.broken, ..Plan::of(seed) };
        let report = match asked.steps {
            true => {
                let mut out = io::BufWriter::new(io::stdout().lock());
                let mut result = Ok(());
                let report = simulate_traced(plan, &mut |line| {
                    if result.is_ok() {
                        result = writeln!(out, "{line}");
                    }
                });
                result?;
                out.flush()?;
                report
            }
            false => simulate(plan),
        };
        sum.add(&report);
        if asked.sum_every.is_none() || !report.violations.is_empty() {
            show(plan, &report)?;
        }
        let last = seed + 1 == end;
        if asked.sum_every.is_some_and(|every| last || sum.worlds.is_multiple_of(every)) {
            writeln!(io::stdout(), "{sum}")?;
        }
    }
    Ok(if sum.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
