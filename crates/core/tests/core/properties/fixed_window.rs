//! Fixed windows against a plain count of what was admitted, and calendar windows against a calendar walked by hand.

use proptest::prelude::*;
use tollgate_core::{
    Calendar, FixedWindow, Nanos, Outcome, Timestamp, UtcOffset, Window, WindowState,
};
use tollgate_testkit::oracle::{FirstHitCount, NaiveSpan, naive_end};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{Step, at, beginning, interval, trace};

/// A window under test: spends, or returns the time until it ends.
trait WindowLimiter {
    fn spend(&mut self, now: u64, cost: u64) -> Result<(), u64>;
}

struct RealWindow(FixedWindow, WindowState);

impl RealWindow {
    fn new(limit: u64, window: Window) -> Self {
        let quota = FixedWindow::builder(limit, window).build().unwrap();
        Self(quota, WindowState::default())
    }
}

impl WindowLimiter for RealWindow {
    fn spend(&mut self, now: u64, cost: u64) -> Result<(), u64> {
        let transition = self.0.decide(self.1, at(now), cost);
        self.1 = transition.next.unwrap_or(self.1);
        match transition.outcome {
            Outcome::Deny { retry_after } => Err(retry_after.as_nanos()),
            Outcome::Never => Err(0),
            _ => Ok(()),
        }
    }
}

/// Admits what a plain count of the windows since 1970 admits, with the same ends.
fn counts_by_the_epoch(
    mut window: impl WindowLimiter,
    (limit, length): (u64, u64),
    begin: u64,
    steps: &[Step],
) -> CheckResult {
    let mut admitted: Vec<(u64, u64)> = Vec::new();
    let mut now = begin;
    for step in steps {
        now += step.advance(length);
        let cost = step.cost.min(limit);
        let index = now / length;
        let inside = admitted.iter().filter(|one| one.0 / length == index);
        let used: u64 = inside.map(|one| one.1).sum();
        let expected = if used + cost <= limit {
            admitted.push((now, cost));
            Ok(())
        } else {
            Err((index + 1) * length - now)
        };
        let reply = window.spend(now, cost);
        ensure!(reply == expected, "{reply:?}, the count says {expected:?}");
    }
    Ok(())
}

/// Admits what a replay of all admissions admits; each window begins with the first request that finds none open.
fn counts_from_the_first_hit(
    mut window: impl WindowLimiter,
    (limit, length): (u64, u64),
    begin: u64,
    steps: &[Step],
) -> CheckResult {
    let mut replay = FirstHitCount::new(limit, length);
    let mut now = begin;
    for step in steps {
        now += step.advance(length);
        let cost = step.cost.min(limit);
        let (reply, expected) = (window.spend(now, cost), replay.spend(now, cost));
        ensure!(reply == expected, "{reply:?}, the replay says {expected:?}");
    }
    Ok(())
}

fn quotas() -> impl Strategy<Value = (u64, u64)> {
    (1_u64..12, interval())
}

#[test]
fn i01_i03_windows_since_the_epoch_count_exactly() {
    assert_holds(
        &(quotas(), beginning(), trace(50, 12)),
        |(quota, begin, steps)| {
            let window = Window::Epoch(Nanos::from_nanos(quota.1));
            counts_by_the_epoch(RealWindow::new(quota.0, window), quota, begin, &steps)
        },
    );
}

#[test]
fn i01_i03_windows_from_the_first_hit_count_exactly() {
    assert_holds(
        &(quotas(), beginning(), trace(50, 12)),
        |(quota, begin, steps)| {
            let window = Window::FirstHit(Nanos::from_nanos(quota.1));
            counts_from_the_first_hit(RealWindow::new(quota.0, window), quota, begin, &steps)
        },
    );
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    /// Denied requests are counted, as by an `INCR` before the comparison, so the window stays full.
    CountsDenials,
    /// Every hit sets the expiry anew, so a busy client's window never ends.
    EveryHitExtends,
    /// The window still counts at the very instant of its end.
    EndsATickLate,
}

struct WrongWindow {
    mistake: Mistake,
    limit: u64,
    length: u64,
    aligned: bool,
    end: u64,
    count: u64,
}

impl WindowLimiter for WrongWindow {
    fn spend(&mut self, now: u64, cost: u64) -> Result<(), u64> {
        let late = u64::from(self.mistake == Mistake::EndsATickLate);
        if now >= self.end + late {
            let begun = if self.aligned { now % self.length } else { 0 };
            (self.end, self.count) = (now - begun + self.length, 0);
        }
        if self.mistake == Mistake::EveryHitExtends && cost > 0 {
            self.end = now + self.length;
        }
        if self.count + cost > self.limit {
            if self.mistake == Mistake::CountsDenials {
                self.count = self.limit;
            }
            return Err((self.end - now).max(1));
        }
        self.count += cost;
        Ok(())
    }
}

