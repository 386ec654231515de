//! The bytes of a client on the fast path: heads of plain requests, what arrives behind them, and whether the client has left.
//!
//! Between two requests it holds no buffer. Must not know: what requests ask for, responses.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::fast_parser::{ParsedHead, PlainRequest, parse_head};

/// The most bytes of one read, and about the most that are kept while a request is served. A longer head does not take the fast
/// path.
const READ_LEN: usize = 8 * 1_024;
/// The bytes that are read at a time while a request is served.
const EARLY_READ_LEN: usize = 1_024;

/// What has arrived.
#[expect(
    clippy::large_enum_variant,
    reason = "it is moved once, and a box would cost each request an allocation"
)]
pub(super) enum FastInput {
    Plain(PlainRequest),
    /// Something else, which is kept.
    NotPlain,
    /// The end of the stream.
    Closed,
}

/// The bytes that were read and belong to no request yet.
#[derive(Debug, Default)]
pub(super) struct UnreadInput(Vec<u8>);

impl UnreadInput {
    /// All bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The next head. One that has arrived in part is not plain: hyper waits for the rest of it.
    pub(super) fn poll_head<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<FastInput>> {
        if let Some(input) = self.take_head() {
            return Poll::Ready(Ok(input));
        }
        loop {
            let mut room = [MaybeUninit::uninit(); READ_LEN];
            let mut room = ReadBuf::uninit(&mut room);
            let read = Pin::new(&mut *stream).poll_read(context, &mut room);
            let input = match (read, self.0.is_empty()) {
                (Poll::Pending, true) => return Poll::Pending,
                (Poll::Pending, false) => FastInput::NotPlain,
                (Poll::Ready(Err(error)), _) => return Poll::Ready(Err(error)),
                (Poll::Ready(Ok(())), is_first) => match (room.filled(), is_first) {
                    ([], true) => FastInput::Closed,
                    ([], false) => FastInput::NotPlain,
                    (bytes, true) => match parse_head(bytes) {
                        ParsedHead::Plain(request, len) => {
                            self.0
                                .extend_from_slice(bytes.get(len..).unwrap_or_default());
                            FastInput::Plain(request)
                        }
                        ParsedHead::NotPlain => {
                            self.0.extend_from_slice(bytes);
                            FastInput::NotPlain
                        }
                        ParsedHead::Incomplete => {
                            self.0.extend_from_slice(bytes);
                            continue;
                        }
                    },
                    (bytes, false) => {
                        self.0.extend_from_slice(bytes);
                        match self.take_head() {
                            Some(input) => input,
                            None if self.0.len() >= READ_LEN => FastInput::NotPlain,
                            None => continue,
                        }
                    }
                },
            };
            return Poll::Ready(Ok(input));
        }
    }

    /// Takes the head at the start of the bytes. `None` if it is incomplete.
    fn take_head(&mut self) -> Option<FastInput> {
        if self.0.is_empty() {
            return None;
        }
        match parse_head(&self.0) {
            ParsedHead::Plain(request, len) => {
                match len == self.0.len() {
                    // An idle connection keeps no memory.
                    true => self.0 = Vec::new(),
                    false => drop(self.0.drain(..len)),
                }
                Some(FastInput::Plain(request))
            }
            ParsedHead::NotPlain => Some(FastInput::NotPlain),
            ParsedHead::Incomplete => None,
        }
    }

    /// Ready when the client has left. Call it while a request is served; a few of the bytes that arrive meanwhile are kept, the
    /// others are not read.
    pub(super) fn poll_client_gone<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Error> {
        while self.0.len() < READ_LEN {
            let mut room = [MaybeUninit::uninit(); EARLY_READ_LEN];
            let mut room = ReadBuf::uninit(&mut room);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut room)) {
                Err(error) => return Poll::Ready(error),
                Ok(()) if room.filled().is_empty() => {
                    return Poll::Ready(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(()) => self.0.extend_from_slice(room.filled()),
            }
        }
        Poll::Pending
    }
}
