//! The settings of the built-in task `retention`, judged when the configuration is read: by the plugin's
//! own code, so that its language is defined once.

use besom_core::value::Value;
use besom_ports::task::TaskDefinition;
use besom_retention::{Described, ROWS, Rules, plan};

pub use besom_retention::Wrong;

/// The name of the plugin.
pub const RETENTION: &str = "retention";

/// The first fault of a task's settings; `None` also for a task with another plugin or without its
/// collection, which is reported elsewhere.
pub fn fault(task: &TaskDefinition) -> Option<Wrong> {
    if task.plugin != RETENTION {
        return None;
    }
    let described = Described::of(task.described.iter().cloned());
    let rows = described.iter().find(|one| one.collection == ROWS)?;
    let text = |name: &str| {
        let field = task.settings.iter().find(|field| field.name == name);
        match field.map(|field| &field.value) {
            Some(Value::Text(text)) => text.clone(),
            _ => String::new(),
        }
    };
    let rules = Rules {
        by: text("by"),
        index: text("index"),
        condition: text("where"),
        action: text("action"),
        set: text("set"),
    };
    plan(rows, &rules).err()
}
