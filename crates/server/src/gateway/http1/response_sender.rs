//! Sends one response: the head and the first piece of the body in one write, then each piece when the one before is written.
//!
//! So a client that reads slowly holds one piece. Must not know: requests, where bodies come from.

use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use hyper::body::Body;
use hyper::{HeaderMap, Response};
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::response_head::{BodyFraming, BodyLen, HeadContext, write_head, write_trailers};

/// Room for most heads and short bodies.
const BUFFER_LEN: usize = 1_000;
/// A longer piece is not copied behind the head.
const COPIED_LEN: usize = 4 * 1_024;

/// A response that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    KeepAlive,
    /// The connection has to be closed.
    Last,
}

/// A response on its way to the client.
#[derive(Debug)]
pub(super) struct ResponseSender<B> {
    /// The fields of the head, for trailers.
    headers: HeaderMap,
    body: B,
    framing: BodyFraming,
    is_last: bool,
    /// Bytes before the piece, and how many of them are written.
    buffer: Vec<u8>,
    written: usize,
    /// The piece of the body that is not copied into the buffer, and bytes behind it.
    piece: Bytes,
    tail: &'static [u8],
    /// Whether the first piece was asked for.
    has_begun: bool,
    /// Whether the body has nothing more to send.
    is_ended: bool,
}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin> ResponseSender<B> {
    pub(super) fn new(response: Response<B>, is_head_request: bool, is_last: bool) -> Self {
        let (head, body) = response.into_parts();
        let mut buffer = Vec::with_capacity(BUFFER_LEN);
        let context = HeadContext {
            body: match (body.is_end_stream(), body.size_hint().exact()) {
                (true, _) | (_, Some(0)) => BodyLen::Empty,
                (false, Some(len)) => BodyLen::Known(len),
                (false, None) => BodyLen::Unknown,
            },
            is_head_request,
            is_last,
            now: Instant::now(),
        };
        let (framing, is_last) = write_head(head.status, &head.headers, context, &mut buffer);
        Self {
            headers: head.headers,
            body,
            framing,
            is_last,
            buffer,
            written: 0,
            piece: Bytes::new(),
            tail: b"",
            has_begun: false,
            is_ended: framing == BodyFraming::None,
        }
    }

    /// Writes what the socket takes. Ready when all is sent.
    pub(super) fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Sent>> {
        // The first piece goes with the head.
        if !self.has_begun && !self.is_ended {
            self.has_begun = true;
            let _is_pending = self.poll_piece(context)?;
        }
        loop {
            ready!(self.poll_write(stream, context))?;
            if self.is_ended {
                ready!(Pin::new(&mut *stream).poll_flush(context))?;
                return Poll::Ready(Ok(match self.is_last {
                    true => Sent::Last,
                    false => Sent::KeepAlive,
                }));
            }
            if self.poll_piece(context)?.is_pending() {
                // What was written has to leave before more of the body arrives.
                let _is_flushed = Pin::new(&mut *stream).poll_flush(context)?;
                return Poll::Pending;
            }
        }
    }

    /// Takes the next piece of the body.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(frame) => frame.map_err(io::Error::other)?,
            None => return Poll::Ready(self.end(None)),
        };
        let frame = match frame.into_data() {
            Ok(data) => {
                self.put(data)?;
                // The end goes with the last piece, unless trailers may follow.
                if self.body.is_end_stream() {
                    self.end(None)?;
                }
                return Poll::Ready(Ok(()));
            }
            Err(frame) => frame,
        };
        match frame.into_trailers() {
            Ok(trailers) => Poll::Ready(self.end(Some(&trailers))),
            Err(_unknown) => Poll::Ready(Ok(())),
        }
    }

    /// Frames a piece.
    fn put(&mut self, data: Bytes) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.framing {
            BodyFraming::None => return Ok(()),
            BodyFraming::Length(left) => {
                let len = u64::try_from(data.len()).unwrap_or(u64::MAX);
                *left = left.checked_sub(len).ok_or(io::ErrorKind::InvalidData)?;
            }
            BodyFraming::Chunked => {
                self.buffer
                    .extend_from_slice(format!("{:X}\r\n", data.len()).as_bytes());
                self.tail = b"\r\n";
            }
        }
        match data.len() <= COPIED_LEN {
            true => {
                self.buffer.extend_from_slice(&data);
                let tail = std::mem::take(&mut self.tail);
                self.buffer.extend_from_slice(tail);
            }
            false => self.piece = data,
        }
        Ok(())
    }

    /// Frames the end of the body.
    fn end(&mut self, trailers: Option<&HeaderMap>) -> io::Result<()> {
        match self.framing {
            BodyFraming::None | BodyFraming::Length(0) => {}
            BodyFraming::Length(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            BodyFraming::Chunked if self.piece.is_empty() => {
                self.buffer.extend_from_slice(b"0\r\n");
                if let Some(trailers) = trailers {
                    write_trailers(&self.headers, trailers, &mut self.buffer);
                }
                self.buffer.extend_from_slice(b"\r\n");
            }
            // There are no trailers: they come when the piece before is written.
            BodyFraming::Chunked => self.tail = b"\r\n0\r\n\r\n",
        }
        self.is_ended = true;
        Ok(())
    }

    /// Writes buffer, piece and tail.
    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let buffer = self.buffer.get(self.written..).unwrap_or_default();
            let parts = [buffer, &self.piece, self.tail];
            let sent = if self.piece.is_empty() && self.tail.is_empty() {
                if buffer.is_empty() {
                    self.buffer.clear();
                    self.written = 0;
                    return Poll::Ready(Ok(()));
                }
                ready!(Pin::new(&mut *stream).poll_write(context, buffer))?
            } else if stream.is_write_vectored() {
                let parts = parts.map(IoSlice::new);
                ready!(Pin::new(&mut *stream).poll_write_vectored(context, &parts))?
            } else {
                let first = parts.into_iter().find(|part| !part.is_empty());
                ready!(Pin::new(&mut *stream).poll_write(context, first.unwrap_or_default()))?
            };
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(sent);
        }
    }

    fn advance(&mut self, sent: usize) {
        let buffered = self.buffer.len().saturating_sub(self.written);
        self.written = self.written.saturating_add(sent.min(buffered));
        let sent = sent.saturating_sub(buffered);
        let of_piece = sent.min(self.piece.len());
        self.piece.advance(of_piece);
        let of_tail = sent.saturating_sub(of_piece);
        self.tail = self.tail.get(of_tail..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::poll_fn;

    use hyper::body::{Frame, SizeHint};
    use hyper::header::HeaderValue;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// A body of these pieces, which may know its length, and these trailers.
    #[derive(Clone, Default)]
    struct Pieces {
        pieces: VecDeque<Vec<u8>>,
        trailers: Option<HeaderMap>,
        knows_length: bool,
        /// Whether the next piece is ready only at the second poll.
        is_late: bool,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if std::mem::take(&mut self.is_late) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let piece = self
                .pieces
                .pop_front()
                .map(|piece| Frame::data(piece.into()));
            let frame = piece.or_else(|| self.trailers.take().map(Frame::trailers));
            Poll::Ready(frame.map(Ok))
        }

        fn is_end_stream(&self) -> bool {
            self.pieces.is_empty() && self.trailers.is_none()
        }

        fn size_hint(&self) -> SizeHint {
            let len: usize = self.pieces.iter().map(Vec::len).sum();
            match self.knows_length {
                true => SizeHint::with_exact(len as u64),
                false => SizeHint::default(),
            }
        }
    }

    fn response(status: u16, fields: &[(&'static str, &str)], body: &Pieces) -> Response<Pieces> {
        let mut response = Response::new(body.clone());
        *response.status_mut() = status.try_into().unwrap();
        for (name, value) in fields {
            let value = HeaderValue::from_str(value).unwrap();
            response.headers_mut().append(*name, value);
        }
        response
    }

    /// The status line, the sorted fields and the body.
    fn parts(bytes: &[u8]) -> (String, Vec<String>, Vec<u8>) {
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n").map(str::to_owned);
        let status = lines.next().unwrap();
        let mut fields: Vec<_> = lines
            // The clock moves between the two.
            .map(|line| match line.strip_prefix("date: ") {
                Some(date) if date.ends_with("GMT") => "date: now".to_owned(),
                _ => line,
            })
            .collect();
        fields.sort();
        (status, fields, bytes[end + 4..].to_vec())
    }

    async fn sent_by_hyper(method: &str, response: Response<Pieces>) -> Vec<u8> {
        let (mut client, server) = duplex(1 << 20);
        let request = format!("{method} / HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let response = std::sync::Mutex::new(Some(response));
        let service = service_fn(|_| {
            let response = response.lock().unwrap().take().unwrap();
            async { Ok::<_, Infallible>(response) }
        });
        let mut builder = http1::Builder::new();
        let serving = builder
            .half_close(true)
            .serve_connection(TokioIo::new(server), service);
        serving.await.unwrap();
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        bytes
    }

    async fn sent_by_us(method: &str, response: Response<Pieces>, room: usize) -> Vec<u8> {
        let (mut client, mut server) = duplex(room);
        let mut sender = ResponseSender::new(response, method == "HEAD", false);
        let sending = async {
            let sent = poll_fn(|context| sender.poll_send(&mut server, context)).await;
            assert_eq!(sent.unwrap(), Sent::KeepAlive);
            drop(server);
        };
        let mut bytes = Vec::new();
        let (_, read) = tokio::join!(sending, client.read_to_end(&mut bytes));
        read.unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_response_is_sent_as_hyper_sends_it() {
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "x-other", "content-type"] {
            trailers.append(name, HeaderValue::from_static("1"));
        }
        let long = vec![b'x'; 3 * COPIED_LEN];
        let mut bodies = Vec::new();
        for pieces in [
            vec![],
            vec![b"abc".to_vec()],
            vec![long.clone(), b"end".to_vec(), long],
        ] {
            for (knows_length, trailers) in
                [(true, None), (false, None), (false, Some(trailers.clone()))]
            {
                bodies.push(Pieces {
                    pieces: pieces.clone().into(),
                    trailers,
                    knows_length,
                    is_late: false,
                });
            }
        }
        for body in &bodies {
            let len: usize = body.pieces.iter().map(Vec::len).sum();
            let len = len.to_string();
            for fields in [
                &[][..],
                &[
                    ("x-a", "1"),
                    ("x-a", "2"),
                    ("date", "then"),
                    ("trailer", "X-Sum, content-type"),
                ],
                &[("content-length", &len)],
            ] {
                // A length and an unknown length do not come together from an upstream.
                if fields.len() == 1 && !body.knows_length {
                    continue;
                }
                for status in [200, 204, 304, 404, 429, 599] {
                    // hyper would send this length, which RFC 9110 forbids. The body of an upstream is empty then.
                    if fields.len() == 1 && len != "0" && matches!(status, 204 | 304) {
                        continue;
                    }
                    for method in ["GET", "HEAD"] {
                        let make = || response(status, fields, body);
                        let by_hyper = parts(&sent_by_hyper(method, make()).await);
                        for room in [1 << 20, 7] {
                            let by_us = parts(&sent_by_us(method, make(), room).await);
                            assert_eq!(by_us, by_hyper, "{method} {status} {fields:?} {len}");
                        }
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn a_head_does_not_wait_for_the_body_and_a_short_body_comes_with_it() {
        for is_late in [false, true] {
            let body = Pieces {
                pieces: [b"abc".to_vec()].into(),
                knows_length: true,
                is_late,
                ..Pieces::default()
            };
            let mut sender = ResponseSender::new(response(200, &[], &body), false, false);
            let mut written = WriteCounter::default();
            poll_fn(|context| sender.poll_send(&mut written, context))
                .await
                .unwrap();
            let lens: Vec<_> = written
                .0
                .iter()
                .map(|piece| piece.ends_with(b"abc"))
                .collect();
            assert_eq!(
                lens,
                if is_late {
                    vec![false, true]
                } else {
                    vec![true]
                }
            );
        }
    }

    #[tokio::test]
    async fn a_body_of_another_length_than_announced_ends_the_connection() {
        for (announced, pieces) in [(2_u64, [b"abc".to_vec()]), (5, [b"abc".to_vec()])] {
            let body = Pieces {
                pieces: pieces.into(),
                ..Pieces::default()
            };
            let mut sender = ResponseSender::new(response(200, &[], &body), false, false);
            sender.framing = BodyFraming::Length(announced);
            let mut written = WriteCounter::default();
            let sent = poll_fn(|context| sender.poll_send(&mut written, context)).await;
            assert!(sent.is_err(), "{announced}");
        }
    }

    #[tokio::test]
    async fn the_last_response_says_so() {
        let body = Pieces::default();
        let last = ResponseSender::new(response(200, &[], &body), false, true);
        let closing = response(200, &[("connection", "close")], &body);
        let by_field = ResponseSender::new(closing, false, false);
        for mut sender in [last, by_field] {
            let mut written = WriteCounter::default();
            let sent = poll_fn(|context| sender.poll_send(&mut written, context)).await;
            assert_eq!(sent.unwrap(), Sent::Last);
            let text = String::from_utf8(written.0.concat()).unwrap();
            assert_eq!(text.matches("connection: close\r\n").count(), 1, "{text}");
        }
    }

    /// Keeps each write.
    #[derive(Default)]
    struct WriteCounter(Vec<Vec<u8>>);

    impl AsyncWrite for WriteCounter {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}
