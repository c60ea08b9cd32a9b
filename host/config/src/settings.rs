//! `[tasks.NAME.settings]`: the settings that a plugin declares, and two settings of the host.

use besom_core::value::{Field, Value};

use super::keys::{Fault, keys, nearest};
use super::quantity::{SPAN_FIX, duration, show_duration};
use super::tree::{Entry, Node, Span, Table};
use super::walk::Walker;
use besom_ports::guests::{Manifest, Setting, SettingKind};

keys! {
    /// The settings that the host itself uses. A manifest may have other defaults for them in its extra fields.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct HostSettings {
        /// Maximum number of tenants with candidates that one run visits.
        pub projects_per_run: u32 = 100, within 1..=10_000_000;
        /// Maximum number of items that one run plans per tenant.
        pub candidates_per_project: u32 = 500, within 1..=10_000_000;
    }
}

/// The settings of a task.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Read {
    /// All settings of the plugin, in the order of its manifest.
    pub fields: Vec<Field>,
    /// The settings of the host.
    pub host: HostSettings,
}

/// Reads the settings of a task according to the manifest of its plugin. `is_misplaced`: whether one is in another
/// table, where it is reported.
pub fn read(
    walker: &mut Walker<'_>,
    path: &str,
    task_span: &Span,
    table: &Table,
    manifest: &Manifest,
    is_misplaced: impl Fn(&str) -> bool,
) -> Read {
    let path = format!("{path}.settings");
    let mut read = Read::default();
    for key in HostSettings::KEYS {
        key.set_default(&mut read.host);
        let own = manifest.extra.iter().find(|f| f.name == key.name);
        if let Some(Field { value: Value::Integer(n), .. }) = own {
            // If the default of the plugin is out of bounds, the default of the host applies.
            let _ = key.read(&mut read.host, &Node::Integer(*n));
        }
    }
    for entry in &table.0 {
        let declared = manifest.settings.iter().any(|s| s.name == entry.key);
        if let Some(key) = HostSettings::KEYS.iter().find(|k| k.name == entry.key) {
            if let Err(fault) = key.read(&mut read.host, &entry.node) {
                walker.fault(&entry.span, fault);
            }
        } else if !declared {
            let own = manifest.settings.iter().map(|s| s.name.as_str());
            walker.unknown(entry, &path, own.chain(HostSettings::KEYS.iter().map(|k| k.name)));
        }
    }
    for setting in &manifest.settings {
        match (table.get(&setting.name), &setting.default) {
            (Some(entry), _) => {
                let read_value = match (setting.kind, &entry.node) {
                    (SettingKind::Texts, Node::Array(entries)) => list(setting, entries),
                    _ => value(setting, entry)
                        .and_then(|value| chosen(setting, value))
                        .map_err(|fault| (&entry.span, fault)),
                };
                match read_value {
                    Ok(value) => read.fields.push(Field::new(&setting.name, value)),
                    Err((span, fault)) => walker.fault(span, fault),
                }
            }
            (None, Some(default)) => read.fields.push(Field::new(&setting.name, default.clone())),
            (None, None) if is_misplaced(&setting.name) => {}
            (None, None) => walker.error(
                task_span,
                format!(
                    "the plugin `{}` requires the setting `{}`: {}",
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
        SettingKind::Texts => "[\"text\", \"text\"]",
    }
}

fn value(setting: &Setting, entry: &Entry) -> Result<Value, Fault> {
    let value = match (setting.kind, &entry.node) {
        (_, Node::Broken) => return Ok(Value::Null), // Already reported by the parser.
        (SettingKind::Bool, Node::Bool(b)) => Value::Bool(*b),
        (SettingKind::Integer, Node::Integer(n)) => Value::Integer(*n),
        (SettingKind::Float, Node::Float(n)) => Value::Float(*n),
        #[allow(clippy::cast_precision_loss, reason = "an integer where a float is expected")]
        (SettingKind::Float, Node::Integer(n)) => Value::Float(*n as f64),
        (SettingKind::Text, Node::Text(text)) => Value::Text(text.clone()),
        (SettingKind::Duration, Node::Text(text)) => {
            let span = duration(text).map_err(|m| Fault::new(m).fix(SPAN_FIX))?;
            Value::Integer(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
        }
        (SettingKind::Duration, Node::Integer(0)) => Value::Integer(0),
        (SettingKind::Duration, Node::Integer(n)) => {
            return Err(Fault::new(format!(
                "`{}` is a duration and requires a unit",
                setting.name
            ))
            .fix(format!("write \"{n}s\" for seconds")));
        }
        (kind, node) => {
            let noun = match kind {
                SettingKind::Bool => "true or false",
                SettingKind::Integer => "an integer",
                SettingKind::Float => "a number",
                SettingKind::Text => "a string",
                SettingKind::Duration => "a duration such as \"7d\"",
                SettingKind::Texts => "an array of strings",
            };
            let message = format!("`{}` must be {noun}, not {}", setting.name, node.noun());
            return Err(Fault::new(message).fix(format!(
                "write, for example, {} = {}",
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
        return Err(Fault::new(format!("`{}` must be a finite number", setting.name)));
    }
    if let Some(minimum) = &setting.minimum
        && below(&value, minimum)
    {
        return Err(Fault::new(format!(
            "{} is below the minimum of `{}`",
            show(&value),
            setting.name
        ))
        .fix(format!("the minimum is {}", show(minimum))));
    }
    if let Some(maximum) = &setting.maximum
        && below(maximum, &value)
    {
        return Err(Fault::new(format!(
            "{} exceeds the maximum of `{}`",
            show(&value),
            setting.name
        ))
        .fix(format!("the maximum is {}", show(maximum))));
    }
    Ok(value)
}

/// Reads a list of texts. A fault has the place of its entry.
fn list<'e>(setting: &Setting, entries: &'e [(Span, Node)]) -> Result<Value, (&'e Span, Fault)> {
    let mut texts = Vec::with_capacity(entries.len());
    for (span, node) in entries {
        let Node::Text(text) = node else {
            if *node == Node::Broken {
                continue; // Already reported by the parser.
            }
            let (name, noun) = (&setting.name, node.noun());
            let fault = Fault::new(format!("an entry of `{name}` must be a string, not {noun}"));
            return Err((
                span,
                fault.fix(format!("write, for example, {name} = {}", example(setting.kind))),
            ));
        };
        is_choice(setting, text).map_err(|fault| (span, fault))?;
        texts.push(serde_json::Value::from(text.as_str()));
    }
    Ok(Value::Json(serde_json::Value::Array(texts).to_string()))
}

/// Checks that the value of a choice is one of its words.
fn chosen(setting: &Setting, value: Value) -> Result<Value, Fault> {
    if let Value::Text(word) = &value {
        is_choice(setting, word)?;
    }
    Ok(value)
}

fn is_choice(setting: &Setting, word: &String) -> Result<(), Fault> {
    let words = &setting.choices;
    if words.is_empty() || words.contains(word) {
        return Ok(());
    }
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    Err(Fault::new(format!("{word:?} is not a valid value for `{}`", setting.name)).fix(
        match nearest(word, words.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("write {}", quoted.join(" or ")),
        },
    ))
}

fn below(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a < b,
        (Value::Float(a), Value::Float(b)) => a < b,
        _ => false,
    }
}
