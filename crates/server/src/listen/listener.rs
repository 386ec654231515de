//! A socket that is listened on: TCP, or a Unix socket whose file comes and goes with it.
//!
//! Must not know: what is done with connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpListener;

use super::listen_address::{ListenAddress, LocalEndpoint};
use super::stream::Stream;
use super::tls::ListenerTls;

/// A socket that is listened on.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    tls: Option<ListenerTls>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(super::unix::UnixSocketListener),
}

/// Who is at the other end of a connection, and where it was made.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Theirs. Whoever comes through a Unix socket has none.
    pub address: Option<SocketAddr>,
    /// Ours.
    pub local: LocalEndpoint,
}

impl Peer {
    /// The peer's address; through a Unix socket come programs of this machine, so it is this machine's.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.address
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
    }
}

impl Listener {
    /// Listens there, or nowhere if the place is [`Place::Off`].
    ///
    /// The file of a Unix socket that nobody listens on any more is replaced; one that somebody listens on, and any other
    /// file, is not.
    ///
    /// # Errors
    /// The operating system's: the address is taken, say, or not ours.
    pub async fn bind(place: &ListenAddress) -> io::Result<Option<Self>> {
        match place {
            ListenAddress::Off => Ok(None),
            ListenAddress::Tcp(address) => TcpListener::bind(address).await.map(|l| Some(l.into())),
            #[cfg(unix)]
            ListenAddress::Unix(path) => {
                let socket = super::unix::UnixSocketListener::bind(path).await?;
                Ok(Some(Self::plain(Socket::Unix(socket))))
            }
            #[cfg(not(unix))]
            ListenAddress::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    const fn plain(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    /// The same listener, whose connections are spoken on inside TLS. A Unix socket stays as it is: what is said there does
    /// not leave the machine, and the permissions of its directory say who may come.
    #[must_use]
    pub fn with_tls(mut self, tls: ListenerTls) -> Self {
        if matches!(self.socket, Socket::Tcp(_)) {
            self.tls = Some(tls);
        }
        self
    }

    /// What its connections have to be secured with before anything is said on them.
    pub(super) const fn tls(&self) -> Option<&ListenerTls> {
        self.tls.as_ref()
    }

    /// Where it is reached.
    ///
    /// # Errors
    /// The operating system's.
    pub fn local_endpoint(&self) -> io::Result<LocalEndpoint> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().map(|address| self.at(address)),
            #[cfg(unix)]
            Socket::Unix(unix) => Ok(LocalEndpoint::Unix(unix.path().to_owned())),
        }
    }

    const fn at(&self, address: SocketAddr) -> LocalEndpoint {
        match self.tls {
            None => LocalEndpoint::Tcp(address),
            Some(_) => LocalEndpoint::Tls(address),
        }
    }

    /// The next connection. Dropping the future loses none.
    pub(crate) async fn accept(&self, patience: Duration) -> io::Result<(Stream, Peer)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are whole: waiting to fill a packet only delays them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "could not set TCP_NODELAY");
                }
                let peer = Peer {
                    address: Some(address),
                    local: self.at(stream.local_addr().unwrap_or(address)),
                };
                Ok((Stream::tcp(stream, patience), peer))
            }
            #[cfg(unix)]
            Socket::Unix(unix) => {
                let stream = unix.accept().await?;
                let peer = Peer {
                    address: None,
                    local: LocalEndpoint::Unix(unix.path().to_owned()),
                };
                Ok((Stream::unix(stream, patience), peer))
            }
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::plain(Socket::Tcp(listener))
    }
}
