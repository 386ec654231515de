//! The body of a response: the frames that the layer has read, then the others.
//!
//! Must not know: why frames were read.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response. It is the inner one; of a refusal, the layer may have read the first frames.
    #[derive(Debug)]
    pub struct PacedBody<B> {
        read: VecDeque<Frame<Bytes>>,
        #[pin]
        inner: B,
    }
}

impl<B> PacedBody<B> {
    pub(super) const fn new(inner: B) -> Self {
        Self {
            read: VecDeque::new(),
            inner,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> PacedBody<B> {
    /// Reads the whole body if it has at most `max` bytes, and returns them. The frames stay in the body.
    pub(super) async fn peek(&mut self, max: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(Ok(frame)) = self.inner.frame().await {
            if let Some(data) = frame.data_ref() {
                bytes.extend_from_slice(data);
            }
            self.read.push_back(frame);
            if bytes.len() > max || self.read.len() > MAX_FRAMES {
                break;
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
        match this.read.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => this.inner.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.inner.is_end_stream()
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
