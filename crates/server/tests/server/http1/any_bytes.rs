//! Arbitrary bytes from an HTTP client: the fast path answers as hyper does, byte for byte, however packets are split. The fuzz
//! target `http1` runs this on random inputs, the test here on fixed ones.
//!
//! Nothing listens and nothing waits: a connection is an in-memory pipe, and its future is polled until it needs more input.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf, duplex};
use tokio::runtime::Runtime;
use tollgate_core::{Nanos, Timestamp};
use tollgate_policy::source::SourceFormat;
use tollgate_server::listen::{LocalEndpoint, Peer, ShutdownTrigger};
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_store::ManualClock;

/// Large enough for all requests and responses of one input.
const PIPE_LEN: usize = 256 << 10;

/// Fragments of HTTP/1 that random bytes rarely contain.
const PIECES: [&[u8]; 32] = [
    b"GET /healthz HTTP/1.1\r\n",
    b"GET /v1/check?key=a HTTP/1.1\r\n",
    b"GET /auth/nginx HTTP/1.1\r\n",
    b"POST /v1/check HTTP/1.1\r\n",
    b"POST /healthz HTTP/1.1\r\n",
    b"HEAD /healthz HTTP/1.1\r\n",
    b"GET /healthz HTTP/1.0\r\n",
    b"GET http://a/healthz HTTP/1.1\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"host: a\r\n",
    b"content-length: 11\r\n",
    b"Content-Length: 0\r\n",
    b"content-length: +11\r\n",
    b"content-length: 011\r\n",
    b"content-length: 11, 11\r\n",
    b"content-length:11 \r\n",
    b"content-length : 11\r\n",
    b"transfer-encoding: chunked\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"connection: close\r\n",
    b"Connection: Keep-Alive\r\n",
    b"expect: 100-continue\r\n",
    b"upgrade: h2c\r\n",
    b"x-original-method: GET\r\nx-original-uri: /a?b=c\r\nx-original-host: h\r\nx-real-ip: 192.0.2.1\r\n",
    b"x-real-ip: 192.0.2.2\r\n",
    b" folded\r\n",
    b"\r\n",
    b"\n",
    b"{\"key\":\"a\"}",
    b"b\r\n{\"key\":\"a\"}\r\n0\r\n\r\n",
    b"0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

/// Sends the bytes as they are and as indices of fragments, in one packet and split into several.
///
/// If the fast path answers differently from hyper.
pub(crate) fn any_bytes(bytes: &[u8]) {
    compare(bytes);
    let pieces: Vec<u8> = bytes
        .iter()
        .take(256)
        .flat_map(|byte| match PIECES.get(usize::from(*byte)) {
            Some(piece) => *piece,
            None => std::slice::from_ref(byte),
        })
        .copied()
        .collect();
    compare(&pieces);
}

fn compare(bytes: &[u8]) {
    let cut = bytes
        .first()
        .map_or(1, |byte| usize::from(*byte % 61) * 7 + 1);
    for len in [bytes.len().max(1), cut] {
        let packets: Vec<&[u8]> = bytes.chunks(len).collect();
        let (fast, by_hyper) = both(&packets);
        assert_eq!(fast, by_hyper, "{} cut after {len}", bytes.escape_ascii());
    }
}

/// The responses to these packets with the fast path and with hyper alone, as comparable text.
pub(crate) fn both(packets: &[&[u8]]) -> (String, String) {
    (run(true, packets), run(false, packets))
}

/// The responses to these packets, with the fast path or with hyper alone.
pub(crate) fn run(fast_path: bool, packets: &[&[u8]]) -> String {
    let mut limits = HttpLimits::default();
    limits.fast_path = fast_path;
    comparable(&answers(&app(), limits, packets))
}

/// A server without state: a day has passed since its last request, so every limit has reset.
pub(crate) fn app() -> Arc<HttpApi<Arc<ManualClock>>> {
    thread_local! {
        static ONE: (Arc<ManualClock>, Arc<HttpApi<Arc<ManualClock>>>) = new_app();
    }
    ONE.with(|(clock, app)| {
        clock.advance(Nanos::from_secs(24 * 3_600));
        Arc::clone(app)
    })
}

fn new_app() -> (Arc<ManualClock>, Arc<HttpApi<Arc<ManualClock>>>) {
    let text = "limits: [{ name: per-key, key: header.x-api-key, rate: 2/m, missing: skip }, \
                { name: per-ip, key: ip, rate: 3/m, missing: skip }, { name: in-flight, key: ip, concurrency: 3, missing: skip }]";
    let policy = tollgate_policy::load(text, "p.yaml", SourceFormat::Yaml).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let app = HttpApi::new(&policy, 64, Arc::clone(&clock)).unwrap();
    (clock, Arc::new(app))
}

/// The peer of the connection.
pub(crate) fn peer() -> Peer {
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    Peer::new(Some(address), LocalEndpoint::Tcp(address))
}

/// All responses of one connection. Each packet is processed as far as possible before the next one; then the client
/// disconnects.
pub(crate) fn answers(
    app: &Arc<HttpApi<Arc<ManualClock>>>,
    limits: HttpLimits,
    packets: &[&[u8]],
) -> Vec<u8> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    });
    // Timers can be created but never fire, because the runtime is not running.
    let _entered = runtime.enter();
    let (mut client, server) = duplex(PIPE_LEN);
    let (_stop, stopping) = ShutdownTrigger::new();
    let mut connection = pin!(Arc::clone(app).serve_connection(server, peer(), limits, stopping));
    let mut answers = Vec::new();
    let mut is_over = poll_until_idle(connection.as_mut());
    for packet in packets.iter().filter(|packet| !packet.is_empty()) {
        if is_over {
            break;
        }
        write(&mut client, packet);
        is_over = poll_until_idle(connection.as_mut());
        read(&mut client, &mut answers);
    }
    if !is_over {
        let shut = Pin::new(&mut client).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        assert!(shut.is_ready());
        poll_until_idle(connection.as_mut());
    }
    read(&mut client, &mut answers);
    answers
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls as long as the future is woken. Returns whether it is done.
fn poll_until_idle(mut work: Pin<&mut impl Future<Output = ()>>) -> bool {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    while woken.0.swap(false, Ordering::SeqCst) {
        if let Poll::Ready(()) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return true;
        }
    }
    false
}

