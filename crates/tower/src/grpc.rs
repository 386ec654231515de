//! Refusals of gRPC calls: a response of trailers only, with the status and `google.rpc.RetryInfo`.
//!
//! Must not know: how requests are decided. The few bytes of protobuf are written here, so that the layer needs no code generator.

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use tollgate_service::{Nanos, Refusal};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const INVALID_ARGUMENT: u8 = 3;
const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNAVAILABLE: u8 = 14;

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// A response of trailers only.
pub(crate) fn refusal(refusal: Refusal, message: &str) -> Response<Bytes> {
    let code = code_of(refusal.status);
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(code)));
    if let Ok(value) = HeaderValue::try_from(percent_encode(message)) {
        headers.insert(GRPC_MESSAGE, value);
    }
    if let Some(delay) = refusal.retry_after {
        let status = status_message(code, message, delay);
        if let Ok(value) = HeaderValue::try_from(base64(&status)) {
            headers.insert(GRPC_STATUS_DETAILS, value);
        }
    }
    response
}

/// The gRPC status for an HTTP status.
const fn code_of(status: u16) -> u8 {
    match status {
        400 => INVALID_ARGUMENT,
        403 => PERMISSION_DENIED,
        503 => UNAVAILABLE,
        _ => RESOURCE_EXHAUSTED,
    }
}

/// `google.rpc.Status` with one detail: `RetryInfo { retry_delay }`.
fn status_message(code: u8, message: &str, delay: Nanos) -> Vec<u8> {
    let nanos = delay.as_nanos();
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let mut duration = Vec::new();
    put_varint_field(&mut duration, 1, seconds);
    put_varint_field(&mut duration, 2, nanos);
    let mut retry_info = Vec::new();
    put_bytes_field(&mut retry_info, 1, &duration);
    let mut any = Vec::new();
    put_bytes_field(&mut any, 1, RETRY_INFO.as_bytes());
    put_bytes_field(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    put_varint_field(&mut status, 1, u64::from(code));
    put_bytes_field(&mut status, 2, message.as_bytes());
    put_bytes_field(&mut status, 3, &any);
    status
}

fn put_varint_field(out: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        out.push(field << 3);
        put_varint(out, value);
    }
}

fn put_bytes_field(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

/// The text of `grpc-message`: printable ASCII without `%`, everything else escaped.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Base64 without padding, as gRPC wants it in metadata whose name ends in `-bin`.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..=group.len() {
            let shift = 18_usize.saturating_sub(digit * 6);
            let index = usize::try_from(bits >> shift & 63).unwrap_or(0);
            encoded.push(char::from(ALPHABET.get(index).copied().unwrap_or(b'A')));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_service::DenialReason;

    #[test]
    fn a_denial_carries_its_retry_delay() {
        let denial = Refusal {
            status: 429,
            reason: Some(DenialReason::Rate),
            retry_after: Some(Nanos::from_millis(1_500)),
        };
        let response = refusal(denial, "later, 50% of the time");
        let headers = response.headers();
        assert_eq!(response.status(), 200);
        assert_eq!(headers[GRPC_STATUS], "8");
        assert_eq!(headers[GRPC_MESSAGE], "later, 50%25 of the time");
        // Made by the Python packages protobuf and googleapis-common-protos.
        assert_eq!(
            headers[GRPC_STATUS_DETAILS],
            "CAgSFmxhdGVyLCA1MCUgb2YgdGhlIHRpbWUaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIARCAyrXuAQ"
        );
    }

    #[test]
    fn statuses_become_codes() {
        for (status, code) in [(429, 8), (503, 14), (403, 7), (400, 3), (420, 8)] {
            assert_eq!(code_of(status), code);
        }
    }

    #[test]
    fn base64_is_the_standard_one_without_padding() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg"),
            (b"\xff\xfe\xfd", "//79"),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }
}
