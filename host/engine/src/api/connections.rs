//! Accepts connections while there is room, and closes those that stay silent.
//!
//! ```text
//! accept ── a place among unauthenticated ones ── room for one more ── TLS ── requests
//!             │                                          │                       │
//!             └─ too many, of its address or in total:   │                       └─ an authenticated
//!                the oldest of them is closed            │                          one leaves it
//!                                                        └─ none: the authenticated one that has
//!                                                           been idle the longest is closed
//! ```
//! Unauthenticated callers share few places, so that they can take neither the places of others nor
//! the descriptors that the lease and the store need. Authenticated callers keep their connections
//! between requests as long as there is room; while another caller is waiting for room, each
//! response is the last of its connection. Where no connection is idle, a token whose responses
//! occupy more than half of the room, for example because they watch, loses the oldest of them. The
//! Unix sockets and TCP have separate limits.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::extract::connect_info::ConnectInfo;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
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

/// Limits on the connections of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum number of connections that are not authenticated yet.
    pub strangers_max: usize,
    /// Maximum number of unauthenticated connections from one address.
    pub strangers_per_address_max: usize,
    /// Maximum duration of a TLS handshake, of receiving a request's header, and of the pause
    /// before it.
    pub header_max: Duration,
    /// Maximum time to read a request and to begin its response, which may have to wait for a leader.
    pub request_max: Duration,
}

/// Default for the maximum number of connections.
pub const CONNECTIONS_MAX_DEFAULT: u32 = 64;

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds::of(CONNECTIONS_MAX_DEFAULT)
    }
}

impl Bounds {
    /// Limits derived from a maximum number of connections: half of them may be unauthenticated,
    /// and half of those may come from one address.
    pub fn of(connections_max: u32) -> Bounds {
        let all = usize::try_from(connections_max).unwrap_or(usize::MAX);
        Bounds {
            connections_max: all.max(1),
            strangers_max: (all / 2).max(1),
            strangers_per_address_max: (all / 4).max(1),
            header_max: Duration::from_secs(10),
            request_max: Duration::from_secs(30),
        }
    }
}

/// How long no connection is accepted after the system has refused to (it has no descriptors left).
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// The source of connections.
pub(super) enum Door {
    Unix(UnixListener),
    Tcp(TcpListener, Option<TlsAcceptor>),
}

/// Connections, oldest first.
type Seats = Arc<Mutex<VecDeque<Arc<Seat>>>>;

/// The state of a connection.
struct Seat {
    address: Option<IpAddr>,
    /// Whether the caller is authenticated.
    known: AtomicBool,
    state: Mutex<State>,
    /// The token of its last request; none: no token is required.
    token: Mutex<Option<Arc<str>>>,
    /// Closes the connection immediately.
    end: Notify,
    /// Closes it as soon as it is waiting for a request.
    enough: Notify,
}

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has been waiting for a request since then.
    Rests(Instant),
    /// A request is being answered.
    Works,
    /// The response is being sent; the request has had its effect.
    Sends,
}

impl Seat {
    fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_state(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn rests(&self) -> Option<Instant> {
        match self.state() {
            State::Rests(since) => Some(since),
            State::Works | State::Sends => None,
        }
    }

    fn token(&self) -> Option<Arc<str>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }
}

/// The place of a connection, among the unauthenticated ones until [`Place::is_known`]. Released
/// with the connection.
#[derive(Clone)]
pub(super) struct Place(Arc<Taken>);

struct Taken {
    seat: Arc<Seat>,
    all: Seats,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
    }
}

impl Place {
    /// Marks the caller as authenticated by this token, or as not required to have one. Its place
    /// among the unauthenticated connections becomes free.
    pub(super) fn is_known(&self, token: Option<Arc<str>>) {
        *self.0.seat.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
        self.0.seat.known.store(true, Ordering::Relaxed);
    }
}

/// Room for connections.
struct Room {
    bounds: Bounds,
    all: Arc<Semaphore>,
    seats: Seats,
    /// Whether a caller is waiting for room.
    crowded: Arc<AtomicBool>,
}

