//! Where the messages of a topic go, as its URL says.

/// Where the messages of a topic go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receiver {
    /// Each is posted to a URL.
    Http(Target),
    /// They are appended to a stream of Redis.
    Redis(RedisServers),
    /// They are appended to a topic of Kafka.
    Kafka(KafkaServers),
}

impl Receiver {
    /// Parses the URL of a topic.
    ///
    /// # Errors
    /// What is wrong with the URL, and the fix.
    pub fn parse(url: &str) -> Result<Receiver, (&'static str, &'static str)> {
        match url.split_once("://") {
            Some(("redis", servers)) => Ok(Receiver::Redis(RedisServers::parse(false, servers)?)),
            Some(("rediss", servers)) => Ok(Receiver::Redis(RedisServers::parse(true, servers)?)),
            Some(("kafka", servers)) => Ok(Receiver::Kafka(KafkaServers::parse(false, servers)?)),
            Some(("kafka+ssl", servers)) => {
                Ok(Receiver::Kafka(KafkaServers::parse(true, servers)?))
            }
            _ => Ok(Receiver::Http(Target::parse(url)?)),
        }
    }

    /// The hosts and ports that are connected to.
    pub(super) fn hosts(&self) -> Vec<(String, u16)> {
        match self {
            Receiver::Http(target) => vec![(target.host.clone(), target.port)],
            Receiver::Redis(servers) => servers.hosts.clone(),
            Receiver::Kafka(servers) => servers.hosts.clone(),
        }
    }

    pub(super) fn is_secure(&self) -> bool {
        match self {
            Receiver::Http(target) => target.secure,
            Receiver::Redis(servers) => servers.secure,
            Receiver::Kafka(servers) => servers.secure,
        }
    }
}

/// The servers of a URL such as `redis://a:6379,b:6379/0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisServers {
    /// Whether the connections use TLS.
    pub secure: bool,
    /// Hosts and ports; several are nodes of one cluster.
    pub hosts: Vec<(String, u16)>,
    /// The number of the database.
    pub database: u32,
}

impl RedisServers {
    fn parse(secure: bool, text: &str) -> Result<RedisServers, (&'static str, &'static str)> {
        const SHAPE: &str = "write redis://host:port, or redis://host:port,host:port for a cluster";
        if text.contains('@') {
            return Err(HAS_SECRET);
        }
        let (servers, database) = text.split_once('/').unwrap_or((text, ""));
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| ("has no number as its database", SHAPE))?,
        };
        let hosts = hosts_of(servers, 6379).ok_or(("names no server", SHAPE))?;
        if hosts.len() > 1 && database > 0 {
            return Err(("names a database of a cluster, which has only 0", "remove it"));
        }
        Ok(RedisServers { secure, hosts, database })
    }

    /// One URL for each server.
    pub fn urls(&self) -> Vec<String> {
        let scheme = if self.secure { "rediss" } else { "redis" };
        let url =
            |(host, port): &(String, u16)| format!("{scheme}://{host}:{port}/{}", self.database);
        self.hosts.iter().map(url).collect()
    }
}

/// The servers of a URL such as `kafka://a:9092,b:9092`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaServers {
    /// Whether the connections use TLS.
    pub secure: bool,
    /// Hosts and ports of some brokers of one cluster; they name the others.
    pub hosts: Vec<(String, u16)>,
}

impl KafkaServers {
    fn parse(secure: bool, text: &str) -> Result<KafkaServers, (&'static str, &'static str)> {
        const SHAPE: &str = "write kafka://host:port, or kafka://host:port,host:port";
        if text.contains('@') {
            return Err(HAS_SECRET);
        }
        let (servers, path) = text.split_once('/').unwrap_or((text, ""));
        if !path.is_empty() {
            return Err(("has a path", "write the name of the topic in `topic`"));
        }
        let hosts = hosts_of(servers, 9092).ok_or(("names no server", SHAPE))?;
        Ok(KafkaServers { secure, hosts })
    }
}

const HAS_SECRET: (&str, &str) = ("contains a user or a password", "write user and password_file");

/// The hosts and ports of a list such as `a:1,b`, or none if one of them is no host.
fn hosts_of(list: &str, port: u16) -> Option<Vec<(String, u16)>> {
    let host = |server: &str| {
        let authority: hyper::http::uri::Authority = server.trim().parse().ok()?;
        let host = authority.host().to_ascii_lowercase();
        (!host.is_empty()).then(|| (host, authority.port_u16().unwrap_or(port)))
    };
    list.split(',').map(host).collect()
}

/// A parsed URL of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Whether the scheme is https.
    pub secure: bool,
    /// The host, lower case; an IPv6 address between brackets.
    pub host: String,
    /// The port; by default 443 for https and 80 for http.
    pub port: u16,
    /// The path and query.
    pub path: String,
}

impl Target {
    /// Parses a URL.
    ///
    /// # Errors
    /// What is wrong with the URL, and the fix.
    pub fn parse(url: &str) -> Result<Target, (&'static str, &'static str)> {
        const SHAPE: &str = "write https://host/path or http://host:port/path";
        let uri: hyper::Uri = url.parse().map_err(|_| ("is not a URL", SHAPE))?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => {
                return Err((
                    "is neither http nor https",
                    "write https://host/path, http://host:port/path, redis://host:port for a stream, or \
                     kafka://host:port",
                ));
            }
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(("names no host", SHAPE))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(("contains a user or a password", "put the token into token_file"));
        }
        if url.contains('#') {
            return Err(("has a fragment, which is never sent", "remove it"));
        }
        Ok(Target {
            secure,
            host: host.to_ascii_lowercase(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}
