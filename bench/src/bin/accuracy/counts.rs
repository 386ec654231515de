//! What a comparison adds up. Whole numbers only, so that adding in another order gives the same sums: the result
//! must not depend on how many threads shared the sources.
//!
//! Must not know: where requests come from, how numbers are printed.

/// The faults found over some sources, against one limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DecisionCounts {
    pub(crate) sources: u64,
    pub(crate) requests: u64,
    pub(crate) offered: OfferedLoad,
    pub(crate) enforced: EnforcementCounts,
    /// Windows that held more than the study can count. Anything but zero makes the rest worthless.
    pub(crate) overflows: u64,
}

/// Everything that arrives counts, whatever is decided: the published method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfferedLoad {
    /// Requests above the limit by the exact count.
    pub(crate) truly_over: u64,
    /// Above the limit and let through.
    pub(crate) wrong_admits: u64,
    /// Within the limit and rejected.
    pub(crate) wrong_rejects: u64,
    /// Wrong admits at which the exact count was more than 15 % above the limit.
    pub(crate) wrong_admits_beyond: u64,
    /// The largest exact count at a wrong admit.
    pub(crate) worst_wrong_admit: u64,
    /// The sum of |estimate − exact| / exact over all requests, in parts per billion.
    pub(crate) error_ppb: u128,
    /// Requests at which the exact count was at least half the limit, and the same sum over them.
    pub(crate) near_requests: u64,
    pub(crate) near_error_ppb: u128,
    /// The largest |estimate − exact| / exact, over all requests and over those, in parts per billion.
    pub(crate) worst_error_ppb: u64,
    pub(crate) near_worst_error_ppb: u64,
    /// The sums of what the estimates had too much and too little, in millionths of a request.
    pub(crate) too_much: u128,
    pub(crate) too_little: u128,
    /// The sum of all exact counts.
    pub(crate) exact_total: u128,
    /// Sources that were above the limit at some request.
    pub(crate) sources_over: u64,
    /// Sources that had at least one wrong admit.
    pub(crate) sources_wrongly_admitted: u64,
    /// Sources that were above the limit and were never rejected: what the publication calls allowed.
    pub(crate) sources_never_caught: u64,
    /// The largest exact count of such a source.
    pub(crate) worst_never_caught: u64,
    /// Sources that never were above the limit and were rejected at least once.
    pub(crate) sources_below_rejected: u64,
}

/// Each side spends only what it admits: what the product does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnforcementCounts {
    pub(crate) admitted: u64,
    pub(crate) admitted_by_log: u64,
    /// Admitted by the candidate and refused by the log.
    pub(crate) only_candidate: u64,
    /// Refused by the candidate and admitted by the log.
    pub(crate) only_log: u64,
    /// The most that the candidate let through in any window.
    pub(crate) most_in_window: u64,
}

impl DecisionCounts {
    /// Adds what was found elsewhere.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sources += other.sources;
        self.requests += other.requests;
        self.overflows += other.overflows;
        self.offered.add(&other.offered);
        self.enforced.add(&other.enforced);
    }

    /// Decisions that differ from the exact ones when everything offered counts.
    pub(crate) fn wrong(&self) -> u64 {
        self.offered.wrong_admits + self.offered.wrong_rejects
    }

    /// Decisions that differ from the log's when each side enforces.
    pub(crate) fn differing(&self) -> u64 {
        self.enforced.only_candidate + self.enforced.only_log
    }
}

impl OfferedLoad {
    fn add(&mut self, other: &Self) {
        self.truly_over += other.truly_over;
        self.wrong_admits += other.wrong_admits;
        self.wrong_rejects += other.wrong_rejects;
        self.wrong_admits_beyond += other.wrong_admits_beyond;
        self.worst_wrong_admit = self.worst_wrong_admit.max(other.worst_wrong_admit);
        self.error_ppb += other.error_ppb;
        self.near_requests += other.near_requests;
        self.near_error_ppb += other.near_error_ppb;
        self.worst_error_ppb = self.worst_error_ppb.max(other.worst_error_ppb);
        self.near_worst_error_ppb = self.near_worst_error_ppb.max(other.near_worst_error_ppb);
        self.too_much += other.too_much;
        self.too_little += other.too_little;
        self.exact_total += other.exact_total;
        self.sources_over += other.sources_over;
        self.sources_wrongly_admitted += other.sources_wrongly_admitted;
        self.sources_never_caught += other.sources_never_caught;
        self.worst_never_caught = self.worst_never_caught.max(other.worst_never_caught);
        self.sources_below_rejected += other.sources_below_rejected;
    }
}

impl EnforcementCounts {
    fn add(&mut self, other: &Self) {
        self.admitted += other.admitted;
        self.admitted_by_log += other.admitted_by_log;
        self.only_candidate += other.only_candidate;
        self.only_log += other.only_log;
        self.most_in_window = self.most_in_window.max(other.most_in_window);
    }
}
