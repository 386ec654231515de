//! Connections in memory, with tokio's time paused.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use hyper::Request;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate_core::Nanos;

use super::call_buffers::ConnectionBuffers;
use super::connection::serve_connection;
use super::frame::encode_frame;
use super::limits::GrpcLimits;
use super::methods::{GrpcHandler, GrpcMethod, GrpcReply};
use super::status::{GrpcCode, GrpcStatus};
use crate::listen::{BufferBudget, ConnectionProgress, ShutdownTrigger};

const PATH: &str = "http://a/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Echoes the request, delayed by as many seconds as its first byte says.
struct Echo;

impl GrpcHandler for Echo {
    async fn handle(
        &self,
        _method: GrpcMethod,
        message: &[u8],
        _: bool,
    ) -> Result<GrpcReply, GrpcStatus> {
        let Some(seconds) = message.first() else {
            return Err(GrpcStatus::new(GrpcCode::InvalidArgument, "nothing"));
        };
        Ok(GrpcReply {
            message: encode_frame(|out| out.extend_from_slice(message)),
            delay: Nanos::from_secs((*seconds).into()),
            wait_permit: None,
        })
    }
}

struct RawConnection {
    client: DuplexStream,
    budget: Arc<BufferBudget>,
    stop: ShutdownTrigger,
    tasks: JoinSet<()>,
}

fn connect_raw() -> RawConnection {
    connect_with(BufferBudget::default())
}

fn connect_with(budget: BufferBudget) -> RawConnection {
    let budget = Arc::new(budget);
    let (client, server) = duplex(1 << 16);
    let (stop, stopping) = ShutdownTrigger::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_connection(
        server,
        Arc::new(Echo),
        ConnectionBuffers::new(&budget, &Arc::default()),
        GrpcLimits::default(),
        ConnectionProgress::default(),
        stopping,
    ));
    RawConnection {
        client,
        budget,
        stop,
        tasks,
    }
}

/// An HTTP/2 client, the shutdown trigger, and the tasks of both ends.
async fn connected() -> (SendRequest<Bytes>, ShutdownTrigger, JoinSet<()>) {
    connect_raw().handshake().await
}

impl RawConnection {
    async fn handshake(self) -> (SendRequest<Bytes>, ShutdownTrigger, JoinSet<()>) {
        let mut tasks = self.tasks;
        let (send, connection) = h2::client::handshake(self.client).await.unwrap();
        tasks.spawn(async move {
            let _ended = connection.await;
        });
        (send, self.stop, tasks)
    }
}

async fn begin(send: &SendRequest<Bytes>) -> (ResponseFuture, SendStream<Bytes>) {
    let request = Request::post(PATH).header("content-type", "application/grpc");
    let mut ready = send.clone().ready().await.unwrap();
    let sent = ready.send_request(request.body(()).unwrap(), false);
    sent.unwrap()
}

