//! Takes the body of a response out of the bytes of HTTP/1.1: of a known length, in chunks, or up to the end of the connection.
//!
//! Must not know: connections, where bytes come from.

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::body::Frame;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::response_head::{BodyFraming, MalformedResponse};
use crate::gateway::limits::{MAX_FIELDS, MAX_HEAD_LEN};

/// The longest line with the size of a chunk, with its extensions.
const MAX_CHUNK_LINE: usize = 256;

/// What is left of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyDecoder {
    Length(u64),
    /// The line with the size of a chunk comes next.
    ChunkSize,
    /// So many bytes of a chunk come next.
    ChunkData(u64),
    /// The end of a line behind a chunk comes next.
    ChunkEnd,
    /// Trailers come next.
    Trailers,
    Close,
    Complete,
}

impl BodyDecoder {
    pub(super) const fn new(framing: BodyFraming) -> Self {
        match framing {
            BodyFraming::Length(0) => Self::Complete,
            BodyFraming::Length(length) => Self::Length(length),
            BodyFraming::Chunked => Self::ChunkSize,
            BodyFraming::Close => Self::Close,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        *self == Self::Complete
    }

    /// The bytes that are left, if that is known.
    pub(super) const fn remaining(&self) -> Option<u64> {
        match self {
            Self::Length(length) => Some(*length),
            Self::Complete => Some(0),
            _ => None,
        }
    }

    /// Takes the next part from the buffer. `None` if more bytes are needed, or the body is complete.
    pub(super) fn decode(
        &mut self,
        buffer: &mut BytesMut,
    ) -> Result<Option<Frame<Bytes>>, MalformedResponse> {
        loop {
            match self {
                Self::Complete => return Ok(None),
                Self::Close => return Ok(take(buffer, u64::MAX).map(|(data, _)| data)),
                Self::Length(left) => {
                    let Some((data, len)) = take(buffer, *left) else {
                        return Ok(None);
                    };
                    *self = match left.saturating_sub(len) {
                        0 => Self::Complete,
                        left => Self::Length(left),
                    };
                    return Ok(Some(data));
                }
                Self::ChunkData(left) => {
                    let Some((data, len)) = take(buffer, *left) else {
                        return Ok(None);
                    };
                    *self = match left.saturating_sub(len) {
                        0 => Self::ChunkEnd,
                        left => Self::ChunkData(left),
                    };
                    return Ok(Some(data));
                }
                Self::ChunkEnd => match buffer.get(..2) {
                    Some(b"\r\n") => {
                        buffer.advance(2);
                        *self = Self::ChunkSize;
                    }
                    Some(_) => return Err(MalformedResponse("a chunk is longer than its size")),
                    None => return Ok(None),
                },
                Self::ChunkSize => match take_chunk_size(buffer)? {
                    Some(0) => *self = Self::Trailers,
                    Some(size) => *self = Self::ChunkData(size),
                    None => return Ok(None),
                },
                Self::Trailers => {
                    let Some(trailers) = take_trailers(buffer)? else {
                        return Ok(None);
                    };
                    *self = Self::Complete;
                    return Ok((!trailers.is_empty()).then(|| Frame::trailers(trailers)));
                }
            }
        }
    }
}

/// Takes at most so many bytes, and says how many.
fn take(buffer: &mut BytesMut, most: u64) -> Option<(Frame<Bytes>, u64)> {
    if buffer.is_empty() {
        return None;
    }
    let len = usize::try_from(most)
        .unwrap_or(usize::MAX)
        .min(buffer.len());
    let data = buffer.split_to(len).freeze();
    Some((Frame::data(data), u64::try_from(len).unwrap_or(u64::MAX)))
}

/// Takes the line with the size of a chunk. Extensions are ignored.
fn take_chunk_size(buffer: &mut BytesMut) -> Result<Option<u64>, MalformedResponse> {
    let invalid = MalformedResponse("the size of a chunk is not valid");
    let start = buffer
        .get(..MAX_CHUNK_LINE)
        .unwrap_or_else(|| buffer.as_ref());
    let Some(end) = start.iter().position(|byte| *byte == b'\n') else {
        return match start.len() < MAX_CHUNK_LINE {
            true => Ok(None),
            false => Err(invalid),
        };
    };
    let line = start.get(..end).and_then(|line| line.strip_suffix(b"\r"));
    let line = line.ok_or(invalid)?;
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    // A control character in an extension could hide the end of a line from another reader.
    let is_hidden = line
        .iter()
        .any(|byte| byte.is_ascii_control() && *byte != b'\t');
    if is_hidden || digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(invalid);
    }
    let digits = std::str::from_utf8(digits).map_err(|_invalid| invalid)?;
    let size = u64::from_str_radix(digits, 16).map_err(|_too_large| invalid)?;
    buffer.advance(end.saturating_add(1));
    Ok(Some(size))
}

