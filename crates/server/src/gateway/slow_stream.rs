//! Ends a stream of HTTP/2 whose client takes the response too slowly.
//!
//! Each stream has a window. If a client opens none, nothing is written, so the write timeout of its connection does not run.
//! hyper takes one piece of a body ahead, and asks for the next one when the window has room: until then the client is awaited.
//! The stream and its body are polled by one task, which carries the state between them. Must not know: requests, upstreams.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Executor;

use super::stream_tasks::StreamTasks;
use crate::listen::{MIN_TRANSFER_RATE, TransferTimer};

tokio::task_local! {
    static WINDOW: StreamWindow;
}

/// What the client of a stream has taken of a body.
#[derive(Debug, Default)]
struct StreamWindow {
    /// The piece that hyper was given last, until it asks for the next one.
    handed_over: Cell<Option<usize>>,
    /// Bytes that were taken, and are not recorded by the timer.
    taken: Cell<usize>,
}

/// Records that hyper asks for a piece of a body: the client has taken the one before.
pub(super) fn record_taken() {
    // Without a task of a stream nobody looks.
    let _no_stream = WINDOW.try_with(|window| {
        let len = window.handed_over.take().unwrap_or(0);
        window.taken.set(window.taken.get().saturating_add(len));
    });
}

/// Records that hyper was given a piece of a body.
pub(super) fn record_handed_over(len: usize) {
    let _no_stream = WINDOW.try_with(|window| window.handed_over.set(Some(len)));
}

/// Runs the streams of a client, and ends those whose client takes nothing, or too little, for this long.
#[derive(Clone, Debug)]
pub(super) struct TimedStreams {
    pub(super) tasks: StreamTasks,
    pub(super) timeout: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for TimedStreams {
    fn execute(&self, stream: F) {
        let timed = run_timed(stream, self.timeout);
        self.tasks
            .execute(WINDOW.scope(StreamWindow::default(), timed));
    }
}

/// Runs a stream until it ends or its client is too slow. h2 resets a stream that is dropped when it has sent what it was given.
async fn run_timed(stream: impl Future<Output = ()>, timeout: Duration) {
    let mut stream = pin!(stream);
    let timer = TransferTimer::new(timeout, None);
    let mut timer = timer.with_min_rate(Some(MIN_TRANSFER_RATE));
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        WINDOW.with(|window| {
            let taken = window.taken.take();
            if taken > 0 {
                timer.record_progress(taken);
            }
            let Some(len) = window.handed_over.get() else {
                return Poll::Pending;
            };
            match timer.has_expired_for(len, context) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
    })
    .await;
}
