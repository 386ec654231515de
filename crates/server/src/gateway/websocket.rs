//! WebSocket: how a client asks for it over HTTP/1.1 and HTTP/2 (RFC 6455, RFC 8441), and the tunnel that it becomes.
//!
//! No other upgrade is forwarded: an upgrade to h2c would carry requests past the limits. Must not know: routes, limits.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::ext::Protocol;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    UPGRADE,
};
use hyper::http::request::Parts;
use hyper::rt::Executor as _;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf, copy_bidirectional};
use tokio::time::sleep;

use super::stream_tasks::StreamTasks;
use super::upstream::Http1Connection;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Where a tunnel runs.
#[derive(Clone, Debug)]
pub(super) enum TunnelPlace {
    /// In the task of its HTTP/1.1 connection, which has no other use from then on.
    Connection(ConnectionTunnel),
    /// In a task of its own, beside the other streams of its HTTP/2 connection.
    Stream(StreamTasks),
}

type Tunnel = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tunnel of an HTTP/1.1 connection, if it has become one.
#[derive(Clone, Default)]
pub(super) struct ConnectionTunnel(Arc<TunnelSlot>);

#[derive(Default)]
struct TunnelSlot {
    tunnel: Mutex<Option<Tunnel>>,
    has_started: AtomicBool,
}

impl ConnectionTunnel {
    fn start(&self, tunnel: Tunnel) {
        *self.lock() = Some(tunnel);
        self.0.has_started.store(true, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> Option<Tunnel> {
        self.lock().take()
    }

    /// Whether the connection has become a tunnel: nothing on it is HTTP any more.
    pub(super) fn has_started(&self) -> bool {
        self.0.has_started.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Tunnel>> {
        self.0.tunnel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ConnectionTunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionTunnel")
    }
}

impl TunnelPlace {
    pub(super) fn start(&self, tunnel: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Connection(place) => place.start(Box::pin(tunnel)),
            Self::Stream(tasks) => tasks.execute(tunnel),
        }
    }
}

/// Whether a request asks for a WebSocket. One over HTTP/2 becomes the request that HTTP/1.1 has for it. Call it before the
/// fields of the connection are removed.
pub(super) fn take_websocket(head: &mut Parts) -> bool {
    if let Some(protocol) = head.extensions.remove::<Protocol>() {
        // Every other protocol of an extended CONNECT is refused with the method.
        if protocol.as_str().eq_ignore_ascii_case("websocket") {
            head.method = Method::GET;
            head.headers.insert(SEC_WEBSOCKET_KEY, random_key());
            return true;
        }
        return false;
    }
    let has_token = |name: &HeaderName, token: &str| {
        let lines = head.headers.get_all(name).iter();
        let mut tokens = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        tokens.any(|found| found.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    };
    head.version == Version::HTTP_11
        && head.method == Method::GET
        && has_token(&CONNECTION, "upgrade")
        && has_token(&UPGRADE, "websocket")
}

/// Adds the fields that ask an upstream, or answer a client, over HTTP/1.1.
pub(super) fn add_upgrade_fields(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Whether the upstream has agreed to a WebSocket.
pub(super) fn is_accepted(status: StatusCode, headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).map(HeaderValue::as_bytes);
    status == StatusCode::SWITCHING_PROTOCOLS
        && upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
}

/// Makes the answer of HTTP/1.1 the one that HTTP/2 has for it.
pub(super) fn to_http2_answer(status: &mut StatusCode, headers: &mut HeaderMap) {
    *status = StatusCode::OK;
    for name in [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT] {
        headers.remove(name);
    }
}

/// Copies bytes both ways until one side ends, or nothing is transferred for a while. The guard is dropped after that.
pub(super) async fn tunnel(
    client: OnUpgrade,
    upstream: Box<Http1Connection>,
    idle_timeout: Duration,
    guard: impl Send,
) {
    let ended = run(client, upstream, idle_timeout).await;
    if let Err(error) = ended {
        tracing::debug!(%error, "WebSocket ended early");
    }
    drop(guard);
}

async fn run(
    client: OnUpgrade,
    upstream: Box<Http1Connection>,
    idle_timeout: Duration,
) -> io::Result<()> {
    let upgraded = upstream.into_upgraded().await.map_err(io::Error::other)?;
    let (mut upstream, early) = upgraded.ok_or(io::ErrorKind::NotConnected)?;
    let client = client.await.map_err(io::Error::other)?;
    let mut client = CountedStream {
        stream: TokioIo::new(client),
        transfers: Arc::default(),
    };
    let transfers = Arc::clone(&client.transfers);
    let copy = async {
        copy_early(&mut client, early).await?;
        copy_bidirectional(&mut client, &mut upstream).await?;
        io::Result::Ok(())
    };
    tokio::select! {
        ended = copy => ended,
        () = wait_until_idle(&transfers, idle_timeout) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Bytes that the upstream sent right behind its answer.
async fn copy_early(client: &mut (impl AsyncWrite + Unpin), early: Bytes) -> io::Result<()> {
    if !early.is_empty() {
        client.write_all(&early).await?;
    }
    Ok(())
}

/// Ends when nothing was transferred during a whole period.
async fn wait_until_idle(transfers: &AtomicU64, period: Duration) {
    let mut before = transfers.load(Ordering::Relaxed);
    loop {
        sleep(period).await;
        let now = transfers.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
    }
}

/// A stream that counts its reads and writes.
struct CountedStream<S> {
    stream: S,
    transfers: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.transfers.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if polled.is_ready() {
            self.transfers.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A `Sec-WebSocket-Key`: 16 random bytes in base64. It proves that the answer is not cached, and is no secret.
fn random_key() -> HeaderValue {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let random = RandomState::new();
    let bits = u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1));
    // 128 bits are 21 digits of six bits and one of two.
    let digit = |at: u32| {
        let six = if at < 21 {
            bits >> (122 - 6 * at)
        } else {
            bits << 4
        } & 63;
        let at = usize::try_from(six).unwrap_or(0);
        char::from(DIGITS.get(at).copied().unwrap_or(b'A'))
    };
    let key: String = (0..22).map(digit).chain(['=', '=']).collect();
    HeaderValue::try_from(key)
        .unwrap_or_else(|_never| HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAA=="))
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn is_websocket(fields: &[(&str, &str)], method: &str, version: Version) -> bool {
        let mut request = Request::builder().method(method).version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        take_websocket(&mut request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn only_a_websocket_is_an_upgrade() {
        let asked = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
        ];
        assert!(is_websocket(&asked, "GET", Version::HTTP_11));
        assert!(!is_websocket(&asked, "POST", Version::HTTP_11));
        assert!(!is_websocket(&asked, "GET", Version::HTTP_10));
        assert!(!is_websocket(&asked[..1], "GET", Version::HTTP_11));
        assert!(!is_websocket(&asked[1..], "GET", Version::HTTP_11));
        let h2c = [
            ("connection", "upgrade, http2-settings"),
            ("upgrade", "h2c"),
        ];
        assert!(!is_websocket(&h2c, "GET", Version::HTTP_11));
    }

    #[test]
    fn keys_have_16_bytes_in_base64() {
        let key = random_key();
        let key = key.to_str().unwrap();
        assert_eq!((key.len(), &key[22..]), (24, "=="));
        assert!(
            "AQgw".contains(&key[21..22]),
            "the last digit has two bits: {key}"
        );
        assert_ne!(random_key(), key);
    }
}
