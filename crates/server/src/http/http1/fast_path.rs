//! Serving plain requests: all that has arrived is answered and sent in one write, until something arrives that is not plain.
//!
//! The buffers belong to the thread, not to the connection: one that waits holds none. Must not know: what is asked or
//! answered, what makes a request plain, sockets.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::Method;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, sleep};
use tollgate_core::Nanos;

use super::fast_parser::{RequestBounds, parse_request};
use super::idle::Idle;
use super::response_writer::write_response;
use crate::awaited::at_once;
use crate::counters::Counters;
use crate::http::Limits;
use crate::http::handler::{HttpHandler, HttpRequest, answer};
use crate::http::response::HttpResponse;
use crate::listen::{Peer, ShutdownOrTimeout, Stopping, send};
use tollgate_service::WaitPermit as Place;

/// What is read at once at most. A request that is longer is not plain.
const READ_LEN: usize = 32 * 1_024;
/// A buffer for answers that has grown beyond this is given back.
const KEPT_OUTPUT_LEN: usize = 256 * 1_024;

/// Serves plain requests until the connection is over, or something else has arrived: then the bytes of that.
pub(crate) async fn serve<A: HttpHandler, S: AsyncRead + AsyncWrite + Unpin>(
    limits: Limits,
    handler: &A,
    stream: &mut S,
    peer: &Peer,
    stopping: &Stopping,
) -> io::Result<Option<Vec<u8>>> {
    let (stopped, timer) = (pin!(stopping.wait()), pin!(sleep(limits.head)));
    let mut idle = Idle::new(
        ShutdownOrTimeout::new(stopping, stopped, timer),
        limits.head,
    );
    loop {
        let round = idle.until(|context| poll_round(context, handler, stream, peer));
        let Some(round) = round.await? else {
            return Ok(None);
        };
        if let Some(ended) = after(round, stream, handler.counters(), stopping).await? {
            return Ok(ended);
        }
        idle.again();
    }
}

/// What is left to do after a round. `Some` if the connection is to be served no more: nothing, or the bytes of what is not
/// plain.
pub(crate) async fn after<S: AsyncRead + AsyncWrite + Unpin>(
    round: Round,
    stream: &mut S,
    counters: &Counters,
    stopping: &Stopping,
) -> io::Result<Option<Option<Vec<u8>>>> {
    let more = match round.unsent {
        Some(unsent) => unsent.send(stream, counters).await?,
        None => Vec::new(),
    };
    Ok(match round.then {
        Then::Read if !more.is_empty() => Some(Some(more)),
        Then::Read if !stopping.is_said() => None,
        Then::Read | Then::End => Some(None),
        Then::Others(mut bytes) => {
            bytes.extend_from_slice(&more);
            Some(Some(bytes))
        }
    })
}

impl<A: HttpHandler> RequestBounds for A {
    fn max_body_len(&self, method: &Method, path: &str) -> usize {
        HttpHandler::max_body_len(self, method, path)
    }

    fn reads_headers(&self, path: &str) -> bool {
        HttpHandler::reads_headers(self, path)
    }
}

/// What came of what was read.
pub(crate) struct Round {
    unsent: Option<Box<Unsent>>,
    then: Then,
}

enum Then {
    Read,
    Others(Vec<u8>),
    End,
}

/// Responses that could not be sent at once.
pub(crate) struct Unsent {
    now: Vec<u8>,
    /// The last one is held back for so long.
    wait: Nanos,
    late: Vec<u8>,
    /// The place of whoever waits for it.
    _place: Option<Place>,
}

impl Round {
    const END: Self = Self {
        unsent: None,
        then: Then::End,
    };

    /// Requests were answered, and these bytes are left of what was read.
    pub(crate) fn then(rest: Vec<u8>, unsent: Option<Box<Unsent>>) -> Self {
        let then = if rest.is_empty() {
            Then::Read
        } else {
            Then::Others(rest)
        };
        Self { unsent, then }
    }
}

impl Unsent {
    /// What is to be sent at once, and what is to be held back.
    pub(crate) fn all(now: Vec<u8>, late: Option<Late>) -> Box<Self> {
        let Late { wait, bytes, place } = late.unwrap_or_default();
        Box::new(Self {
            now,
            wait,
            late: bytes,
            _place: place,
        })
    }

    /// Sends all of it, and answers what has arrived meanwhile.
    async fn send<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        counters: &Counters,
    ) -> io::Result<Vec<u8>> {
        let mut more = Vec::new();
        stream.write_all(&self.now).await?;
        if !self.wait.is_zero() {
            stream.flush().await?;
            let _held = counters.hold();
            hold(stream, self.wait, &mut more).await?;
            stream.write_all(&self.late).await?;
        }
        stream.flush().await?;
        Ok(more)
    }
}

