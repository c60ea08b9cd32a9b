//! `GET /activity/{id}/ws`: open means active.
//!
//! ```text
//!  open ── connect ──> open ── pong within the heartbeat time-out ──> heartbeat
//!                        │
//!                        ├── closed, or silent for the heartbeat time-out ──> disconnect
//!                        └── the host stops ──> close frame 1001; the connection is left to
//!                            expire, so that its client may come back meanwhile
//! ```
//!
//! Each socket is a connection of its own, whatever name it gives: one that is closed late
//! never takes another's connection with it. What is sent over it is not looked at: any
//! frame is a sign of life. A socket of which nothing could be reported for the heartbeat
//! time-out is closed with 1013, so that its client asks another host.

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

/// The subprotocol that a browser names beside the one that carries its ticket.
pub(super) const SUBPROTOCOL: &str = "besom";
/// Pings within one heartbeat time-out.
const PINGS: u32 = 3;
/// The largest message; what is in it is not looked at.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// Between two attempts to report.
const REPORT_PAUSE: Duration = Duration::from_millis(500);

/// Answers the handshake and attends to the socket.
pub(super) fn accept(
    upgrade: WebSocketUpgrade,
    endpoint: Arc<Endpoint>,
    id: String,
    name: Option<String>,
    place: Place,
) -> Response {
    let mut unique = [0; 16];
    if let Err(error) = OsRng.try_fill_bytes(&mut unique) {
        // Without randomness two sockets of two hosts could be taken for one.
        tracing::error!(%error, "the system gives no random bytes");
        return (StatusCode::SERVICE_UNAVAILABLE, "try again").into_response();
    }
    let unique = u128::from_ne_bytes(unique);
    let connection = format!("{}#{unique:032x}", name.unwrap_or_default());
    let upgrade = upgrade
        .protocols([SUBPROTOCOL])
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .read_buffer_size(MESSAGE_BYTES_MAX);
    let reporter = Reporter { endpoint, id, connection };
    upgrade.on_upgrade(async move |socket| {
        attend(socket, &reporter).await;
        drop(place);
    })
}

/// Why a socket ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Its client has closed it, or the network has.
    Closed,
    /// Nothing was heard of its client.
    Silent,
    /// Nothing could be reported.
    Unreported,
    /// The host stops.
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
        End::Unreported => (close_code::AGAIN, "not reported; try again"),
        End::Stopped => (close_code::AWAY, "the host stops"),
    };
    let frame = CloseFrame { code, reason: reason.into() };
    // One that does not take it is gone.
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
    // Also where it cannot be reported yet: its workspace is wanted.
    reporter.endpoint.connected(&reporter.id);
    let (mut heard, mut reported) = (Instant::now(), Instant::now());
    // A sign of life that is not reported, and when that is tried: once in a while, and what
    // failed soon again.
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

/// Reports one connection.
struct Reporter {
    endpoint: Arc<Endpoint>,
    id: String,
    connection: String,
}

impl Reporter {
    async fn report(&self) -> bool {
        let Endpoint { activity, heartbeat, .. } = &*self.endpoint;
        let report = activity.heartbeat(&self.id, &self.connection);
        match timeout(*heartbeat / PINGS, report).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, id = self.id, "a WebSocket cannot be reported; tried again");
                false
            }
            Err(_) => false,
        }
    }

    /// Reports the end; where that fails the connection expires by itself.
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
    // A sender that is gone stops it as well.
    let _ = stopping.wait_for(|stop| *stop).await;
}