impl Room {
    fn new(bounds: Bounds) -> Room {
        let all = Arc::new(Semaphore::new(bounds.connections_max));
        Room { bounds, all, seats: Seats::default(), crowded: Arc::default() }
    }

    /// Waits until there is room for one more connection, and closes an idle one to make room.
    async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        let all = Arc::clone(&self.all);
        let room = match Arc::clone(&all).try_acquire_owned() {
            Ok(room) => Some(room),
            Err(_) => {
                self.crowded.store(true, Ordering::Relaxed);
                self.make_room();
                all.acquire_owned().await.ok()
            }
        };
        self.crowded.store(false, Ordering::Relaxed);
        room
    }

    /// Closes the connection that has been waiting for a request for the longest time. If none is,
    /// closes the oldest response of a token that has more than half of the room.
    fn make_room(&self) {
        let all = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let known = || all.iter().filter(|seat| seat.is_known());
        let resting = known().filter_map(|seat| Some((seat.rests()?, seat)));
        if let Some((_, seat)) = resting.min_by_key(|(since, _)| *since) {
            return seat.enough.notify_one();
        }
        let mut sending: BTreeMap<Arc<str>, Vec<&Arc<Seat>>> = BTreeMap::new();
        for seat in known().filter(|seat| seat.state() == State::Sends) {
            if let Some(token) = seat.token() {
                sending.entry(token).or_default().push(seat);
            }
        }
        let most = sending.into_values().max_by_key(Vec::len).unwrap_or_default();
        if most.len() > self.bounds.connections_max / 2 {
            most[0].end.notify_one();
        }
    }

    /// A place for one more unauthenticated connection. If there are too many, from its address or
    /// in total, the oldest is closed: a legitimate caller authenticates at once, while connections
    /// that only occupy a place make room.
    fn place(&self, peer: &Peer) -> Place {
        let address = match peer {
            Peer::Remote(from) => Some(from.ip()),
            Peer::Local(_) => None,
        };
        let seat = Arc::new(Seat {
            address,
            // Only users that the mode of the Unix socket admits can connect.
            known: AtomicBool::new(matches!(peer, Peer::Local(_))),
            state: Mutex::new(State::Rests(Instant::now())),
            token: Mutex::default(),
            end: Notify::new(),
            enough: Notify::new(),
        });
        let mut all = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if !seat.is_known() {
            let strangers: Vec<&Arc<Seat>> = all.iter().filter(|seat| !seat.is_known()).collect();
            let mut same = strangers.iter().filter(|seat| seat.address == address);
            let oldest = if same.clone().count() >= self.bounds.strangers_per_address_max {
                same.next()
            } else if strangers.len() >= self.bounds.strangers_max {
                strangers.first()
            } else {
                None
            };
            if let Some(oldest) = oldest {
                // It no longer counts as unauthenticated, although closing it may take a moment.
                oldest.known.store(true, Ordering::Relaxed);
                oldest.end.notify_one();
            }
        }
        all.push_back(Arc::clone(&seat));
        drop(all);
        Place(Arc::new(Taken { seat, all: Arc::clone(&self.seats) }))
    }
}

