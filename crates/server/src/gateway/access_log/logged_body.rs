//! The body of a response whose request is logged: it counts the bytes and ends the record.
//!
//! Must not know: formats, where bodies come from.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::RequestRecord;

/// A body with the record of its request, if requests are logged.
#[derive(Debug)]
pub(in crate::gateway) struct LoggedBody<B> {
    body: B,
    record: Option<Box<RequestRecord>>,
}

impl<B: Body> LoggedBody<B> {
    pub(in crate::gateway) fn new(body: B, mut record: Option<Box<RequestRecord>>) -> Self {
        // Nobody polls a body that is empty from the start.
        if let Some(record) = &mut record
            && body.is_end_stream()
        {
            record.set_complete();
        }
        Self { body, record }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for LoggedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let Some(record) = &mut this.record {
            match &frame {
                Some(Ok(frame)) => {
                    let len = frame.data_ref().map_or(0, Bytes::len);
                    record.add_body_len(len as u64);
                    if this.body.is_end_stream() {
                        record.set_complete();
                    }
                }
                Some(Err(_)) => {}
                None => record.set_complete(),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
