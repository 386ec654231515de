//! Serves plain requests: answers all that have arrived in one write, until a request is not plain.
//!
//! A round is one read, the responses to it and one write. Without a fleet the responses are ready at the first poll, so a
//! round never waits. Must not know: endpoints, what makes a request plain, sockets.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::Method;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, sleep};
use tollgate_core::Nanos;

use super::buffers::{BufferOwnership, Buffers, KEPT_OUTPUT_LEN};
use super::fast_parser::{RequestBounds, parse_request};

use super::response_writer::write_response;
use crate::http::HttpLimits;
use crate::http::handler::{HttpHandler, HttpRequest, buffers_full, handle_or_500};
use crate::http::response::HttpResponse;
use crate::listen::counters::ListenerCounters;
use crate::listen::{
    BufferReservation, IdleConnection, Peer, SendProgress, ShutdownOrTimeout, ShutdownSignal,
    UNCOUNTED_LEN, send_available,
};
use tollgate_service::WaitPermit;

/// Replies of this many bytes are sent before more requests are answered.
const MAX_UNSENT_LEN: usize = KEPT_OUTPUT_LEN;
/// The most bytes that are read while a response is delayed. They are not counted in the buffer budget.
const MAX_EARLY_LEN: usize = UNCOUNTED_LEN;

/// Input for hyper, and the reservation of its bytes.
pub(super) type UnreadInput = (Vec<u8>, BufferReservation);

/// Serves plain requests until the connection ends. Returns the unread bytes when a request is not plain.
pub(super) async fn serve<A: HttpHandler, S: AsyncRead + AsyncWrite + Unpin>(
    limits: HttpLimits,
    handler: &A,
    stream: &mut S,
    peer: &Peer,
    stopping: &ShutdownSignal,
) -> io::Result<Option<UnreadInput>> {
    let (stopped, timer) = (pin!(stopping.wait()), pin!(sleep(limits.header_timeout)));
    let mut idle = IdleConnection::new(
        ShutdownOrTimeout::new(stopping, stopped, timer),
        limits.header_timeout,
    );
    // A connection that waits for a fleet needs its own buffers, as long as its input.
    let keep = match handler.has_fleet() {
        true => BufferOwnership::Copy,
        false => BufferOwnership::Thread,
    };
    let mut reserved = handler.reserve_buffers();
    loop {
        let arrived = idle.wait_for(|context| poll_read(context, stream, keep));
        let Some(Some(mut buffers)) = arrived.await? else {
            return Ok(None);
        };
        let (input, output) = buffers.split();
        if keep == BufferOwnership::Copy && reserved.resize(input.len()).is_err() {
            refuse(handler, stream, &reserved).await?;
            return Ok(None);
        }
        let (answered, sent) = answer_round(handler, stream, input, peer, output).await?;
        let AnsweredInput {
            consumed,
            delayed,
            is_closing,
        } = answered;
        let rest = input.get(consumed..).unwrap_or_default().to_vec();
        let now = output.get(sent.sent..).unwrap_or_default();
        let held = rest.len().saturating_add(now.len());
        let unsent = (!sent.is_flushed || delayed.is_some())
            .then(|| UnsentResponses::new(now.to_vec(), delayed));
        // Release the buffers before anything is awaited.
        drop(buffers);
        if reserved.resize(held).is_err() {
            if unsent.is_none() {
                refuse(handler, stream, &reserved).await?;
            } else {
                reserved.budget().record_refusal(handler.counters());
            }
            return Ok(None);
        }
        let more = match unsent {
            Some(mut unsent) => unsent.send(stream, handler.counters()).await?,
            None => Vec::new(),
        };
        if is_closing {
            return Ok(None);
        }
        if !rest.is_empty() || !more.is_empty() {
            return Ok(Some(([rest, more].concat(), reserved)));
        }
        if stopping.is_triggered() {
            return Ok(None);
        }
        idle.reset();
    }
}

/// Answers all plain requests of the input. When many replies are waiting, they are sent before more requests are answered: a
/// short request may have a long reply. Returns what was answered, and how much of the output was sent.
async fn answer_round<A: HttpHandler, S: AsyncWrite + Unpin>(
    handler: &A,
    stream: &mut S,
    input: &[u8],
    peer: &Peer,
    output: &mut Vec<u8>,
) -> io::Result<(AnsweredInput, SendProgress)> {
    let mut consumed = 0_usize;
    loop {
        let rest = input.get(consumed..).unwrap_or_default();
        let mut answered = answer_pipelined(handler, rest, peer, output).await;
        consumed = consumed.saturating_add(answered.consumed);
        answered.consumed = consumed;
        let sent = poll_fn(|context| Poll::Ready(send_available(stream, context, output))).await?;
        let is_last = answered.is_closing || answered.delayed.is_some();
        if output.len() < MAX_UNSENT_LEN || !sent.is_flushed || is_last {
            return Ok((answered, sent));
        }
        output.clear();
    }
}

/// Answers that there is no room for the request, as far as the socket takes it. The connection has to be closed then.
#[cold]
async fn refuse<A: HttpHandler, S: AsyncWrite + Unpin>(
    handler: &A,
    stream: &mut S,
    reserved: &BufferReservation,
) -> io::Result<()> {
    let reply = buffers_full(handler, reserved).with_header("connection", "close");
    let mut out = Vec::new();
    write_response(&reply, Instant::now(), &mut out);
    poll_fn(|context| Poll::Ready(send_available(stream, context, &out))).await?;
    stream.shutdown().await
}

