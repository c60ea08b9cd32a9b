//! The second step: checks a task against the manifest of its plugin, and makes its definition.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::collection::{Collection, Collections, Column, Grants, all_dependants};
use besom_core::ids::TaskName;
use besom_core::value::{Field, Value};
use besom_ports::guests::{Described, Lane};
use besom_ports::task::{Overlap, TaskDefinition};

use super::grants::{ACTIVITY, ALL_TENANTS, Granted, TOPICS, granted, is_mapped};
use super::{PIN, RawTask};
use crate::collection::name_of;
use crate::keys::written;
use crate::quantity::show_duration;
use crate::walk::Walker;
use crate::{Plugin, PluginFault, limits, settings};

/// Default horizon of a task without a schedule.
const HORIZON_UNSCHEDULED: Duration = Duration::from_secs(86_400);

impl RawTask {
    /// Reports what is wrong with the limits when the plugin is not known; its lane affects only their
    /// defaults.
    pub fn judge_limits(&self, walker: &mut Walker<'_>) {
        let path = format!("tasks.{}", written(&self.name));
        limits::read(walker, &path, &self.limits, Lane::Normal, &self.plain.plugin);
    }

    /// Reports that the plugin cannot be used.
    pub fn without_plugin(
        &self,
        walker: &mut Walker<'_>,
        fault: &PluginFault,
        collections: &Collections,
        require_pin: bool,
    ) {
        match &fault.refused {
            Some(digest) => {
                self.judge_pin(walker, digest, false, require_pin);
            }
            None => {
                let span = self.span("plugin");
                walker.error(span, fault.message.as_str(), fault.fix.as_str());
            }
        }
        self.judge_unknown(walker, collections);
    }

    /// Whether the file of the plugin is refused, which concerns this task alone: it is not the pinned one, or
    /// no trusted key vouches for it. [`RawTask::resolve`] and [`RawTask::without_plugin`] report that first.
    pub fn is_refused(&self, found: &Result<Plugin, PluginFault>) -> bool {
        let digest = match found {
            Ok(plugin) => Some(&plugin.digest),
            Err(fault) if fault.untrusted => return true,
            Err(fault) => fault.refused.as_ref(),
        };
        let pin = self.pin().filter(|pin| is_digest(pin));
        pin.zip(digest).is_some_and(|(pin, digest)| !pin.eq_ignore_ascii_case(digest))
    }

    /// Reports what is wrong with the task whatever its plugin requests.
    fn judge_unknown(&self, walker: &mut Walker<'_>, collections: &Collections) {
        self.judge_limits(walker);
        for entry in self.grants.iter().flat_map(|table| &table.0) {
            match entry.key.as_str() {
                TOPICS => drop(walker.texts("the topics", &entry.span, &entry.node)),
                ACTIVITY | ALL_TENANTS => {
                    walker.flag(&entry.key, &entry.span, &entry.node);
                }
                _ => drop(granted(walker, entry, collections)),
            }
        }
    }

    /// Refuses a `limits.wall` that is longer than the snapshot of a call stays open.
    pub fn judge_wall(&self, walker: &mut Walker<'_>, wall: Duration, snapshot_max: Duration) {
        if wall <= snapshot_max {
            return;
        }
        let span = self.limits.get("wall").map_or(&self.name_span, |entry| &entry.span);
        let (name, longest) = (&self.name, show_duration(wall));
        let closed = show_duration(snapshot_max);
        let message = format!(
            "a call of `{name}` may take {longest} (limits.wall), but its snapshot is closed \
             after {closed} (host.act_snapshot_max)"
        );
        let fix = format!(
            "write act_snapshot_max = \"{longest}\" in [host], or a shorter wall in \
             [tasks.{}.limits]",
            written(name)
        );
        walker.error(span, message, fix);
    }

    /// Resolves the task with the manifest of its plugin. Problems are reported; the result is valid only if
    /// there are none.
    pub fn resolve(
        &self,
        walker: &mut Walker<'_>,
        plugin: &Plugin,
        collections: &Collections,
        require_pin: bool,
    ) -> TaskDefinition {
        let is_another = self.judge_pin(walker, &plugin.digest, plugin.built_in, require_pin);
        let said = walker.problems.len();
        let definition = self.judged(walker, plugin, collections);
        if is_another {
            // Requests of a file that nobody has reviewed must not be suggested as grants.
            walker.problems.truncate(said);
            self.judge_unknown(walker, collections);
        }
        definition
    }

