//! One HTTP/2 connection and its calls.
//!
//! Calls are answered as they are read, and the answers to all calls of one read are written at once (`gathered_stream.rs`). Must
//! not know: services, sockets.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, Connection as Http2};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::call::{Call, CallProgress, finish_call};
use super::call_buffers::{CallBuffers, ConnectionBuffers};
use super::frame_guard::{FloodSignal, FrameGuard};
use super::gathered_stream::{GatheredStream, TurnHandle};
use super::keep_alive::KeepAlive;
use super::limits::GrpcLimits;
use super::methods::GrpcHandler;
use super::streams;
use crate::listen::counters::increment;
use crate::listen::{ConnectionProgress, ShutdownSignal, confirmed_timeout};

/// Bytes of requests that a connection may have sent without being answered. Two of the longest messages fit.
const CONNECTION_WINDOW: u32 = 262_144;
/// Limits on calls that the client resets before we read them, and on streams with protocol errors. Exceeding them ends the
/// connection, against rapid-reset attacks.
const MAX_RESET_STREAMS: usize = 64;
const MAX_ERROR_RESETS: usize = 128;
/// Bytes of replies that are buffered until the client reads them.
const MAX_SEND_BUFFER: usize = 262_144;
/// Streaming calls on one connection: health watches, reflection and quota streams.
const MAX_STREAMING_CALLS: usize = 16;

/// Serves one connection until it ends.
pub(super) async fn serve_connection<T, S>(
    io: T,
    service: Arc<S>,
    buffers: Arc<ConnectionBuffers>,
    limits: GrpcLimits,
    progress: ConnectionProgress,
    stopping: ShutdownSignal,
) where
    T: AsyncRead + AsyncWrite + Unpin,
    S: GrpcHandler,
{
    let (gathered, turns) = GatheredStream::new(io);
    let flood = FloodSignal::default();
    let guarded = FrameGuard::new(gathered, flood.clone());
    let handshake = http2_builder(&limits).handshake(guarded);
    let Ok(Ok(mut http2)) = confirmed_timeout(limits.preface_timeout, handshake).await else {
        tracing::debug!("HTTP/2 handshake failed");
        return;
    };
    let keep_alive = http2
        .ping_pong()
        .map(|pings| KeepAlive::new(pings, &limits));
    let mut stop = pin!(stopping.wait());
    let mut connection = GrpcConnection {
        http2,
        turns,
        keep_alive,
        unfinished: JoinSet::new(),
        streams: JoinSet::new(),
        service,
        flood,
        unsent: CallBuffers::new(Arc::clone(&buffers)),
        buffers,
        limits,
        progress,
        stopping,
        is_stopping: false,
        is_cut: false,
    };
    poll_fn(|context| connection.poll_turn(context, stop.as_mut())).await;
}

fn http2_builder(limits: &GrpcLimits) -> Builder {
    let mut builder = Builder::new();
    // A message has to fit into the window of its stream, which is released only when the call ends.
    let window = u32::try_from(limits.max_message_len).unwrap_or(CONNECTION_WINDOW);
    let window = window.saturating_add(1_024).min(CONNECTION_WINDOW);
    builder
        .initial_window_size(window)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(limits.max_concurrent_streams)
        .max_header_list_size(limits.max_header_list_len)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_concurrent_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(Some(MAX_ERROR_RESETS))
        .max_send_buffer_size(MAX_SEND_BUFFER);
    builder
}

struct GrpcConnection<T, S> {
    http2: Http2<FrameGuard<GatheredStream<T>>, Bytes>,
    turns: TurnHandle<T>,
    keep_alive: Option<KeepAlive>,
    /// Calls that could not be answered immediately, bounded by the concurrent streams of the connection, and streaming calls.
    unfinished: JoinSet<()>,
    streams: JoinSet<()>,
    service: Arc<S>,
    flood: FloodSignal,
    buffers: Arc<ConnectionBuffers>,
    /// The reservation of answers that the client has not read.
    unsent: CallBuffers,
    limits: GrpcLimits,
    progress: ConnectionProgress,
    stopping: ShutdownSignal,
    is_stopping: bool,
    /// Whether it is being closed because of a flood.
    is_cut: bool,
}

impl<T, S> GrpcConnection<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: GrpcHandler,
{
    /// Answers what has arrived, with one write. Ready when the connection ends.
    fn poll_turn(&mut self, context: &mut Context<'_>, stop: Pin<&mut impl Future>) -> Poll<()> {
        self.turns.begin();
        let polled = self.poll(context, stop);
        match self.turns.end(context) {
            Ok(unsent) => {
                // A client that does not read holds its answers in memory.
                if unsent != self.unsent.held() && self.unsent.resize(unsent, 0).is_err() {
                    return Poll::Ready(());
                }
                polled
            }
            Err(error) => {
                tracing::debug!(%error, "connection ended early");
                Poll::Ready(())
            }
        }
    }

    /// Ready when the connection ends.
    fn poll(&mut self, context: &mut Context<'_>, stop: Pin<&mut impl Future>) -> Poll<()> {
        if !self.is_stopping && stop.poll(context).is_ready() {
            self.is_stopping = true;
            self.http2.graceful_shutdown();
        }
        while let Poll::Ready(Some(_)) = self.unfinished.poll_join_next(context) {}
        while let Poll::Ready(Some(_)) = self.streams.poll_join_next(context) {}
        loop {
            match self.http2.poll_accept(context) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.progress.mark_established();
                    if let Some(call) = Call::begin(request, respond, &self.limits, &self.buffers) {
                        self.start_call(call, context);
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    // The client caused this: it disconnected, or does not speak HTTP/2.
                    tracing::debug!(%error, "connection ended early");
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending if self.flood.is_set() && !self.is_cut => self.cut(),
                Poll::Pending => break,
            }
        }
        match &mut self.keep_alive {
            Some(keep_alive) => keep_alive.poll(context, &self.limits),
            None => Poll::Pending,
        }
    }

    /// Closes the connection because the client floods it with frames.
    #[cold]
    fn cut(&mut self) {
        self.is_cut = true;
        increment(&self.buffers.counters().floods);
        tracing::debug!("connection closed: too many HTTP/2 frames that ask for nothing");
        self.http2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    }

    fn start_call(&mut self, call: Call, context: &mut Context<'_>) {
        if call.method().is_stream() {
            if self.streams.len() >= MAX_STREAMING_CALLS {
                return call.reject("there are too many streams on this connection");
            }
            let service = Arc::clone(&self.service);
            let stream = streams::serve(call, service, self.limits, self.stopping.clone());
            self.streams.spawn(stream);
            return;
        }
        match call.advance(context, &self.service, &self.stopping) {
            CallProgress::Done => {}
            step => {
                let service = Arc::clone(&self.service);
                let rest = finish_call(step, self.limits, service, self.stopping.clone());
                self.unfinished.spawn(rest);
            }
        }
    }
}
