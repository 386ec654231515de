//! NGINX `limit_req`: its documented examples, and its integer formula beside ours.
//!
//! The formula is that of `ngx_http_limit_req_lookup`: thousandths of a request, whole milliseconds, and a division that truncates at
//! every request. Where that division is exact we must agree with it; where it is not, we must not.

use tollgate_core::limit::Limit;
use tollgate_core::{LeakyBucket, Nanos, Outcome, Rate};

use super::{KeyedLimit, PseudoRandom, at_ms, deny_ms};

/// The published example: `rate=10r/s burst=20`.
const RATE: Rate = Rate::per_second(10);
const BURST: u64 = 20;

fn wait_ms(ms: u64) -> Outcome {
    if ms == 0 {
        Outcome::Allow
    } else {
        Outcome::Wait(Nanos::from_millis(ms))
    }
}

fn key(delay: Option<u64>) -> KeyedLimit {
    let builder = match delay {
        Some(delay) => LeakyBucket::queue(RATE).delay(delay),
        None => LeakyBucket::meter(RATE),
    };
    KeyedLimit::new(builder.burst(BURST).build().unwrap())
}

#[test]
fn burst_20_delays_by_0_100_up_to_2000_ms_and_rejects_the_22nd() {
    let mut key = key(Some(0));
    for place in 0..=20 {
        assert_eq!(
            key.spend(at_ms(1_000), 1),
            wait_ms(place * 100),
            "request {}",
            place + 1
        );
    }
    assert_eq!(key.spend(at_ms(1_000), 1), deny_ms(100));
}

#[test]
fn burst_20_nodelay_admits_21_at_once_and_then_one_each_100_ms() {
    let mut key = key(None);
    assert_eq!(key.count_allowed(100, at_ms(1_000)), 21);
    for ms in 1..=1_000 {
        let expected = usize::from(ms % 100 == 0);
        assert_eq!(
            key.count_allowed(5, at_ms(1_000 + ms)),
            expected,
            "after {ms} ms"
        );
    }
}

#[test]
fn burst_20_delay_10_admits_11_at_once_and_delays_ten_by_100_to_1000_ms() {
    let mut key = key(Some(10));
    for request in 1..=11 {
        assert_eq!(
            key.spend(at_ms(1_000), 1),
            Outcome::Allow,
            "request {request}"
        );
    }
    for place in 1..=10 {
        assert_eq!(
            key.spend(at_ms(1_000), 1),
            wait_ms(place * 100),
            "request {}",
            11 + place
        );
    }
    assert_eq!(key.spend(at_ms(1_000), 1), deny_ms(100));
}

/// The computation of `limit_req`, line by line.
struct Nginx {
    /// Thousandths of a request a second.
    rate: u64,
    burst: u64,
    /// `None`: nodelay.
    delay: Option<u64>,
    /// Thousandths of a request, and the millisecond they were counted at.
    state: Option<(u64, u64)>,
}

impl Nginx {
    fn new(requests: u64, seconds: u64, burst: u64, delay: Option<u64>) -> Self {
        Self {
            rate: requests * 1_000 / seconds,
            burst: burst * 1_000,
            delay: delay.map(|delay| delay * 1_000),
            state: None,
        }
    }

    /// The delay in milliseconds, or `None` for a rejection.
    fn request(&mut self, now: u64) -> Option<u64> {
        let Some((excess, last)) = self.state else {
            self.state = Some((0, now));
            return Some(0);
        };
        let ms = now - last;
        let excess = (excess + 1_000).saturating_sub(self.rate * ms / 1_000);
        if excess > self.burst {
            return None;
        }
        // nginx keeps `last` where no millisecond has passed, which is the same instant.
        self.state = Some((excess, now));
        let late = self.delay.map_or(0, |delay| excess.saturating_sub(delay));
        Some(late * 1_000 / self.rate)
    }
}

#[test]
fn where_nginx_is_exact_we_decide_the_same_over_a_long_trace() {
    // 10 r/s is 10 thousandths a millisecond: nothing to truncate at whole milliseconds.
    for delay in [Some(0), Some(10), Some(20), None] {
        let mut nginx = Nginx::new(10, 1, BURST, delay);
        let mut ours = key(delay);
        let (mut random, mut now, mut counts) = (PseudoRandom(3), 1_000, [0_u32; 3]);
        for _ in 0..100_000 {
            now += random.below(195);
            // An occasional pause, so that the queue also runs empty.
            now += if random.below(500) == 0 {
                random.below(5_000)
            } else {
                0
            };
            let outcome = ours.spend(at_ms(now), 1);
            let expected = nginx.request(now);
            match (expected, outcome) {
                (Some(ms), outcome) => {
                    assert_eq!(outcome, wait_ms(ms), "delay {delay:?} at {now} ms");
                    counts[usize::from(ms > 0)] += 1;
                }
                (None, outcome) => {
                    assert!(
                        !outcome.is_admitted(),
                        "delay {delay:?} at {now} ms: {outcome:?}"
                    );
                    counts[2] += 1;
                }
            }
        }
        assert!(
            counts[0] > 100 && counts[2] > 100,
            "admitted, delayed, rejected: {counts:?}"
        );
        assert_eq!(counts[1] > 100, matches!(delay, Some(0 | 10)), "{counts:?}");
    }
}

fn one_a_minute(burst: u64) -> KeyedLimit {
    let bucket = LeakyBucket::meter(Rate::per_minute(1)).burst(burst);
    KeyedLimit::new(Limit::new(bucket.build().unwrap()))
}

#[test]
fn a_client_at_exactly_one_a_minute_is_never_rejected_though_nginx_rejects_every_second_one() {
    // 1r/m becomes 16 thousandths a second instead of 16.67: after a minute 40 thousandths are still in the bucket.
    let mut nginx = Nginx::new(1, 60, 0, None);
    let mut ours = one_a_minute(0);
    let minutes = 0..60;
    let by_us = minutes
        .clone()
        .filter(|m| ours.spend(at_ms(m * 60_000), 1).is_admitted());
    assert_eq!(by_us.count(), 60);
    let by_nginx = minutes.filter(|m| nginx.request(m * 60_000).is_some());
    assert_eq!(by_nginx.count(), 30);
}

#[test]
fn refill_between_quick_requests_is_kept_though_nginx_truncates_it_away() {
    // 62 ms at 16 thousandths a second are 0.992 thousandths: nginx counts none, and moves its clock on.
    let mut nginx = Nginx::new(1, 60, 5, None);
    let mut ours = one_a_minute(5);
    for request in 0..6 {
        assert!(nginx.request(request * 62).is_some());
        assert!(ours.spend(at_ms(request * 62), 1).is_admitted());
    }
    assert_eq!(
        nginx.state,
        Some((5_000, 310)),
        "all five of the burst, as if no time had passed"
    );
    let left = ours.status(at_ms(310)).reset_after;
    assert_eq!(
        left,
        Nanos::from_millis(6 * 60_000 - 310),
        "six minutes less what has leaked"
    );
}
