//! A stand-in for a product's orchestrator: an HTTP server that records its requests and answers as
//! a test configures it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use tokio::net::TcpListener;

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The path.
    pub path: String,
    /// The `Idempotency-Key`.
    pub key: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The content.
    pub body: Vec<u8>,
}

impl Request {
    /// A field of the content, which is JSON.
    pub fn field(&self, name: &str) -> serde_json::Value {
        let said: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        said[name].clone()
    }
}

/// How a request is answered.
#[derive(Debug, Clone)]
pub enum Reply {
    /// With this status and content.
    Status(u16, String),
    /// Not at all, while the caller waits.
    Silence,
    /// With a redirect to this address.
    Redirect(String),
    /// With 200 and content without end.
    Endless,
}

impl Reply {
    /// 200 with this content.
    pub fn ok(body: &str) -> Reply {
        Reply::Status(200, body.to_owned())
    }
}

type Answers = Arc<dyn Fn(&Request, u32) -> Reply + Send + Sync>;

#[derive(Clone)]
struct Desk {
    seen: Arc<Mutex<Vec<Request>>>,
    answers: Arc<Mutex<Answers>>,
}

/// A server that stops when this value is dropped.
pub struct Orchestrator {
    desk: Desk,
    address: SocketAddr,
    serving: tokio::task::JoinHandle<()>,
}

impl Orchestrator {
    /// A server that performs every operation; archiving returns a key.
    pub async fn start() -> Orchestrator {
        let desk = Desk { seen: Arc::default(), answers: Arc::new(Mutex::new(Arc::new(willing))) };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().fallback(answer).with_state(desk.clone());
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves");
        });
        Orchestrator { desk, address, serving }
    }

    /// Its address, as `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Changes the answers from now on. The number is how often that `Idempotency-Key` was seen
    /// before.
    pub fn answer(&self, answers: impl Fn(&Request, u32) -> Reply + Send + Sync + 'static) {
        *self.desk.answers.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(answers);
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Request> {
        self.desk.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The requested operations, each once, in order.
    pub fn operations(&self) -> Vec<String> {
        let mut known = BTreeSet::new();
        let seen = self.seen().into_iter();
        let first = seen.filter(|request| known.insert(request.field("operation_id").to_string()));
        first.map(|r| r.field("operation").as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Orchestrator {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Performs every operation.
pub fn willing(request: &Request, _: u32) -> Reply {
    match request.field("operation").as_str() {
        Some("ARCHIVING") => {
            let of = request.field("operation_id");
            Reply::ok(&serde_json::json!({ "archive_key": format!("archive of {of}") }).to_string())
        }
        _ => Reply::ok(""),
    }
}

async fn answer(State(desk): State<Desk>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let key = key.unwrap_or_default().to_owned();
    let request = Request { path: uri.path().to_owned(), key, headers, body: body.to_vec() };
    let before = {
        let mut seen = desk.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.iter().filter(|other| other.key == request.key).count();
        seen.push(request.clone());
        u32::try_from(before).unwrap_or(u32::MAX)
    };
    let answers = Arc::clone(&desk.answers.lock().unwrap_or_else(PoisonError::into_inner));
    let with = |status: u16| Response::builder().status(StatusCode::from_u16(status).unwrap());
    match answers(&request, before) {
        Reply::Status(status, text) => with(status).body(Body::from(text)),
        Reply::Redirect(to) => with(307).header("location", to).body(Body::empty()),
        Reply::Silence => std::future::pending().await,
        Reply::Endless => {
            let chunk = || Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 64 * 1024]));
            with(200).body(Body::from_stream(futures::stream::repeat_with(chunk)))
        }
    }
    .expect("a response")
}
