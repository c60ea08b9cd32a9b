//! Prints figures: one line of text and one line of JSON.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// The figures of one case of a benchmark.
pub struct Figures {
    bench: &'static str,
    case: String,
    values: Map<String, Value>,
}

impl Figures {
    /// Of a case.
    pub fn of(bench: &'static str, case: impl Into<String>) -> Figures {
        Figures { bench, case: case.into(), values: Map::new() }
    }

    /// A figure, its unit last in its name; rounded to three digits behind the point.
    pub fn with(mut self, name: &str, value: f64) -> Figures {
        self.values.insert(name.into(), json!((value * 1_000.0).round() / 1_000.0));
        self
    }

    /// Prints them.
    #[expect(clippy::print_stdout, reason = "the one place where a benchmark prints")]
    pub fn show(self) {
        let words: Vec<String> = self.values.iter().map(|(k, v)| format!("{k} {v}")).collect();
        println!("{:<9} {:<34} {}", self.bench, self.case, words.join("  "));
        let mut line = json!({"bench": self.bench, "case": self.case});
        if let Some(object) = line.as_object_mut() {
            object.extend(self.values);
        }
        println!("{line}");
    }
}

/// Milliseconds.
pub fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

/// Processor time that this process has used so far, all threads together. Where other
/// programs compete for the processors, it says more than the time on the wall.
pub fn cpu() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// The value below which so many of a hundred lie.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * percent / 100.0).round() as usize).copied().unwrap_or(f64::NAN)
}

/// The middle of a few measurements.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    percentile(&values, 50.0)
}
