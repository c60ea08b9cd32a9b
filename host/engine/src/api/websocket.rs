//! `GET /activity/{id}/ws`: an id is active while a WebSocket is open.
//!
//! ```text
//!  open ── connect ──> open ── pong within the heartbeat timeout ──> heartbeat
//!                        │
//!                        ├── closed, or silent for the heartbeat timeout ──> disconnect
//!                        └── the host stops ──> close frame 1001; the connection expires by
//!                            itself, so that its client may reconnect in the meantime
//! ```
//!
//! Each socket is a separate connection, regardless of the name that it gives, so that closing one
//! late never removes another. The content of frames is ignored: any frame counts as a sign of
//! activity. A socket whose activity could not be recorded for the heartbeat timeout is closed with
//! 1013, so that its client connects to another host.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout};

use super::CLOSE_MAX;
use super::activity::{Endpoint, Place};
use super::tokens::Standing;

/// The subprotocol that a browser offers in addition to the one that carries its ticket.
pub(super) const SUBPROTOCOL: &str = "besom";
/// Number of pings within one heartbeat timeout.
const PINGS: u32 = 3;
/// Maximum size of a message, whose content is ignored.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// The pause between two attempts to record the activity.
const REPORT_PAUSE: Duration = Duration::from_millis(500);

/// Answers the handshake and serves the socket.
pub(super) fn accept(
    upgrade: WebSocketUpgrade,
    mut reporter: Reporter,
    name: Option<String>,
    place: Place,
) -> Response {
    let mut unique = [0; 16];
    if let Err(error) = OsRng.try_fill_bytes(&mut unique) {
        // Without randomness, sockets of two hosts could have the same connection id.
        tracing::error!(%error, "the system provides no random bytes");
        return (StatusCode::SERVICE_UNAVAILABLE, "try again").into_response();
    }
    let unique = u128::from_ne_bytes(unique);
    reporter.connection = format!("{}#{unique:032x}", name.unwrap_or_default());
    let upgrade = upgrade
        .protocols([SUBPROTOCOL])
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .read_buffer_size(MESSAGE_BYTES_MAX);
    upgrade.on_upgrade(async move |socket| {
        attend(socket, &reporter).await;
        drop(place);
    })
}

/// Why a socket is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client or the network has closed it.
    Closed,
    /// The client has not responded.
    Silent,
    /// The activity could not be recorded.
    Unreported,
    /// The token with which it was opened is no longer valid.
    Revoked,
    /// The host is stopping.
    Stopped,
}

async fn attend(mut socket: WebSocket, reporter: &Reporter) {
    let mut stopping = reporter.endpoint.stopping.clone();
    let end = live(&mut socket, reporter, &mut stopping).await;
    let Reporter { id, connection, .. } = reporter;
    tracing::debug!(id, connection, ?end, "a WebSocket ended");
    let (code, reason) = match end {
        End::Closed => return reporter.disconnect(&mut stopping).await,
        End::Silent => (close_code::POLICY, "no answer to a ping"),
        End::Revoked => (close_code::POLICY, "the token was revoked"),
        End::Unreported => (close_code::AGAIN, "not reported; try again"),
        End::Stopped => (close_code::AWAY, "the host is stopping"),
    };
    let frame = CloseFrame { code, reason: reason.into() };
    // A client that does not accept the frame has disconnected.
    let _ = timeout(CLOSE_MAX / 2, socket.send(Message::Close(Some(frame)))).await;
    if end != End::Stopped {
        reporter.disconnect(&mut stopping).await;
    }
}

async fn live(
    socket: &mut WebSocket,
    reporter: &Reporter,
    stopping: &mut watch::Receiver<bool>,
) -> End {
    let heartbeat = reporter.endpoint.heartbeat;
    let every = heartbeat / PINGS;
    let mut pings = interval_at(Instant::now() + every, every);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Called even if the activity cannot be recorded yet: the workspace is needed.
    reporter.endpoint.connected(&reporter.id);
    let (mut heard, mut reported) = (Instant::now(), Instant::now());
    // Whether there is activity to record, and when to record it next. Failed attempts are repeated
    // soon.
    let (mut fresh, mut report_at) = (true, Instant::now());
    loop {
        tokio::select! {
            () = stopped(stopping) => return End::Stopped,
            () = sleep_until(heard + heartbeat) => return End::Silent,
            () = sleep_until(report_at), if fresh => {
                if reporter.report().await {
                    (fresh, reported) = (false, Instant::now());
                    report_at = reported + every / 2;
                } else if reported.elapsed() >= heartbeat {
                    return End::Unreported;
                } else {
                    report_at = Instant::now() + REPORT_PAUSE.min(every);
                }
            }
            _ = pings.tick() => {
                if reporter.standing.as_ref().is_some_and(|standing| !standing.holds()) {
                    return End::Revoked;
                }
                let ping = socket.send(Message::Ping(Vec::new().into()));
                if !matches!(timeout(every, ping).await, Ok(Ok(()))) {
                    return End::Closed;
                }
            }
            received = socket.recv() => match received {
                None | Some(Err(_) | Ok(Message::Close(_))) => return End::Closed,
                Some(Ok(_)) => (heard, fresh) = (Instant::now(), true),
            }
        }
    }
}

/// Records the activity of one connection.
pub(super) struct Reporter {
    endpoint: Arc<Endpoint>,
    id: String,
    connection: String,
    /// The token with which it was opened, if any.
    standing: Option<Standing>,
}

impl Reporter {
    pub(super) fn new(endpoint: Arc<Endpoint>, id: String, standing: Option<Standing>) -> Reporter {
        Reporter { endpoint, id, connection: String::new(), standing }
    }

    async fn report(&self) -> bool {
        let Endpoint { activity, heartbeat, .. } = &*self.endpoint;
        let report = activity.heartbeat(&self.id, &self.connection);
        match timeout(*heartbeat / PINGS, report).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(
                    %error, id = self.id,
                    "the activity of a WebSocket could not be recorded; retrying"
                );
                false
            }
            Err(_) => false,
        }
    }

    /// Records the end. If that fails, the connection expires by itself.
    async fn disconnect(&self, stopping: &mut watch::Receiver<bool>) {
        let Endpoint { activity, heartbeat, .. } = &*self.endpoint;
        let until = Instant::now() + *heartbeat;
        loop {
            let closed = activity.disconnect(&self.id, &self.connection);
            let done = matches!(timeout(*heartbeat / PINGS, closed).await, Ok(Ok(())));
            if done || Instant::now() >= until {
                return;
            }
            tokio::select! {
                () = stopped(stopping) => return,
                () = sleep(REPORT_PAUSE) => {}
            }
        }
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A dropped sender also stops it.
    let _ = stopping.wait_for(|stop| *stop).await;
}
