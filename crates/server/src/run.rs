//! Listening: accept, serve, and stop, each within bounds.
//!
//! Must not know: what is asked or answered.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tollgate_store::Clock;

use crate::app::{App, Question};
use crate::counters::count;
use crate::reply::Reply;
use crate::routes::most_body;

/// The largest request head, in bytes, and the most fields in it.
const MAX_HEAD_LEN: usize = 16_384;
const MAX_FIELDS: usize = 64;
/// How long to leave a listener alone that cannot accept: out of file descriptors, every attempt would fail at once.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a server allows its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections open at the same time. Further ones are closed at once.
    pub connections: usize,
    /// Time to send a request's head, counted from when the connection is ready for it; so also the time that a
    /// connection may be idle.
    pub head: Duration,
    /// Time to send a request's body.
    pub body: Duration,
    /// Time that connections have to finish when the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1_024,
            head: Duration::from_secs(5),
            body: Duration::from_secs(10),
            drain: Duration::from_secs(10),
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Connections that had not finished in time and were cut.
    pub cut: usize,
}

/// Serves `app` on `listener` until `shutdown` completes, then lets open connections finish. Never ends for any
/// other reason.
pub async fn run<C, S>(listener: TcpListener, app: Arc<App<C>>, shutdown: S) -> Ended
where
    C: Clock + 'static,
    S: Future<Output = ()>,
{
    run_with(Limits::default(), listener, app, shutdown).await
}

/// Like [`run`], with other limits than the default ones.
pub async fn run_with<C, S>(
    limits: Limits,
    listener: TcpListener,
    app: Arc<App<C>>,
    shutdown: S,
) -> Ended
where
    C: Clock + 'static,
    S: Future<Output = ()>,
{
    let mut shutdown = pin!(shutdown);
    let graceful = GracefulShutdown::new();
    // Tasks live in this set and nowhere else: none outlives the run, and none ends unseen.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => note(&app, &ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    while let Some(ended) = connections.try_join_next() {
                        note(&app, &ended);
                    }
                    if connections.len() >= limits.connections {
                        count(&app.counters().refused_connections);
                        drop(stream);
                    } else {
                        connections.spawn(serve(limits, stream, peer, Arc::clone(&app), &graceful));
                    }
                }
                Err(error) => {
                    count(&app.counters().accept_errors);
                    tracing::warn!(%error, "could not accept a connection");
                    if !is_about_one_connection(&error)
                        && timeout(ACCEPT_PAUSE, &mut shutdown).await.is_ok()
                    {
                        break;
                    }
                }
            },
        }
    }
    // From here on new connections are refused by the operating system, not left waiting.
    drop(listener);
    let drained = async {
        graceful.shutdown().await;
        while let Some(ended) = connections.join_next().await {
            note(&app, &ended);
        }
    };
    if timeout(limits.drain, drained).await.is_ok() {
        return Ended { cut: 0 };
    }
    let cut = connections.len();
    connections.shutdown().await;
    Ended { cut }
}

/// The whole life of one connection.
fn serve<C: Clock + 'static>(
    limits: Limits,
    stream: TcpStream,
    peer: SocketAddr,
    app: Arc<App<C>>,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + use<C> {
    // Answers are small and whole: waiting to fill a packet only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let local = stream.local_addr().unwrap_or(peer);
    let service = service_fn(move |request| {
        let app = Arc::clone(&app);
        async move {
            let reply = respond(limits, &app, request, peer, local).await;
            if !reply.wait().is_zero() {
                sleep(Duration::from_nanos(reply.wait().as_nanos())).await;
            }
            Ok::<_, Infallible>(reply.into_response())
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(MAX_HEAD_LEN)
        .max_headers(MAX_FIELDS)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    async move {
        if let Err(error) = connection.await {
            // The client's doing: it left, was too slow, or does not speak HTTP.
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

async fn respond<C: Clock>(
    limits: Limits,
    app: &App<C>,
    request: Request<Incoming>,
    peer: SocketAddr,
    local: SocketAddr,
) -> Reply {
    let (head, body) = request.into_parts();
    let body = match most_body(&head.method, head.uri.path()) {
        0 => Ok(Bytes::new()),
        most => read(limits, body, most).await,
    };
    let body = match body {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    let question = Question {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query().unwrap_or(""),
        headers: &head.headers,
        body: &body,
        peer: peer.ip(),
        local,
    };
    // A panic here is a bug of ours. It costs this request, not the process; state is safe to look at again because
    // the store writes it whole.
    catch_unwind(AssertUnwindSafe(|| app.answer(&question))).unwrap_or_else(|_panic| {
        count(&app.counters().panics);
        tracing::error!(path = head.uri.path(), "a request panicked");
        let detail = "the server failed to answer this request; it is not the request's fault";
        Reply::plain(StatusCode::INTERNAL_SERVER_ERROR, detail)
    })
}

/// The body, or the answer that says why it cannot be read.
async fn read(limits: Limits, body: Incoming, most: usize) -> Result<Bytes, Reply> {
    let too_long = || {
        let detail = format!("body: it is longer than {most} bytes");
        Reply::plain(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    // A declared length is believed before a byte is read, so that nobody sends what will be refused.
    if body.size_hint().lower() > most as u64 {
        return Err(too_long());
    }
    match timeout(limits.body, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(_)) => Err(Reply::plain(
            StatusCode::BAD_REQUEST,
            "body: it ended before it was complete",
        )),
        Err(_) => {
            let seconds = limits.body.as_secs();
            let detail = format!("body: it was not complete after {seconds} s");
            Err(Reply::plain(StatusCode::REQUEST_TIMEOUT, detail))
        }
    }
}

/// Errors of one connection that ended while it waited to be accepted. The next one may be taken at once.
pub(crate) fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Sees a connection's task end. A panic in it is counted, and ends nothing else.
fn note<C: Clock>(app: &App<C>, ended: &Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        count(&app.counters().panics);
        tracing::error!(%error, "a connection panicked");
    }
}
