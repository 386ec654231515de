//! When requests are due in the open model: callers who know nothing of each other, so many in a second.
//!
//! The times between them are exponentially distributed (a Poisson process) and the same in every run. A request is timed from
//! the instant at which it was due, sent or not: a server that stalls makes the requests wait that would have come
//! meanwhile, and they count (no coordinated omission). Must not know: clocks, sockets.

use std::collections::VecDeque;
use std::time::Duration;

/// Instants since the start of a lap at which requests are due, and those that nobody has sent yet.
pub(crate) struct OpenModel {
    /// Between two requests, on average.
    mean: Duration,
    left: usize,
    next: Duration,
    waiting: VecDeque<Duration>,
    random: u64,
}

impl OpenModel {
    /// So many requests at so many a second.
    pub(crate) fn new(per_second: f64, count: usize) -> Self {
        // A server that answers once in ten seconds is broken; a bound keeps the schedule finite.
        let mean = Duration::from_secs_f64(1.0 / per_second.max(0.1));
        let mut model = Self {
            mean,
            left: count,
            next: Duration::ZERO,
            waiting: VecDeque::new(),
            random: 0x9e37_79b9_7f4a_7c15,
        };
        model.next = model.gap();
        model
    }

    /// Lets requests become due.
    pub(crate) fn advance(&mut self, now: Duration) {
        while self.left > 0 && self.next <= now {
            self.waiting.push_back(self.next);
            self.left -= 1;
            let gap = self.gap();
            self.next += gap;
        }
    }

    /// The request that is due for the longest time.
    pub(crate) fn take(&mut self) -> Option<Duration> {
        self.waiting.pop_front()
    }

    /// Whether a request is due and was not taken.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When the next request becomes due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        (self.left > 0).then_some(self.next)
    }

    fn gap(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // Above zero, so that its logarithm is a number.
        let high = u32::try_from(self.random >> 32).unwrap_or(0);
        let uniform = (f64::from(high) + 1.0) / (f64::from(u32::MAX) + 1.0);
        self.mean.mul_f64(-uniform.ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;

    const SERVICE: Duration = Duration::from_micros(100);
    const STALL: Duration = Duration::from_millis(100);

    /// 2,000 requests in two seconds to a server that takes 100 µs for each, one at a time, and stalls once for 100 ms. Both
    /// ways to time them: from when they were due, and from when they were sent.
    fn serve(stalls: bool) -> [Histogram; 2] {
        let [mut from_due, mut from_sent] = [Histogram::new(), Histogram::new()];
        let mut model = OpenModel::new(1_000.0, 2_000);
        let (mut now, mut answered) = (Duration::ZERO, 0);
        while answered < 2_000 {
            model.advance(now);
            let Some(due) = model.take() else {
                now = model.next_due().unwrap();
                continue;
            };
            let sent = now;
            now += SERVICE;
            if stalls && answered == 1_000 {
                now += STALL;
            }
            answered += 1;
            from_due.add(nanos(now - due));
            from_sent.add(nanos(now - sent));
        }
        [from_due, from_sent]
    }

    fn nanos(duration: Duration) -> u64 {
        u64::try_from(duration.as_nanos()).unwrap()
    }

    #[test]
    fn a_server_that_stalls_shows_in_the_tail() {
        let [from_due, _] = serve(true);
        // About 100 of 2,000 requests were due during the stall, the last of them at its end.
        assert!(from_due.quantile(99, 100) > nanos(STALL) / 2);
        assert!(from_due.quantile(1, 2) < nanos(SERVICE) * 2);
    }

    #[test]
    fn a_recorder_that_times_from_sending_hides_the_stall() {
        let [_, from_sent] = serve(true);
        assert!(from_sent.quantile(99, 100) < nanos(SERVICE) * 2);
    }

    #[test]
    fn a_server_that_does_not_stall_has_no_such_tail() {
        let [from_due, _] = serve(false);
        assert!(from_due.quantile(999, 1_000) < nanos(STALL) / 10);
    }

    #[test]
    fn the_rate_is_the_one_that_was_asked_for() {
        let mut model = OpenModel::new(10_000.0, 100_000);
        let mut last = Duration::ZERO;
        while let Some(due) = model.next_due() {
            last = due;
            model.advance(due);
        }
        let seconds = last.as_secs_f64();
        assert!((9.8..10.2).contains(&seconds), "{seconds}");
        assert_eq!(model.waiting.len(), 100_000);
    }
}
