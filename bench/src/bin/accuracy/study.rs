//! The comparison: one source's requests, judged by a candidate and by the truth, in two ways.
//!
//! *Offered* is how the published figures were made: every arrival counts, and the question is whether the candidate
//! sees the rate as it is. *Enforced* is what the product does: a refused request spends nothing, each side goes its
//! own way, and the question is what gets through.
//!
//! Must not know: where requests come from, how numbers are printed, which candidate it judges.

use std::collections::VecDeque;

use tollgate_core::sliding_log::Log;
use tollgate_core::{InvalidQuota, Outcome, SlidingLog, Timestamp};

use crate::candidates::{Candidate, CandidateReply, Limit, MOST_IN_WINDOW};
use crate::counts::DecisionCounts;
use crate::random::whole;

/// Compares a candidate with the truth, one source after another.
#[derive(Debug)]
pub(crate) struct StudyJudge<C> {
    limit: u64,
    candidate: C,
    /// All arrivals of the last window.
    offered: Window,
    /// What the candidate let through in the last window.
    let_through: Window,
    exact: SlidingLog,
    admitted: Log,
}

/// What is remembered about one source while its requests pass.
#[derive(Debug, Default)]
struct TrafficSource {
    most_exact: u64,
    rejected: bool,
    wrongly_admitted: bool,
}

impl<C: Candidate> StudyJudge<C> {
    pub(crate) fn new(limit: &Limit, candidate: C) -> Result<Self, InvalidQuota> {
        let window = limit.window.as_nanos();
        Ok(Self {
            limit: u64::from(limit.limit),
            candidate,
            offered: Window::new(window),
            let_through: Window::new(window),
            exact: SlidingLog::builder(u64::from(limit.limit), limit.window).build()?,
            admitted: Log::new(),
        })
    }

    /// Judges all requests of one source, in order of time, and adds what it finds to the tally.
    pub(crate) fn source(
        &mut self,
        arrivals: impl Iterator<Item = Timestamp>,
        tally: &mut DecisionCounts,
    ) {
        self.candidate.reset();
        self.offered.clear();
        self.let_through.clear();
        self.admitted = Log::new();
        let mut source = TrafficSource::default();
        let before = tally.requests;
        for now in arrivals {
            tally.requests += 1;
            self.offer(now, &mut source, tally);
            self.enforce(now, tally);
        }
        if tally.requests > before {
            tally.sources += 1;
            self.conclude(&source, tally);
        }
        tally.overflows += self.offered.overflows + self.let_through.overflows;
    }

    fn offer(&mut self, now: Timestamp, source: &mut TrafficSource, tally: &mut DecisionCounts) {
        let exact = self.offered.push(now);
        let CandidateReply { is_over, estimate } = self.candidate.offer(now);
        let truly_over = exact > self.limit;
        source.most_exact = source.most_exact.max(exact);
        source.rejected |= is_over;

        let found = &mut tally.offered;
        found.truly_over += u64::from(truly_over);
        if truly_over && !is_over {
            source.wrongly_admitted = true;
            found.wrong_admits += 1;
            found.wrong_admits_beyond += u64::from(exact * 100 > self.limit * 115);
            found.worst_wrong_admit = found.worst_wrong_admit.max(exact);
        }
        found.wrong_rejects += u64::from(is_over && !truly_over);

        let excess = estimate - exact as f64;
        let error = whole(excess.abs() / exact as f64 * 1e9);
        found.error_ppb += u128::from(error);
        found.worst_error_ppb = found.worst_error_ppb.max(error);
        if exact * 2 >= self.limit {
            found.near_requests += 1;
            found.near_error_ppb += u128::from(error);
            found.near_worst_error_ppb = found.near_worst_error_ppb.max(error);
        }
        // A negative float becomes zero, so exactly one of the two grows.
        found.too_much += u128::from(whole(excess * 1e6));
        found.too_little += u128::from(whole(-excess * 1e6));
        found.exact_total += u128::from(exact);
    }

    fn enforce(&mut self, now: Timestamp, tally: &mut DecisionCounts) {
        let by_candidate = self.candidate.admits(now);
        let decision = self.exact.decide(&self.admitted, now, 1);
        if let Some(edit) = decision.next {
            self.admitted.apply(edit);
        }
        let by_log = decision.outcome == Outcome::Allow;

        let found = &mut tally.enforced;
        found.admitted += u64::from(by_candidate);
        found.admitted_by_log += u64::from(by_log);
        found.only_candidate += u64::from(by_candidate && !by_log);
        found.only_log += u64::from(by_log && !by_candidate);
        if by_candidate {
            found.most_in_window = found.most_in_window.max(self.let_through.push(now));
        }
    }

    fn conclude(&self, source: &TrafficSource, tally: &mut DecisionCounts) {
        let found = &mut tally.offered;
        let was_over = source.most_exact > self.limit;
        found.sources_over += u64::from(was_over);
        found.sources_wrongly_admitted += u64::from(source.wrongly_admitted);
        found.sources_below_rejected += u64::from(source.rejected && !was_over);
        if was_over && !source.rejected {
            found.sources_never_caught += 1;
            found.worst_never_caught = found.worst_never_caught.max(source.most_exact);
        }
    }
}

/// The truth: the instants of the last window, each in a slot of its own. Independent of the product's log, which
/// stops counting at its bound; that log is held against this one by a test.
#[derive(Debug)]
struct Window {
    length: u64,
    instants: VecDeque<u64>,
    overflows: u64,
}

impl Window {
    fn new(length: u64) -> Self {
        Self {
            length,
            instants: VecDeque::new(),
            overflows: 0,
        }
    }

