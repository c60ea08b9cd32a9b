//! Connections: accepted as far as there is room, and ended when they say nothing.
//!
//! ```text
//! room for one more ── accept ── a place among those that have shown no right ── TLS ── requests
//!                                   │                                                   │
//!                                   └─ too many, of its address or of all:              └─ one with a
//!                                      the oldest of them ends                             right leaves it
//! ```
//! Callers that have shown no right share few places, so that they cannot take those of others,
//! nor the descriptors that the lease and the store need. The Unix sockets and TCP have each
//! their own.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::extract::connect_info::ConnectInfo;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Peer;

/// Bounds of the connections of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once.
    pub connections_max: usize,
    /// Of these, connections that have shown no right yet.
    pub strangers_max: usize,
    /// Of these, connections of one address.
    pub strangers_per_address_max: usize,
    /// How long a TLS handshake may take, and after it the header of a request, or the pause
    /// before it.
    pub header_max: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections_max: 64,
            strangers_max: 32,
            strangers_per_address_max: 16,
            header_max: Duration::from_secs(10),
        }
    }
}

/// How long nothing is accepted after the system has refused to: it has no descriptor left.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Where connections come from.
pub(super) enum Door {
    Unix(UnixListener),
    Tcp(TcpListener, Option<TlsAcceptor>),
}

/// Connections that have shown no right, the oldest first.
type Strangers = Arc<Mutex<VecDeque<Entry>>>;

struct Entry {
    address: Option<IpAddr>,
    /// Ends the connection.
    end: Arc<Notify>,
}

/// The place of a connection among those that have shown no right. Given back by
/// [`Stranger::is_known`], or with the connection.
#[derive(Clone)]
pub(super) struct Stranger(Arc<Place>);

struct Place {
    end: Arc<Notify>,
    all: Strangers,
}

impl Place {
    fn leave(&self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|entry| !Arc::ptr_eq(&entry.end, &self.end));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Stranger {
    /// The caller has shown a right: its place is another's.
    pub(super) fn is_known(&self) {
        self.0.leave();
    }
}

/// Room for connections.
struct Room {
    bounds: Bounds,
    all: Arc<Semaphore>,
    strangers: Strangers,
}

impl Room {
    fn new(bounds: Bounds) -> Room {
        let all = Arc::new(Semaphore::new(bounds.connections_max));
        Room { bounds, all, strangers: Strangers::default() }
    }

    /// Waits until there is room for one more.
    async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).acquire_owned().await.ok()
    }

    /// A place for one more that nobody knows. Where there are too many, of its address or of all,
    /// the oldest ends: whoever has a right shows it at once, and those that only hold their place
    /// make room.
    fn place(&self, peer: &Peer) -> Stranger {
        let address = match peer {
            Peer::Remote(from) => Some(from.ip()),
            Peer::Local(_) => None,
        };
        let end = Arc::new(Notify::new());
        let mut all = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        let same = all.iter().filter(|entry| entry.address == address).count();
        let oldest = if same >= self.bounds.strangers_per_address_max {
            all.iter().position(|entry| entry.address == address)
        } else {
            (all.len() >= self.bounds.strangers_max).then_some(0)
        };
        if let Some(entry) = oldest.and_then(|oldest| all.remove(oldest)) {
            entry.end.notify_one();
        }
        all.push_back(Entry { address, end: Arc::clone(&end) });
        drop(all);
        Stranger(Arc::new(Place { end, all: Arc::clone(&self.strangers) }))
    }
}

/// Serves until `stopped`, and then until the requests under way are answered.
pub(super) async fn serve(
    door: &Door,
    router: Router,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
    closing: impl FnOnce(),
) {
    let room = Room::new(bounds);
    let mut open = JoinSet::new();
    let stopping = stop.clone();
    let mut stopped = pin!(async move {
        // A sender that is gone stops it as well.
        let _ = stop.wait_for(|stop| *stop).await;
    });
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stopped => break,
            // Those that have ended are forgotten.
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            accepted = accept(door, &room) => accepted,
        };
        let Some((stream, peer, whole, place)) = accepted else { continue };
        let (router, stopping) = (router.clone(), stopping.clone());
        let end = Arc::clone(&place.0.end);
        let served = async move {
            match stream {
                Stream::Unix(stream) => attend(stream, peer, place, router, bounds, stopping).await,
                Stream::Tcp(stream, None) => {
                    attend(stream, peer, place, router, bounds, stopping).await;
                }
                Stream::Tcp(stream, Some(tls)) => {
                    let hand = tokio::time::timeout(bounds.header_max, tls.accept(stream)).await;
                    match hand {
                        Ok(Ok(stream)) => {
                            attend(stream, peer, place, router, bounds, stopping).await;
                        }
                        Ok(Err(error)) => tracing::debug!(%error, ?peer, "no TLS connection"),
                        Err(_) => tracing::debug!(?peer, "a TLS handshake took too long"),
                    }
                }
            }
        };
        open.spawn(async move {
            tokio::select! {
                () = served => {}
                () = end.notified() => {}
            }
            drop(whole);
        });
    }
    // While it still listens: afterwards the path may be another host's.
    closing();
    while open.join_next().await.is_some() {}
}

enum Stream {
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream, Option<TlsAcceptor>),
}

/// The next connection for which there is room; none: there is none, for now.
async fn accept(
    door: &Door,
    room: &Room,
) -> Option<(Stream, Peer, OwnedSemaphorePermit, Stranger)> {
    let whole = room.wait().await?;
    let accepted = match door {
        Door::Unix(listener) => listener.accept().await.map(|(stream, _)| {
            let peer = Peer::Local(stream.peer_cred().ok().map(|cred| cred.uid()));
            (Stream::Unix(stream), peer)
        }),
        Door::Tcp(listener, tls) => {
            listener.accept().await.map(|(stream, from): (_, SocketAddr)| {
                (Stream::Tcp(stream, tls.clone()), Peer::Remote(from))
            })
        }
    };
    let (stream, peer) = match accepted {
        Ok(accepted) => accepted,
        Err(error) if is_of_connection(&error) => return None,
        Err(error) => {
            tracing::warn!(%error, "no connection can be accepted");
            tokio::time::sleep(REFUSED_PAUSE).await;
            return None;
        }
    };
    let place = room.place(&peer);
    if matches!(peer, Peer::Local(_)) {
        // The mode of the socket has let nobody else in.
        place.is_known();
    }
    Some((stream, peer, whole, place))
}

/// Whether an error concerns the connection that would have been accepted, and no other.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Answers the requests of a connection.
async fn attend(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    place: Stranger,
    router: Router,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request<Incoming> = request;
        request.extensions_mut().insert(ConnectInfo(peer.clone()));
        request.extensions_mut().insert(place.clone());
        let answer = router.call(request);
        async move { answer.await as Result<Response, std::convert::Infallible> }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_max)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let mut stopped = pin!(async move {
        let _ = stop.wait_for(|stop| *stop).await;
    });
    let mut stopping = false;
    let ended = poll_fn(|cx| {
        if !stopping && stopped.as_mut().poll(cx).is_ready() {
            stopping = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a connection has ended");
    }
}
