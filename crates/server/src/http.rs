//! Speaking HTTP/1 on a connection: read a request within bounds, have it answered, and send the answer. Plain requests go
//! the short way of `brisk.rs`; whatever else arrives is hyper's.
//!
//! Must not know: what is asked or answered, sockets.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{sleep, timeout};

use crate::awaited::guarded;
use crate::brisk;
use crate::counters::{Counters, count};
use crate::listen::{Bounds, Ended, Listener, Peer, Rewound, Serve, Stopping, Stream, accept};
use crate::patient;
use crate::plain::{MAX_FIELDS, MAX_HEAD_LEN, Wants};
use crate::reply::Reply;

/// One request, read in full.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// Who asks, and where they reached us.
    pub(crate) peer: &'a Peer,
}

/// Whoever answers requests: the API, or the admin pages.
pub(crate) trait Answers: Send + Sync + 'static {
    /// The longest body that is read of such a request. None is read where none is wanted.
    fn most_body(&self, method: &Method, path: &str) -> usize;

    /// Whether the answer at this path depends on header fields. Where it does not, none need be shown.
    fn wants_fields(&self, path: &str) -> bool {
        let _any = path;
        true
    }

    /// Whether answers may have to be waited for. Where they need not, each is there when it is first looked at.
    fn waits(&self) -> bool {
        false
    }

    fn answer(&self, question: &Question<'_>) -> impl Future<Output = Reply> + Send;

    fn counters(&self) -> &Counters;
}

/// What a server allows HTTP clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// What its listener allows.
    pub bounds: Bounds,
    /// Time to send a request's head, counted from when the connection is ready for it; so also the time that a
    /// connection may be idle.
    pub head: Duration,
    /// Time to send a request's body.
    pub body: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            head: Duration::from_secs(5),
            body: Duration::from_secs(10),
        }
    }
}

/// Has `answers` answer whoever comes to `listener`, until `shutdown` completes.
pub(crate) async fn run<A: Answers>(
    limits: Limits,
    listener: Listener,
    answers: Arc<A>,
    shutdown: impl Future<Output = ()>,
) -> Ended {
    let http = Arc::new(Http { limits, answers });
    accept(listener, http, limits.bounds, shutdown).await
}

/// HTTP/1 with somebody who answers.
struct Http<A> {
    limits: Limits,
    answers: Arc<A>,
}

impl<A: Answers> Wants for A {
    fn most_body(&self, method: &Method, path: &str) -> usize {
        Answers::most_body(self, method, path)
    }

    fn wants_fields(&self, path: &str) -> bool {
        Answers::wants_fields(self, path)
    }
}

impl<A: Answers> Serve for Http<A> {
    fn serve(
        &self,
        mut stream: Stream,
        peer: Peer,
        stopping: Stopping,
    ) -> impl Future<Output = ()> + Send + 'static {
        let limits = self.limits;
        let answers = Arc::clone(&self.answers);
        async move {
            let served = if answers.waits() {
                // In a box, so that connections of those who wait for nobody are small.
                let served = patient::serve(limits, &*answers, &mut stream, &peer, &stopping);
                Box::pin(served).await
            } else {
                brisk::serve(limits, &*answers, &mut stream, &peer, &stopping).await
            };
            match served {
                Ok(None) => {}
                // In a box, so that the many connections that never come here are small.
                Ok(Some(begun)) => {
                    let stream = Rewound::new(begun, stream);
                    Box::pin(by_hyper(limits, answers, stream, peer, stopping)).await;
                }
                // The client's doing: it left without a word.
                Err(error) => tracing::debug!(%error, "a connection ended early"),
            }
        }
    }

    fn counters(&self) -> &Counters {
        self.answers.counters()
    }
}

/// The rest of a connection's life, whatever HTTP/1 may bring.
async fn by_hyper<A: Answers>(
    limits: Limits,
    answers: Arc<A>,
    stream: Rewound,
    peer: Peer,
    stopping: Stopping,
) {
    let peer = Arc::new(peer);
    let service = service_fn(move |request| {
        let (answers, peer) = (Arc::clone(&answers), Arc::clone(&peer));
        async move {
            let reply = respond(limits, &*answers, request, &peer).await;
            if !reply.wait().is_zero() {
                let _held = answers.counters().hold();
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
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = stopping.wait() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // The client's doing: it left, was too slow, or does not speak HTTP.
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn respond<A: Answers>(
    limits: Limits,
    answers: &A,
    request: Request<Incoming>,
    peer: &Peer,
) -> Reply {
    let (head, body) = request.into_parts();
    let body = match answers.most_body(&head.method, head.uri.path()) {
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
        peer,
    };
    answer(answers, &question).await
}

/// The answer, whatever happens.
pub(crate) async fn answer<A: Answers>(answers: &A, question: &Question<'_>) -> Reply {
    match guarded(answers.answer(question)).await {
        Some(reply) => reply,
        None => failed(answers, question),
    }
}

/// What is answered because of a bug of ours.
#[cold]
fn failed<A: Answers>(answers: &A, question: &Question<'_>) -> Reply {
    count(&answers.counters().panics);
    tracing::error!(path = question.path, "a request panicked");
    let detail = "the server failed to answer this request; it is not the request's fault";
    Reply::plain(StatusCode::INTERNAL_SERVER_ERROR, detail)
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