/// Serves until `stopped`, and then until all requests under way are answered.
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
        // A dropped sender also stops it.
        let _ = stop.wait_for(|stop| *stop).await;
    });
    let mut newcomer: Option<Newcomer> = None;
    loop {
        let whole = tokio::select! {
            biased;
            () = &mut stopped => break,
            // Removes connections that have ended.
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            accepted = accept(door, &room), if newcomer.is_none() => {
                newcomer = accepted;
                continue;
            }
            whole = room.wait(), if newcomer.is_some() => whole,
        };
        let (Some(whole), Some((stream, peer, place))) = (whole, newcomer.take()) else { continue };
        let (router, stopping) = (router.clone(), stopping.clone());
        let crowded = Arc::clone(&room.crowded);
        let seat = Arc::clone(&place.0.seat);
        let attending = Attending { peer: peer.clone(), place, router, bounds, crowded };
        let served = async move {
            match stream {
                Stream::Unix(stream) => attending.serve(stream, stopping).await,
                Stream::Tcp(stream, None) => attending.serve(stream, stopping).await,
                Stream::Tcp(stream, Some(tls)) => {
                    let hand = tokio::time::timeout(bounds.header_max, tls.accept(stream)).await;
                    match hand {
                        Ok(Ok(stream)) => attending.serve(stream, stopping).await,
                        Ok(Err(error)) => tracing::debug!(%error, ?peer, "a TLS handshake failed"),
                        Err(_) => tracing::debug!(?peer, "a TLS handshake took too long"),
                    }
                }
            }
        };
        open.spawn(async move {
            tokio::select! {
                () = served => {}
                () = seat.end.notified() => {}
            }
            drop(whole);
        });
    }
    drop(newcomer);
    // While the socket is still listening: afterwards, the path may belong to another host.
    closing();
    while open.join_next().await.is_some() {}
}

enum Stream {
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream, Option<TlsAcceptor>),
}

/// An accepted connection that is waiting for room.
type Newcomer = (Stream, Peer, Place);

/// The next connection; `None`: none at the moment.
async fn accept(door: &Door, room: &Room) -> Option<Newcomer> {
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
    match accepted {
        Ok((stream, peer)) => {
            let place = room.place(&peer);
            Some((stream, peer, place))
        }
        Err(error) if is_of_connection(&error) => None,
        Err(error) => {
            tracing::warn!(%error, "connections cannot be accepted");
            tokio::time::sleep(REFUSED_PAUSE).await;
            None
        }
    }
}

/// Whether an error concerns only the connection that would have been accepted.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// What is needed to serve a connection.
struct Attending {
    peer: Peer,
    place: Place,
    router: Router,
    bounds: Bounds,
    crowded: Arc<AtomicBool>,
}

impl Attending {
    /// Answers the requests of a connection.
    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut stop: watch::Receiver<bool>,
    ) {
        let Attending { peer, place, router, bounds, crowded } = self;
        let router = TowerToHyperService::new(router);
        let seat = Arc::clone(&place.0.seat);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let mut request: Request<Incoming> = request;
            request.extensions_mut().insert(ConnectInfo(peer.clone()));
            request.extensions_mut().insert(place.clone());
            let rest = Rest::after(&place.0.seat, &crowded);
            let answer = router.call(request);
            async move {
                let answer: Result<Response, std::convert::Infallible> = answer.await;
                answer.map(|answer| rest.with(answer))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.header_max)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let mut stopped = pin!(async move {
            let stopped = async {
                let _ = stop.wait_for(|stop| *stop).await;
            };
            tokio::select! {
                () = stopped => {}
                () = seat.enough.notified() => {}
            }
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
}

/// A request under way. When it is dropped, its connection waits for the next request.
struct Rest {
    seat: Arc<Seat>,
    crowded: Arc<AtomicBool>,
}

impl Rest {
    fn after(seat: &Arc<Seat>, crowded: &Arc<AtomicBool>) -> Rest {
        seat.set_state(State::Works);
        Rest { seat: Arc::clone(seat), crowded: Arc::clone(crowded) }
    }

    /// Wraps a response: the request is under way until the end of its body. While a caller is
    /// waiting for room, it is the last response of its connection.
    fn with(self, mut answer: Response) -> Response {
        self.seat.set_state(State::Sends);
        let upgrades = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        if !upgrades && self.crowded.load(Ordering::Relaxed) {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        answer.map(|inner| Body::new(Answer { inner, _rest: self }))
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.seat.set_state(State::Rests(Instant::now()));
        // A response that began before a caller was waiting.
        if self.crowded.load(Ordering::Relaxed) {
            self.seat.enough.notify_one();
        }
    }
}

/// The body of a response.
struct Answer {
    inner: Body,
    _rest: Rest,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
