//! The byte stream to a server: TCP, a Unix socket, or TLS over TCP.
//!
//! Must not know: what is sent over it, credentials.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::address::Endpoint;
use crate::tls::TlsClient;

/// Idle time after which the system sends a TCP keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long written data may stay unacknowledged before the connection fails. This detects a peer that vanished
/// silently.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(2);
/// The most addresses of a host name that are tried at the same time.
const MAX_ADDRESSES: usize = 8;

/// A stream to a server.
pub(crate) enum ServerStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl ServerStream {
    /// Connects to the endpoint, with TLS if there is a client for it.
    ///
    /// # Errors
    ///
    /// The endpoint cannot be reached, or its certificate is not trusted.
    pub(crate) async fn connect(endpoint: &Endpoint, tls: Option<&TlsClient>) -> io::Result<Self> {
        let (host, port) = match endpoint {
            Endpoint::Unix(path) => return Self::connect_unix(path).await,
            Endpoint::Tcp(host, port) => (host.as_str(), *port),
        };
        let stream = connect_tcp(host, port).await?;
        match tls {
            None => Ok(Self::Tcp(stream)),
            #[cfg(feature = "tls")]
            Some(tls) => Ok(Self::Tls(Box::new(tls.connect(host, stream).await?))),
            #[cfg(not(feature = "tls"))]
            Some(never) => match *never {},
        }
    }

    async fn connect_unix(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).await.map(Self::Unix)
    }
}

/// Connects to the first address of the host that answers.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let attempts = addresses.take(MAX_ADDRESSES).map(|address: SocketAddr| {
        let attempt: Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>> =
            Box::pin(TcpStream::connect(address));
        attempt
    });
    let stream = first_success(attempts.collect()).await?;
    // Without it, under many calls, each write would wait for the acknowledgement of the previous one.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(stream)
}

/// The first success of attempts that run at the same time; the last error if all fail.
async fn first_success<T>(
    mut attempts: Vec<Pin<Box<dyn Future<Output = io::Result<T>> + Send>>>,
) -> io::Result<T> {
    let mut last_error = io::Error::from(io::ErrorKind::NotFound);
    poll_fn(|context| {
        let mut success = None;
        attempts.retain_mut(|attempt| match attempt.as_mut().poll(context) {
            _ if success.is_some() => true,
            Poll::Pending => true,
            Poll::Ready(Ok(value)) => {
                success = Some(value);
                false
            }
            Poll::Ready(Err(error)) => {
                last_error = error;
                false
            }
        });
        match success {
            Some(value) => Poll::Ready(Ok(value)),
            None if attempts.is_empty() => Poll::Ready(Err(io::Error::from(last_error.kind()))),
            None => Poll::Pending,
        }
    })
    .await
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, room),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, room),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_read(context, room),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host name with two addresses, the first of which does not answer, must not take the whole connect deadline.
    #[tokio::test(start_paused = true)]
    async fn an_address_that_does_not_answer_does_not_delay_another() {
        type Attempt = Pin<Box<dyn Future<Output = io::Result<u8>> + Send>>;
        let silent: Attempt = Box::pin(std::future::pending());
        let refused: Attempt = Box::pin(std::future::ready(Err(
            io::ErrorKind::ConnectionRefused.into()
        )));
        let good: Attempt = Box::pin(std::future::ready(Ok(3)));
        let first = first_success(vec![silent, refused, good]).await;
        assert_eq!(first.ok(), Some(3));
        let refused: Attempt = Box::pin(std::future::ready(Err(
            io::ErrorKind::ConnectionRefused.into()
        )));
        let error = first_success(vec![refused]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(first_success::<u8>(Vec::new()).await.is_err());
    }
}
