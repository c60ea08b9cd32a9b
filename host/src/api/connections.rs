//! Connections: accepted as far as there is room, and ended when they say nothing.
//!
//! ```text
//! room for one more ── accept ── room among those that have shown no right ── TLS ── requests
//!                         │                                                             │
//!                         └─ too many of that address: closed                           └─ one
//!                            with a right makes room for another that has shown none
//! ```
//! Callers that have shown no right share few places, so that they cannot take those of others,
//! nor the descriptors that the lease and the store need. The Unix sockets and TCP have each
//! their own.

use std::collections::HashMap;
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
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

/// The place of a connection among those that have shown no right. Given back by
/// [`Stranger::is_known`], or with the connection.
#[derive(Clone)]
pub(super) struct Stranger(Arc<Mutex<Option<Place>>>);

struct Place {
    _permit: OwnedSemaphorePermit,
    address: Option<(IpAddr, Addresses)>,
}

/// Strangers by address.
type Addresses = Arc<Mutex<HashMap<IpAddr, usize>>>;

impl Drop for Place {
    fn drop(&mut self) {
        let Some((address, all)) = &self.address else { return };
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                all.remove(address);
            }
        }
    }
}

impl Stranger {
    /// The caller has shown a right: its place is another's.
    pub(super) fn is_known(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Room for connections.
struct Room {
    bounds: Bounds,
    all: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    addresses: Addresses,
}

impl Room {
    fn new(bounds: Bounds) -> Room {
        Room {
            bounds,
            all: Arc::new(Semaphore::new(bounds.connections_max)),
            strangers: Arc::new(Semaphore::new(bounds.strangers_max)),
            addresses: Addresses::default(),
        }
    }

    /// Waits until there is room for one more that nobody knows.
    async fn wait(&self) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        let stranger = Arc::clone(&self.strangers).acquire_owned().await.ok()?;
        Some((all, stranger))
    }

    /// A place for one of that address; none if it has as many as it may.
    fn place(&self, permit: OwnedSemaphorePermit, peer: &Peer) -> Option<Place> {
        let Peer::Remote(from) = peer else {
            return Some(Place { _permit: permit, address: None });
        };
        let mut all = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(from.ip()).or_default();
        if *count >= self.bounds.strangers_per_address_max {
            return None;
        }
        *count += 1;
        let address = Some((from.ip(), Arc::clone(&self.addresses)));
        Some(Place { _permit: permit, address })
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
        open.spawn(async move {
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
    let (whole, stranger) = room.wait().await?;
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
    let place = Stranger(Arc::new(Mutex::new(Some(room.place(stranger, &peer)?))));
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
