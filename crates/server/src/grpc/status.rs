//! gRPC status: a code and a message.
//!
//! Must not know: methods.

use std::fmt::Write as _;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// The longest message that is sent, in bytes, before escaping.
const MAX_MESSAGE_LEN: usize = 512;

/// The gRPC status codes that we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcCode {
    Ok = 0,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// The status of a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrpcStatus {
    pub(crate) code: GrpcCode,
    pub(crate) message: String,
}

impl GrpcStatus {
    pub(crate) fn new(code: GrpcCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Writes the status into header fields or trailers.
    pub(crate) fn write(&self, fields: &mut HeaderMap) {
        fields.insert(GRPC_STATUS, code_value(self.code));
        if let Ok(message) = HeaderValue::from_str(&percent_encode(&self.message)) {
            fields.insert(GRPC_MESSAGE, message);
        }
    }
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The trailers of a successful call.
pub(crate) fn ok_trailers() -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(1);
    fields.insert(GRPC_STATUS, code_value(GrpcCode::Ok));
    fields
}

const fn code_value(code: GrpcCode) -> HeaderValue {
    HeaderValue::from_static(match code {
        GrpcCode::Ok => "0",
        GrpcCode::InvalidArgument => "3",
        GrpcCode::DeadlineExceeded => "4",
        GrpcCode::NotFound => "5",
        GrpcCode::ResourceExhausted => "8",
        GrpcCode::Unimplemented => "12",
        GrpcCode::Internal => "13",
        GrpcCode::Unavailable => "14",
    })
}

/// Percent-encodes a message: every byte but printable ASCII.
fn percent_encode(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes().take(MAX_MESSAGE_LEN) {
        match byte {
            b'%' | 0..0x20 | 0x7f.. => {
                // Writing to a string does not fail.
                let _written = write!(text, "%{byte:02X}");
            }
            printable => text.push(char::from(printable)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        let mut fields = HeaderMap::new();
        let status = GrpcStatus::new(GrpcCode::InvalidArgument, "100 % of\r\nü");
        status.write(&mut fields);
        assert_eq!(fields["grpc-status"], "3");
        assert_eq!(fields["grpc-message"], "100 %25 of%0D%0A%C3%BC");
        let long = GrpcStatus::new(GrpcCode::Internal, "x".repeat(10_000));
        long.write(&mut fields);
        assert_eq!(fields["grpc-message"].len(), MAX_MESSAGE_LEN);
    }

    #[test]
    fn code_values_are_the_numbers_of_the_codes() {
        for code in [
            GrpcCode::Ok,
            GrpcCode::InvalidArgument,
            GrpcCode::DeadlineExceeded,
            GrpcCode::NotFound,
            GrpcCode::ResourceExhausted,
            GrpcCode::Unimplemented,
            GrpcCode::Internal,
            GrpcCode::Unavailable,
        ] {
            assert_eq!(code_value(code), (code as i32).to_string().as_str());
        }
        assert_eq!(ok_trailers()["grpc-status"], "0");
    }
}
