//! What is compared with the truth: the sliding window counter of the product, and for the study's own tests an exact
//! log, which must come out without a fault, and a fixed window, which must not.
//!
//! Must not know: how traffic is made, how faults are counted.

use tollgate_core::{CounterState, InvalidQuota, Nanos, Outcome, SlidingCounter, Timestamp};

/// So much in so long, for each source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) limit: u32,
    pub(crate) window: Nanos,
}

impl Limit {
    pub(crate) const fn new(limit: u32, window: Nanos) -> Self {
        Self { limit, window }
    }

    pub(crate) fn window_seconds(&self) -> f64 {
        self.window.as_nanos() as f64 / 1e9
    }
}

/// More requests than a source may have in one window. The counter's meter and the exact windows hold this many, so
/// that memory is bounded; a study that reaches it says so and fails rather than count wrongly.
pub(crate) const MOST_IN_WINDOW: u32 = 1 << 20;

/// What a candidate says about a request when everything that is offered counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CandidateReply {
    /// Whether it takes the request, with all before it, to be above the limit.
    pub(crate) is_over: bool,
    /// How many requests it takes the last window to have held, this one included.
    pub(crate) estimate: f64,
}

/// Something that judges one source's requests, in order of time, in both ways.
pub(crate) trait Candidate {
    /// Forgets everything: another source follows.
    fn reset(&mut self);

    /// Counts a request whatever comes of it.
    fn offer(&mut self, now: Timestamp) -> CandidateReply;

    /// Decides on a request and counts it only if it is admitted. Keeps apart from what `offer` counts.
    fn admits(&mut self, now: Timestamp) -> bool;
}

/// The product's sliding window counter.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    window: f64,
    /// The limit with an overdraft so large that `charge_always` counts everything.
    meter: SlidingCounter,
    offered: CounterState,
    quota: SlidingCounter,
    admitted: CounterState,
}

impl Counter {
    pub(crate) fn new(limit: &Limit) -> Result<Self, InvalidQuota> {
        let builder = SlidingCounter::builder(u64::from(limit.limit), limit.window);
        let quota = builder.build()?;
        Ok(Self {
            window: quota.window().as_nanos() as f64,
            meter: builder.overdraft(u64::from(MOST_IN_WINDOW)).build()?,
            offered: CounterState::default(),
            quota,
            admitted: CounterState::default(),
        })
    }

    /// `prev · (W − e) / W + cur` without rounding. The core computes the same line but tells it only rounded up to a
    /// whole request, which would drown the errors of quiet sources; a test below holds the two together. The state
    /// has just been charged at `now`, so the core has already moved its windows along.
    fn estimate(&self, now: Timestamp) -> f64 {
        let gone = now.as_nanos().saturating_sub(self.offered.start) as f64;
        let weight = (1.0 - gone / self.window).max(0.0);
        f64::from(self.offered.previous) * weight + f64::from(self.offered.current)
    }
}

impl Candidate for Counter {
    fn reset(&mut self) {
        self.offered = CounterState::default();
        self.admitted = CounterState::default();
    }

    fn offer(&mut self, now: Timestamp) -> CandidateReply {
        let is_over = self.meter.decide(self.offered, now, 1).outcome != Outcome::Allow;
        if let Some(next) = self.meter.charge_always(self.offered, now, 1).next {
            self.offered = next;
        }
        CandidateReply {
            is_over,
            estimate: self.estimate(now),
        }
    }

    fn admits(&mut self, now: Timestamp) -> bool {
        let decision = self.quota.decide(self.admitted, now, 1);
        if let Some(next) = decision.next {
            self.admitted = next;
        }
        decision.outcome == Outcome::Allow
    }
}

#[cfg(test)]
pub(crate) mod controls {
    //! Candidates whose verdict is known beforehand.

    use tollgate_core::SlidingLog;
    use tollgate_core::sliding_log::{Log, MAX_LOG_ENTRIES};

    use super::*;

    /// The product's exact log, as a candidate: the comparison must find no fault with it.
    pub(crate) struct ExactLog {
        meter: SlidingLog,
        offered: Log,
        quota: SlidingLog,
        admitted: Log,
    }

    impl ExactLog {
        pub(crate) fn new(limit: &Limit) -> Self {
            let builder = SlidingLog::builder(u64::from(limit.limit), limit.window);
            let room = MAX_LOG_ENTRIES - u64::from(limit.limit);
            Self {
                meter: builder.overdraft(room).build().unwrap(),
                offered: Log::new(),
                quota: builder.build().unwrap(),
                admitted: Log::new(),
            }
        }
    }

