//! A socket that is listened on: TCP, or a Unix socket whose file comes and goes with it.
//!
//! Must not know: what is done with connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpListener;

use super::place::{Place, Reached};
use super::stream::Stream;

/// A socket that is listened on.
#[derive(Debug)]
pub struct Listener(Socket);

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(super::unix::Unix),
}

/// Who is at the other end of a connection, and where it was made.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Theirs. Whoever comes through a Unix socket has none.
    pub address: Option<SocketAddr>,
    /// Ours.
    pub local: Reached,
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
    pub async fn bind(place: &Place) -> io::Result<Option<Self>> {
        match place {
            Place::Off => Ok(None),
            Place::Tcp(address) => TcpListener::bind(address).await.map(|l| Some(l.into())),
            #[cfg(unix)]
            Place::Unix(path) => {
                let socket = super::unix::Unix::bind(path).await?;
                Ok(Some(Self(Socket::Unix(socket))))
            }
            #[cfg(not(unix))]
            Place::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Where it is reached.
    ///
    /// # Errors
    /// The operating system's.
    pub fn reached(&self) -> io::Result<Reached> {
        match &self.0 {
            Socket::Tcp(listener) => listener.local_addr().map(Reached::Tcp),
            #[cfg(unix)]
            Socket::Unix(unix) => Ok(Reached::Unix(unix.path().to_owned())),
        }
    }

    /// The next connection. Dropping the future loses none.
    pub(crate) async fn accept(&self, patience: Duration) -> io::Result<(Stream, Peer)> {
        match &self.0 {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are whole: waiting to fill a packet only delays them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "could not set TCP_NODELAY");
                }
                let peer = Peer {
                    address: Some(address),
                    local: Reached::Tcp(stream.local_addr().unwrap_or(address)),
                };
                Ok((Stream::tcp(stream, patience), peer))
            }
            #[cfg(unix)]
            Socket::Unix(unix) => {
                let stream = unix.accept().await?;
                let peer = Peer {
                    address: None,
                    local: Reached::Unix(unix.path().to_owned()),
                };
                Ok((Stream::unix(stream, patience), peer))
            }
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self(Socket::Tcp(listener))
    }
}
