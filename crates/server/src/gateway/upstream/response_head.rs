//! The head of a response, read from the bytes of HTTP/1.1, and how its body is framed.
//!
//! Where RFC 9112 lets a recipient repair conflicting framing, this refuses it: an upstream that sends it is broken, and the client
//! must not get a response that the next one might continue. Must not know: connections, pools.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use hyper::{Method, StatusCode, Version};

use crate::gateway::limits::{MAX_FIELDS, MAX_HEAD_LEN};

/// Room for the fields that the gateway and its limits add.
const ADDED_FIELDS: usize = 8;

/// Why a response is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct MalformedResponse(pub(super) &'static str);

impl std::fmt::Display for MalformedResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// The head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    pub(super) framing: BodyFraming,
    /// Whether the connection can be used again after the body.
    pub(super) is_reusable: bool,
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    Length(u64),
    Chunked,
    /// With the connection.
    Close,
}

/// Takes the head from the front of the buffer. Returns `None` while it is incomplete.
pub(super) fn take_response_head(
    buffer: &mut BytesMut,
    method: &Method,
) -> Result<Option<ResponseHead>, MalformedResponse> {
    if buffer.is_empty() {
        return Ok(None);
    }
    let mut room = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let len = match config.parse_response_with_uninit_headers(&mut parsed, buffer, &mut room) {
        Ok(httparse::Status::Complete(len)) if len <= MAX_HEAD_LEN => len,
        Ok(httparse::Status::Partial) if buffer.len() < MAX_HEAD_LEN => return Ok(None),
        Ok(_) => return Err(MalformedResponse("its head is too long")),
        Err(_invalid) => return Err(MalformedResponse("its head is not HTTP/1.1")),
    };
    let status = parsed
        .code
        .and_then(|code| StatusCode::from_u16(code).ok())
        .ok_or(MalformedResponse("its status is not a number"))?;
    let version = match parsed.version {
        Some(1) => Version::HTTP_11,
        _ => Version::HTTP_10,
    };
    // Positions, so that values can share the bytes that are taken from the buffer.
    let start = buffer.as_ptr().addr();
    let position = |part: &[u8]| match part {
        [] => 0..0,
        part => {
            let at = part.as_ptr().addr().saturating_sub(start);
            at..at.saturating_add(part.len())
        }
    };
    let mut fields = Vec::with_capacity(parsed.headers.len());
    for field in parsed.headers.iter() {
        fields.push((position(field.name.as_bytes()), position(field.value)));
    }
    let bytes = buffer.split_to(len).freeze();
    let mut headers = HeaderMap::with_capacity(fields.len().saturating_add(ADDED_FIELDS));
    for (name, value) in fields {
        let (name, value) = take_field(&bytes, name, value)?;
        headers.append(name, value);
    }
    let framing = body_framing(method, status, version, &headers)?;
    let is_reusable =
        version == Version::HTTP_11 && framing != BodyFraming::Close && !closes(&headers);
    Ok(Some(ResponseHead {
        status,
        version,
        headers,
        framing,
        is_reusable,
    }))
}

fn take_field(
    bytes: &Bytes,
    name: Range<usize>,
    value: Range<usize>,
) -> Result<(HeaderName, HeaderValue), MalformedResponse> {
    let invalid = MalformedResponse("a field is not valid");
    let name = bytes.get(name).ok_or(invalid)?;
    let name = HeaderName::from_bytes(name).map_err(|_invalid| invalid)?;
    if bytes.get(value.clone()).is_none() {
        return Err(invalid);
    }
    let value = HeaderValue::from_maybe_shared(bytes.slice(value));
    Ok((name, value.map_err(|_invalid| invalid)?))
}

/// How the body is framed (RFC 9112, section 6.3).
pub(super) fn body_framing(
    method: &Method,
    status: StatusCode,
    version: Version,
    headers: &HeaderMap,
) -> Result<BodyFraming, MalformedResponse> {
    let length = content_length(headers)?;
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next();
    let is_without_body = *method == Method::HEAD
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || status.is_informational();
    match (coding, length) {
        (Some(_), Some(_)) => Err(MalformedResponse("it has a length and a transfer coding")),
        (Some(_), None) if is_without_body => Ok(BodyFraming::Length(0)),
        (Some(coding), None) => {
            let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
            match is_chunked && codings.next().is_none() && version == Version::HTTP_11 {
                true => Ok(BodyFraming::Chunked),
                false => Err(MalformedResponse("its transfer coding is not chunked")),
            }
        }
        (None, _) if is_without_body => Ok(BodyFraming::Length(0)),
        (None, Some(length)) => Ok(BodyFraming::Length(length)),
        (None, None) => Ok(BodyFraming::Close),
    }
}

