//! The gateway of a policy: which requests go to which upstream, and how the upstream is called.
//!
//! Must not know: connections, how requests are forwarded.

use std::fmt;

use tollgate_core::Nanos;

use super::{Located, Percent};

/// `gateway`: routes and upstreams.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GatewaySpec {
    /// The routes, in file order.
    pub routes: Vec<RouteSpec>,
    /// The upstreams that routes name.
    pub upstreams: Vec<UpstreamSpec>,
    /// The most bytes of a request's body, for routes that do not say it themselves.
    pub max_body_size: Option<u64>,
}

impl GatewaySpec {
    /// One route that sends every request to one address.
    #[must_use]
    pub fn single(address: UpstreamAddress) -> Self {
        let name = Located::from(Box::<str>::from("upstream"));
        let mut upstream = UpstreamSpec::new(name.clone());
        upstream
            .addresses
            .push(WeightedAddress { address, weight: 1 });
        Self {
            routes: vec![RouteSpec::new(name)],
            upstreams: vec![upstream],
            max_body_size: None,
        }
    }
}

/// A route: requests for a host and a path prefix go to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSpec {
    /// A host name in lower case, or `*.` and the end of one. `None`: every host.
    pub host: Option<Box<str>>,
    /// The prefix of paths, in whole segments: `/api` is for `/api` and `/api/x`, not for `/apis`. Without a slash at the end,
    /// unless it is `/`.
    pub path: Box<str>,
    /// The name of the upstream.
    pub upstream: Located<Box<str>>,
    /// Whether the prefix is removed before the request is forwarded.
    pub strip_prefix: bool,
    /// The most bytes of a request's body.
    pub max_body_size: Option<u64>,
    /// Changes of the header fields of requests.
    pub request_headers: HeaderEdits,
    /// Changes of the header fields of responses.
    pub response_headers: HeaderEdits,
}

impl RouteSpec {
    /// A route for every request.
    #[must_use]
    pub fn new(upstream: Located<Box<str>>) -> Self {
        Self {
            host: None,
            path: "/".into(),
            upstream,
            strip_prefix: false,
            max_body_size: None,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
        }
    }
}

/// Changes of header fields. Fields are removed first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HeaderEdits {
    /// Names of fields that are removed, in lower case.
    pub remove: Vec<Box<str>>,
    /// Fields that are added: names in lower case, and values.
    pub add: Vec<(Box<str>, Box<str>)>,
}

/// An upstream: servers that answer the same requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSpec {
    /// The name that routes refer to.
    pub name: Located<Box<str>>,
    /// Its servers.
    pub addresses: Vec<WeightedAddress>,
    /// Time to connect, with the TLS handshake.
    pub connect_timeout: Nanos,
    /// Time from the end of the request's head to the response's head.
    pub first_byte_timeout: Nanos,
    /// Time without a byte of a body, or of an upgraded connection, in either direction.
    pub idle_timeout: Nanos,
    /// Time for the whole exchange.
    pub total_timeout: Option<Nanos>,
    /// Connections to each address.
    pub max_connections: u32,
    /// Connections to each address that are kept open without a request.
    pub max_idle_connections: u32,
    /// How long a connection is kept open without a request.
    pub keepalive_timeout: Nanos,
    /// How often a request is sent again.
    pub retries: u32,
    /// The share of requests that may be sent again.
    pub retry_budget: Percent,
    /// Requests that test whether an address is healthy.
    pub health_check: Option<HealthCheckSpec>,
    /// When an address that fails gets no requests for a while.
    pub ejection: EjectionSpec,
    /// TLS to `https` addresses.
    pub tls: UpstreamTlsSpec,
}

impl UpstreamSpec {
    /// The default of `retry_budget`: 20 %.
    pub const RETRY_BUDGET: Percent = Percent::from_hundredths(2_000);

    /// An upstream without addresses, and with defaults.
    #[must_use]
    pub fn new(name: Located<Box<str>>) -> Self {
        Self {
            name,
            addresses: Vec::new(),
            connect_timeout: Nanos::from_secs(2),
            first_byte_timeout: Nanos::MINUTE,
            idle_timeout: Nanos::MINUTE,
            total_timeout: None,
            max_connections: 1_000,
            max_idle_connections: 100,
            keepalive_timeout: Nanos::from_secs(30),
            retries: 1,
            retry_budget: Self::RETRY_BUDGET,
            health_check: None,
            ejection: EjectionSpec::default(),
            tls: UpstreamTlsSpec::default(),
        }
    }
}

/// An address and its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedAddress {
    /// The address.
    pub address: UpstreamAddress,
    /// Its weight.
    pub weight: u32,
}

/// Where an upstream listens, and what it speaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamAddress {
    /// What it speaks.
    pub protocol: UpstreamProtocol,
    /// Where it listens.
    pub endpoint: UpstreamEndpoint,
}

/// What an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamProtocol {
    /// HTTP/1.1 without TLS.
    Http,
    /// HTTP/1.1 or HTTP/2 over TLS, as ALPN chooses.
    Https,
    /// HTTP/2 without TLS, by prior knowledge.
    H2c,
}

/// Where an upstream listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamEndpoint {
    /// A host name or an address (IPv6 without brackets), and a port.
    Tcp(Box<str>, u16),
    /// The path of a Unix socket.
    Unix(Box<str>),
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            UpstreamProtocol::Http => "http",
            UpstreamProtocol::Https => "https",
            UpstreamProtocol::H2c => "h2c",
        };
        match &self.endpoint {
            UpstreamEndpoint::Unix(path) => write!(f, "unix:{path}"),
            UpstreamEndpoint::Tcp(host, port) if host.contains(':') => {
                write!(f, "{scheme}://[{host}]:{port}")
            }
            UpstreamEndpoint::Tcp(host, port) => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

/// Requests that test whether an address is healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckSpec {
    /// The path of the request. A status from 200 to 299 is healthy.
    pub path: Box<str>,
    /// The time between two requests.
    pub interval: Nanos,
    /// Time for the answer.
    pub timeout: Nanos,
    /// An address is unhealthy after this many failures in a row.
    pub unhealthy_after: u32,
    /// An address is healthy again after this many successes in a row.
    pub healthy_after: u32,
}

impl Default for HealthCheckSpec {
    fn default() -> Self {
        Self {
            path: "/".into(),
            interval: Nanos::from_secs(5),
            timeout: Nanos::SECOND,
            unhealthy_after: 3,
            healthy_after: 2,
        }
    }
}

/// When an address that fails gets no requests for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionSpec {
    /// After this many failures in a row: no connection, no response in time, or a status of 502, 503 or 504.
    pub failures: u32,
    /// For this long.
    pub duration: Nanos,
}

impl Default for EjectionSpec {
    fn default() -> Self {
        Self {
            failures: 5,
            duration: Nanos::from_secs(30),
        }
    }
}

/// TLS to `https` addresses.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct UpstreamTlsSpec {
    /// A file of certificate authorities. `None`: those of the operating system.
    pub ca: Option<Box<str>>,
    /// The name in the certificate. `None`: the host of the address.
    pub server_name: Option<Box<str>>,
    /// Files of a client certificate and its key.
    pub certificate: Option<Box<str>>,
    /// The key of the client certificate.
    pub key: Option<Box<str>>,
}
