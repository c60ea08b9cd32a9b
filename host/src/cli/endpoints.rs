//! Checks the secrets and certificates of the endpoints and of the services that a host connects to, for
//! `besom check` and for a host before it starts.

use std::path::Path;

use besom_config::Config;
use besom_engine::api::{self, Rights, Tickets, TlsFiles, Tokens};
use besom_services::courier::{look_at_identity, look_at_password, look_at_token};
use besom_system::secret;

/// The fix for every fault of these files.
pub const FIX: &str =
    "correct the file, or name another one; paths are relative to the configuration file";

/// Returns an error message, with its topic, for each file of a topic that cannot be used.
pub fn topic_faults(config: &Config) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    for (name, route) in &config.topics {
        let token = route.token_file.as_deref().map(look_at_token);
        let password = route.password_file.as_deref().map(look_at_password);
        let identity = route.cert.as_deref().zip(route.key.as_deref());
        let identity = identity.map(|(cert, key)| look_at_identity(cert, key));
        for message in [token, password, identity].into_iter().flatten().filter_map(Result::err) {
            faults.push((name.clone(), format!("the topic `{name}`: {message}")));
        }
    }
    faults
}

/// Returns an error message for each file that cannot be used, prefixed with its key.
pub fn faults(config: &Config) -> Vec<String> {
    let (api, activity) = (&config.api, &config.activity);
    let token = |path: &Path| Tokens::read(path, Rights::Look).map(drop);
    let mut faults = Vec::new();
    let mut look =
        |key: &str, path: Option<&Path>, read: &dyn Fn(&Path) -> Result<(), api::Error>| {
            if let Some(Err(error)) = path.map(read) {
                faults.push(format!("{key}: {error}"));
            }
        };
    if api.tcp.is_some() {
        look("api.token_file", api.token_file.as_deref(), &token);
        look("api.readonly_token_file", api.readonly_token_file.as_deref(), &token);
        look("api.tls_cert and tls_key", api.tls_cert.as_deref(), &|cert| {
            let Some(key) = api.tls_key.as_deref() else { return Ok(()) };
            TlsFiles { cert, key, client_ca: api.tls_client_ca.as_deref() }.check()
        });
    }
    if activity.tcp.is_some() {
        look("activity.token_file", activity.token_file.as_deref(), &token);
        look("activity.ticket_key_file", activity.ticket_key_file.as_deref(), &|path| {
            Tickets::read(path, activity.ticket_life_max).map(drop)
        });
        look("activity.tls_cert and tls_key", activity.tls_cert.as_deref(), &|cert| {
            let Some(key) = activity.tls_key.as_deref() else { return Ok(()) };
            TlsFiles { cert, key, client_ca: None }.check()
        });
    }
    let secret = |path: &Path| match secret::read(path) {
        Ok(_) => Ok(()),
        Err(words) => Err(api::Error::Token { path: path.to_owned(), words }),
    };
    let coordination = &config.coordination;
    look("coordination.password_file", coordination.password_file.as_deref(), &secret);
    look("coordination.key", coordination.key.as_deref(), &secret);
    if !activity.redis.is_empty() {
        look("activity.redis_password_file", activity.redis_password_file.as_deref(), &secret);
        look("activity.redis_key", activity.redis_key.as_deref(), &secret);
    }
    faults
}
