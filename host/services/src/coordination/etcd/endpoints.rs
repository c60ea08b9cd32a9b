//! One client per endpoint, and the handling of slow or failed endpoints.
//!
//! A call goes to the endpoint that answered last. If it does not answer for a while, the next one
//! is called as well; if it fails, immediately. Each endpoint is called at most once per call, and
//! the first answer counts. A client whose connection has failed is discarded; the next call
//! creates a new one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{
    Channel, Client, ConnectOptions, GetOptions, GetResponse, Txn, TxnOpResponse, TxnResponse,
};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::fault::{Fault, of_transport};
use super::options::{Options, Tls};
use besom_ports::coordination::{Error, Result};

/// How often an idle connection is checked. etcd closes connections that are checked more often
/// than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);

/// The result of a call, or its fault.
pub(super) type Outcome<T> = std::result::Result<T, Fault>;

/// The endpoints of etcd.
pub(super) struct Endpoints {
    all: Vec<Member>,
    /// The endpoint that answered last.
    preferred: AtomicUsize,
    options: ConnectOptions,
    attempt_timeout: Duration,
    hedge_after: Duration,
}

struct Member {
    address: String,
    endpoint: Endpoint,
    client: Mutex<Option<Client>>,
}

impl Endpoints {
    pub(super) fn new(options: &Options) -> Result<Endpoints> {
        let member = |address: &String| {
            let endpoint = endpoint(address, options)?;
            Ok(Member { address: address.clone(), endpoint, client: Mutex::new(None) })
        };
        let all = options.endpoints.iter().map(member).collect::<Result<Vec<_>>>()?;
        if all.is_empty() {
            return Err(Error::Refused(
                "no endpoint is configured: set at least one in [coordination] etcd".into(),
            ));
        }
        // An etcd member that is cut off from its leader reports an error instead of staying
        // silent.
        let mut connect = ConnectOptions::new().with_require_leader(true);
        if let Some(who) = &options.credentials {
            connect = connect.with_user(&*who.user, &*who.password).with_auto_token_refresh(true);
        }
        Ok(Endpoints {
            all,
            preferred: AtomicUsize::new(0),
            options: connect,
            attempt_timeout: options.attempt_timeout,
            hedge_after: options.hedge_after,
        })
    }

    /// Calls one endpoint after another until one answers. `call` must be idempotent.
    pub(super) async fn call<T, F>(&self, call: impl Fn(Client) -> F) -> Outcome<T>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>>,
    {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut order = (0..self.all.len()).map(|n| (first + n) % self.all.len());
        let mut attempts = FuturesUnordered::new();
        let mut failures = Vec::new();
        attempts.extend(order.next().map(|index| self.attempt(index, &call)));
        while !attempts.is_empty() {
            let more = order.len() > 0;
            tokio::select! {
                Some((index, outcome)) = attempts.next() => match outcome {
                    Ok(value) => {
                        self.preferred.store(index, Ordering::Relaxed);
                        return Ok(value);
                    }
                    Err(fault) if fault.is_local() => {
                        failures.push((index, fault));
                        attempts.extend(order.next().map(|index| self.attempt(index, &call)));
                    }
                    Err(fault) => return Err(fault),
                },
                () = tokio::time::sleep(self.hedge_after), if more => {
                    attempts.extend(order.next().map(|index| self.attempt(index, &call)));
                }
            }
        }
        // The next call starts with another endpoint.
        self.preferred.store((first + 1) % self.all.len(), Ordering::Relaxed);
        let said = |(index, fault): &(usize, Fault)| match fault {
            Fault::Away(why) | Fault::Refused(why) => {
                format!("{}: {why}", self.all[*index].address)
            }
            Fault::Answer(status) => format!("{}: {status}", self.all[*index].address),
        };
        Err(Fault::Away(failures.iter().map(said).collect::<Vec<_>>().join("; ")))
    }

