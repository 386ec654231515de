//! Listen addresses as operators write them, and the endpoints of running listeners.
//!
//! Must not know: sockets.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The prefix of a Unix socket's path.
const UNIX: &str = "unix:";

/// Where to listen.
///
/// ```
/// use tollgate_server::listen::ListenAddress;
///
/// assert_eq!("off".parse(), Ok(ListenAddress::Off));
/// assert_eq!("127.0.0.1:80".parse(), Ok(ListenAddress::Tcp(([127, 0, 0, 1], 80).into())));
/// assert_eq!("unix:/run/api.sock".parse(), Ok(ListenAddress::Unix("/run/api.sock".into())));
/// assert!("localhost".parse::<ListenAddress>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// Do not listen.
    Off,
    /// An address and port. Port 0 picks a free port.
    Tcp(SocketAddr),
    /// A Unix socket at this path.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Whether only programs on this machine can connect.
    #[must_use]
    pub const fn is_local_only(&self) -> bool {
        match self {
            Self::Off | Self::Unix(_) => true,
            Self::Tcp(address) => address.ip().is_loopback(),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = InvalidListenAddress;

    fn from_str(text: &str) -> Result<Self, InvalidListenAddress> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Some(path) = text.strip_prefix(UNIX) {
            return match path {
                "" => Err(InvalidListenAddress(None)),
                path => Ok(Self::Unix(path.into())),
            };
        }
        match text.parse() {
            Ok(address) => Ok(Self::Tcp(address)),
            Err(_) => Err(InvalidListenAddress(suggest(text))),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// The text is not a listen address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidListenAddress(Option<ListenSuggestion>);

/// What may have been meant by a port without an address, or with the name of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ListenSuggestion {
    /// Other programs read it as loopback or as every interface, so it must be written out.
    Port(u16),
    /// This machine by its name.
    Localhost(u16),
}

fn suggest(text: &str) -> Option<ListenSuggestion> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port = port.parse().ok()?;
    match host {
        "" | "*" => Some(ListenSuggestion::Port(port)),
        "localhost" => Some(ListenSuggestion::Localhost(port)),
        _ => None,
    }
}

impl fmt::Display for InvalidListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str(
                "it must be an address with a port (127.0.0.1:8080, [::1]:8080), `unix:` and a path, or `off`",
            ),
            Some(ListenSuggestion::Port(port)) => write!(
                f,
                "it has no address; write 127.0.0.1:{port} for programs on this machine, or 0.0.0.0:{port} for every interface"
            ),
            Some(ListenSuggestion::Localhost(port)) => {
                write!(f, "it must be an address, not a name; write 127.0.0.1:{port}")
            }
        }
    }
}

impl std::error::Error for InvalidListenAddress {}

/// The endpoint of a running listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalEndpoint {
    /// An address and port.
    Tcp(SocketAddr),
    /// An address and port, with TLS.
    Tls(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl LocalEndpoint {
    /// The scheme and authority of its URLs. For a Unix socket the host is a placeholder.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Tls(address) => format!("https://{address}"),
            Self::Unix(_) => "http://localhost".to_owned(),
        }
    }

    /// The curl command that reaches it.
    #[must_use]
    pub fn curl(&self) -> String {
        match self {
            Self::Tcp(_) | Self::Tls(_) => "curl".to_owned(),
            Self::Unix(path) => format!("curl --unix-socket {}", path.display()),
        }
    }

    /// The redis-cli command that reaches it.
    #[must_use]
    pub fn redis_cli(&self) -> String {
        match self {
            Self::Tcp(address) => format!("redis-cli {}", host_and_port(address)),
            Self::Tls(address) => format!("redis-cli --tls {}", host_and_port(address)),
            Self::Unix(path) => format!("redis-cli -s {}", path.display()),
        }
    }
}

/// The options of redis-cli for this address. redis-cli connects to 127.0.0.1 by default.
fn host_and_port(address: &SocketAddr) -> String {
    if address.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
        return format!("-p {}", address.port());
    }
    format!("-h {} -p {}", address.ip(), address.port())
}

impl fmt::Display for LocalEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) | Self::Tls(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_displayed_as_it_was_parsed() {
        for text in ["off", "127.0.0.1:8080", "[::1]:0", "unix:/run/a b.sock"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_addresses_are_refused_and_the_message_names_the_right_form() {
        for (text, message) in [
            ("", "it must be an address with a port"),
            ("on", "it must be an address with a port"),
            ("127.0.0.1", "it must be an address with a port"),
            ("unix:", "it must be an address with a port"),
            ("127.0.0.1:65536", "it must be an address with a port"),
            ("example.com:80", "it must be an address with a port"),
            ("localhost:80", "write 127.0.0.1:80"),
            (
                ":80",
                "write 127.0.0.1:80 for programs on this machine, or 0.0.0.0:80",
            ),
            ("*:80", "0.0.0.0:80 for every interface"),
            ("80", "0.0.0.0:80 for every interface"),
        ] {
            let error = text.parse::<ListenAddress>().unwrap_err().to_string();
            assert!(error.contains(message), "{text:?}: {error}");
        }
    }

    #[test]
    fn only_loopback_and_unix_addresses_are_local() {
        let is_local = |text: &str| text.parse::<ListenAddress>().unwrap().is_local_only();
        assert!(
            is_local("127.0.0.9:1") && is_local("[::1]:1") && is_local("unix:a") && is_local("off")
        );
        assert!(!is_local("0.0.0.0:1") && !is_local("[::]:1") && !is_local("192.0.2.1:1"));
    }
}
