//! The body of a response: the frames that the layer has read, then the others.
//!
//! Must not know: why frames were read.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response. It is the inner one; of a refusal, the layer may have read the first frames.
    #[derive(Debug)]
    pub struct PacedBody<B: Body> {
        read: VecDeque<Frame<Bytes>>,
        // The error after these frames. The reader of the body gets it.
        error: Option<B::Error>,
        #[pin]
        inner: B,
    }
}

impl<B: Body> PacedBody<B> {
    pub(crate) const fn new(inner: B) -> Self {
        Self {
            read: VecDeque::new(),
            error: None,
            inner,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> PacedBody<B> {
    /// Reads the whole body if it has at most `max` bytes and arrives before the alarm, and returns what it has read. The frames
    /// stay in the body.
    pub(crate) async fn peek(&mut self, max: usize, alarm: impl Future<Output = ()>) -> Vec<u8> {
        let mut alarm = pin!(alarm);
        let mut bytes = Vec::new();
        while bytes.len() <= max && self.read.len() <= MAX_FRAMES {
            let frame = poll_fn(
                |context| match Pin::new(&mut self.inner).poll_frame(context) {
                    Poll::Pending => alarm.as_mut().poll(context).map(|()| None),
                    frame => frame,
                },
            );
            match frame.await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        bytes.extend_from_slice(data);
                    }
                    self.read.push_back(frame);
                }
                Some(Err(error)) => {
                    self.error = Some(error);
                    break;
                }
                None => break,
            }
        }
        bytes
    }
}

/// A body in more frames is not that of a refusal.
const MAX_FRAMES: usize = 64;

impl<B: Body<Data = Bytes>> Body for PacedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if let Some(frame) = this.read.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        match this.error.take() {
            Some(error) => Poll::Ready(Some(Err(error))),
            None => this.inner.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.error.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self
            .read
            .iter()
            .filter_map(Frame::data_ref)
            .map(Bytes::len)
            .sum::<usize>();
        let read = u64::try_from(read).unwrap_or(u64::MAX);
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(read));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}
