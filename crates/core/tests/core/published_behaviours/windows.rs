//! Windows and their edges: where a fixed window admits twice its limit, and how much less the sliding ones admit.

use tollgate_core::{
    Calendar, CounterState, FixedWindow, Nanos, Outcome, SlidingCounter, SlidingLog, Timestamp,
    UtcOffset, Window,
};

use super::{KeyedLimit, at_ns};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

fn fixed(window: Window) -> KeyedLimit {
    KeyedLimit::new(FixedWindow::builder(100, window).build().unwrap())
}

#[test]
fn a_fixed_window_on_the_epoch_admits_twice_its_limit_within_a_nanosecond() {
    let mut key = fixed(Window::Epoch(Nanos::MINUTE));
    assert_eq!(key.count_allowed(1_000, at_ns(10 * MINUTE - 1)), 100);
    assert_eq!(key.count_allowed(1_000, at_ns(10 * MINUTE)), 100);
    assert_eq!(key.count_allowed(1_000, at_ns(11 * MINUTE - 1)), 0);
}

#[test]
fn a_fixed_window_from_the_first_hit_admits_one_less_than_twice_because_that_hit_starts_it() {
    let mut key = fixed(Window::FirstHit(Nanos::MINUTE));
    let first = 10 * MINUTE + 17 * SECOND;
    assert_eq!(key.count_allowed(1, at_ns(first)), 1);
    assert_eq!(key.count_allowed(1_000, at_ns(first + MINUTE - 1)), 99);
    assert_eq!(key.count_allowed(1_000, at_ns(first + MINUTE)), 100);
    // Bursts that begin with the first hit get no more than the limit: the window moves with them.
    let later = first + 10 * MINUTE;
    assert_eq!(key.count_allowed(1_000, at_ns(later)), 100);
    assert_eq!(key.count_allowed(1_000, at_ns(later + MINUTE - 1)), 0);
}

#[test]
fn a_fixed_window_by_the_calendar_admits_twice_at_local_midnight() {
    let tokyo = UtcOffset::from_minutes(9 * 60).unwrap();
    let mut key = fixed(Window::Calendar(Calendar::Day, tokyo));
    // 2024-03-01T00:00 in Tokyo is 15:00 of the day before in UTC.
    let midnight = (19_782 * 86_400 + 15 * 3_600) * SECOND;
    assert_eq!(key.count_allowed(1_000, at_ns(midnight - 1)), 100);
    assert_eq!(key.count_allowed(1_000, at_ns(midnight)), 100);
    let denied = key.spend(at_ns(midnight), 1);
    assert_eq!(
        denied,
        Outcome::Deny {
            retry_after: Nanos::DAY
        }
    );
}

#[test]
fn a_sliding_log_admits_its_limit_in_any_window_and_never_one_more() {
    let mut key = KeyedLimit::new(SlidingLog::builder(100, Nanos::MINUTE).build().unwrap());
    assert_eq!(key.count_allowed(1_000, at_ns(10 * MINUTE - 1_000)), 100);
    assert_eq!(key.count_allowed(1_000, at_ns(10 * MINUTE)), 0);
    assert_eq!(key.count_allowed(1_000, at_ns(11 * MINUTE - 1_001)), 0);
    assert_eq!(key.count_allowed(1_000, at_ns(11 * MINUTE - 1_000)), 100);
}

fn counter() -> SlidingCounter {
    SlidingCounter::builder(100, Nanos::MINUTE).build().unwrap()
}

/// 80 in the minute before, 30 in this one.
const PUBLISHED: CounterState = CounterState {
    start: MINUTE,
    previous: 80,
    current: 30,
};

fn used_at_percent(percent: u64) -> u64 {
    let now = at_ns(MINUTE + MINUTE / 100 * percent);
    100 - counter().status(PUBLISHED, now).remaining
}

#[test]
fn a_sliding_counter_estimates_54_at_70_percent_and_50_at_75() {
    assert_eq!(used_at_percent(70), 54, "80 · 0.30 + 30");
    assert_eq!(used_at_percent(75), 50, "80 · 0.25 + 30");
    // It decides by the same number: 46 more fit at 70 %, 47 do not.
    let now = at_ns(MINUTE + MINUTE / 100 * 70);
    assert_eq!(counter().decide(PUBLISHED, now, 46).outcome, Outcome::Allow);
    let denied = counter().decide(PUBLISHED, now, 47).outcome;
    assert_eq!(
        denied,
        Outcome::Deny {
            retry_after: Nanos::from_millis(750)
        }
    );
}

#[test]
fn a_sliding_counter_admits_just_below_twice_its_limit_only_if_the_second_half_is_spread() {
    let mut key = KeyedLimit::new(counter());
    let begin = 10 * MINUTE - 1;
    let mut admitted = key.count_allowed(1_000, at_ns(begin));
    // From the burst on, one full window, trying every 10 ms.
    for step in 0..6_000 {
        let now = 10 * MINUTE + step * SECOND / 100;
        assert!(now < begin + MINUTE);
        admitted += key.count_allowed(10, at_ns(now));
    }
    assert_eq!(admitted, 199, "100 at once and then one each 600 ms");
}

#[test]
fn a_sliding_counter_admits_at_once_no_more_than_what_has_faded() {
    for (gone_percent, expected) in [(0, 0), (1, 1), (10, 10), (50, 50), (99, 99)] {
        let mut key = KeyedLimit::new(counter());
        assert_eq!(key.count_allowed(1_000, at_ns(10 * MINUTE - 1)), 100);
        let now: Timestamp = at_ns(10 * MINUTE + MINUTE / 100 * gone_percent);
        assert_eq!(key.count_allowed(1_000, now), expected, "{gone_percent} %");
    }
}
