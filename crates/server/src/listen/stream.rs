//! The byte stream of one connection over TCP, TLS or a Unix socket.
//!
//! It enforces `write_timeout`, so no protocol has to watch for clients that stop reading. Must not know: what the bytes mean.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::transfer_timer::{MIN_TRANSFER_RATE, TransferTimer};

/// The byte stream of one connection.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    /// How long a client may read nothing, or too little.
    write_timeout: Duration,
    /// There while the client has not made up for the time that writes have waited.
    stall_timer: Option<Box<TransferTimer>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    /// Boxed, so that connections without TLS stay small.
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    pub(super) const fn tcp(stream: TcpStream, write_timeout: Duration) -> Self {
        Self {
            socket: Socket::Tcp(stream),
            write_timeout,
            stall_timer: None,
        }
    }

    #[cfg(unix)]
    pub(super) const fn unix(stream: UnixStream, write_timeout: Duration) -> Self {
        Self {
            socket: Socket::Unix(stream),
            write_timeout,
            stall_timer: None,
        }
    }

    /// Runs the TLS handshake and returns the encrypted stream. Streams that are not TCP stay as they are.
    pub(super) async fn accept_tls(self, acceptor: TlsAcceptor) -> io::Result<Self> {
        let socket = match self.socket {
            Socket::Tcp(stream) => Socket::Tls(Box::new(acceptor.accept(stream).await?)),
            other => other,
        };
        Ok(Self { socket, ..self })
    }

    /// Writes a few bytes if the send buffer has room for all of them. Returns whether it had.
    pub fn try_send(&self, bytes: &[u8]) -> bool {
        let written = match &self.socket {
            Socket::Tcp(stream) => stream.try_write(bytes),
            // The bytes would have to be encrypted first.
            Socket::Tls(_) => return false,
            #[cfg(unix)]
            Socket::Unix(stream) => stream.try_write(bytes),
        };
        written.is_ok_and(|count| count == bytes.len())
    }

    /// Whether the system has reported that the client has closed or reset the connection. Bytes before the end may be unread.
    pub(crate) fn is_read_closed(&self) -> bool {
        let is_closed = |ready: Option<io::Result<Ready>>| {
            ready.is_some_and(|ready| ready.is_ok_and(Ready::is_read_closed))
        };
        let interest = Interest::READABLE;
        is_closed(match &self.socket {
            Socket::Tcp(stream) => poll_once(stream.ready(interest)),
            Socket::Tls(stream) => poll_once(stream.get_ref().0.ready(interest)),
            #[cfg(unix)]
            Socket::Unix(stream) => poll_once(stream.ready(interest)),
        })
    }

    /// Returns the result of a write, or an error if the client has read too little for `write_timeout`. `len` is how many bytes
    /// were sent.
    fn check_write_timeout<T: Copy>(
        &mut self,
        context: &mut Context<'_>,
        sent: Poll<io::Result<T>>,
        len: impl FnOnce(T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(sent) = sent {
            let len = sent.as_ref().map_or(0, |sent| len(*sent));
            if let Some(timer) = &mut self.stall_timer
                && timer.record_progress(len)
            {
                self.stall_timer = None;
            }
            return Poll::Ready(sent);
        }
        let write_timeout = self.write_timeout;
        let timer = self.stall_timer.get_or_insert_with(|| {
            let timer = TransferTimer::new(write_timeout, None);
            Box::new(timer.with_min_rate(Some(MIN_TRANSFER_RATE)))
        });
        match timer.has_expired(context) {
            false => Poll::Pending,
            true => {
                let reason = "the client reads too few of the bytes sent to it";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
            }
        }
    }
}

/// The output of a future that is ready now.
fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.check_write_timeout(context, sent, |len| len)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Socket::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        };
        self.check_write_timeout(context, sent, |len| len)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Tcp(stream) => stream.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
            #[cfg(unix)]
            Socket::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(context),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
        };
        self.check_write_timeout(context, sent, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        };
        self.check_write_timeout(context, sent, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    async fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let stream = Stream::tcp(accepted.unwrap().0, Duration::from_secs(20));
        (stream, client.unwrap())
    }

    /// The client leaves, and what it sent before is not read.
    #[tokio::test]
    async fn the_end_of_a_client_is_seen_behind_unread_bytes() {
        let (stream, mut client) = pair().await;
        client.write_all(b"abc").await.unwrap();
        let Socket::Tcp(socket) = &stream.socket else {
            panic!("it is TCP");
        };
        socket.readable().await.unwrap();
        assert!(!stream.is_read_closed());
        drop(client);
        while !stream.is_read_closed() {
            tokio::task::yield_now().await;
        }
    }

    /// Slow readers once kept a connection, its buffers and its slot for as long as they liked.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_times_out() {
        let (mut stream, _client) = pair().await;
        let sent = stream.write_all(&vec![0; 64 << 20]).await;
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_client_that_reads_slowly_does_not_time_out() {
        let (mut stream, mut client) = pair().await;
        let taking = async move {
            let mut buffer = vec![0; 1 << 16];
            let mut taken = 0;
            while taken < 8 << 20 {
                taken += client.read(&mut buffer).await.unwrap();
            }
            taken
        };
        let bytes = vec![0; 8 << 20];
        let (sent, taken) = tokio::join!(stream.write_all(&bytes), taking);
        sent.unwrap();
        assert!(stream.stall_timer.is_none());
        assert_eq!(taken, 8 << 20);
    }
}
