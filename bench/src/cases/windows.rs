//! Fixed windows and sliding counters: two words of state.

use std::hint::black_box;

use tollgate_core::{
    Calendar, CounterState, FixedWindow, Nanos, SlidingCounter, UtcOffset, Window, WindowState,
};

use super::{CaseRun, NOW};
use crate::measure::measured_section;

/// 100 a minute, of which `count` are gone.
pub(super) fn fixed(times: u64, count: u64) -> CaseRun {
    let quota = FixedWindow::builder(100, Window::Epoch(Nanos::MINUTE)).build()?;
    let state = WindowState {
        end: NOW.after(Nanos::SECOND).as_nanos(),
        count,
    };
    measured_section(times, || {
        let (state, now, cost) = black_box((state, NOW, 1));
        black_box(&quota).decide(state, now, cost)
    });
    Ok(())
}

/// The first request of a month: the most that calendar arithmetic costs.
pub(super) fn calendar(times: u64) -> CaseRun {
    let window = Window::Calendar(Calendar::Month, UtcOffset::from_minutes(330)?);
    let quota = FixedWindow::builder(100, window).build()?;
    measured_section(times, || {
        let (state, now, cost) = black_box((WindowState::default(), NOW, 1));
        black_box(&quota).decide(state, now, cost)
    });
    Ok(())
}

/// 100 a minute with 80 in the previous window and `current` in this one, a third of it gone.
pub(super) fn counter(times: u64, current: u32) -> CaseRun {
    let quota = SlidingCounter::builder(100, Nanos::MINUTE).build()?;
    let state = counters(current);
    measured_section(times, || {
        let (state, now, cost) = black_box((state, NOW, 1));
        black_box(&quota).decide(state, now, cost)
    });
    Ok(())
}

pub(super) fn counter_status(times: u64) -> CaseRun {
    let quota = SlidingCounter::builder(100, Nanos::MINUTE).build()?;
    let state = counters(20);
    measured_section(times, || {
        let (state, now) = black_box((state, NOW));
        black_box(&quota).status(state, now)
    });
    Ok(())
}

fn counters(current: u32) -> CounterState {
    let begun = Nanos::from_secs(20).as_nanos();
    CounterState {
        start: NOW.as_nanos() - begun,
        previous: 80,
        current,
    }
}
