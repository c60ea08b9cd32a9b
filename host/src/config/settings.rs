//! `[tasks.NAME.settings]`: what a plugin declares, and two settings that the host reads.

use besom_core::value::{Field, Value};

use super::keys::{Fault, Key, Slot};
use super::quantity::{SPAN_FIX, duration, show_duration};
use super::tree::{Entry, Node, Span, Table};
use super::walk::Walker;
use crate::ports::guests::{Manifest, Setting, SettingKind};

/// The settings that the host reads for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostSettings {
    /// Tenants that one run visits.
    pub tenants_per_run: u32,
    /// Items that one run plans per tenant.
    pub candidates_per_tenant: u32,
}

/// The settings that the host reads for itself; a manifest may carry other defaults for
/// them among its extra fields.
pub static HOST_KEYS: &[Key<HostSettings>] = &[
    Key {
        name: "projects_per_run",
        default: "100",
        doc: "Tenants that one run visits, of those that have candidates.",
        slot: Slot::U32(|s| &mut s.tenants_per_run, 1, 10_000_000),
    },
    Key {
        name: "candidates_per_project",
        default: "500",
        doc: "Items that one run plans per tenant.",
        slot: Slot::U32(|s| &mut s.candidates_per_tenant, 1, 10_000_000),
    },
];

/// A task's settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Read {
    /// Those of the plugin, complete, in the order of its manifest.
    pub fields: Vec<Field>,
    /// Those of the host.
    pub host: HostSettings,
}

/// Reads a task's settings by its plugin's manifest.
pub fn read(
    walker: &mut Walker<'_>,
    path: &str,
    task_span: &Span,
    table: &Table,
    manifest: &Manifest,
) -> Read {
    let path = format!("{path}.settings");
    let mut read = Read::default();
    for key in HOST_KEYS {
        key.set_default(&mut read.host);
        let own = manifest.extra.iter().find(|f| f.name == key.name);
        if let Some(Field { value: Value::Integer(n), .. }) = own {
            // A default out of bounds is the plugin's slip; the host's own stands then.
            let _ = key.read(&mut read.host, &Node::Integer(*n));
        }
    }
    for entry in &table.0 {
        let declared = manifest.settings.iter().any(|s| s.name == entry.key);
        if let Some(key) = HOST_KEYS.iter().find(|k| k.name == entry.key) {
            if let Err(fault) = key.read(&mut read.host, &entry.node) {
                walker.fault(&entry.span, fault);
            }
        } else if !declared {
            let own = manifest.settings.iter().map(|s| s.name.as_str());
            walker.unknown(entry, &path, own.chain(HOST_KEYS.iter().map(|k| k.name)));
        }
    }
    for setting in &manifest.settings {
        match (table.get(&setting.name), &setting.default) {
            (Some(entry), _) => match value(setting, entry)
                .and_then(|value| chosen(setting, &manifest.choices(&setting.name), value))
            {
                Ok(value) => read.fields.push(Field::new(&setting.name, value)),
                Err(fault) => walker.fault(&entry.span, fault),
            },
            (None, Some(default)) => read.fields.push(Field::new(&setting.name, default.clone())),
            (None, None) => walker.error(
                task_span,
                format!(
                    "the plugin `{}` needs the setting `{}`: {}",
                    manifest.name, setting.name, setting.doc
                ),
                format!("add {} = {} to [{path}]", setting.name, example(setting.kind)),
            ),
        }
    }
    read
}

fn example(kind: SettingKind) -> &'static str {
    match kind {
        SettingKind::Bool => "true",
        SettingKind::Integer => "1",
        SettingKind::Float => "1.0",
        SettingKind::Text => "\"text\"",
        SettingKind::Duration => "\"1h\"",
    }
}

fn value(setting: &Setting, entry: &Entry) -> Result<Value, Fault> {
    let value = match (setting.kind, &entry.node) {
        (_, Node::Broken) => return Ok(Value::Null), // Reported where it was read.
        (SettingKind::Bool, Node::Bool(b)) => Value::Bool(*b),
        (SettingKind::Integer, Node::Integer(n)) => Value::Integer(*n),
        (SettingKind::Float, Node::Float(n)) => Value::Float(*n),
        #[allow(clippy::cast_precision_loss, reason = "a whole number where any number may stand")]
        (SettingKind::Float, Node::Integer(n)) => Value::Float(*n as f64),
        (SettingKind::Text, Node::Text(text)) => Value::Text(text.clone()),
        (SettingKind::Duration, Node::Text(text)) => {
            let span = duration(text).map_err(|m| Fault::new(m).fix(SPAN_FIX))?;
            Value::Integer(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
        }
        (SettingKind::Duration, Node::Integer(0)) => Value::Integer(0),
        (SettingKind::Duration, Node::Integer(n)) => {
            return Err(Fault::new(format!("`{}` is a duration and needs a unit", setting.name))
                .fix(format!("write \"{n}s\" if seconds are meant")));
        }
        (kind, node) => {
            let noun = match kind {
                SettingKind::Bool => "true or false",
                SettingKind::Integer => "a whole number",
                SettingKind::Float => "a number",
                SettingKind::Text => "text",
                SettingKind::Duration => "a duration such as \"7d\"",
            };
            let message = format!("`{}` is {noun}, not {}", setting.name, node.noun());
            return Err(Fault::new(message).fix(format!(
                "write for instance {} = {}",
                setting.name,
                example(kind)
            )));
        }
    };
    let show = |v: &Value| match (setting.kind, v) {
        (SettingKind::Duration, Value::Integer(n)) => {
            show_duration(std::time::Duration::from_millis(u64::try_from(*n).unwrap_or(0)))
        }
        (_, Value::Integer(n)) => n.to_string(),
        (_, Value::Float(n)) => n.to_string(),
        (_, other) => format!("{other:?}"),
    };
    if let Value::Float(n) = value
        && !n.is_finite()
    {
        return Err(Fault::new(format!("`{}` has to be a finite number", setting.name)));
    }
    if let Some(minimum) = &setting.minimum
        && below(&value, minimum)
    {
        return Err(Fault::new(format!("{} is too little for `{}`", show(&value), setting.name))
            .fix(format!("the least is {}", show(minimum))));
    }
    if let Some(maximum) = &setting.maximum
        && below(maximum, &value)
    {
        return Err(Fault::new(format!("{} is too much for `{}`", show(&value), setting.name))
            .fix(format!("the most is {}", show(maximum))));
    }
    Ok(value)
}

/// The value, which is one of the words where the setting is a choice.
fn chosen(setting: &Setting, words: &[&str], value: Value) -> Result<Value, Fault> {
    match &value {
        Value::Text(word) if !words.is_empty() && !words.contains(&word.as_str()) => {
            let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            Err(Fault::new(format!("`{}` cannot be {word:?}", setting.name))
                .fix(format!("write {}", quoted.join(" or "))))
        }
        _ => Ok(value),
    }
}

fn below(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a < b,
        (Value::Float(a), Value::Float(b)) => a < b,
        _ => false,
    }
}
