//! Any bytes as the rate limit fields and the body of a server's response: every bound of the reader holds.
//!
//! Must not know: which fuzzer calls it.

use tollgate_core::Timestamp;
use tollgate_http::{RateLimitInfo, ResponseReader};

/// The fields that the first byte of a line chooses from.
const NAMES: [&str; 24] = [
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-bucket",
    "x-ratelimit-resource",
    "x-ratelimit-scope",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-rate-limit-limit",
    "anthropic-ratelimit-tokens-reset",
    "x-shopify-shop-api-call-limit",
    "stripe-rate-limited-reason",
    "grpc-status-details-bin",
    "grpc-retry-pushback-ms",
    "date",
    "age",
    "retry-after",
    "retry-after-ms",
];

/// Reads bytes as field lines, the first byte of each choosing the field, and as a JSON body.
///
/// # Panics
/// A bound of the reader does not hold.
pub fn response(bytes: &[u8]) {
    let mut reader = ResponseReader::new(Timestamp::from_secs(1_700_000_000));
    let mut fields = 0_u32;
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some((name, value)) = line.split_first() else {
            continue;
        };
        if let Some(name) = NAMES.get(usize::from(*name) % NAMES.len()) {
            reader.field(name, value);
            fields += 1;
        }
    }
    reader.body(b"application/json", bytes);
    check(&reader.finish(), fields);
}

fn check(info: &RateLimitInfo, fields: u32) {
    assert!(info.limits.len() <= 32, "at most 32 limits");
    assert!(
        info.limits.is_empty() || !info.is_cached,
        "a cached response has no limits"
    );
    // A field can hold 64 members that are dropped, and is itself counted; so is the body.
    assert!(
        info.malformed_fields <= fields * 65 + 1,
        "every malformed field is counted once"
    );
    let names = info.limits.iter().filter_map(|limit| limit.name.as_deref());
    for name in names
        .chain(info.bucket.as_deref())
        .chain(info.resource.as_deref())
    {
        assert!(name.len() <= 160, "names are bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, check, response};
    use crate::fuzzing::pseudo_random_bytes;

    /// Letters of which fields are made, so that random texts get somewhere.
    const LETTERS: &[u8; 32] = b"0123456789\"\";;=rtqw,, .-:ahms\nTZ";

    #[test]
    fn no_bytes_break_a_bound_of_the_reader() {
        for seed in 0..4_000 {
            let bytes = pseudo_random_bytes(seed, (seed % 200) as usize);
            response(&bytes);
            let letters = bytes.iter().map(|byte| LETTERS[usize::from(*byte % 32)]);
            response(&letters.collect::<Vec<u8>>());
        }
        let member = br#""a";r=1, "#.repeat(100);
        for name in 0..NAMES.len() {
            response(&[&[u8::try_from(name).unwrap()][..], &member].concat());
        }
        response(&b"{\"error\":".repeat(500));
    }

    #[test]
    #[should_panic(expected = "names are bounded")]
    fn control_a_name_without_a_bound_is_detected() {
        let mut info = tollgate_http::RateLimitInfo::default();
        info.bucket = Some("x".repeat(161).into());
        check(&info, 1);
    }
}