/// The reply and the status, which may be in the head.
async fn end(response: ResponseFuture) -> (Bytes, String) {
    let (head, mut body): (_, RecvStream) = response.await.unwrap().into_parts();
    let mut message = Vec::new();
    while let Some(bytes) = body.data().await {
        let bytes = bytes.unwrap();
        message.extend_from_slice(&bytes);
        body.flow_control().release_capacity(bytes.len()).unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or(head.headers);
    let status = trailers["grpc-status"].to_str().unwrap();
    (message.into(), status.to_owned())
}

fn request_message(seconds: u8) -> Bytes {
    encode_frame(|out| out.push(seconds))
}

#[tokio::test(start_paused = true)]
async fn only_a_reply_with_a_delay_is_delayed() {
    let (send, _stop, _tasks) = connected().await;
    let began = Instant::now();
    let (slow, mut body) = begin(&send).await;
    body.send_data(request_message(3), true).unwrap();
    let (quick, mut body) = begin(&send).await;
    body.send_data(request_message(0), true).unwrap();
    assert_eq!(end(quick).await, (request_message(0), "0".to_owned()));
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(end(slow).await, (request_message(3), "0".to_owned()));
    assert_eq!(began.elapsed().as_secs(), 3);
    // A delay of any length: replies were once sent after ten seconds at the latest, which used up quota promised to others.
    let (long, mut body) = begin(&send).await;
    body.send_data(request_message(200), true).unwrap();
    assert_eq!(end(long).await, (request_message(200), "0".to_owned()));
    assert_eq!(began.elapsed().as_secs(), 203);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_never_complete_fails_after_ten_seconds() {
    let (send, _stop, _tasks) = connected().await;
    let began = Instant::now();
    let (response, mut body) = begin(&send).await;
    body.send_data(request_message(0).slice(..3), false)
        .unwrap();
    assert_eq!(end(response).await, (Bytes::new(), "4".to_owned()));
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_fragmented_request_is_answered_and_a_cancelled_one_is_dropped() {
    let (send, stop, mut tasks) = connected().await;
    let (response, mut body) = begin(&send).await;
    for byte in request_message(0) {
        body.send_data(Bytes::copy_from_slice(&[byte]), false)
            .unwrap();
        tokio::task::yield_now().await;
    }
    body.send_data(Bytes::new(), true).unwrap();
    assert_eq!(end(response).await, (request_message(0), "0".to_owned()));
    let (response, mut body) = begin(&send).await;
    body.send_data(request_message(0).slice(..3), false)
        .unwrap();
    body.send_reset(h2::Reason::CANCEL);
    drop((response, body));
    // The cancelled call does not keep the connection open.
    let began = Instant::now();
    stop.trigger();
    drop(send);
    while tasks.join_next().await.is_some() {}
    assert_eq!(began.elapsed(), Duration::ZERO);
}

async fn until_used(budget: &BufferBudget, is_right: impl Fn(usize) -> bool) {
    let began = Instant::now();
    while !is_right(budget.used()) {
        assert!(began.elapsed().as_secs() < 5, "{}", budget.used());
        tokio::time::advance(Duration::from_millis(1)).await;
    }
}

/// A message with so many bytes, without its last byte.
fn all_but_one(len: usize) -> Bytes {
    let message = encode_frame(|out| out.extend(vec![0; len]));
    message.slice(..message.len() - 1)
}

#[tokio::test(start_paused = true)]
async fn i06_unfinished_messages_are_counted_refused_and_released() {
    let raw = connect_with(BufferBudget::new(130_000));
    let budget = Arc::clone(&raw.budget);
    let (send, _stop, tasks) = raw.handshake().await;
    let (first, mut first_body) = begin(&send).await;
    first_body.send_data(all_but_one(40_000), false).unwrap();
    until_used(&budget, |used| used >= 40_000).await;
    // A message that would not fit is refused by its declared length.
    let (refused, mut body) = begin(&send).await;
    body.send_data(all_but_one(60_000).slice(..5), false)
        .unwrap();
    assert_eq!(end(refused).await.1, "8", "resource exhausted");
    // Small calls are answered, also those that arrive in pieces.
    let (small, mut body) = begin(&send).await;
    body.send_data(request_message(0).slice(..3), false)
        .unwrap();
    tokio::task::yield_now().await;
    body.send_data(request_message(0).slice(3..), true).unwrap();
    assert_eq!(end(small).await.1, "0");
    // A message that is completed is answered, and its bytes are free.
    first_body
        .send_data(Bytes::from_static(&[0]), true)
        .unwrap();
    assert_eq!(end(first).await.1, "0");
    until_used(&budget, |used| used == 0).await;
    // So are those of a call that is cancelled, and of a client that leaves.
    for is_cancelled in [true, false] {
        let (response, mut body) = begin(&send).await;
        body.send_data(all_but_one(40_000), false).unwrap();
        until_used(&budget, |used| used >= 40_000).await;
        if is_cancelled {
            body.send_reset(h2::Reason::CANCEL);
            until_used(&budget, |used| used == 0).await;
        }
        drop(response);
    }
    drop((send, first_body, tasks));
    until_used(&budget, |used| used == 0).await;
}

/// Calls without a message cost memory too: a stream, a task and a timer each.
#[tokio::test(start_paused = true)]
async fn i06_calls_that_only_begin_are_counted() {
    let raw = connect_with(BufferBudget::new(60_000));
    let budget = Arc::clone(&raw.budget);
    let (send, _stop, _tasks) = raw.handshake().await;
    let mut calls = Vec::new();
    for _ in 0..58 {
        calls.push(begin(&send).await);
    }
    until_used(&budget, |used| used == 58 * 1_024).await;
    let (refused, _body) = begin(&send).await;
    assert_eq!(end(refused).await.1, "8");
    drop(calls);
    until_used(&budget, |used| used == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_preface_is_closed_after_five_seconds() {
    let mut connection = connect_raw();
    let began = Instant::now();
    let mut received = Vec::new();
    connection.client.read_to_end(&mut received).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_pinged_after_a_minute_and_closed_without_a_pong() {
    let (send, _stop, _tasks) = connected().await;
    // A client that answers pings stays connected.
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(61)).await;
        let (response, mut body) = begin(&send).await;
        body.send_data(request_message(0), true).unwrap();
        assert_eq!(end(response).await.1, "0");
    }
    // A client that does not is disconnected.
    let mut connection = connect_raw();
    let began = Instant::now();
    let beginning = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    connection.client.write_all(beginning).await.unwrap();
    let mut received = Vec::new();
    connection.client.read_to_end(&mut received).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 80);
}

/// Counts the writes of the server, each of which would be a system call.
struct CountedWrites {
    stream: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl AsyncRead for CountedWrites {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for CountedWrites {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Each answer was a write of its own, and each payload above 256 bytes a second one, so that the system calls cost more than the
/// decisions.
#[tokio::test(start_paused = true)]
async fn calls_of_one_packet_are_answered_with_one_write() {
    let (client, stream) = duplex(1 << 20);
    let writes = Arc::new(AtomicUsize::new(0));
    let (_stop, stopping) = ShutdownTrigger::new();
    let mut tasks = JoinSet::new();
    let counted = CountedWrites {
        stream,
        writes: Arc::clone(&writes),
    };
    let limits = GrpcLimits::default();
    let buffers = ConnectionBuffers::new(&Arc::default(), &Arc::default());
    let (echo, progress) = (Arc::new(Echo), ConnectionProgress::default());
    tasks.spawn(serve_connection(
        counted, echo, buffers, limits, progress, stopping,
    ));
    let (send, connection) = h2::client::handshake(client).await.unwrap();
    tasks.spawn(async move {
        let _ended = connection.await;
    });
    for size in [1, 300, 600] {
        let message = encode_frame(|out| out.resize(out.len() + size, 0));
        let mut responses = Vec::new();
        for _ in 0..50 {
            let (response, mut body) = begin(&send).await;
            body.send_data(message.clone(), true).unwrap();
            responses.push(response);
        }
        let before = writes.load(Ordering::Relaxed);
        for response in responses {
            assert_eq!(end(response).await, (message.clone(), "0".to_owned()));
        }
        let count = writes.load(Ordering::Relaxed) - before;
        // The client may send the calls in a few packets, and raises the window in between.
        assert!(count <= 10, "{count} writes for 50 answers of {size} bytes");
    }
}
