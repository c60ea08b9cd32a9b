//! Validates a manifest. Pure; reports all faults at once.

use std::collections::BTreeSet;

use besom_core::collection::Operations;
use besom_core::value::{Field, Value};

use super::bounds::shown;
use besom_ports::guests::{Manifest, Setting, SettingKind, texts};

/// Maximum number of settings, of collections, of topics and of columns.
const ENTRIES_MAX: usize = 1_000;
/// Maximum length of a name, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// Maximum size of all texts of a manifest, in bytes. It is kept as long as the plugin is loaded.
const BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of faults that are named.
const FAULTS_SHOWN: usize = 20;

/// The faults of the manifest; empty if it is valid.
pub(super) fn faults(manifest: &Manifest) -> Vec<String> {
    let bytes = weight(manifest);
    if bytes > BYTES_MAX {
        return vec![format!("it has {bytes} bytes: at most {BYTES_MAX}")];
    }
    let mut faults = all_faults(manifest);
    if faults.len() > FAULTS_SHOWN {
        let more = faults.len() - FAULTS_SHOWN;
        faults.truncate(FAULTS_SHOWN);
        faults.push(format!("and {more} more"));
    }
    faults
}

/// The size of all texts and values, in bytes. Each entry counts, however short it is.
fn weight(manifest: &Manifest) -> usize {
    const ENTRY: usize = 16;
    let text = |text: &String| ENTRY + text.len();
    let named = |field: &Field| ENTRY + field.name.len() + field.value.weight();
    let value = |value: &Option<Value>| value.as_ref().map_or(0, Value::weight);
    let settings = manifest.settings.iter().map(|s| {
        let bounds = value(&s.default) + value(&s.minimum) + value(&s.maximum);
        text(&s.name) + text(&s.doc) + bounds + s.choices.iter().map(text).sum::<usize>()
    });
    let collections = manifest.collections.iter().map(|c| {
        let columns = c.columns.iter().chain(&c.optional_columns);
        text(&c.collection) + columns.map(text).sum::<usize>()
    });
    let extra = manifest.extra.iter().map(named);
    [&manifest.name, &manifest.version, &manifest.doc]
        .into_iter()
        .chain(&manifest.topics)
        .map(text)
        .chain(settings)
        .chain(collections)
        .chain(extra)
        .sum()
}

fn all_faults(manifest: &Manifest) -> Vec<String> {
    let mut faults = Vec::new();
    name("name", &manifest.name, &mut faults);
    if !is_version(&manifest.version) {
        faults.push(format!(
            "version: `{}` is not a semantic version (`1.2.3`)",
            shown(&manifest.version)
        ));
    }
    each("settings", manifest.settings.iter().map(|s| s.name.as_str()), &mut faults);
    for setting in &manifest.settings {
        setting_faults(setting, &mut faults);
        choice_faults(setting, &mut faults);
    }
    each("collections", manifest.collections.iter().map(|c| c.collection.as_str()), &mut faults);
    for request in &manifest.collections {
        let place = format!("collections.{}", shown(&request.collection));
        if request.operations == Operations::default() {
            faults.push(format!("{place}: requests no operation"));
        }
        each(&format!("{place}.columns"), request.columns.iter().map(String::as_str), &mut faults);
        let is_asked = |column: &&String| !request.columns.contains(column);
        if let Some(column) = request.optional_columns.iter().find(is_asked) {
            let column = shown(column);
            faults.push(format!("{place}: the optional column `{column}` is not in its columns"));
        }
    }
    each("topics", manifest.topics.iter().map(String::as_str), &mut faults);
    faults
}

fn name(place: &str, name: &str, faults: &mut Vec<String>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
        faults.push(format!("{place}: `{}` is not a valid name", shown(name).escape_debug()));
    }
}

