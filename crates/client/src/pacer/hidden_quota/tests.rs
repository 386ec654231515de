//! What refusals teach, against a token bucket and a fixed window in simulated time.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a simulation: its numbers are small"
)]

use proptest::prelude::*;
use tollgate_core::{Nanos, Timestamp};

use super::{HiddenQuota, HiddenQuotaSettings, Phase, ProbeSeries, Purpose, ReducedQuota, nanos};
use crate::random::Random;
use crate::retry::backoff;

const SETTINGS: HiddenQuotaSettings = HiddenQuotaSettings {
    initial_rate: 2.0,
    probe_interval: Nanos::from_secs(7),
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

/// A client that has measured its share of a quota and holds it since `since` seconds.
fn held(rate: f64, since: u64) -> HiddenQuota {
    let since = Timestamp::from_secs(since);
    let mut quota = HiddenQuota::new(SETTINGS, since);
    quota.is_measured = true;
    quota.hold_at(rate, since);
    quota
}

fn at(second: f64) -> Timestamp {
    Timestamp::EPOCH.after(nanos(second))
}

/// Sends a paced request at `second`, which the server refuses at once.
fn refuse(quota: &mut HiddenQuota, second: f64) {
    let mut random = Random::new(7);
    quota.next_at = at(second);
    let purpose = quota.on_send(at(second), true, &mut random);
    quota.on_refusal(purpose, at(second), at(second), &mut random);
}

/// Sends probes from `second` on until the series ends, and returns how many the server admitted before it refused one.
fn look(quota: &mut HiddenQuota, second: f64, admits: u32) -> u32 {
    let mut random = Random::new(7);
    let now = at(second);
    for admitted in 0..1_000 {
        quota.next_at = now.after(Nanos::from_secs(1));
        if quota.reduced.is_none() {
            return admitted;
        }
        assert_eq!(quota.on_send(now, true, &mut random), Purpose::Probe);
        if admitted == admits {
            quota.on_refusal(Purpose::Probe, now, now, &mut random);
            return admitted;
        }
        quota.on_success(Purpose::Probe, now, now);
    }
    panic!("a series without an end")
}

#[test]
fn a_rate_that_was_held_for_a_minute_is_halved_at_the_first_refusal() {
    let mut quota = held(25.0, 100);
    refuse(&mut quota, 500.0);
    assert!((quota.rate() - 12.5).abs() < 1e-9);
    let reduced = quota.reduced.unwrap();
    assert!((reduced.former_rate - 25.0).abs() < 1e-9 && reduced.is_suspicion);
    assert!(reduced.probe_at > at(503.0) && reduced.probe_at < at(509.0));
}

/// A mistake costs no refusal: the first look finds the former rate, and the client uses no more than that.
#[test]
fn a_look_ends_a_reduction_that_was_none() {
    let mut quota = held(25.0, 100);
    refuse(&mut quota, 500.0);
    look(&mut quota, 506.0, 1_000);
    assert!(quota.reduced.is_none() && (quota.rate() - 25.0).abs() < 1e-9);
}

/// A confirmed reduction is found by one client first. It uses more until the other one has looked as well.
#[test]
fn the_first_client_that_finds_the_quota_uses_more_than_its_share_for_a_while() {
    let mut quota = held(25.0, 100);
    refuse(&mut quota, 500.0);
    look(&mut quota, 506.0, 3);
    look(&mut quota, 514.0, 1_000);
    assert!((quota.rate() - 38.75).abs() < 1e-9, "{}", quota.rate());
    quota.change_excess(at(520.0));
    assert!((quota.rate() - 25.0).abs() < 1e-9, "{}", quota.rate());
}

/// Five clients each took the test of one of them for a reduction, and the one that tested was not refused for long.
#[test]
fn one_refusal_of_a_rate_that_was_not_held_for_long_is_about_another_client() {
    let mut quota = held(25.0, 1_000);
    quota.held_since = at(1_310.0);
    refuse(&mut quota, 1_320.0);
    assert!((quota.rate() - 25.0).abs() < 1e-9 && quota.reduced.is_none());
    // Clients together have a little too much.
    refuse(&mut quota, 1_330.0);
    assert!((quota.rate() - 25.0 * 0.985).abs() < 1e-9);
    // Twice within 30 requests: the quota is smaller.
    refuse(&mut quota, 1_330.8);
    assert!(quota.rate() < 13.0 && quota.reduced.is_some());
}

#[test]
fn a_refusal_while_the_quota_is_reduced_is_a_look_of_another_client_and_moves_the_next_one() {
    let mut quota = held(25.0, 100);
    refuse(&mut quota, 500.0);
    look(&mut quota, 506.0, 3);
    let rate = quota.rate();
    refuse(&mut quota, 512.0);
    let planned = quota.reduced.unwrap().probe_at;
    assert_eq!(planned, at(512.0).after(nanos(7.0 * 0.75)));
    assert!((quota.rate() - rate).abs() < 1e-9);
}

/// A refusal within the settle time lowered the target without a search, so that a process held half of its rate for ever.
#[test]
fn a_second_refusal_at_a_reduction_does_not_forget_the_former_rate() {
    let mut quota = held(2.0, 100);
    refuse(&mut quota, 500.0);
    refuse(&mut quota, 502.0);
    let reduced = quota.reduced.expect("it looks for the former rate");
    assert!(reduced.former_rate > 1.9);
}

/// One of many clients has not lost much itself. If it finds the quota, it takes what all of them have lost.
#[test]
fn one_of_many_clients_grows_until_it_is_refused_and_then_leaves_the_excess_to_the_others() {
    let mut quota = held(1.0, 100);
    quota.confirmed_rate = Some(1.0);
    quota.hold_at(0.5, at(500.0));
    let mut random = Random::new(1);
    quota.search_former_rate(at(500.0), &mut random);
    quota.reduced.as_mut().unwrap().is_prober = true;
    assert_eq!(look(&mut quota, 510.0, 1_000), 25);
    let mut now = at(510.0);
    while quota.rate() < 20.0 {
        now = quota.ready_at().max(now);
        quota.on_send(now, true, &mut random);
    }
    assert!(now < at(513.0), "{now:?}");
    refuse(&mut quota, 513.0);
    assert!(
        quota.rate() > 4.0 && quota.rate() < 20.0,
        "{}",
        quota.rate()
    );
    quota.change_excess(at(530.0));
    assert_eq!(quota.phase, Phase::Hold);
    // A little less than its former rate, so that the last ones that return are not refused.
    assert!((quota.rate() - 0.96).abs() < 1e-9, "{}", quota.rate());
}

/// Requests of a series were sent one after another to the end: a second passed before a prober used what all of many clients had lost.
#[test]
fn a_prober_of_many_overlaps_its_requests_when_the_quota_has_probably_come_back() {
    let mut reduced = prober_of_many();
    reduced.taken = Some(4.0);
    let mut series = ProbeSeries::new(&reduced);
    let mut rounds = Vec::new();
    let mut has_found = false;
    while !has_found {
        let mut in_flight = 0;
        while series.is_ready() {
            series.on_send();
            in_flight += 1;
        }
        rounds.push(in_flight);
        has_found = (0..in_flight).any(|_| series.on_success());
    }
    // One at a time while earlier series were refused, and half as long again.
    assert!(rounds.iter().take(9).all(|round| *round == 1), "{rounds:?}");
    assert!(rounds.len() <= 15 && rounds.contains(&3), "{rounds:?}");
    assert_eq!(rounds.iter().sum::<u32>(), 25);
}

/// One of a few clients shares the reduced quota with one other: every request beyond the first in flight would be refused with it.
#[test]
fn one_of_a_few_clients_sends_one_probe_after_another() {
    let mut quota = held(25.0, 100);
    refuse(&mut quota, 500.0);
    let mut series = ProbeSeries::new(&quota.reduced.unwrap());
    for _ in 0..14 {
        assert!(series.is_ready());
        series.on_send();
        assert!(!series.is_ready());
        assert!(!series.on_success());
    }
}

fn prober_of_many() -> ReducedQuota {
    let mut quota = held(1.0, 100);
    quota.confirmed_rate = Some(1.0);
    quota.hold_at(0.5, at(500.0));
    quota.search_former_rate(at(500.0), &mut Random::new(1));
    let mut reduced = quota.reduced.unwrap();
    reduced.is_prober = true;
    reduced
}

/// A client that grows takes the server's last tokens from others, which then look, find and grow as well.
#[test]
fn a_client_grows_beyond_its_former_rate_once_in_a_while_only() {
    let mut quota = held(1.0, 100);
    quota.confirmed_rate = Some(1.0);
    for (second, grows) in [(500.0, true), (560.0, false)] {
        quota.hold_at(0.5, at(second));
        quota.search_former_rate(at(second), &mut Random::new(1));
        quota.reduced.as_mut().unwrap().is_prober = true;
        look(&mut quota, second + 10.0, 1_000);
        assert_eq!(quota.rate() > 1.0, grows, "{second}");
    }
}

#[test]
fn looks_are_evenly_spaced_for_a_minute_and_then_become_rarer() {
    let mut quota = held(25.0, 100);
    refuse(&mut quota, 500.0);
    let mut second = 506.0;
    let mut gaps = Vec::new();
    while second < 800.0 {
        look(&mut quota, second, 3);
        let next = quota.reduced.unwrap().probe_at.as_nanos() as f64 / 1e9;
        gaps.push((second, next - second));
        second = next;
    }
    let (early, late): (Vec<_>, Vec<_>) = gaps.iter().partition(|(at, _)| *at < 560.0);
    assert!(
        early.iter().all(|(_, gap)| (5.9..8.1).contains(gap)),
        "{early:?}"
    );
    assert!(late.last().unwrap().1 > 16.0, "{late:?}");
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
