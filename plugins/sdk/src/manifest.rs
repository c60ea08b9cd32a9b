//! The builder of manifests: the description that a task returns to the host.

use crate::bindings::besom::task::types::CollectionRequest;
use crate::time::parse_duration_ms;
use crate::{Field, Lane, Manifest, Operations, Setting, SettingKind, Value};

impl Manifest {
    /// A task that is scanned per tenant, runs in the normal lane and requests nothing. `version`
    /// is usually `env!("CARGO_PKG_VERSION")`.
    pub fn new(name: &str, version: &str) -> Manifest {
        Manifest {
            name: name.into(),
            version: version.into(),
            doc: String::new(),
            settings: Vec::new(),
            collections: Vec::new(),
            topics: Vec::new(),
            activity: false,
            per_tenant: true,
            lane: Lane::Normal,
            extra: Vec::new(),
        }
    }

    /// The description that operators read.
    pub fn doc(mut self, doc: &str) -> Manifest {
        self.doc = doc.into();
        self
    }

    /// Declares a setting, which the operator may set in `[tasks.NAME.settings]`.
    pub fn setting(mut self, setting: Setting) -> Manifest {
        self.settings.push(setting);
        self
    }

    /// Requests access to a collection.
    pub fn collection(mut self, access: Access) -> Manifest {
        self.collections.push(access.0);
        self
    }

    /// Requests the right to emit to a topic and to read the task's own messages there.
    pub fn topic(mut self, topic: &str) -> Manifest {
        self.topics.push(topic.into());
        self
    }

    /// Requests the right to read activity and to guard on it.
    pub fn activity(mut self) -> Manifest {
        self.activity = true;
        self
    }

    /// Scans once over all tenants instead of per tenant: the collections have no tenant column,
    /// or the candidates name their tenants.
    pub fn over_all_tenants(mut self) -> Manifest {
        self.per_tenant = false;
        self
    }

    /// The priority class of the task's work. The default is normal; the operator must grant
    /// another.
    pub fn lane(mut self, lane: Lane) -> Manifest {
        self.lane = lane;
        self
    }

    /// Adds what a host may know by this name; another ignores it. Known are `candidates_per_project` and
    /// `projects_per_run`, integers: the task's defaults of these settings of the host.
    pub fn extra(mut self, name: &str, value: impl Into<Value>) -> Manifest {
        self.extra.push(Field { name: name.into(), value: value.into() });
        self
    }
}

impl Setting {
    /// A duration such as `"24h"`, read with [`crate::Context::duration_ms`].
    ///
    /// # Panics
    /// If the default is not a valid duration: an error in the plugin, found by any test that
    /// calls `describe`.
    pub fn duration(name: &str, default: &str) -> Setting {
        Setting::of(name, SettingKind::Duration, span(name, default))
    }

    /// An integer, read as `i64`.
    pub fn integer(name: &str, default: i64) -> Setting {
        Setting::of(name, SettingKind::Integer, default.into())
    }

    /// A floating-point number, read as `f64`.
    pub fn float(name: &str, default: f64) -> Setting {
        Setting::of(name, SettingKind::Float, default.into())
    }

    /// Text, read as `String`.
    pub fn text(name: &str, default: &str) -> Setting {
        Setting::of(name, SettingKind::Text, default.into())
    }

    /// A list of texts, read as `Vec<String>`.
    pub fn texts<'a>(name: &str, default: impl IntoIterator<Item = &'a str>) -> Setting {
        let texts: Vec<&str> = default.into_iter().collect();
        Setting::of(name, SettingKind::Texts, Value::Json(serde_json::json!(texts).to_string()))
    }

    /// A Boolean, read as `bool`.
    pub fn bool(name: &str, default: bool) -> Setting {
        Setting::of(name, SettingKind::Bool, default.into())
    }

    /// Makes the setting mandatory and drops its default.
    pub fn required(mut self) -> Setting {
        self.default = None;
        self
    }

    /// The inclusive minimum; for a duration use [`Setting::at_least`].
    pub fn minimum(mut self, value: impl Into<Value>) -> Setting {
        self.minimum = Some(value.into());
        self
    }

    /// The inclusive maximum; for a duration an integer of milliseconds.
    pub fn maximum(mut self, value: impl Into<Value>) -> Setting {
        self.maximum = Some(value.into());
        self
    }

    /// The inclusive minimum of a duration, such as `"1m"`.
    ///
    /// # Panics
    /// If `shortest` is not a valid duration.
    pub fn at_least(mut self, shortest: &str) -> Setting {
        self.minimum = Some(span(&self.name, shortest));
        self
    }

    /// The only words that a text setting, or each text of a list, may have.
    pub fn choices<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Setting {
        self.choices.extend(words.into_iter().map(str::to_owned));
        self
    }

    /// The description that operators read.
    pub fn doc(mut self, doc: &str) -> Setting {
        self.doc = doc.into();
        self
    }

    fn of(name: &str, kind: SettingKind, default: Value) -> Setting {
        Setting {
            name: name.into(),
            kind,
            default: Some(default),
            minimum: None,
            maximum: None,
            choices: Vec::new(),
            doc: String::new(),
            extra: Vec::new(),
        }
    }
}

