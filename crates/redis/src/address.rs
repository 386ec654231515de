//! Parses server addresses: one server, sentinels, a cluster or shards, in one line.
//!
//! Must not know: connections, how each layout is used.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};
use tollgate_store::{StoreError, StoreErrorKind};

/// The largest number of servers in one address.
const MAX_SERVERS: usize = 64;

const UNKNOWN_SCHEME: &str = "its scheme is not known; the schemes are redis, redis+unix, redis+sentinel, redis+cluster and redis+shards, \
     with rediss for TLS";

/// The network address of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Endpoint {
    /// Parses `host:port` as a server reports it. An empty host means the reporting server's host.
    pub(crate) fn parse_from(text: &str, by: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok()?;
        Some(Self::reported_by(host, port, by))
    }

    /// The same from host and port.
    pub(crate) fn reported_by(host: &str, port: u16, by: &Self) -> Self {
        match by {
            Self::Tcp(own, _) if host.is_empty() || host == "?" => Self::Tcp(own.clone(), port),
            _ => Self::Tcp(host.to_owned(), port),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The layout of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressLayout {
    Single(Endpoint),
    Sentinel {
        sentinels: Vec<Endpoint>,
        master: String,
    },
    Cluster(Vec<Endpoint>),
    /// Independent servers. The name of a server selects its keys.
    Shards(Vec<(String, Endpoint)>),
}

/// A parsed address.
#[derive(Clone, Debug)]
pub(crate) struct ParsedAddress {
    pub(crate) layout: AddressLayout,
    /// The connection settings of each server: TLS, user, database.
    pub(crate) template: ConnectionInfo,
}

impl ParsedAddress {
    /// Parses an address.
    ///
    /// # Errors
    ///
    /// It is invalid. The error never quotes it, because it may contain a password.
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        if is_host_and_port(text) {
            return Self::parse(&format!("redis://{text}"));
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let Some((plain, kind)) = scheme.split_once('+').filter(|(_, kind)| *kind != "unix") else {
            let (endpoint, template) = server(text)?;
            return Ok(Self {
                layout: AddressLayout::Single(endpoint),
                template,
            });
        };
        if !matches!(plain, "redis" | "rediss" | "valkey" | "valkeys") {
            return Err(invalid(UNKNOWN_SCHEME));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let hosts: Vec<&str> = hosts.split(',').filter(|host| !host.is_empty()).collect();
        if hosts.is_empty() || hosts.len() > MAX_SERVERS {
            return Err(invalid("it must name from one to 64 servers"));
        }
        let (master, after_master) = path.split_once('/').unwrap_or((path, ""));
        let (default_port, db) = match kind {
            "sentinel" if master.is_empty() => {
                return Err(invalid(
                    "it must name the master, as in redis+sentinel://host:26379/master",
                ));
            }
            "cluster" if !matches!(path, "" | "0") => {
                return Err(invalid("a cluster has only database 0"));
            }
            "sentinel" => (26_379, after_master),
            "cluster" | "shards" => (6_379, path),
            _ => return Err(invalid(UNKNOWN_SCHEME)),
        };
        let mut servers = Vec::with_capacity(hosts.len());
        let mut template = None;
        for host in hosts {
            let (name, host) = host.split_once('=').unwrap_or((host, host));
            let host = with_port(host, default_port);
            let (endpoint, info) = server(&format!("{plain}://{user}{host}/{db}"))?;
            servers.push((name.to_owned(), endpoint));
            template = Some(info);
        }
        let template = template.ok_or_else(|| invalid("it names no server"))?;
        let shape = match kind {
            "sentinel" => AddressLayout::Sentinel {
                sentinels: endpoints(servers),
                master: master.to_owned(),
            },
            "cluster" => AddressLayout::Cluster(endpoints(servers)),
            _ if !are_different(&servers) => {
                return Err(invalid("two of its servers have the same name"));
            }
            _ => AddressLayout::Shards(servers),
        };
        Ok(Self {
            layout: shape,
            template,
        })
    }
}

fn endpoints(servers: Vec<(String, Endpoint)>) -> Vec<Endpoint> {
    servers.into_iter().map(|(_, endpoint)| endpoint).collect()
}

fn are_different(shards: &[(String, Endpoint)]) -> bool {
    let mut names: Vec<&str> = shards.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.len() == shards.len()
}

fn with_port(host: &str, port: u16) -> String {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port && !host.ends_with(']') {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    }
}

/// Whether it is `host:port` and nothing else. With a user, a list or a path it could mean several things.
fn is_host_and_port(text: &str) -> bool {
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let in_brackets = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_host = match in_brackets {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(is_name),
    };
    is_host && port.parse::<u16>().is_ok()
}

fn server(url: &str) -> Result<(Endpoint, ConnectionInfo), StoreError> {
    let info = url
        .into_connection_info()
        .map_err(|_may_quote: redis::RedisError| {
            // The error may quote the address, which may contain a password.
            invalid("write redis://host:port, or rediss://host:port for TLS")
        })?;
    let endpoint = match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Endpoint::Tcp(host.clone(), *port)
        }
        ConnectionAddr::Unix(path) => Endpoint::Unix(path.clone()),
        _ => return Err(invalid("its kind is not known")),
    };
    Ok((endpoint, info))
}

fn invalid(detail: &'static str) -> StoreError {
    let detail = format!("the server's address is not valid: {detail}");
    StoreError::new(StoreErrorKind::BadRequest, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(host.to_owned(), port)
    }

    #[test]
    fn every_layout_is_parsed_from_one_line() {
        let read = |text| ParsedAddress::parse(text).unwrap().layout;
        assert_eq!(
            read("redis://a:7000/2"),
            AddressLayout::Single(tcp("a", 7000))
        );
        assert_eq!(
            read("redis+unix:///run/redis.sock"),
            AddressLayout::Single(Endpoint::Unix("/run/redis.sock".into()))
        );
        assert_eq!(
            read("redis+sentinel://u:p@a,b:7000/limits/3"),
            AddressLayout::Sentinel {
                sentinels: vec![tcp("a", 26_379), tcp("b", 7000)],
                master: "limits".to_owned(),
            }
        );
        assert_eq!(
            read("redis+cluster://a,[::1]:7000"),
            AddressLayout::Cluster(vec![tcp("a", 6379), tcp("::1", 7000)])
        );
        assert_eq!(
            read("redis+shards://north=a:1,south=b:2,c:3"),
            AddressLayout::Shards(vec![
                ("north".to_owned(), tcp("a", 1)),
                ("south".to_owned(), tcp("b", 2)),
                ("c:3".to_owned(), tcp("c", 3)),
            ])
        );
    }

    /// `--redis localhost:6379` was refused with "the server's address is not valid" and nothing else.
    #[test]
    fn a_host_and_port_without_a_scheme_is_one_server_and_other_addresses_are_told_the_form() {
        let read = |text| ParsedAddress::parse(text).unwrap().layout;
        for (text, endpoint) in [
            ("localhost:6379", tcp("localhost", 6379)),
            ("10.0.0.1:7000", tcp("10.0.0.1", 7000)),
            ("[::1]:7000", tcp("::1", 7000)),
            ("redis-0.redis:6379", tcp("redis-0.redis", 6379)),
        ] {
            assert_eq!(read(text), AddressLayout::Single(endpoint), "{text}");
        }
        for text in [
            "localhost",
            "u:hidden@a:1",
            "a:1,b:2",
            "a:1/3",
            ":6379",
            "::1:7000",
            "a:99999",
        ] {
            let error = ParsedAddress::parse(text).unwrap_err().to_string();
            assert!(error.contains("write redis://host:port"), "{text}: {error}");
            assert!(!error.contains("hidden"), "{error}");
        }
        let error = ParsedAddress::parse("redis+what://a:1")
            .unwrap_err()
            .to_string();
        assert!(error.contains("redis+cluster"), "{error}");
    }

    #[test]
    fn credentials_and_database_hold_for_every_server() {
        let address = ParsedAddress::parse("redis+sentinel://u:p%40@a,b/limits/3").unwrap();
        let settings = address.template.redis_settings();
        assert_eq!(settings.username(), Some("u"));
        assert_eq!(settings.password(), Some("p@"));
        assert_eq!(settings.db(), 3);
    }

    #[test]
    fn an_invalid_address_is_refused_without_being_quoted() {
        let wrong = [
            "",
            "nonsense",
            "redis+sentinel://u:hidden@a:1",
            "redis+cluster://u:hidden@a:1/3",
            "redis+cluster://",
            "redis+shards://u:hidden@x=a:1,x=b:2",
            "redis+what://u:hidden@a:1",
            "http+cluster://u:hidden@a:1",
            "redis+cluster://u:hidden@a:99999999",
        ];
        for text in wrong {
            let error = ParsedAddress::parse(text).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::BadRequest, "{text}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }

    #[test]
    fn a_server_that_names_no_host_means_its_own() {
        let by = tcp("10.0.0.1", 1);
        assert_eq!(
            Endpoint::parse_from(":7001", &by),
            Some(tcp("10.0.0.1", 7001))
        );
        assert_eq!(
            Endpoint::parse_from("::1:7001", &by),
            Some(tcp("::1", 7001))
        );
        assert_eq!(Endpoint::parse_from("10.0.0.2:x", &by), None);
    }
}