    fn clear(&mut self) {
        self.instants.clear();
        self.overflows = 0;
    }

    /// Remembers a request; how many the last window held with it. One leaves at exactly its instant plus the window.
    fn push(&mut self, now: Timestamp) -> u64 {
        let now = now.as_nanos();
        while self
            .instants
            .front()
            .is_some_and(|oldest| oldest.saturating_add(self.length) <= now)
        {
            self.instants.pop_front();
        }
        if self.instants.len() >= MOST_IN_WINDOW as usize {
            self.instants.pop_front();
            self.overflows += 1;
        }
        self.instants.push_back(now);
        self.instants.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Nanos;

    use super::*;
    use crate::candidates::Counter;
    use crate::candidates::controls::{ExactLog, ForgetfulLog};
    use crate::traffic::Population;

    const LIMIT: Limit = Limit::new(100, Nanos::MINUTE);

    fn judged<C: Candidate>(candidate: C) -> DecisionCounts {
        let mut judge = StudyJudge::new(&LIMIT, candidate).unwrap();
        let mut tally = DecisionCounts::default();
        let population = Population::new(200_000, 300, 1, LIMIT);
        for index in 0..population.sources() {
            judge.source(population.source(index).arrivals(), &mut tally);
        }
        tally
    }

    #[test]
    fn an_exact_log_has_no_faults() {
        let tally = judged(ExactLog::new(&LIMIT));
        assert_eq!(tally.requests, 200_000);
        assert!(
            tally.offered.truly_over > 10_000,
            "there was something to get wrong"
        );
        assert_eq!(tally.wrong(), 0);
        assert_eq!(tally.offered.error_ppb, 0);
        assert_eq!(tally.offered.sources_never_caught, 0);
        assert_eq!(tally.differing(), 0);
        assert_eq!(tally.enforced.most_in_window, 100);
        assert_eq!(tally.overflows, 0);
    }

    #[test]
    fn a_window_that_forgets_at_its_boundary_is_caught() {
        let wrong = judged(ForgetfulLog::new(&LIMIT));
        let right = judged(Counter::new(&LIMIT).unwrap());
        assert!(wrong.wrong() > 10 * right.wrong(), "{wrong:?}\n{right:?}");
        assert!(wrong.offered.wrong_admits_beyond > 0);
        assert!(wrong.offered.sources_wrongly_admitted > 0);
        assert!(wrong.differing() > 0);
        assert!(wrong.offered.error_ppb > right.offered.error_ppb);
    }

    #[test]
    fn the_counter_is_judged_as_worked_out_by_hand() {
        // 10 in the second half of one window, then 8 at 30 s into the next: the first ten have not left, so the
        // truth is 10 + n, and the estimate is 10 · 0.5 + n.
        let limit = Limit::new(11, Nanos::MINUTE);
        let mut judge = StudyJudge::new(&limit, Counter::new(&limit).unwrap()).unwrap();
        let mut tally = DecisionCounts::default();
        let at = |seconds: u64| Timestamp::from_secs(1_700_000_040 + seconds);
        let arrivals = [40; 10].into_iter().chain([90; 8]).map(at);
        judge.source(arrivals, &mut tally);
        let found = &tally.offered;
        assert_eq!(found.truly_over, 7);
        assert_eq!((found.wrong_admits, found.wrong_rejects), (5, 0));
        // Of 12 to 16 let through, 13 and more are beyond 12.65; the last two were seen.
        assert_eq!(
            (found.wrong_admits_beyond, found.worst_wrong_admit),
            (4, 16)
        );
        assert_eq!((found.sources_over, found.sources_wrongly_admitted), (1, 1));
        assert_eq!(
            (found.sources_never_caught, found.sources_below_rejected),
            (0, 0)
        );
        assert_eq!((found.too_much, found.too_little), (0, 8 * 5_000_000));
        assert_eq!(found.worst_error_ppb, 454_545_454);
        assert_eq!(
            (tally.enforced.admitted, tally.enforced.admitted_by_log),
            (16, 11)
        );
        assert_eq!(
            (tally.enforced.only_candidate, tally.enforced.only_log),
            (5, 0)
        );
        assert_eq!(tally.enforced.most_in_window, 16);
    }

    #[test]
    fn a_source_below_the_limit_that_is_rejected_is_counted() {
        // 9 at the start of one window and 9 at the start of the next, limit 10: the truth is never above 9.
        let limit = Limit::new(10, Nanos::MINUTE);
        let mut judge = StudyJudge::new(&limit, Counter::new(&limit).unwrap()).unwrap();
        let mut tally = DecisionCounts::default();
        let at = |seconds: u64| Timestamp::from_secs(1_700_000_040 + seconds);
        judge.source([0; 9].into_iter().chain([60; 9]).map(at), &mut tally);
        assert_eq!(tally.offered.sources_below_rejected, 1);
        assert_eq!(tally.offered.wrong_rejects, 8);
        assert_eq!(tally.offered.sources_over, 0);
    }

    #[test]
    fn a_window_too_full_to_count_is_reported() {
        let limit = Limit::new(10, Nanos::MINUTE);
        let mut judge = StudyJudge::new(&limit, Counter::new(&limit).unwrap()).unwrap();
        let mut tally = DecisionCounts::default();
        let now = Timestamp::from_secs(1_700_000_040);
        let many = MOST_IN_WINDOW as usize + 3;
        judge.source(std::iter::repeat_n(now, many), &mut tally);
        assert_eq!(tally.overflows, 3);
    }
}
