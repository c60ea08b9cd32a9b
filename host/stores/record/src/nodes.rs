//! A node's report as stored. It is only for display, so an unreadable report (perhaps of another
//! version) counts as none.

use besom_snapshot::Report;

use besom_ports::store::Missing;

/// As JSON.
pub fn pack(missing: &[Missing]) -> String {
    serde_json::to_string(missing).unwrap_or_default()
}

/// From JSON.
pub fn unpack(text: &str) -> Vec<Missing> {
    serde_json::from_str(text).unwrap_or_default()
}

/// A report as JSON; empty: none.
pub fn pack_report(report: Option<&Report>) -> String {
    report.and_then(|report| serde_json::to_string(report).ok()).unwrap_or_default()
}

/// A report from JSON.
pub fn unpack_report(text: &str) -> Option<Report> {
    serde_json::from_str(text).ok()
}
