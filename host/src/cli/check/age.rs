//! Tasks of `retention` without an age, which take every row up to now: right for an expiry, and for nothing else.

use std::time::Duration;

use besom_config::Resolved;
use besom_core::ids::TaskName;
use besom_core::value::{Kind, Value};
use besom_ports::store::{self, Range, ReadView, Store};
use besom_product::retention::{self, Says, UpToNow};

/// Maximum number of tenants whose rows are looked at; of more, nothing is concluded.
const TENANTS_LOOKED_AT: u32 = 100;
/// Maximum time for the look.
const LOOK_MAX: Duration = Duration::from_secs(5);
const DAY_US: i64 = 86_400_000_000;

/// The tasks that do not say how old a row has to be.
fn ageless(resolved: &Resolved) -> Vec<(TaskName, UpToNow)> {
    let tasks = resolved.partial().tasks.values();
    let unsaid = tasks.filter(|task| !resolved.has_setting(&task.name, "older_than"));
    unsaid.filter_map(|task| Some((task.name.clone(), retention::up_to_now(task)?))).collect()
}

/// Warns of columns whose names say that they hold no expiry.
pub(super) fn by_name(resolved: &mut Resolved) {
    for (task, of) in ageless(resolved) {
        if of.says == Says::Past {
            let why = format!("by its name, `{}` is when something has happened", of.by);
            warn(resolved, &task, &of, &why);
        }
    }
}

/// Warns of columns of which no row has an instant that is still to come.
pub(super) fn by_rows(resolved: &mut Resolved, past: &[(TaskName, UpToNow)]) {
    for (task, of) in past {
        let why = format!("no row of `{}` has one that is still to come", of.rows);
        warn(resolved, task, of, &why);
    }
}

fn warn(resolved: &mut Resolved, task: &TaskName, of: &UpToNow, why: &str) {
    let UpToNow { by, done, .. } = of;
    let message = format!(
        "without older_than, every row whose `{by}` has passed is {done}, as if it were an expiry; {why}"
    );
    let fix = format!(
        "write how old a row has to be, such as older_than = \"30d\", or older_than = \"0s\" if it may be {done} as \
         soon as `{by}` has passed"
    );
    resolved.warn_setting(task, "by", message, &fix);
}

/// The tasks without an age, of which the names of their columns say nothing, and the table has no row whose
/// instant is still to come.
pub(super) async fn past(
    store: &dyn Store,
    resolved: &Resolved,
) -> Result<Vec<(TaskName, UpToNow)>, store::Error> {
    let mut past = Vec::new();
    let unclear = ageless(resolved).into_iter().filter(|(_, of)| of.says == Says::Nothing);
    for (task, of) in unclear {
        let Some(mapped) = resolved.partial().collections.get(&of.rows) else { continue };
        let begins = |columns: &Vec<String>| columns.first() == Some(&of.by);
        let Some((index, _)) = mapped.indexes.iter().find(|(_, columns)| begins(columns)) else {
            continue;
        };
        let now = store.now().await?;
        let now = match mapped.columns.get(&of.by).map(|column| column.kind) {
            Some(Kind::Date) => Value::Date(i32::try_from(now.0.div_euclid(DAY_US)).unwrap_or(0)),
            _ => Value::Timestamp(now),
        };
        let range = Range {
            collection: of.rows.clone(),
            index: Some(index.clone()),
            columns: vec![of.by.clone()],
            limit: 1,
            bytes_max: 1 << 20,
            ..Range::default()
        };
        let view = store.snapshot(LOOK_MAX).await?;
        if is_past(&*view, mapped.tenant.is_some(), &range, &now).await? {
            past.push((task, of));
        }
    }
    Ok(past)
}

/// Whether there are rows before this value of the index, and none after it.
async fn is_past(
    view: &dyn ReadView,
    tenants: bool,
    range: &Range,
    now: &Value,
) -> Result<bool, store::Error> {
    let tenants = match tenants {
        true => {
            let all = view.tenants(range, None, TENANTS_LOOKED_AT).await?;
            all.into_iter().map(Some).collect()
        }
        false => vec![None],
    };
    let before = Range { upper: Some(now.clone()), ..range.clone() };
    let after = Range { beyond: Some(now.clone()), ..range.clone() };
    let mut any = false;
    for tenant in &tenants {
        if !view.read_range(tenant.as_ref(), &after).await?.rows.is_empty() {
            return Ok(false);
        }
        any |= !view.read_range(tenant.as_ref(), &before).await?.rows.is_empty();
    }
    Ok(any && tenants.len() < TENANTS_LOOKED_AT as usize)
}
