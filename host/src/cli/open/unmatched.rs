//! Tasks that a start holds because tables differ from their mappings; the others run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use besom_core::collection::{Collections, Operations, all_dependants};
use besom_core::ids::TaskName;
use besom_ports::store::{self, MappingFault, Store};
use besom_ports::task::TaskDefinition;

use super::cascades;
use besom_config::{Config, Diagnostic, Problems, Resolved};
use besom_product::retention;

/// How often a host looks whether the tables of tasks that it holds match their mappings.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Leaves out the tasks that `faults` of the mapping concern, and returns the other faults, as warnings. If nothing
/// would be left to do, no task is left out, and all faults are returned as they are; unless it is only locks, which end.
pub async fn hold(
    store: &dyn Store,
    resolved: &mut Resolved,
    faults: Vec<MappingFault>,
) -> store::Result<Vec<MappingFault>> {
    let mut held = resolved.clone();
    let mut others = leave_out(&mut held, &faults, |_| true);
    // The tables of the remaining tasks can be read.
    let config = held.partial();
    let used = cloned(config, config.tasks.values());
    let deleting = cascades(store, config, &used).await?;
    others.extend(leave_out(&mut held, &deleting, |_| true));
    let config = held.partial();
    let idle = config.tasks.is_empty() && config.refused.is_empty() && config.topics.is_empty();
    if idle && !config.unmatched.is_empty() && !is_locked_only(config) {
        return Ok(faults.into_iter().chain(deleting).collect());
    }
    *resolved = held;
    Ok(others)
}

/// Leaves out those tasks of a changed file that were held before and whose tables still differ. If the database
/// does not answer, all of them are held as before.
pub async fn hold_again(store: &dyn Store, resolved: &mut Resolved, before: &Config) {
    let is_held = |task: &TaskName| before.unmatched.contains_key(task);
    let config = resolved.partial();
    let used = cloned(config, config.tasks.values().filter(|task| is_held(&task.name)));
    if used.is_empty() {
        return;
    }
    let faults = match found(store, config, &used).await {
        Ok(faults) => faults,
        Err(_) => known(before).cloned().collect(),
    };
    leave_out(resolved, &faults, is_held);
}

/// What differs of these collections, and what is deleted with their rows.
async fn found(
    store: &dyn Store,
    config: &Config,
    used: &Collections,
) -> store::Result<Vec<MappingFault>> {
    let mut found = store.check(used).await?;
    if found.iter().all(|fault| fault.warning) {
        found.extend(cascades(store, config, used).await?);
    }
    Ok(found)
}

/// Returns once nothing differs any more of what a task is held for. A database that does not answer is asked again.
pub async fn until_matched(store: &dyn Store, config: &Config) {
    let related = config.related(known(config).map(|fault| &fault.collection));
    let used: Collections =
        related.into_iter().map(|(name, of)| (name.clone(), of.clone())).collect();
    let deletes = Operations { delete: true, ..Operations::default() };
    let deleting = known(config).filter(|fault| fault.place == MappingFault::CASCADES);
    let deleting = deleting.map(|fault| (fault.collection.clone(), deletes)).collect();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Ok(mut found) = store.check(&used).await else { continue };
        let Ok(granted) = store.check_granted(&used, &deleting).await else { continue };
        found.extend(granted);
        let stays = |fault: &MappingFault| {
            let same = |of: &MappingFault| {
                !of.warning && (&of.collection, &of.place) == (&fault.collection, &fault.place)
            };
            found.iter().any(same)
        };
        let mut held = config.unmatched.values();
        if held.any(|faults| !faults.iter().any(|(fault, _)| stays(fault))) {
            return;
        }
    }
}

/// Whether tasks are held, and all of them because other sessions have locked tables.
pub fn is_locked_only(config: &Config) -> bool {
    let is_locked = |fault: &MappingFault| fault.place == MappingFault::LOCKED;
    !config.unmatched.is_empty() && known(config).all(is_locked)
}

/// Logs the tasks that are held, unless that was logged before.
pub fn say(config: &Config, before: Option<&Config>) {
    let is_known = |task, faults| before.is_some_and(|of| of.unmatched.get(task) == Some(faults));
    for (task, faults) in &config.unmatched {
        if !is_known(task, faults) {
            let why = Problems(places(faults));
            let locked = faults.iter().all(|(fault, _)| fault.place == MappingFault::LOCKED);
            let what = if locked { "is locked" } else { "differs from its mapping" };
            tracing::warn!("{task} is held, because a table {what}; the other tasks run\n{why}");
        }
    }
    let before = before.into_iter().flat_map(|config| config.unmatched.keys());
    for task in before.filter(|task| config.tasks.contains_key(*task)) {
        tracing::info!("{task} is no longer held: the database matches its mapping");
    }
}

/// Where tables differ from the mappings of a task.
pub fn places(faults: &[(MappingFault, Diagnostic)]) -> Vec<Diagnostic> {
    faults.iter().map(|(_, placed)| placed.clone()).collect()
}

/// The faults for which tasks are held.
fn known(config: &Config) -> impl Iterator<Item = &MappingFault> {
    config.unmatched.values().flatten().map(|(fault, _)| fault)
}

/// The collections of tasks with their anchors and dependants.
fn cloned<'a>(
    config: &'a Config,
    tasks: impl Iterator<Item = &'a Arc<TaskDefinition>>,
) -> Collections {
    let related = config.related(tasks.flat_map(|task| task.grants.keys()));
    related.into_iter().map(|(name, of)| (name.clone(), of.clone())).collect()
}

/// Leaves out the tasks that the faults concern, as far as they `may` be. Returns the faults that concern none of
/// them, as warnings.
fn leave_out(
    resolved: &mut Resolved,
    faults: &[MappingFault],
    may: impl Fn(&TaskName) -> bool,
) -> Vec<MappingFault> {
    let (mut held, mut others) = (Vec::new(), Vec::new());
    for fault in faults {
        let config = resolved.partial();
        let tasks = config.tasks.values().filter(|task| !fault.warning && may(&task.name));
        let tasks: Vec<_> = tasks.filter(|task| concerns(fault, config, task)).collect();
        match tasks.is_empty() {
            true => others.push(MappingFault { warning: true, ..fault.clone() }),
            false => {
                held.push((fault.clone(), tasks.iter().map(|task| task.name.clone()).collect()));
            }
        }
    }
    resolved.leave_out_unmatched(&held);
    others
}

/// Whether a task needs what a fault is about.
fn concerns(fault: &MappingFault, config: &Config, task: &TaskDefinition) -> bool {
    let name = &fault.collection;
    let deleted = task.grants.iter().filter(|(_, granted)| granted.delete).flat_map(|(own, _)| {
        all_dependants(&config.collections, own).into_iter().map(|of| &of.name).chain([own])
    });
    if fault.place == MappingFault::CASCADES {
        return deleted.into_iter().any(|of| of == name);
    }
    let mut open: Vec<&String> = task.grants.keys().chain(deleted).collect();
    let mut used = BTreeSet::new();
    while let Some(own) = open.pop() {
        if used.insert(own)
            && let Some(collection) = config.collections.get(own)
        {
            open.extend(collection.anchors.iter().map(|anchor| &anchor.collection));
        }
    }
    let reads = |index: &str| {
        !task.grants.contains_key(name) || retention::reads(task, name, index).unwrap_or(true)
    };
    used.contains(name) && fault.place.strip_prefix("indexes.").is_none_or(reads)
}
