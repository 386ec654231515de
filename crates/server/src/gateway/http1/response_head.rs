//! The head of a response as bytes, framed as hyper frames it.
//!
//! Must not know: where bodies come from, sockets.

use hyper::StatusCode;
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, DATE, HOST, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, SET_COOKIE, TE,
    TRAILER, TRANSFER_ENCODING,
};
use tokio::time::Instant;

use crate::http::{write_date, write_number};

/// What is known of the length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLen {
    Empty,
    Known(u64),
    Unknown,
}

/// How a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// It is not sent.
    None,
    /// This many bytes are left.
    Length(u64),
    Chunked,
}

/// What the head depends on besides its status and fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadContext {
    pub(super) body: BodyLen,
    /// Whether the request was `HEAD`: its response has the length of a body that is not sent.
    pub(super) is_head_request: bool,
    /// Whether the connection is closed after the response.
    pub(super) is_last: bool,
    pub(super) now: Instant,
}

/// Appends a head. Returns how the body is sent, and whether the connection is closed after it.
pub(super) fn write_head(
    status: StatusCode,
    headers: &HeaderMap,
    context: HeadContext,
    out: &mut Vec<u8>,
) -> (BodyFraming, bool) {
    write_status(status, out);
    let has_body = !context.is_head_request && can_have_body(status);
    let is_length_kept = context.is_head_request && context.body == BodyLen::Empty;
    let (mut has_length, mut has_date) = (false, false);
    let mut is_last = context.is_last;
    for (name, value) in headers {
        if *name == CONTENT_LENGTH {
            // Elsewhere the body says its length.
            if !is_length_kept || has_length {
                continue;
            }
            has_length = true;
        } else if *name == TRANSFER_ENCODING || *name == TRAILER && !has_body {
            continue;
        } else if *name == DATE {
            has_date = true;
        } else if *name == CONNECTION {
            is_last |= closes(value);
        }
        write_field(name, value, out);
    }
    match (context.body, has_body) {
        (BodyLen::Unknown, true) => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        (BodyLen::Known(len), _) if can_have_body(status) => write_length(len, out),
        (BodyLen::Empty, true) => write_length(0, out),
        _ => {}
    }
    if context.is_last {
        out.extend_from_slice(b"connection: close\r\n");
    }
    if !has_date {
        out.extend_from_slice(b"date: ");
        write_date(context.now, out);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    let framing = match context.body {
        BodyLen::Known(len) if has_body => BodyFraming::Length(len),
        BodyLen::Unknown if has_body => BodyFraming::Chunked,
        _ => BodyFraming::None,
    };
    (framing, is_last)
}

/// Appends those trailers that the head has announced and that a recipient may use (RFC 9110, section 6.5.1).
pub(super) fn write_trailers(headers: &HeaderMap, trailers: &HeaderMap, out: &mut Vec<u8>) {
    let is_announced = |name: &HeaderName| {
        let lines = headers.get_all(TRAILER).iter();
        let mut names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        names.any(|one| {
            one.trim_ascii()
                .eq_ignore_ascii_case(name.as_str().as_bytes())
        })
    };
    for (name, value) in trailers {
        if is_announced(name) && !is_forbidden_trailer(name) {
            write_field(name, value, out);
        }
    }
}

fn write_status(status: StatusCode, out: &mut Vec<u8>) {
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    let reason = status.canonical_reason().unwrap_or("<none>");
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_field(name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
    let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
    out.reserve(name.len().saturating_add(value.len()).saturating_add(4));
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_length(len: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"content-length: ");
    write_number(len, out);
    out.extend_from_slice(b"\r\n");
}

/// Whether a response with this status to another request than `HEAD` has a body, also an empty one.
const fn can_have_body(status: StatusCode) -> bool {
    !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

fn closes(value: &HeaderValue) -> bool {
    let mut options = value.as_bytes().split(|byte| *byte == b',');
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// Fields that frame, route or explain a message, which nobody may read from trailers.
fn is_forbidden_trailer(name: &HeaderName) -> bool {
    [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TRAILER,
        TRANSFER_ENCODING,
        TE,
    ]
    .contains(name)
}