fn each<'a>(place: &str, names: impl Iterator<Item = &'a str>, faults: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, n) in names.enumerate() {
        if index == ENTRIES_MAX {
            faults.push(format!("{place}: more than {ENTRIES_MAX}"));
            return;
        }
        name(place, n, faults);
        if !seen.insert(n) {
            faults.push(format!("{place}: `{}` is listed twice", shown(n)));
        }
    }
}

fn setting_faults(setting: &Setting, faults: &mut Vec<String>) {
    let place = format!("settings.{}", shown(&setting.name));
    let ordered =
        matches!(setting.kind, SettingKind::Integer | SettingKind::Float | SettingKind::Duration);
    let values = [
        ("default", &setting.default),
        ("minimum", &setting.minimum),
        ("maximum", &setting.maximum),
    ];
    for (what, value) in values {
        let Some(value) = value else { continue };
        // A default of null makes a setting optional: it then has no value.
        if what == "default" && *value == Value::Null {
            continue;
        }
        if !fits(setting.kind, value) {
            faults.push(format!("{place}: the {what} does not have the setting's kind"));
        } else if what != "default" && !ordered {
            faults.push(format!("{place}: a {what} is not allowed for this kind"));
        }
    }
    let number = |value: &Option<Value>| match value {
        Some(Value::Integer(i)) => Some(*i as f64),
        Some(Value::Float(f)) => Some(*f),
        _ => None,
    };
    let (low, high) = (number(&setting.minimum), number(&setting.maximum));
    if let (Some(low), Some(high)) = (low, high)
        && low > high
    {
        faults.push(format!("{place}: the minimum {low} is above the maximum {high}"));
    }
    if let Some(default) = number(&setting.default)
        && (low.is_some_and(|low| default < low) || high.is_some_and(|high| default > high))
    {
        faults.push(format!("{place}: the default {default} is outside the bounds"));
    }
}

/// The default of a setting with choices must be one of them.
fn choice_faults(setting: &Setting, faults: &mut Vec<String>) {
    if setting.choices.is_empty() {
        return;
    }
    let place = format!("settings.{}", shown(&setting.name));
    if setting.choices.len() > ENTRIES_MAX {
        faults.push(format!("{place}: more than {ENTRIES_MAX} choices"));
    }
    if !matches!(setting.kind, SettingKind::Text | SettingKind::Texts) {
        faults.push(format!("{place}: only a setting of text can have choices"));
    }
    let defaults = match &setting.default {
        Some(Value::Text(default)) => vec![default.clone()],
        Some(default) => texts(default).unwrap_or_default(),
        None => Vec::new(),
    };
    if let Some(default) = defaults.iter().find(|default| !setting.choices.contains(default)) {
        faults.push(format!("{place}: the default {:?} is not one of the choices", shown(default)));
    }
}

/// Whether the value has this type. A duration is an integer number of milliseconds here.
fn fits(kind: SettingKind, value: &Value) -> bool {
    if kind == SettingKind::Texts {
        return texts(value).is_some();
    }
    matches!(
        (kind, value),
        (SettingKind::Bool, Value::Bool(_))
            | (SettingKind::Integer | SettingKind::Duration, Value::Integer(_))
            | (SettingKind::Float, Value::Float(_) | Value::Integer(_))
            | (SettingKind::Text, Value::Text(_))
    )
}