    fn judged(
        &self,
        walker: &mut Walker<'_>,
        plugin: &Plugin,
        collections: &Collections,
    ) -> TaskDefinition {
        let plugin = &self.requesting(plugin);
        let manifest = &plugin.manifest;
        let path = format!("tasks.{}", written(&self.name));
        self.send_settings(walker, &path, manifest);
        let is_misplaced = |setting: &str| self.has_unknown(setting);
        let (span, table) = (&self.name_span, &self.settings);
        let read = settings::read(walker, &path, span, table, manifest, is_misplaced);
        let limits = limits::read(walker, &path, &self.limits, manifest.lane, &self.plain.plugin);
        let aliases = self.aliases(walker, plugin, collections);
        let real = |name: &str| aliases.get(name).map_or(name, String::as_str).to_owned();
        let Granted { grants, columns, topics, activity, all_tenants } =
            self.grants(walker, plugin, collections, &aliases);
        self.judge_lane(walker, plugin);
        self.judge_lateness(walker, manifest.lane, &read.fields);
        let optional = manifest.collections.iter().flat_map(|request| {
            let columns = request.columns.iter().map(|column| (&request.collection, column));
            columns.filter(|(collection, column)| manifest.is_optional(collection, column))
        });
        let unmapped = optional.filter(|(collection, column)| {
            !collections.get(&real(collection)).is_some_and(|mapped| is_mapped(mapped, column))
        });
        // Without tenants in any collection, there is one scan over everything.
        let has_tenants =
            grants.keys().any(|name| collections.get(name).is_some_and(|c| c.tenant.is_some()));
        if has_tenants && !manifest.per_tenant && !all_tenants && self.grants.is_some() {
            let span = self.span("plugin");
            walker.error(
                span,
                format!(
                    "the plugin `{}` requests to scan all tenants at once, which is not granted",
                    self.plain.plugin
                ),
                format!(
                    "write {ALL_TENANTS} = true in [tasks.{}.grants] if the plugin names the tenant of each \
                     candidate; otherwise remove `tenant` from the collections",
                    written(&self.name)
                ),
            );
        }
        TaskDefinition {
            name: TaskName::from(self.name.as_str()),
            plugin: self.plain.plugin.clone(),
            digest: plugin.digest.clone(),
            schedule: self.plain.schedule.clone(),
            timezone: self.plain.timezone.clone(),
            overlap: self.plain.overlap.unwrap_or(Overlap::Skip),
            catch_up: self.catch_up(),
            jitter: self.plain.jitter,
            // A new leader must find the items that are due.
            at_start: self.plain.at_start
                || (manifest.lane.row().punctual && !self.spans.contains_key("at_start")),
            horizon: match (self.plain.horizon, self.gap) {
                (Duration::ZERO, Some(gap)) => gap.saturating_mul(2) + self.plain.jitter,
                (Duration::ZERO, None) => HORIZON_UNSCHEDULED,
                (given, _) => given,
            },
            settings: read.fields,
            limits,
            dependants: dependants_of(&grants, collections),
            grants,
            columns,
            all_tenants,
            topics,
            described: manifest
                .described()
                .filter_map(|name| Some((name, collections.get(&real(name))?)))
                .map(|(name, mapped)| described(name, mapped))
                .collect(),
            unmapped: unmapped.map(|(of, column)| (of.clone(), column.clone())).collect(),
            aliases,
            per_tenant: manifest.per_tenant && has_tenants,
            activity,
            lane: manifest.lane,
            tenants_per_run: read.host.projects_per_run,
            candidates_per_tenant: read.host.candidates_per_project,
            retry: self.retry,
            keep_removed: self.plain.keep_removed,
            queue_max: self.plain.queue_max,
            timers_max: match self.plain.timers_max {
                0 => manifest.lane.row().timers_max,
                given => given,
            },
            dead_max: self.plain.dead_max,
            rows_per_second: NonZeroU32::new(self.plain.rows_per_second),
            yields: self.yields,
            brakes: self.brakes(),
            windows: self.windows.clone(),
            mode: self.plain.mode.unwrap_or_default(),
            approve_within: self.plain.approve_within,
            mapping: String::new(),
        }
    }

    /// Warns if more time than the shortest limit may pass between two scans: what begins and ends between
    /// them is late. Applies to plugins in a punctual lane with a setting `limit`.
    fn judge_lateness(&self, walker: &mut Walker<'_>, lane: Lane, settings: &[Field]) {
        let Some(gap) = self.gap.filter(|_| lane.row().punctual) else { return };
        let Some(shortest) = shortest_limit(settings) else { return };
        let between = gap.saturating_add(self.plain.jitter);
        if between > shortest {
            let span = self.span("schedule");
            walker.warn(
                span,
                format!(
                    "up to {} may pass between two scans, but the shortest limit is {}: what begins \
                     in between ends up to {} late",
                    show_duration(between),
                    show_duration(shortest),
                    show_duration(between - shortest)
                ),
                format!("write schedule = \"{}\"", schedule_for(shortest)),
            );
        }
    }

