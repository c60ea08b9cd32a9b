//! The demo's `besom.toml`: the shipped template with schedules and timeouts of seconds instead
//! of minutes.

use crate::config::template::{Template, template};

/// The first line of the file: by it a demo's directory is known again.
pub(super) const MARKER: &str = "# Written by `besom demo`. Edit it: a running host notices.\n";

/// A workspace is idle this long after its last connection was closed.
const IDLE_TIMEOUT: &str = "2s";

/// Changes that make a document worth a compaction. (Shipped: 100.)
pub(super) const MIN_CHANGES: u32 = 10;

/// The file of a demo on one machine, with comments.
pub(super) fn text() -> String {
    marked(&shortened())
}

/// A demo's file, with comments.
pub(super) fn marked(template_of_demo: &Template) -> String {
    format!("{MARKER}{}", template(template_of_demo))
}

/// The shipped template with schedules and timeouts of seconds.
pub(super) fn shortened() -> Template {
    let quoted = |text: &str| format!("\"{text}\"");
    let limit_min = format!("{}s", super::seed::SHARE_LIMIT_MIN_S);
    Template::default()
        .set("activity.idle_timeout", quoted(IDLE_TIMEOUT))
        .task("compaction", "schedule", quoted("@every 2s"))
        .setting("compaction", "min_changes", MIN_CHANGES.to_string())
        .task("client-deactivation", "schedule", quoted("@every 3s"))
        .setting("client-deactivation", "threshold", quoted("24h"))
        .task("share-expiry", "schedule", quoted("@every 1s"))
        .setting("share-expiry", "limit", quoted("7d"))
        .setting("share-expiry", "limit_min", quoted(&limit_min))
        .task("ttl-transitions", "schedule", quoted("@every 2s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, RawConfig};

    #[test]
    fn the_demo_shortens_every_schedule() {
        let text = text();
        assert!(text.starts_with(MARKER));
        let parsed = RawConfig::parse(&text, "besom.toml".as_ref(), &Overrides::default());
        assert!(parsed.problems().is_empty(), "{:?}", parsed.problems());
        let file: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(file["activity"]["idle_timeout"].as_str(), Some(IDLE_TIMEOUT));
        let tasks = file["tasks"].as_table().unwrap();
        assert_eq!(tasks.len(), 4);
        for (name, task) in tasks {
            let schedule = task["schedule"].as_str().unwrap();
            let seconds = schedule.strip_prefix("@every ").and_then(|s| s.strip_suffix('s'));
            let seconds: u32 = seconds.expect("seconds").parse().unwrap();
            assert!(seconds <= 3, "{name}: {schedule}");
        }
    }
}
