//! What a newcomer reads: the limit in plain words and three commands to try.
//!
//! Must not know: HTTP, terminals.

use std::net::SocketAddr;

use tollgate_core::{Nanos, TokenBucket};

/// The introduction of a server that listens on `address`.
pub(crate) fn introduction(address: SocketAddr, name: &str, quota: &TokenBucket) -> String {
    let limit = in_words(name, quota);
    let check = format!("http://{address}/v1/check");
    format!(
        "Tollgate, a rate limiter. Ask it whether a request may proceed:\n\
         \n\
         \x20 {limit}\n\
         \n\
         Try it:\n\
         \x20 curl -i '{check}?key=alice'\n\
         \x20 for i in $(seq 25); do curl -s -o /dev/null -w '%{{http_code}} ' '{check}?key=bob'; done; echo\n\
         \x20 curl -s -d '{{\"key\": \"alice\", \"cost\": 0}}' {check}\n"
    )
}

/// The quota that is in force, as a sentence.
fn in_words(name: &str, quota: &TokenBucket) -> String {
    if quota.limit() == 0 {
        return format!("{name}: nothing is ever admitted");
    }
    let (limit, every) = (quota.limit(), span(quota.interval()));
    let unit = match quota.block() {
        1 => String::from("one"),
        block => block.to_string(),
    };
    format!("{name}: at most {limit} at once, then {unit} every {every}, for each key")
}

/// A span in the largest unit it fills, to three decimals.
fn span(span: Nanos) -> String {
    const UNITS: [(u64, &str); 7] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "µs"),
        (1, "ns"),
    ];
    let nanos = span.as_nanos();
    let fits = |(size, _): &&(u64, &str)| nanos >= *size;
    let (size, unit) = UNITS.iter().find(fits).copied().unwrap_or((1, "ns"));
    // 128 bits hold any span in thousandths.
    let thousandths = u128::from(nanos).saturating_mul(1_000) / u128::from(size);
    let exact = thousandths.saturating_mul(u128::from(size)) == u128::from(nanos) * 1_000;
    let about = if exact { "" } else { "about " };
    let decimals = format!("{:03}", thousandths % 1_000);
    let decimals = decimals.trim_end_matches('0');
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{about}{}{point}{decimals} {unit}", thousandths / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::Rate;

    #[test]
    fn spans_are_written_as_people_do() {
        let cases = [
            (100_000_000, "100 ms"),
            (1_500_000_000, "1.5 s"),
            (60_000_000_000, "1 min"),
            (333_333_334, "about 333.333 ms"),
            (12_342_857_142_858, "about 3.428 h"),
            (1_000_001, "about 1 ms"),
            (1_050, "1.05 µs"),
            (1, "1 ns"),
            (0, "0 ns"),
            (u64::MAX, "about 213503.982 d"),
        ];
        for (nanos, text) in cases {
            assert_eq!(span(Nanos::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn a_limit_is_one_sentence() {
        let words = |rate, burst| {
            let quota = TokenBucket::at(rate).burst(burst).build().unwrap();
            in_words("demo", &quota)
        };
        assert_eq!(
            words(Rate::per_second(10), 20),
            "demo: at most 20 at once, then one every 100 ms, for each key"
        );
        assert_eq!(
            words(Rate::per_second(0), 0),
            "demo: nothing is ever admitted"
        );
    }
}
