//! The id of a request: taken from the client or made, forwarded to the upstream, and answered.
//!
//! Must not know: logs, limits.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// The field of the id.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LEN: usize = 128;

/// Makes ids: a random number for each, so that two gateways make no equal ones.
#[derive(Debug)]
pub(super) struct RequestIds {
    random: RandomState,
    next: AtomicU64,
}

impl RequestIds {
    pub(super) fn new() -> Self {
        Self {
            random: RandomState::new(),
            next: AtomicU64::new(0),
        }
    }

    /// The id that the client sent, if it is safe to log, else a new one. Afterwards the request has exactly this one.
    pub(super) fn take_or_make(&self, headers: &mut HeaderMap) -> HeaderValue {
        let mut sent = headers.get_all(X_REQUEST_ID).iter();
        if let (Some(id), None) = (sent.next(), sent.next())
            && is_valid(id.as_bytes())
        {
            return id.clone();
        }
        let id = self.make();
        headers.insert(X_REQUEST_ID, id.clone());
        id
    }

    fn make(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (high, low) = (
            self.random.hash_one((number, 0_u8)),
            self.random.hash_one((number, 1_u8)),
        );
        let id = HeaderValue::from_bytes(&hex(u128::from(high) << 64 | u128::from(low)));
        id.unwrap_or_else(|_never| HeaderValue::from_static("0"))
    }
}

/// The 32 hexadecimal digits of a number.
fn hex(number: u128) -> [u8; 32] {
    std::array::from_fn(|at| {
        let shift = 124_usize.saturating_sub(4 * at);
        let digit = u8::try_from(number >> shift & 15).unwrap_or(0);
        digit + if digit < 10 { b'0' } else { b'a' - 10 }
    })
}

/// Whether an id can stand in a log and in a field without escapes.
fn is_valid(id: &[u8]) -> bool {
    let is_id_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:/+=@".contains(byte);
    (1..=MAX_LEN).contains(&id.len()) && id.iter().all(is_id_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lines: &[&str]) -> (HeaderValue, HeaderMap) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(
                X_REQUEST_ID,
                HeaderValue::from_bytes(line.as_bytes()).unwrap(),
            );
        }
        (RequestIds::new().take_or_make(&mut headers), headers)
    }

    #[test]
    fn a_safe_id_is_taken() {
        for id in ["7", "0af7651916cd43dd-8448eb211c80319c", "a/b:c+d=@._"] {
            assert_eq!(taken(&[id]).0, id);
        }
    }

    #[test]
    fn any_other_id_is_replaced_by_a_new_one() {
        let long = "a".repeat(MAX_LEN + 1);
        for lines in [
            &[][..],
            &[""],
            &["a b"],
            &["a\"b"],
            &["ü"],
            &[&*long],
            &["a", "b"],
        ] {
            let (id, headers) = taken(lines);
            assert_eq!(id.len(), 32, "{lines:?}");
            assert_eq!(
                headers.get_all(X_REQUEST_ID).iter().collect::<Vec<_>>(),
                [&id]
            );
        }
        let ids = RequestIds::new();
        assert_ne!(ids.make(), ids.make());
        let number = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;
        assert_eq!(hex(number), *b"0123456789abcdeffedcba9876543210");
    }
}
