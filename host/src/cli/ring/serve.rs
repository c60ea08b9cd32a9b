//! `besom ring serve`: serves a ring of servers and keys over HTTP until SIGTERM or SIGINT.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::sync::watch;

use super::super::assembly::asked_to_stop;
use super::super::{Exit, Failure, Global};
use besom_config::{self as config, Overrides, RawConfig};
use besom_engine::api::ring::{ServedRing, router};
use besom_engine::api::{Error, Listener, Rights, Tokens};

/// `besom ring serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address to listen on: ADDRESS:PORT, or the path of a Unix socket.
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// File (mode 0600) with the token that callers must send; required for an address that other
    /// machines can reach.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Args {
    /// Serves until SIGTERM or SIGINT.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let ring = settings(global)?;
        let fail = |error: Error| match error {
            Error::Open(_) | Error::Plain(_) => Failure::Usage(format!("--listen {error}")),
            other => Failure::Failed(other.to_string()),
        };
        let read = |file| Tokens::read(file, Rights::All);
        let tokens = self.token_file.as_deref().map(read).transpose().map_err(fail)?;
        let listener = match (self.listen.parse::<SocketAddr>(), tokens) {
            (Ok(address), Some(tokens)) => Listener::tcp(address, vec![tokens], None, None).await,
            (Ok(address), None) => Listener::tcp_of_this_machine(address).await,
            (Err(_), _) if !self.listen.contains('/') => {
                return Err(Failure::Usage(format!(
                    "--listen {}: write an address and a port, such as 127.0.0.1:7352, or the path \
                     of a socket, such as ./ring.sock",
                    self.listen
                )));
            }
            (Err(_), _) => Listener::unix(self.listen.as_ref()).await,
        };
        let listener = listener.map_err(fail)?;
        let failed = |error: std::io::Error| Failure::Failed(error.to_string());
        // With port 0, the system chooses the port.
        let at = listener.address().map_err(failed)?;
        let at = at.map_or_else(|| self.listen.clone(), |at| at.to_string());
        tracing::info!(at, "serving the ring");
        let (stop, stopped) = watch::channel(false);
        let mut serving = tokio::spawn(listener.serve(router(ring), stopped));
        let ended = tokio::select! {
            signal = asked_to_stop() => {
                tracing::info!(signal = signal.map_err(failed)?, "stopping");
                stop.send_replace(true);
                serving.await
            }
            ended = &mut serving => ended,
        };
        ended.map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(Exit::Fine)
    }
}

/// Returns the ring that the configuration describes. A missing file means the defaults.
fn settings(global: &Global) -> Result<std::sync::Arc<ServedRing>, Failure> {
    let overrides = Overrides::from_env(global.set.clone());
    let parsed = if global.config.exists() {
        config::read(&global.config, &overrides)?
    } else {
        RawConfig::parse("", &global.config, &overrides)
    };
    if parsed.problems().iter().any(config::Diagnostic::is_error) {
        let said: Vec<_> = parsed.problems().to_vec();
        return Err(Failure::Configuration(config::Problems(said)));
    }
    let ring = &parsed.sections().ring;
    let placement = ring.placement;
    Ok(ServedRing::new(ring.hash, placement, ring.virtual_nodes()))
}