    /// One attempt, within its timeout. A broken connection is reopened once, so that the restart
    /// of a server does not make a call fail.
    async fn attempt<T, F>(&self, index: usize, call: &impl Fn(Client) -> F) -> (usize, Outcome<T>)
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>>,
    {
        let member = &self.all[index];
        let attempts = async {
            let kept = member.kept();
            let fresh = kept.is_none();
            let client = match kept {
                Some(client) => client,
                None => self.connect(member).await?,
            };
            match call(client).await.map_err(Fault::from) {
                Err(fault) if fault.is_local() && !fresh => {
                    member.forget();
                    call(self.connect(member).await?).await.map_err(Fault::from)
                }
                outcome => outcome,
            }
        };
        let outcome = match tokio::time::timeout(self.attempt_timeout, attempts).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Fault::Away(format!("no answer in {:?}", self.attempt_timeout))),
        };
        if outcome.as_ref().is_err_and(Fault::is_local) {
            member.forget();
        }
        (index, outcome)
    }

    async fn connect(&self, member: &Member) -> Outcome<Client> {
        let channel = member.endpoint.connect().await.map_err(|error| of_transport(&error))?;
        let client =
            Client::from_channel(Channel::Tonic(channel), Some(self.options.clone())).await?;
        *member.lock() = Some(client.clone());
        Ok(client)
    }

    /// A linearizable read.
    pub(super) async fn get(
        &self,
        key: String,
        options: Option<GetOptions>,
    ) -> Outcome<GetResponse> {
        self.call(|mut client| {
            let (key, options) = (key.clone(), options.clone());
            async move { client.get(key, options).await }
        })
        .await
    }

    /// A transaction.
    pub(super) async fn txn(&self, txn: Txn) -> Outcome<TxnResponse> {
        self.call(|mut client| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        })
        .await
    }
}

impl Member {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> Option<Client> {
        self.lock().clone()
    }

    fn forget(&self) {
        *self.lock() = None;
    }
}

/// The results of the reads of a transaction, in order.
pub(super) fn gets(answer: &TxnResponse) -> Vec<GetResponse> {
    let get = |response| match response {
        TxnOpResponse::Get(get) => Some(get),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
    };
    answer.op_responses().into_iter().filter_map(get).collect()
}

/// The revision of etcd's store, from the header of an answer.
pub(super) fn revision(header: Option<&etcd_client::ResponseHeader>) -> i64 {
    header.map_or(0, etcd_client::ResponseHeader::revision)
}

fn endpoint(address: &str, options: &Options) -> Result<Endpoint> {
    let refused = |why: String| {
        Error::Refused(format!(
            "`{address}` is not a valid etcd endpoint ({why}): write http://host:2379 or \
             https://host:2379 in [coordination] etcd"
        ))
    };
    let secure = match address.split_once("://") {
        Some(("http", _)) => false,
        Some(("https", _)) => true,
        _ => return Err(refused("the scheme is neither http nor https".into())),
    };
    let mut endpoint =
        Endpoint::from_shared(address.to_owned()).map_err(|e| refused(e.to_string()))?;
    if endpoint.uri().host().is_none_or(str::is_empty) {
        return Err(refused("no host".into()));
    }
    if secure {
        check_pem(&options.tls)?;
        endpoint = endpoint.tls_config(tls(&options.tls)).map_err(|error| {
            match Error::from(of_transport(&error)) {
                Error::Unavailable(said) | Error::Refused(said) => Error::Refused(format!(
                    "{said}: check [coordination] ca, cert and key: PEM files"
                )),
            }
        })?;
    }
    Ok(endpoint
        .connect_timeout(options.attempt_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(options.attempt_timeout)
        .keep_alive_while_idle(true))
}

/// Checks the PEM files, because another format would count as an empty list of certificates.
fn check_pem(tls: &Tls) -> Result<()> {
    let (cert, key) = match &tls.identity {
        Some((cert, key)) => (Some(cert), Some(key)),
        None => (None, None),
    };
    for (setting, file, what) in [
        ("ca", tls.ca.as_ref(), "CERTIFICATE"),
        ("cert", cert, "CERTIFICATE"),
        ("key", key, "PRIVATE KEY"),
    ] {
        let Some(file) = file else { continue };
        let found = String::from_utf8_lossy(file)
            .lines()
            .any(|line| line.starts_with("-----BEGIN") && line.contains(what));
        if !found {
            return Err(Error::Refused(format!(
                "the file of [coordination] {setting} contains no {}: use a PEM file",
                what.to_ascii_lowercase()
            )));
        }
    }
    Ok(())
}

fn tls(tls: &Tls) -> ClientTlsConfig {
    let mut config = ClientTlsConfig::new();
    config = match &tls.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
        None => config.with_native_roots(),
    };
    if let Some((cert, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(cert, key));
    }
    config
}