/// Whether the text is a semantic version: three numbers and the permitted suffixes.
fn is_version(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = core.split('.');
    let three = numbers.by_ref().take(3).filter(|n| n.parse::<u64>().is_ok()).count() == 3;
    three && numbers.next().is_none() && version.len() <= NAME_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use besom_ports::guests::{CollectionRequest, Lane};

    fn sound() -> Manifest {
        let setting = Setting {
            name: "min_changes".into(),
            kind: SettingKind::Integer,
            default: Some(Value::Integer(10)),
            minimum: Some(Value::Integer(1)),
            maximum: None,
            choices: vec![],
            doc: String::new(),
        };
        let mode = Setting {
            name: "mode".into(),
            kind: SettingKind::Text,
            default: Some(Value::Text("merge".into())),
            minimum: None,
            maximum: None,
            choices: vec![],
            doc: String::new(),
        };
        let keys = Setting {
            name: "keys".into(),
            kind: SettingKind::Texts,
            default: Some(Value::Json("[\"a\", \"b\"]".into())),
            ..mode.clone()
        };
        let request = CollectionRequest {
            collection: "documents".into(),
            operations: Operations { read: true, ..Operations::default() },
            columns: vec!["doc_id".into()],
            ..CollectionRequest::default()
        };
        Manifest {
            name: "tidy".into(),
            version: "1.0.0-rc.1".into(),
            doc: String::new(),
            settings: vec![setting, mode, keys],
            collections: vec![request],
            topics: vec!["tidied".into()],
            activity: false,
            per_tenant: true,
            lane: Lane::Normal,
            extra: vec![],
        }
    }

    #[test]
    fn a_default_is_one_of_the_choices() {
        let mut manifest = sound();
        manifest.settings[1].choices = vec!["merge".into(), "reset".into()];
        manifest.settings[2].choices = vec!["b".into(), "a".into()];
        assert_eq!(faults(&manifest), Vec::<String>::new());
    }

    #[test]
    fn what_is_kept_and_said_of_a_manifest_is_bounded() {
        let large = Manifest { doc: "x".repeat(BYTES_MAX), ..sound() };
        let found = faults(&large);
        assert!(found.len() == 1 && found[0].contains("bytes: at most 1048576"), "{found:?}");
        let many = Manifest { topics: vec![String::new(); 100_000], ..sound() };
        assert!(faults(&many)[0].contains("bytes: at most 1048576"));
        let wrong = "ü ".repeat(100_000);
        let wrong = Manifest { version: wrong.clone(), topics: vec![wrong; 2], ..sound() };
        let found = faults(&wrong);
        assert!(found.len() == 4 && found.iter().all(|fault| fault.len() < 1_000), "{found:?}");
        let wrong = Manifest { topics: vec![" ".into(); 100], ..sound() };
        let found = faults(&wrong);
        assert_eq!(found.len(), FAULTS_SHOWN + 1);
        assert_eq!(found[FAULTS_SHOWN], "and 179 more");
    }

    #[test]
    fn each_mistake_is_named() {
        type Mistake = fn(&mut Manifest);
        let cases: [(Mistake, &str); 14] = [
            (|m| m.name = "a b".into(), "`a b` is not a valid name"),
            (|m| m.version = "1.0".into(), "`1.0` is not a semantic version"),
            (|m| m.settings.push(m.settings[0].clone()), "settings: `min_changes` is listed twice"),
            (|m| m.settings[0].default = Some(Value::Bool(true)), "default does not have"),
            (|m| m.settings[0].default = Some(Value::Integer(0)), "outside the bounds"),
            (|m| m.settings[0].maximum = Some(Value::Integer(0)), "above the maximum"),
            (|m| m.collections[0].operations.read = false, "requests no operation"),
            (|m| m.collections[0].columns.push("doc_id".into()), "`doc_id` is listed twice"),
            (|m| m.topics.push(String::new()), "topics: `` is not a valid name"),
            (|m| m.settings[0].choices.push("all".into()), "only a setting of text"),
            (|m| m.settings[2].default = Some(Value::Json("[1]".into())), "default does not have"),
            (
                |m| m.settings[2].choices.push("b".into()),
                "the default \"a\" is not one of the choices",
            ),
            (
                |m| m.settings[1].choices.push("reset".into()),
                "the default \"merge\" is not one of the choices",
            ),
            (
                |m| m.collections[0].optional_columns.push("state".into()),
                "the optional column `state` is not in its columns",
            ),
        ];
        assert_eq!(faults(&sound()), Vec::<String>::new());
        for (mistake, part) in cases {
            let mut manifest = sound();
            mistake(&mut manifest);
            let found = faults(&manifest);
            assert!(found.iter().any(|f| f.contains(part)), "{found:?} does not say {part:?}");
        }
    }
}
