//! A listening socket: TCP, or a Unix socket with its file.
//!
//! Must not know: protocols.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tollgate_http::TrustedProxies;

use super::listen_address::{ListenAddress, LocalEndpoint};
use super::open_connections::ConnectionProgress;
use super::proxy_protocol::ProxyProtocol;
use super::stream::Stream;
use super::tls::ListenerTls;

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    tls: Option<ListenerTls>,
    proxy_protocol: Option<Arc<ProxyProtocol>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(super::unix::UnixSocketListener),
}

/// The two ends of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The client's address; behind the PROXY protocol the one that the proxy names. A Unix socket has none.
    pub address: Option<SocketAddr>,
    /// The endpoint of this server that the client connected to.
    pub local: LocalEndpoint,
    /// Whether the connection keeps its place when the listener is full.
    pub progress: ConnectionProgress,
}

impl Peer {
    /// The two ends of a connection without a request.
    #[must_use]
    pub fn new(address: Option<SocketAddr>, local: LocalEndpoint) -> Self {
        Self {
            address,
            local,
            progress: ConnectionProgress::default(),
        }
    }

    /// The client's IP address. Clients of a Unix socket are local, so theirs is `127.0.0.1`.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.address
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
    }
}

impl Listener {
    /// Binds the address. Returns `None` for [`ListenAddress::Off`].
    ///
    /// Replaces the file of a Unix socket that no process listens on. Fails if a process listens on it or if it is another kind
    /// of file.
    ///
    /// The operating system's, for example that the address is in use.
    pub async fn bind(place: &ListenAddress) -> io::Result<Option<Self>> {
        match place {
            ListenAddress::Off => Ok(None),
            ListenAddress::Tcp(address) => TcpListener::bind(address).await.map(|l| Some(l.into())),
            #[cfg(unix)]
            ListenAddress::Unix(path) => {
                let socket = super::unix::UnixSocketListener::bind(path).await?;
                Ok(Some(Self::without_tls(Socket::Unix(socket))))
            }
            #[cfg(not(unix))]
            ListenAddress::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    const fn without_tls(socket: Socket) -> Self {
        Self {
            socket,
            tls: None,
            proxy_protocol: None,
        }
    }

    /// Accepts only TLS connections on this listener. A Unix socket ignores this: its bytes never leave the machine, and the
    /// permissions of its directory control access.
    #[must_use]
    pub fn with_tls(mut self, tls: ListenerTls) -> Self {
        if matches!(self.socket, Socket::Tcp(_)) {
            self.tls = Some(tls);
        }
        self
    }

    /// Accepts only connections of these proxies, each of which begins with a header of the PROXY protocol (version 1 or 2). TLS comes
    /// after the header.
    #[must_use]
    pub fn with_proxy_protocol(mut self, trusted: TrustedProxies) -> Self {
        self.proxy_protocol = Some(Arc::new(ProxyProtocol::new(trusted)));
        self
    }

    /// The PROXY protocol, if connections have to begin with its header.
    pub(super) const fn proxy_protocol(&self) -> Option<&Arc<ProxyProtocol>> {
        self.proxy_protocol.as_ref()
    }

    /// The TLS settings, if connections have to use TLS.
    pub(super) const fn tls(&self) -> Option<&ListenerTls> {
        self.tls.as_ref()
    }

    /// The endpoint that clients connect to.
    ///
    /// # Errors
    /// The operating system's.
    pub fn local_endpoint(&self) -> io::Result<LocalEndpoint> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().map(|address| self.endpoint(address)),
            #[cfg(unix)]
            Socket::Unix(unix) => Ok(LocalEndpoint::Unix(unix.path().to_owned())),
        }
    }

    const fn endpoint(&self, address: SocketAddr) -> LocalEndpoint {
        match self.tls {
            None => LocalEndpoint::Tcp(address),
            Some(_) => LocalEndpoint::Tls(address),
        }
    }

    /// Accepts the next connection. Cancel safe.
    pub(crate) async fn accept(&self, write_timeout: Duration) -> io::Result<(Stream, Peer)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Responses are written whole, so Nagle's algorithm would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "setting TCP_NODELAY failed");
                }
                let local = self.endpoint(stream.local_addr().unwrap_or(address));
                let peer = Peer::new(Some(address), local);
                Ok((Stream::tcp(stream, write_timeout), peer))
            }
            #[cfg(unix)]
            Socket::Unix(unix) => {
                let stream = unix.accept().await?;
                let peer = Peer::new(None, LocalEndpoint::Unix(unix.path().to_owned()));
                Ok((Stream::unix(stream, write_timeout), peer))
            }
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::without_tls(Socket::Tcp(listener))
    }
}