impl<A: HttpHandler> RequestBounds for A {
    fn max_body_len(&self, method: &Method, path: &str) -> usize {
        HttpHandler::max_body_len(self, method, path)
    }

    fn reads_headers(&self, path: &str) -> bool {
        HttpHandler::reads_headers(self, path)
    }
}

/// Responses that could not be sent immediately.
struct UnsentResponses {
    now: Vec<u8>,
    /// The delay of the last response.
    wait: Nanos,
    delayed: Vec<u8>,
    /// The wait permit of the delayed response.
    wait_permit: Option<WaitPermit>,
}

impl UnsentResponses {
    /// Responses to send now, and a delayed response.
    fn new(now: Vec<u8>, delayed: Option<DelayedResponse>) -> Box<Self> {
        let DelayedResponse {
            wait,
            bytes,
            wait_permit,
        } = delayed.unwrap_or_default();
        Box::new(Self {
            now,
            wait,
            delayed: bytes,
            wait_permit,
        })
    }

    /// Sends everything and returns the bytes that arrived meanwhile.
    async fn send<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        counters: &ListenerCounters,
    ) -> io::Result<Vec<u8>> {
        let mut more = Vec::new();
        stream.write_all(&self.now).await?;
        if !self.wait.is_zero() {
            stream.flush().await?;
            let _held = counters.hold_response();
            wait_for_delay(stream, self.wait, &mut more).await?;
            if let Some(permit) = self.wait_permit.take() {
                permit.complete();
            }
            stream.write_all(&self.delayed).await?;
        }
        stream.flush().await?;
        Ok(more)
    }
}

/// Waits, unless the client disconnects; then its wait permit is released. A few of the bytes that arrive meanwhile are kept,
/// the others are not read.
async fn wait_for_delay<S: AsyncRead + Unpin>(
    stream: &mut S,
    wait: Nanos,
    more: &mut Vec<u8>,
) -> io::Result<()> {
    let mut over = pin!(sleep(Duration::from_nanos(wait.as_nanos())));
    poll_fn(|context| {
        if over.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        while more.len() < MAX_EARLY_LEN {
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

/// What [`answer_pipelined`] did.
struct AnsweredInput {
    /// The bytes of the answered requests.
    consumed: usize,
    delayed: Option<DelayedResponse>,
    /// Whether the last response closes the connection.
    is_closing: bool,
}

/// A response that is delayed.
#[derive(Default)]
struct DelayedResponse {
    wait: Nanos,
    bytes: Vec<u8>,
    wait_permit: Option<WaitPermit>,
}

/// Reads the bytes that have arrived. `None` at the end of the stream.
fn poll_read<S: AsyncRead + Unpin>(
    context: &mut Context<'_>,
    stream: &mut S,
    keep: BufferOwnership,
) -> Poll<io::Result<Option<Buffers>>> {
    let mut buffers = Buffers::take_from_thread();
    let mut free = ReadBuf::new(buffers.spare());
    ready!(Pin::new(&mut *stream).poll_read(context, &mut free))?;
    let filled = free.filled().len();
    Poll::Ready(Ok((filled > 0).then(|| buffers.with_filled(filled, keep))))
}

/// Answers the plain requests at the start of the input. It stops after a response that is delayed or closes the connection, and
/// when the replies are long.
async fn answer_pipelined<A: HttpHandler>(
    handler: &A,
    input: &[u8],
    peer: &Peer,
    out: &mut Vec<u8>,
) -> AnsweredInput {
    let mut answered = AnsweredInput {
        consumed: 0,
        delayed: None,
        is_closing: false,
    };
    let mut now = None;
    while out.len() < MAX_UNSENT_LEN
        && let Some(rest @ [_, ..]) = input.get(answered.consumed..)
        && let Some(request) = parse_request(rest, handler)
    {
        answered.consumed = answered.consumed.saturating_add(request.len);
        let request = HttpRequest {
            method: &request.method,
            path: request.path,
            query: request.query,
            headers: &request.headers,
            prefer: request.prefer,
            body: request.body,
            peer,
        };
        let mut reply = handle_or_500(handler, &request).await;
        let wait = reply.delay();
        let now = *now.get_or_insert_with(Instant::now);
        answered.is_closing = reply.is_closing();
        if wait.is_zero() {
            drop(write_and_take_permit(&mut reply, now, out));
        } else {
            let mut bytes = Vec::new();
            let wait_permit = write_and_take_permit(&mut reply, now, &mut bytes);
            answered.delayed = Some(DelayedResponse {
                wait,
                bytes,
                wait_permit,
            });
        }
        if answered.is_closing || answered.delayed.is_some() {
            break;
        }
    }
    answered
}

/// Writes a response and returns its wait permit, which has to live until the response is sent.
fn write_and_take_permit(
    reply: &mut HttpResponse,
    now: Instant,
    out: &mut Vec<u8>,
) -> Option<WaitPermit> {
    let wait_permit = reply.take_wait_permit();
    write_response(reply, now, out);
    wait_permit
}