fn write(client: &mut DuplexStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut *client).poll_write(&mut context, bytes) {
            Poll::Ready(Ok(count)) => bytes = &bytes[count..],
            // The server has closed the connection, so the rest is lost, as on any connection.
            Poll::Ready(Err(_)) => return,
            Poll::Pending => panic!("the pipe is too small"),
        }
    }
}

fn read(client: &mut DuplexStream, answers: &mut Vec<u8>) {
    loop {
        let mut room = [0; 4_096];
        let mut room = ReadBuf::new(&mut room);
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut *client).poll_read(&mut context, &mut room) {
            Poll::Ready(Ok(())) if !room.filled().is_empty() => {
                answers.extend_from_slice(room.filled());
            }
            _ => return,
        }
    }
}

/// The responses without dates and ticket ids, which vary.
pub(crate) fn comparable(answers: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(answers).into_owned();
    for (before, len) in [
        ("date: ", 29),
        ("\"ticket\":\"", 32),
        ("x-ratelimit-ticket: ", 32),
    ] {
        let mut from = 0;
        while let Some(found) = text[from..].find(before) {
            from += found + before.len();
            if text.is_char_boundary(from + len) && from + len <= text.len() {
                text.replace_range(from..from + len, "*");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::any_bytes;
    use tollgate_testkit::fuzzing::pseudo_random_bytes;

    #[test]
    fn i13_no_bytes_from_an_http_client_are_answered_other_than_by_hyper() {
        for seed in 0..64 {
            let bytes = pseudo_random_bytes(seed, 48);
            any_bytes(&bytes);
            // Small numbers select fragments.
            let pieces: Vec<u8> = bytes.iter().map(|byte| byte % 34).collect();
            any_bytes(&pieces);
        }
    }
}
