//! Warns of limits that admit up to twice their rate in one window, which few authors of `100/min` expect.
//!
//! A bucket is full and refills within the window; a fixed window ends and the next begins. Rates per second only smooth, so they are
//! left out, and so are buckets with a `burst`: their author has chosen. Must not know: compiled quotas.

use tollgate_core::Nanos;

use crate::model::{Algorithm, Amount, Count, Mode, Policy, QuotaSpec};
use crate::read::DiagnosticSink;

pub(super) fn warn(policy: &Policy, sink: &mut DiagnosticSink) {
    let mut found = policy.limits.iter().filter(|limit| {
        let is_off = limit.mode.max(policy.mode) == Mode::Off;
        // Who counts denials or responses, or never denies, limits no requests in a window.
        let admits = limit.count == Count::default() && !limit.charge_always;
        !is_off && admits && limit.levels.is_empty() && admits_twice(&limit.quota.value)
    });
    let Some(first) = found.next() else { return };
    let name = &first.name.value;
    let message = match found.count() {
        0 => format!("limit `{name}` admits up to twice its rate in one window"),
        1 => format!("limit `{name}` and 1 other admit up to twice their rate in one window"),
        others => {
            format!("limit `{name}` and {others} others admit up to twice their rate in one window")
        }
    };
    sink.add(
        first.quota.location,
        message,
        "choose a `burst`, which may also be the number of the rate; `algorithm: sliding_log` never admits more than the rate",
    );
}

fn admits_twice(quota: &QuotaSpec) -> bool {
    let Amount::Rates(rates) = &quota.amount else {
        return false;
    };
    let [rate] = rates.as_slice() else {
        return false;
    };
    let is_counted = rate.value.period.fixed_length() >= Nanos::MINUTE && rate.value.units > 0;
    is_counted
        && match quota.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.burst.is_none(),
            Algorithm::FixedWindow => true,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::super::tests::warnings_of;

    #[test]
    fn a_limit_that_admits_twice_its_rate_is_warned_of() {
        let of = |limit: &str| {
            warnings_of(
                "twice-the-rate",
                &format!("limits: [{{ name: a, {limit} }}]"),
            )
        };
        let warned = ["limit `a` admits up to twice its rate in one window"];
        assert_eq!(of("rate: 100/min"), warned);
        assert_eq!(of("rate: 100/min, algorithm: leaky_bucket"), warned);
        assert_eq!(of("rate: 100/day, algorithm: fixed_window"), warned);
        for silent in [
            "rate: 100/s",
            "rate: 100/min, burst: 100",
            "rate: 100/min, algorithm: sliding_log",
            "rate: 100/min, algorithm: sliding_window",
            "rate: 100/min, mode: off",
            "concurrency: 5",
            "rate: 9/s }, { name: b, key: ip, rate: 100/min, count: denials, penalty: block 1h",
        ] {
            assert!(of(silent).is_empty(), "{silent}");
        }
    }

    #[test]
    fn several_limits_are_one_warning() {
        let text =
            "limits: [{ name: a, rate: 1/h }, { name: b, rate: 2/s }, { name: c, rate: 3/min }]";
        assert_eq!(
            warnings_of("twice-the-rate", text),
            ["limit `a` and 1 other admit up to twice their rate in one window"]
        );
    }
}