/// Lets time pass, unless the client leaves: then nobody waits for the answer any more, and its place is another's. What
/// the client sends meanwhile is kept, as far as there is room for it.
async fn hold<S: AsyncRead + Unpin>(
    stream: &mut S,
    wait: Nanos,
    more: &mut Vec<u8>,
) -> io::Result<()> {
    let mut over = pin!(sleep(Duration::from_nanos(wait.as_nanos())));
    poll_fn(|context| {
        if over.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        while more.len() < READ_LEN {
            let mut room = [0; 1_024];
            let mut room = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut room))?;
            if room.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            more.extend_from_slice(room.filled());
        }
        Poll::Pending
    })
    .await
}

/// An answer that is to be held back.
#[derive(Default)]
pub(crate) struct Late {
    wait: Nanos,
    bytes: Vec<u8>,
    place: Option<Place>,
}

/// Buffers that whoever works on this thread may use until it waits.
struct Scratch {
    input: Box<[u8]>,
    output: Vec<u8>,
}

/// Hands over what has arrived; nothing at the end.
pub(crate) fn poll_read<T, S: AsyncRead + Unpin>(
    context: &mut Context<'_>,
    stream: &mut S,
    see: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    with_scratch(|Scratch { input, .. }| {
        let mut buffer = ReadBuf::new(input);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(see(buffer.filled())))
    })
}

/// Reads what has arrived and answers it at once.
fn poll_round<A: HttpHandler, S: AsyncRead + AsyncWrite + Unpin>(
    context: &mut Context<'_>,
    handler: &A,
    stream: &mut S,
    peer: &Peer,
) -> Poll<io::Result<Round>> {
    with_scratch(|Scratch { input, output }| {
        let mut buffer = ReadBuf::new(input);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
        let input = buffer.filled();
        if input.is_empty() {
            return Poll::Ready(Ok(Round::END));
        }
        output.clear();
        let answered = at_once(pin!(answer_all(handler, input, peer, output)));
        let Some((consumed, late)) = answered else {
            tracing::error!("an answer that is there at once was not");
            return Poll::Ready(Ok(Round::END));
        };
        let rest = input.get(consumed..).unwrap_or_default().to_vec();
        let sent = send(stream, context, output)?;
        let unsent = (!sent.is_gone || late.is_some()).then(|| {
            let now = output.get(sent.count..).unwrap_or_default();
            Unsent::all(now.to_vec(), late)
        });
        output.shrink_to(KEPT_OUTPUT_LEN);
        Poll::Ready(Ok(Round::then(rest, unsent)))
    })
}

/// Answers the plain requests that the input begins with, and says how many bytes that were. One whose answer is to be held
/// back is the last.
pub(crate) async fn answer_all<A: HttpHandler>(
    handler: &A,
    input: &[u8],
    peer: &Peer,
    out: &mut Vec<u8>,
) -> (usize, Option<Late>) {
    let mut consumed = 0_usize;
    let mut now = None;
    while let Some(rest @ [_, ..]) = input.get(consumed..)
        && let Some(request) = parse_request(rest, handler)
    {
        consumed = consumed.saturating_add(request.len);
        let request = HttpRequest {
            method: &request.method,
            path: request.path,
            query: request.query,
            headers: &request.headers,
            body: request.body,
            peer,
        };
        let mut reply = answer(handler, &request).await;
        let wait = reply.wait();
        let now = *now.get_or_insert_with(Instant::now);
        if wait.is_zero() {
            drop(write(&mut reply, now, out));
        } else {
            let mut bytes = Vec::new();
            let place = write(&mut reply, now, &mut bytes);
            return (consumed, Some(Late { wait, bytes, place }));
        }
    }
    (consumed, None)
}

/// Writes an answer. Whoever waits for it has a place until it is sent.
fn write(reply: &mut HttpResponse, now: Instant, out: &mut Vec<u8>) -> Option<Place> {
    let place = reply.take_place();
    write_response(reply, now, out);
    place
}

/// This thread's buffers. Nothing waits while it has them.
fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    thread_local! {
        static OWN: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
    }
    let mut scratch = OWN.take().unwrap_or_else(|| {
        Box::new(Scratch {
            input: vec![0; READ_LEN].into_boxed_slice(),
            output: Vec::with_capacity(READ_LEN),
        })
    });
    let done = work(&mut scratch);
    OWN.set(Some(scratch));
    done
}
