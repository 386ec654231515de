//! The id of a request: taken from the client or made, forwarded to the upstream, and answered.
//!
//! Must not know: logs, limits.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::HeaderMap;
use hyper::header::{Entry, HeaderName, HeaderValue};
use tollgate_service::copy_to_shared;

/// The field of the id.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LEN: usize = 128;
/// The lower half of a number.
const HALF: u64 = 0xffff_ffff;

/// Makes ids: a random number for each, so that two gateways make no equal ones.
#[derive(Debug)]
pub(super) struct RequestIds {
    random: RandomState,
    /// Makes the second half of an id, which is another for each number.
    key: u64,
    next: AtomicU64,
}

impl RequestIds {
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        Self {
            key: random.hash_one(u64::MAX),
            random,
            next: AtomicU64::new(0),
        }
    }

    /// The id that the client sent, if it is safe to log, else a new one. Afterwards the request has exactly this one.
    pub(super) fn take_or_make(&self, headers: &mut HeaderMap) -> HeaderValue {
        // A full map has no room for a field. Heads have far fewer.
        let Ok(entry) = headers.try_entry(X_REQUEST_ID) else {
            return self.make();
        };
        match entry {
            Entry::Vacant(entry) => {
                let id = self.make();
                drop(entry.try_insert(id.clone()));
                id
            }
            Entry::Occupied(mut entry) => {
                let mut sent = entry.iter();
                if let (Some(id), None) = (sent.next(), sent.next())
                    && is_valid(id.as_bytes())
                {
                    return id.clone();
                }
                let id = self.make();
                entry.insert(id.clone());
                id
            }
        }
    }

    fn make(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let high = self.random.hash_one(number);
        let id = hex([high, mix(number ^ self.key)]);
        let id = HeaderValue::from_maybe_shared(copy_to_shared(&id));
        id.unwrap_or_else(|_never| HeaderValue::from_static("0"))
    }
}

/// Another number for each number: the last steps of SplitMix64.
const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The 32 hexadecimal digits of two numbers.
fn hex([high, low]: [u64; 2]) -> [u8; 32] {
    let mut digits = [0; 32];
    let halves = [high >> 32, high & HALF, low >> 32, low & HALF];
    for (out, half) in digits.chunks_exact_mut(8).zip(halves) {
        out.copy_from_slice(&hex_of_half(half));
    }
    digits
}

/// The 8 hexadecimal digits of a number below 2³², computed all at once.
const fn hex_of_half(number: u64) -> [u8; 8] {
    // Each digit gets a byte.
    let digits = (number | number << 16) & 0x0000_ffff_0000_ffff;
    let digits = (digits | digits << 8) & 0x00ff_00ff_00ff_00ff;
    let digits = (digits | digits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 in each byte above 9: there letters begin, 39 behind the digits.
    let letters = (digits + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (digits + 0x3030_3030_3030_3030 + 39 * letters).to_be_bytes()
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
        let numbers = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
        assert_eq!(hex(numbers), *b"0123456789abcdeffedcba9876543210");
    }
}
