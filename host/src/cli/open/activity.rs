//! Opens the activity in Redis if the configuration names it, otherwise in the store.

use std::path::Path;
use std::sync::Arc;

use besom_core::activity::Timeouts;

use crate::cli::Failure;
use besom_config::Config;
use besom_config::activity::Activity as Section;
use besom_engine::host::health::{Health, Part};
use besom_ports::activity::Activity;
use besom_ports::embedded::Embedded;
use besom_services::activity::redis::{Options, RedisActivity, Told};
use besom_services::activity::store::StoreActivity;
use besom_system::secret;

/// Opens the activity. With `listening`, this process serves the activity endpoint, and a thing that it
/// receives no reports of becomes idle; otherwise a thing that was never observed stays unknown. `health`
/// records whether Redis can be reached.
///
/// # Errors
/// A password file that cannot be used, or Redis settings that do not work.
pub async fn activity(
    config: &Config,
    store: &Arc<dyn Embedded>,
    listening: bool,
    health: &Arc<Health>,
) -> Result<Arc<dyn Activity>, Failure> {
    if config.activity.in_redis() {
        let options = of_redis(&config.activity)?;
        let health = Arc::clone(health);
        let told: Told = Box::new(move |looked| health.note(Part::Activity, &looked));
        let opened = RedisActivity::open(options, listening, told).await;
        let activity = opened.map_err(|error| {
            Failure::Failed(format!(
                "{error}; check activity.redis and the other redis keys in [activity]"
            ))
        })?;
        return Ok(Arc::new(activity));
    }
    let ledger = Arc::clone(store) as _;
    let activity =
        if listening { StoreActivity::listening(ledger) } else { StoreActivity::reading(ledger) };
    Ok(Arc::new(activity))
}

fn of_redis(section: &Section) -> Result<Options, Failure> {
    let password = section.redis_password_file.as_deref().map(password).transpose()?;
    Ok(Options {
        servers: section.redis.clone(),
        user: section.redis_user.clone(),
        password,
        ca: section.redis_ca.clone(),
        identity: section.redis_cert.clone().zip(section.redis_key.clone()),
        connections_key: section.redis_connections.clone(),
        timer_key: section.redis_timer.clone(),
        timeouts: Timeouts { idle: section.idle_timeout, heartbeat: section.heartbeat_timeout },
        connect_timeout: section.redis_connect_timeout,
        call_timeout: section.redis_timeout,
        backoff_max: section.redis_backoff_max,
        batch_max: section.redis_batch as usize,
    })
}

/// Reads a password from a file that only its owner may read.
fn password(path: &Path) -> Result<String, Failure> {
    secret::line(path).map_err(|words| {
        Failure::Setting(format!("activity.redis_password_file {}: {words}", path.display()))
    })
}
