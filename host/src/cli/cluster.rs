//! Opens the etcd client that `[coordination]` describes, and joins the cluster through it.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use besom_core::ids::Incarnation;

use super::Failure;
use super::patience::patiently;
use besom_config::Config;
use besom_engine::host::clock::{self, StoreTime};
use besom_engine::host::perform::Cluster;
use besom_engine::host::setup::{hostname, node_name};
use besom_ports::embedded::Embedded;
use besom_ports::members::{Announcement, MemberState, Members as _};
use besom_services::coordination::etcd::{Clocks, Credentials, Etcd, Identity, Options, Tls};
use besom_system::secret;

/// Returns the etcd client of this incarnation, or `None` if the configuration names no etcd. Does not
/// connect. Timestamps that the client writes for people come from `time`.
///
/// # Errors
/// A file that cannot be read, a secret that others can read, or a name that is not a valid etcd key.
pub fn etcd(
    config: &Config,
    incarnation: &Incarnation,
    time: &Arc<StoreTime>,
) -> Result<Option<Arc<Etcd>>, Failure> {
    let c = &config.coordination;
    if !c.is_cluster() {
        return Ok(None);
    }
    let mut options = Options::new(c.etcd.clone(), &c.cluster, config.lease.ttl);
    if let (Some(user), Some(file)) = (&c.user, &c.password_file) {
        let password = secret::line(file);
        let password = password.map_err(|words| unusable("password_file", file, &words))?;
        options.credentials = Some(Credentials { user: user.clone(), password });
    }
    options.tls = Tls {
        ca: c.ca.as_deref().map(|file| read("ca", file)).transpose()?,
        identity: match (&c.cert, &c.key) {
            (Some(cert), Some(key)) => Some((read("cert", cert)?, secret_of("key", key)?)),
            _ => None,
        },
    };
    let name = node_name(config).into();
    let identity = Identity { name, incarnation: incarnation.clone(), hostname: hostname() };
    let time = Arc::clone(time);
    let clocks =
        Clocks { since_boot: Arc::new(clock::since_boot), wall: Arc::new(move || time.store()) };
    Ok(Some(Arc::new(Etcd::new(identity, options, clocks)?)))
}

/// Joins the cluster before anything runs, so that every obstacle is reported at the start. The node
/// owns no partition until it announces that it is active.
///
/// # Errors
/// Wrong credentials, a cluster that uses another store, a live node with the same name, or etcd that
/// cannot be reached within `host.connect_wait_max`.
pub async fn join(
    config: &Config,
    etcd: &Arc<Etcd>,
    store: &dyn Embedded,
) -> Result<Cluster, Failure> {
    // A killed incarnation of this node stays registered until its lease expires.
    let max = config.host.connect_wait_max.max(config.lease.ttl * 2);
    let announcement = Announcement {
        addr: config.node.address.clone().unwrap_or_else(hostname),
        weight: NonZeroU32::new(config.node.weight).unwrap_or(NonZeroU32::MIN),
        state: MemberState::Active,
    };
    let joining = Announcement { state: MemberState::Joining, ..announcement.clone() };
    patiently(max, async || {
        // Nothing is recorded, here or there, before it is known whose store this is.
        if let (Some(row), Some(now)) = (store.lease().await?, store.server_time().await?) {
            row.check_free(now)?;
        }
        etcd.claim(store.identity()).await?;
        store.assign_to(&config.coordination.cluster).await?;
        Ok(etcd.join(&joining).await?)
    })
    .await?;
    Ok(Cluster { members: Arc::clone(etcd) as _, announcement })
}

fn read(setting: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| unusable(setting, file, &error.to_string()))
}

/// Reads a file that only its owner may read.
fn secret_of(setting: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    secret::read(file).map_err(|words| unusable(setting, file, &words))
}

fn unusable(setting: &str, file: &Path, words: &str) -> Failure {
    Failure::Setting(format!("[coordination] {setting}: {}: {words}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_that_others_can_read_is_refused_with_the_setting() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        let missing = secret_of("password_file", &file).unwrap_err().to_string();
        assert!(missing.contains("[coordination] password_file"), "{missing}");
        std::fs::write(&file, "right\n").unwrap();
        for (mode, fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            match secret_of("password_file", &file) {
                Ok(bytes) => assert!(fine && bytes == b"right\n", "{mode:o}"),
                Err(error) => {
                    assert!(!fine && error.to_string().contains("chmod 600"), "{mode:o}: {error}");
                }
            }
        }
    }
}