/// Takes the fields behind the last chunk.
fn take_trailers(buffer: &mut BytesMut) -> Result<Option<HeaderMap>, MalformedResponse> {
    let invalid = MalformedResponse("its trailers are not valid");
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let (len, fields) = match httparse::parse_headers(buffer, &mut fields) {
        Ok(httparse::Status::Complete(parsed)) => parsed,
        Ok(httparse::Status::Partial) if buffer.len() < MAX_HEAD_LEN => return Ok(None),
        _ => return Err(invalid),
    };
    let mut trailers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(invalid);
        };
        trailers.append(name, value);
    }
    buffer.advance(len);
    Ok(Some(trailers))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes bytes that arrive in two parts. Returns the data, the trailers and what is left behind the body.
    fn decode(
        framing: BodyFraming,
        text: &str,
        split: usize,
    ) -> Result<(String, Option<HeaderMap>, bool, String), MalformedResponse> {
        let (mut decoder, mut buffer) = (BodyDecoder::new(framing), BytesMut::new());
        let (mut data, mut trailers) = (Vec::new(), None);
        for part in [&text[..split], &text[split..]] {
            buffer.extend_from_slice(part.as_bytes());
            while let Some(frame) = decoder.decode(&mut buffer)? {
                match frame.into_data() {
                    Ok(bytes) => data.extend_from_slice(&bytes),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                }
            }
        }
        let (data, left) = (
            String::from_utf8(data).unwrap(),
            String::from_utf8(buffer.to_vec()).unwrap(),
        );
        Ok((data, trailers, decoder.is_complete(), left))
    }

    #[test]
    fn a_body_is_taken_wherever_its_bytes_are_split() {
        let chunked = "3\r\nabc\r\n0A;x=\"y\"\r\n0123456789\r\n0\r\nx-sum: 7\r\n\r\nnext";
        for split in 0..chunked.len() {
            let (data, trailers, is_complete, left) =
                decode(BodyFraming::Chunked, chunked, split).unwrap();
            assert_eq!(data, "abc0123456789");
            assert_eq!(trailers.unwrap()["x-sum"], "7");
            assert_eq!((is_complete, left.as_str()), (true, "next"));
            let length = decode(BodyFraming::Length(10), chunked, split).unwrap();
            assert_eq!((length.0.as_str(), length.2), (&chunked[..10], true));
            let close = decode(BodyFraming::Close, chunked, split).unwrap();
            assert_eq!((close.0.as_str(), close.2), (chunked, false));
        }
        let none = decode(BodyFraming::Chunked, "0\r\n\r\n", 0).unwrap();
        assert!(none.1.is_none() && none.2);
        assert!(BodyDecoder::new(BodyFraming::Length(0)).is_complete());
    }

    #[test]
    fn malformed_chunks_are_refused() {
        let long = format!("1;{}\r\na\r\n", "x".repeat(MAX_CHUNK_LINE));
        for text in [
            "3\r\nabcd\r\n",
            "3\nabc\r\n",
            "\r\nabc\r\n",
            "0x3\r\nabc\r\n",
            "-1\r\na\r\n",
            " 3\r\nabc\r\n",
            "3 \u{1}\r\nabc\r\n",
            "3;a\rb\r\nabc\r\n",
            "10000000000000000\r\na",
            "0\r\nx y: 1\r\n\r\n",
            &long,
        ] {
            for split in [0, 1, text.len()] {
                assert!(
                    decode(BodyFraming::Chunked, text, split).is_err(),
                    "{text:?}"
                );
            }
        }
    }
}