    /// Checks the pin. Returns whether the plugin differs from the pinned file.
    fn judge_pin(
        &self,
        walker: &mut Walker<'_>,
        digest: &str,
        built_in: bool,
        require_pin: bool,
    ) -> bool {
        let (task, name) = (&self.name, &self.plain.plugin);
        let span = self.spans.get(PIN).unwrap_or_else(|| self.span("plugin"));
        match &self.plain.sha256 {
            Some(pin) if pin.eq_ignore_ascii_case(digest) => {}
            Some(pin) => {
                let message = match is_digest(pin) {
                    true => format!("`{name}` is not the pinned file: its SHA-256 is {digest}"),
                    false => "a pin must be a SHA-256 with 64 hexadecimal digits".to_owned(),
                };
                let fix = format!(
                    "review the file with `besom plugin diff {task}`, then run `besom task pin {task}`"
                );
                walker.error(span, message, fix);
                return true;
            }
            None if require_pin && !built_in => {
                let message = format!("`{name}` is not pinned, but plugins.require_pin is set");
                let fix = format!("review the file, then run `besom task pin {task}`");
                walker.error(span, message, fix);
            }
            None => {}
        }
        false
    }

    /// Checks the lane: your own plugin needs a grant for most of them.
    fn judge_lane(&self, walker: &mut Walker<'_>, plugin: &Plugin) {
        let lane = plugin.manifest.lane.row();
        let (word, asked, given) = (lane.name, lane.granted, self.plain.lane.as_str());
        let span = self.spans.get("lane").unwrap_or_else(|| self.span("plugin"));
        match given {
            "" if asked && !plugin.built_in => walker.error(
                span,
                format!(
                    "the plugin `{}` requests the lane `{word}`, which is not granted",
                    self.plain.plugin
                ),
                format!("write lane = \"{word}\" in [tasks.{}]", written(&self.name)),
            ),
            "" => {}
            given if given != word => walker.error(
                span,
                format!("the plugin `{}` works in the lane `{word}`", self.plain.plugin),
                format!("write lane = \"{word}\", or remove it"),
            ),
            _ => {}
        }
    }
}

/// Whether a text is a SHA-256 in hexadecimal.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the shortest limit in the settings of a task with due items: the lower one of `limit` and
/// `limit_min`. A `limit_min` of zero is ignored.
fn shortest_limit(settings: &[Field]) -> Option<Duration> {
    let duration = |name: &str| {
        let value = &settings.iter().find(|field| field.name == name)?.value;
        let Value::Integer(ms) = value else { return None };
        Some(Duration::from_millis(u64::try_from(*ms).ok()?))
    };
    let limit = duration("limit")?;
    let least = duration("limit_min").filter(|least| !least.is_zero());
    Some(least.map_or(limit, |least| least.min(limit)))
}

/// Returns a schedule that finds things with such a limit in time: every tenth of the limit, between one
/// second and one day.
pub fn schedule_for(limit: Duration) -> String {
    let every = (limit.as_secs() / 10).clamp(1, 86_400);
    format!("@every {}", show_duration(Duration::from_secs(every)))
}

/// The collections whose rows go with those that these grants allow to delete, each once.
fn dependants_of(grants: &Grants, collections: &Collections) -> Vec<String> {
    let deletes = grants.iter().filter(|(_, operations)| operations.delete);
    let all = deletes.flat_map(|(name, _)| all_dependants(collections, name));
    let names: BTreeSet<&String> = all.map(|dependant| &dependant.name).collect();
    names.into_iter().cloned().collect()
}

/// A collection as a plugin is told of it.
fn described(name: &str, mapped: &Collection) -> Described {
    let column = |(column, of): (&String, &Column)| (column.clone(), name_of(of.kind).to_owned());
    let whole = mapped.indexes.iter().filter(|(name, _)| !mapped.not_null.contains_key(*name));
    let partial = |(name, not_null): (&String, &Vec<String>)| {
        (name.clone(), mapped.indexes[name].clone(), not_null.clone())
    };
    Described {
        collection: name.to_owned(),
        key: mapped.key.clone(),
        columns: mapped.columns.iter().map(column).collect(),
        indexes: whole.map(|(name, columns)| (name.clone(), columns.clone())).collect(),
        partial: mapped.not_null.iter().map(partial).collect(),
    }
}
