//! What refusals teach, against a token bucket and a fixed window in simulated time.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a simulation: its numbers are small"
)]

use proptest::prelude::*;
use tollgate_core::{Nanos, Timestamp};

use super::{HiddenQuota, HiddenQuotaSettings, Purpose};
use crate::random::Random;
use crate::retry::backoff;

const SETTINGS: HiddenQuotaSettings = HiddenQuotaSettings {
    initial_rate: 2.0,
    probe_interval: Nanos::from_secs(8),
    probe_growth: 1.05,
};
/// From the client to the server and back.
const ROUND_TRIP: u64 = 40_000_000;

/// A server that decides by the time and by what it admitted.
type Decide<'a> = dyn FnMut(f64) -> bool + 'a;

/// A token bucket whose rate is a function of the time, with a burst of one second.
fn token_bucket(rate: impl Fn(f64) -> f64) -> impl FnMut(f64) -> bool {
    let (mut tokens, mut last) = (rate(0.0), 0.0);
    move |now| {
        tokens = (tokens + rate(now) * (now - last)).min(rate(now));
        last = now;
        let is_admitted = tokens >= 1.0;
        if is_admitted {
            tokens -= 1.0;
        }
        is_admitted
    }
}

/// One client that sends as much as it may. Returns how many requests of each second were admitted, and how many refused.
fn run(seconds: usize, seed: u64, decide: &mut Decide<'_>) -> (Vec<u32>, Vec<u32>) {
    let mut quota = HiddenQuota::new(SETTINGS, Timestamp::EPOCH);
    let mut random = Random::new(seed);
    let (mut admitted, mut refused) = (vec![0; seconds + 1], vec![0; seconds + 1]);
    let mut in_flight: std::collections::VecDeque<(Timestamp, Purpose, bool)> =
        std::collections::VecDeque::new();
    let mut now = Timestamp::from_nanos(1);
    let (mut blocked_until, mut failures) = (Timestamp::EPOCH, 0);
    while now.as_nanos() < seconds as u64 * 1_000_000_000 {
        let response_at = in_flight
            .front()
            .map(|(sent, ..)| sent.as_nanos() + ROUND_TRIP);
        let ready_at = quota.ready_at().max(blocked_until).max(now);
        if let Some(at) = response_at
            && at <= ready_at.as_nanos()
        {
            now = Timestamp::from_nanos(at);
            let (sent, purpose, is_admitted) = in_flight.pop_front().unwrap();
            if is_admitted {
                failures = 0;
                quota.on_success(purpose, sent, now);
            } else if quota.on_refusal(purpose, sent, now, &mut random) {
                failures += 1;
                blocked_until = now.after(backoff(failures, &mut random));
            }
            continue;
        }
        now = ready_at;
        let second = now.as_nanos() as f64 / 1e9;
        if second >= seconds as f64 {
            break;
        }
        let purpose = quota.on_send(now, true, &mut random);
        let is_admitted = decide(second);
        let counts = if is_admitted {
            &mut admitted
        } else {
            &mut refused
        };
        counts[second as usize] += 1;
        in_flight.push_back((now, purpose, is_admitted));
    }
    (admitted, refused)
}

fn sum(counts: &[u32]) -> f64 {
    counts.iter().copied().map(f64::from).sum()
}

#[test]
fn a_quota_that_is_halved_and_comes_back_is_found_both_times() {
    let rate = |now: f64| {
        if (200.0..260.0).contains(&now) {
            25.0
        } else {
            50.0
        }
    };
    let (admitted, refused) = run(500, 1, &mut token_bucket(rate));
    assert!(sum(&admitted[60..200]) >= 0.9 * 140.0 * 50.0);
    assert!(sum(&admitted[210..260]) >= 0.85 * 50.0 * 25.0);
    assert!(sum(&admitted[275..500]) >= 0.9 * 225.0 * 50.0);
    assert!(sum(&refused) <= 40.0, "{}", sum(&refused));
}

/// A client of a window of a minute cut its rate with every refusal until the window ended, and then used a tenth of the quota.
#[test]
fn a_window_that_is_used_up_tells_the_rate_of_the_next() {
    let (mut window, mut count) = (0, 0);
    let (admitted, refused) = run(600, 1, &mut |now| {
        let current = (now / 60.0) as u32;
        if current != window {
            (window, count) = (current, 0);
        }
        count += 1;
        count <= 3_000
    });
    assert!(sum(&admitted[60..600]) >= 0.75 * 540.0 * 50.0);
    assert!(sum(&refused) <= 400.0, "{}", sum(&refused));
}

/// The count of admissions since the last refusal is no rate if the client had nothing to send meanwhile.
#[test]
fn an_idle_hour_after_a_refusal_does_not_count_as_a_slow_server() {
    let mut random = Random::new(1);
    let mut now = Timestamp::from_secs(1);
    let mut quota = HiddenQuota::new(SETTINGS, now);
    let mut refuse = |quota: &mut HiddenQuota, now: Timestamp| {
        let purpose = quota.on_send(now, true, &mut random);
        quota.on_refusal(purpose, now, now, &mut random);
    };
    refuse(&mut quota, now);
    let rate = quota.rate();
    for _ in 0..10 {
        now = now.after(Nanos::from_secs(360));
        let purpose = quota.on_send(now, false, &mut Random::new(2));
        quota.on_success(purpose, now, now);
    }
    now = now.after(Nanos::from_secs(1));
    refuse(&mut quota, now);
    assert!(quota.rate() >= rate / 3.0, "{} of {rate}", quota.rate());
}

/// A client that cuts its rate by a fixed part with every refusal and grows by a fixed part every second.
fn plain_aimd_refusals(seconds: f64, rate: f64) -> u32 {
    let mut decide = token_bucket(|_| rate);
    let (mut now, mut pace, mut refused) = (0.0, 2.0, 0);
    while now < seconds {
        if decide(now) {
            pace += rate * 0.1 / pace;
        } else {
            refused += 1;
            pace *= 0.7;
        }
        now += 1.0 / pace;
    }
    refused
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the quota is, most of it is used, and refusals are few: they grow with the logarithm of the time, not with the requests.
    #[test]
    fn any_quota_is_found_with_few_refusals(rate in 5.0..400.0_f64, seed in 0..1_000_u64) {
        let (admitted, refused) = run(600, seed, &mut token_bucket(|_| rate));
        prop_assert!(sum(&admitted[120..600]) >= 0.75 * 480.0 * rate, "{} of {}", sum(&admitted[120..600]), 480.0 * rate);
        prop_assert!(sum(&refused) <= 15.0 + rate / 8.0, "{} refused", sum(&refused));
    }
}

#[test]
fn control_a_client_without_a_plateau_is_refused_all_the_time() {
    assert!(plain_aimd_refusals(600.0, 50.0) > 40);
}
