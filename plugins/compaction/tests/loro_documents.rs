//! Tests Loro documents that break naive compaction: each is unchanged afterwards, or left alone for
//! the right reason.

#[path = "loro_documents/history.rs"]
mod history;
#[path = "loro_documents/rows.rs"]
mod rows;
#[path = "loro_documents/support.rs"]
mod support;
#[path = "loro_documents/trimmed.rs"]
mod trimmed;
#[path = "loro_documents/values.rs"]
mod values;