#[test]
fn control_every_wrong_window_is_caught() {
    for mistake in [
        Mistake::CountsDenials,
        Mistake::EveryHitExtends,
        Mistake::EndsATickLate,
    ] {
        let wrong = |(limit, length), aligned| WrongWindow {
            mistake,
            limit,
            length,
            aligned,
            end: 0,
            count: 0,
        };
        assert_caught(
            &(quotas(), beginning(), trace(50, 12)),
            |(quota, begin, steps)| counts_by_the_epoch(wrong(quota, true), quota, begin, &steps),
        );
        assert_caught(
            &(quotas(), beginning(), trace(50, 12)),
            |(quota, begin, steps)| {
                counts_from_the_first_hit(wrong(quota, false), quota, begin, &steps)
            },
        );
    }
}

/// A calendar window ends where the naive calendar says.
fn ends_with_the_calendar(end: u64, span: NaiveSpan, now: u64, minutes: i16) -> CheckResult {
    let expected = naive_end(span, now, i32::from(minutes));
    ensure!(
        i128::from(end) == expected,
        "{span:?} ends at {end}, not {expected}"
    );
    Ok(())
}

const SPANS: [(Calendar, NaiveSpan); 4] = [
    (Calendar::Day, NaiveSpan::Day),
    (Calendar::Week, NaiveSpan::Week),
    (Calendar::Month, NaiveSpan::Month),
    (Calendar::Year, NaiveSpan::Year),
];

fn instants() -> impl Strategy<Value = (usize, u64, i16)> {
    // To 2116, including the edges of days.
    let edge = (0_u64..53_000, -2_i64..=2)
        .prop_map(|(day, off)| (day * 86_400_000_000_000).saturating_add_signed(off));
    (
        0_usize..4,
        prop_oneof![0_u64..1 << 62, edge],
        -840_i16..=840,
    )
}

#[test]
fn calendar_windows_end_where_a_calendar_walked_by_hand_says() {
    assert_holds(&instants(), |(which, now, minutes)| {
        let (calendar, span) = SPANS[which];
        let window = Window::Calendar(calendar, UtcOffset::from_minutes(minutes).unwrap());
        let mut real = RealWindow::new(1, window);
        real.spend(now, 1).unwrap();
        ends_with_the_calendar(real.1.end, span, now, minutes)
    });
}

#[test]
fn control_calendars_of_30_days_and_weeks_from_1970_are_caught() {
    let wrong = [(0_usize, 1_u64), (1, 7), (2, 30), (3, 365)];
    for (span, days) in wrong {
        assert_caught(&instants(), |(_, now, minutes)| {
            let length = days * 86_400_000_000_000;
            let shift = i64::from(minutes) * 60_000_000_000 * i64::from(span != 0);
            let local = now.saturating_add_signed(shift);
            let end = (local - local % length + length).saturating_add_signed(-shift);
            ends_with_the_calendar(end, SPANS[span].1, now, minutes)
        });
    }
}

/// After any change of the quota, the reset that clients have seen stays, unless the new window cannot reach it.
fn the_reset_stays(
    reset_at: impl Fn(&FixedWindow, WindowState, Timestamp) -> u64,
    (length, longer, limit, now): (u64, u64, u64, u64),
) -> CheckResult {
    let old = FixedWindow::builder(10, Window::FirstHit(Nanos::from_nanos(length)));
    let spent = old
        .build()
        .unwrap()
        .decide(WindowState::default(), at(now), 1);
    let state = spent.next.unwrap();
    let later = now + length / 2;
    for window in [
        Window::FirstHit(Nanos::from_nanos(longer)),
        Window::Epoch(Nanos::from_nanos(longer)),
    ] {
        let new = FixedWindow::builder(limit, window).build().unwrap();
        let reset_at = reset_at(&new, state, at(later));
        ensure!(
            reset_at == now + length,
            "reset at {reset_at}, announced {}",
            now + length
        );
    }
    Ok(())
}

fn changes() -> impl Strategy<Value = (u64, u64, u64, u64)> {
    (
        2_u64..1_000_000,
        1_000_000_u64..5_000_000,
        0_u64..20,
        beginning(),
    )
}

#[test]
fn i12_a_changed_quota_keeps_the_announced_reset() {
    assert_holds(&changes(), |change| {
        the_reset_stays(
            |quota, state, now| now.after(quota.status(state, now).reset_after).as_nanos(),
            change,
        )
    });
}

#[test]
fn control_a_window_that_recomputes_its_end_is_caught() {
    assert_caught(&changes(), |change| {
        the_reset_stays(
            |quota, _, now| match quota.window() {
                Window::Epoch(length) => {
                    now.as_nanos() - now.as_nanos() % length.as_nanos() + length.as_nanos()
                }
                _ => now.as_nanos() + 1,
            },
            change,
        )
    });
}
