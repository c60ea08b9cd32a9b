//! The demo's `besom.toml`: the shipped template with schedules and timeouts of seconds instead
//! of minutes.

use std::net::SocketAddr;
use std::path::Path;

use super::orchestrator::{self, Orchestrator};
use besom_config::template::{TaskTemplate, Template, TopicTemplate, template};

/// The first line of the file. It identifies the directory of a demo.
pub(super) const MARKER: &str = "# Written by `besom demo`. Edit it: a running host notices.\n";

/// How long after its last connection a workspace becomes idle.
const IDLE_TIMEOUT: &str = "2s";

/// Number of changes that make a document a candidate for compaction. (Shipped: 100.)
pub(super) const MIN_CHANGES: u32 = 10;

/// Number of rows that compaction may change per second while the demo is running: a wave of edits
/// then takes several slots to process, so that queues become visible.
const ROWS_PER_SECOND: u32 = 600;

/// The topics of the reconciler; each is also the last segment of its URL path.
const STEPS: [&str; 5] = ["start", "stop", "archive", "restore", "provision"];

/// The configuration of a demo on one machine, with comments.
pub(super) fn text() -> String {
    marked(&shortened())
}

/// A demo's configuration, with comments.
pub(super) fn marked(template_of_demo: &Template) -> String {
    format!("{MARKER}{}", template(template_of_demo))
}

/// The shipped template with schedules and timeouts of seconds.
pub(super) fn shortened() -> Template {
    let quoted = |text: &str| format!("\"{text}\"");
    let limit_min = format!("{}s", super::seed::SHARE_LIMIT_MIN_S);
    Template::default()
        .with_built_in()
        .set("host.default_mode", quoted("live"))
        .set("activity.idle_timeout", quoted(IDLE_TIMEOUT))
        .task("compaction", "schedule", quoted("@every 2s"))
        .setting("compaction", "min_changes", MIN_CHANGES.to_string())
        .setting("compaction", "deleted_content", quoted("collect"))
        .setting("compaction", "mode_loro", quoted("trim"))
        .setting("compaction", "mode_automerge", quoted("reset"))
        .task("client-deactivation", "schedule", quoted("@every 3s"))
        .setting("client-deactivation", "threshold", quoted("24h"))
        .task("share-expiry", "schedule", quoted("@every 1s"))
        .setting("share-expiry", "limit", quoted("7d"))
        .setting("share-expiry", "limit_min", quoted(&limit_min))
        .task("ttl-transitions", "schedule", quoted("@every 2s"))
}

/// The configuration of a demo that keeps running: the reconciler calls the orchestrator. `token`
/// is the path of its token, absolute or relative to the configuration file.
pub(super) fn lively(of: Template, orchestrator: &Orchestrator, token: &Path) -> Template {
    let host = orchestrator.address().to_string();
    let token = format!("{:?}", token.display().to_string());
    let quoted = |text: &str| format!("\"{text}\"");
    let pair = |key: &str, value: String| (key.to_owned(), value);
    let mut of = of.set("delivery.hosts", format!("[{host:?}]")).task(
        "compaction",
        "rows_per_second",
        ROWS_PER_SECOND.to_string(),
    );
    of.topics.extend(STEPS.map(|step| TopicTemplate {
        name: format!("workspace.{step}"),
        keys: vec![
            pair("url", format!("\"http://{host}{}/{step}\"", orchestrator::PATH)),
            pair("token_file", token.clone()),
        ],
    }));
    of.tasks.push(TaskTemplate {
        name: "reconciler".into(),
        plugin: "reconciler".into(),
        doc: "Brings workspaces to their desired state through calls to the demo's orchestrator."
            .into(),
        keys: vec![pair("schedule", quoted("@every 2s")), pair("overlap", quoted("skip"))],
        settings: vec![pair("retry_after", quoted("10s"))],
    });
    of
}

/// The address on this machine at which a demo's file calls its orchestrator.
pub(super) fn called(text: &str) -> Option<SocketAddr> {
    let file: toml::Table = toml::from_str(text).ok()?;
    let url = file.get("topics")?.get("workspace.stop")?.get("url")?.as_str()?;
    let authority = url.strip_prefix("http://")?.split('/').next()?;
    authority.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use besom_config::{Overrides, RawConfig};

    #[tokio::test]
    async fn a_demo_that_goes_on_has_a_reconciler_and_somebody_to_call() {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("orchestrator.token");
        let orchestrator = Orchestrator::start(orchestrator::ANYWHERE, &token, 1).await.unwrap();
        let text = marked(&lively(shortened(), &orchestrator, &token));
        let parsed = RawConfig::parse(&text, "besom.toml".as_ref(), &Overrides::default());
        assert!(parsed.problems().is_empty(), "{:?}", parsed.problems());
        let file: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(file["tasks"].as_table().unwrap().len(), 5);
        assert_eq!(file["topics"].as_table().unwrap().len(), STEPS.len());
        assert_eq!(called(&text), Some(orchestrator.address()));
        assert_eq!(called(&super::text()), None);
        assert_eq!(
            called("[topics]\n[topics.\"workspace.stop\"]\nurl = \"http://192.0.2.1:80/\""),
            None
        );
    }

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