/// The length, which all fields must agree on.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, MalformedResponse> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter().map(|value| {
        let digits = value.as_bytes();
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let number = value.to_str().ok().filter(|_| is_number);
        number.and_then(|number| number.parse::<u64>().ok())
    });
    let invalid = MalformedResponse("its length is not one number");
    let Some(first) = lengths.next() else {
        return Ok(None);
    };
    let first = first.ok_or(invalid)?;
    match lengths.all(|other| other == Some(first)) {
        true => Ok(Some(first)),
        false => Err(invalid),
    }
}

fn closes(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONNECTION).iter();
    let mut options = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(method: &Method, text: &str) -> Result<Option<ResponseHead>, MalformedResponse> {
        take_response_head(&mut BytesMut::from(text), method)
    }

    fn framing(method: &Method, fields: &str) -> Result<(BodyFraming, bool), MalformedResponse> {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let head = taken(method, &text)?.unwrap();
        Ok((head.framing, head.is_reusable))
    }

    #[test]
    fn a_head_is_taken_when_it_is_complete() {
        let text =
            "HTTP/1.1 404 \r\nX-A: 1\r\nx-a:  b c \r\nx-empty:\r\ncontent-length: 3\r\n\r\nabc";
        for len in 0..text.len() - 3 {
            let mut buffer = BytesMut::from(&text[..len]);
            assert!(
                take_response_head(&mut buffer, &Method::GET)
                    .unwrap()
                    .is_none()
            );
            assert_eq!(buffer.len(), len, "nothing is taken");
        }
        let mut buffer = BytesMut::from(text);
        let head = take_response_head(&mut buffer, &Method::GET)
            .unwrap()
            .unwrap();
        assert_eq!((head.status.as_u16(), &buffer[..]), (404, &b"abc"[..]));
        let values: Vec<_> = head.headers.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "b c"]);
        assert_eq!(head.headers["x-empty"], "");
        assert_eq!(head.framing, BodyFraming::Length(3));
    }

    #[test]
    fn a_body_ends_where_the_fields_say() {
        let get = Method::GET;
        for (fields, expected) in [
            ("content-length: 7\r\n", (BodyFraming::Length(7), true)),
            (
                "content-length: 7\r\ncontent-length: 7\r\n",
                (BodyFraming::Length(7), true),
            ),
            (
                "content-length: 7\r\nconnection: x, Close\r\n",
                (BodyFraming::Length(7), false),
            ),
            (
                "transfer-encoding: Chunked\r\n",
                (BodyFraming::Chunked, true),
            ),
            ("", (BodyFraming::Close, false)),
        ] {
            assert_eq!(framing(&get, fields), Ok(expected), "{fields}");
        }
        let head = framing(&Method::HEAD, "content-length: 7\r\n");
        assert_eq!(head, Ok((BodyFraming::Length(0), true)));
        for status in ["204", "304"] {
            let text = format!("HTTP/1.1 {status} x\r\ntransfer-encoding: chunked\r\n\r\n");
            let head = taken(&get, &text).unwrap().unwrap();
            assert_eq!(head.framing, BodyFraming::Length(0));
        }
        let old = taken(&get, "HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n");
        assert!(!old.unwrap().unwrap().is_reusable);
    }

    #[test]
    fn framing_that_can_be_read_in_two_ways_is_refused() {
        for fields in [
            "content-length: 7\r\ncontent-length: 8\r\n",
            "content-length: 7, 7\r\n",
            "content-length: +7\r\n",
            "content-length: \r\n",
            "content-length: 99999999999999999999\r\n",
            "content-length: 7\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: identity\r\n",
            "x y: 1\r\n",
            "x : 1\r\n",
            "x: 1\r\n folded\r\n",
        ] {
            assert!(framing(&Method::GET, fields).is_err(), "{fields}");
        }
        let old = "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert!(taken(&Method::GET, old).is_err());
        assert!(taken(&Method::GET, "HTTP/2 200\r\n\r\n").is_err());
    }

    #[test]
    fn heads_are_bounded() {
        let many = "x: 1\r\n".repeat(MAX_FIELDS + 1);
        assert!(framing(&Method::GET, &many).is_err());
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "a".repeat(MAX_HEAD_LEN));
        assert!(taken(&Method::GET, &long).is_err());
    }
}