fn span(name: &str, text: &str) -> Value {
    let ms = parse_duration_ms(text).and_then(|ms| i64::try_from(ms).ok());
    let Some(ms) = ms else {
        panic!("the setting {name}: {text:?} is not a duration such as `7d` or `90s`")
    };
    Value::Integer(ms)
}

/// The access that a task requests to a collection. If the operator does not grant all of it, the
/// configuration is invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct Access(CollectionRequest);

impl Access {
    /// Access to a collection, without any operation.
    pub fn to(collection: &str) -> Access {
        Access(CollectionRequest {
            collection: collection.into(),
            operations: Operations::empty(),
            columns: Vec::new(),
            optional_columns: Vec::new(),
            optional: false,
            described: false,
            extra: Vec::new(),
        })
    }

    /// Requests the collection only for tasks that name it in `collections`; the plugin works without it.
    pub fn when_named(mut self) -> Access {
        self.0.optional = true;
        self
    }

    /// Requests reading rows and guarding on them.
    pub fn read(mut self) -> Access {
        self.0.operations |= Operations::READ;
        self
    }

    /// Requests inserting rows.
    pub fn insert(mut self) -> Access {
        self.0.operations |= Operations::INSERT;
        self
    }

    /// Requests updating rows.
    pub fn update(mut self) -> Access {
        self.0.operations |= Operations::UPDATE;
        self
    }

    /// Requests deleting rows.
    pub fn delete(mut self) -> Access {
        self.0.operations |= Operations::DELETE;
        self
    }

    /// The columns that the task uses; without this call, all columns.
    pub fn columns<'a>(mut self, columns: impl IntoIterator<Item = &'a str>) -> Access {
        self.0.columns.extend(columns.into_iter().map(str::to_owned));
        self
    }

    /// Asks the host to describe the collection ([`crate::Context::described`]): for a task that works on
    /// whatever columns and indexes the operator has mapped.
    pub fn described(mut self) -> Access {
        self.0.described = true;
        self
    }

    /// Columns that the task uses only if they are mapped; test for them with
    /// [`crate::Context::has_column`].
    pub fn optional<'a>(mut self, columns: impl IntoIterator<Item = &'a str>) -> Access {
        let columns: Vec<String> = columns.into_iter().map(str::to_owned).collect();
        self.0.columns.extend(columns.iter().cloned());
        self.0.optional_columns.extend(columns);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_span_is_handed_over_in_milliseconds() {
        let setting = Setting::duration("threshold", "24h").at_least("1m").doc("Idle for so long.");
        assert_eq!(setting.default, Some(Value::Integer(86_400_000)));
        assert_eq!(setting.minimum, Some(Value::Integer(60_000)));
        assert_eq!(setting.clone().required().default, None);
    }

    #[test]
    #[should_panic(
        expected = "the setting threshold: \"a day\" is not a duration such as `7d` or `90s`"
    )]
    fn a_malformed_default_is_found_by_describe() {
        let _ = Setting::duration("threshold", "a day");
    }

    #[test]
    fn access_adds_up() {
        let access = Access::to("shares").read().update().columns(["share_id"]).optional(["limit"]);
        assert_eq!(access.0.operations, Operations::READ | Operations::UPDATE);
        assert_eq!(access.0.columns, ["share_id", "limit"]);
        assert_eq!(access.0.optional_columns, ["limit"]);
        let manifest = Manifest::new("a", "1.0.0").collection(Access::to("old").when_named());
        assert!(manifest.collections[0].optional && !manifest.collections[0].described);
    }
}