    impl Candidate for ExactLog {
        fn reset(&mut self) {
            self.offered = Log::new();
            self.admitted = Log::new();
        }

        fn offer(&mut self, now: Timestamp) -> CandidateReply {
            let is_over = self.meter.decide(&self.offered, now, 1).outcome != Outcome::Allow;
            let edit = self.meter.charge_always(&self.offered, now, 1).next;
            self.offered.apply(edit.expect("within the overdraft"));
            let counted: u64 = self.offered.entries().map(|entry| entry.blocks).sum();
            CandidateReply {
                is_over,
                estimate: counted as f64,
            }
        }

        fn admits(&mut self, now: Timestamp) -> bool {
            let decision = self.quota.decide(&self.admitted, now, 1);
            if let Some(edit) = decision.next {
                self.admitted.apply(edit);
            }
            decision.outcome == Outcome::Allow
        }
    }

    /// Counts within windows aligned to the epoch and forgets at each boundary: deliberately wrong.
    pub(crate) struct ForgetfulLog {
        pub(crate) limit: Limit,
        pub(crate) offered: (u64, u32),
        pub(crate) admitted: (u64, u32),
    }

    impl ForgetfulLog {
        pub(crate) fn new(limit: &Limit) -> Self {
            Self {
                limit: *limit,
                offered: (0, 0),
                admitted: (0, 0),
            }
        }

        fn roll(&self, (window, count): (u64, u32), now: Timestamp) -> (u64, u32) {
            let current = now.as_nanos() / self.limit.window.as_nanos();
            (current, if current == window { count } else { 0 })
        }
    }

    impl Candidate for ForgetfulLog {
        fn reset(&mut self) {
            self.offered = (0, 0);
            self.admitted = (0, 0);
        }

        fn offer(&mut self, now: Timestamp) -> CandidateReply {
            self.offered = self.roll(self.offered, now);
            self.offered.1 += 1;
            CandidateReply {
                is_over: self.offered.1 > self.limit.limit,
                estimate: f64::from(self.offered.1),
            }
        }

        fn admits(&mut self, now: Timestamp) -> bool {
            self.admitted = self.roll(self.admitted, now);
            let fits = self.admitted.1 < self.limit.limit;
            self.admitted.1 += u32::from(fits);
            fits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, whole};

    #[test]
    fn the_unrounded_estimate_is_the_core_s_estimate() {
        let mut random = Random::new(3, 0);
        for (limit, window) in [(100, Nanos::MINUTE), (10, Nanos::SECOND), (7, Nanos::HOUR)] {
            let limit = Limit::new(limit, window);
            let mut counter = Counter::new(&limit).unwrap();
            // The same window under a limit that nothing here reaches: there `limit − remaining` is the core's
            // estimate, rounded up.
            let wide = SlidingCounter::builder(u64::from(MOST_IN_WINDOW), window)
                .build()
                .unwrap();
            let mut now = 1_700_000_000_000_000_000;
            for _ in 0..20_000 {
                let mean = limit.window_seconds() * random.log_uniform(0.001, 1.0);
                now += whole(random.exponential(mean) * 1e6) * 1_000;
                let at = Timestamp::from_nanos(now);
                let reading = counter.offer(at);
                let status = wide.status(counter.offered, at);
                let rounded = (status.limit - status.remaining) as f64;
                // A float a hair above a whole number would round up where the integers do not.
                assert!((rounded - 1.0 - 1e-6..=rounded + 1e-6).contains(&reading.estimate));
                let is_over = rounded > f64::from(limit.limit);
                assert_eq!(reading.is_over, is_over, "{reading:?} at {now}");
            }
        }
    }

    #[test]
    fn everything_offered_is_counted_and_only_the_admitted_is_spent() {
        let mut counter = Counter::new(&Limit::new(5, Nanos::MINUTE)).unwrap();
        let now = Timestamp::from_secs(1_700_000_040);
        let readings: Vec<CandidateReply> = (0..50).map(|_| counter.offer(now)).collect();
        assert_eq!(
            readings.iter().filter(|reading| reading.is_over).count(),
            45
        );
        assert_eq!(counter.offered.current, 50);
        assert_eq!((0..50).filter(|_| counter.admits(now)).count(), 5);
        counter.reset();
        assert!(!counter.offer(now).is_over);
    }
}
