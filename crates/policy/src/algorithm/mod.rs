//! Every algorithm, in one place: its name, what it promises, which fields it takes, how it becomes core's quota and how
//! it is explained.
//!
//! One file per algorithm has its [`Properties`] and builds its quota; this file has the enums and the only `match`es on
//! them. Must not know: files, limits, requests.

mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod leaky_queue;
mod sliding_log;
mod sliding_window;
mod token_bucket;

#[cfg(test)]
mod tests;

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, Nanos, QuotaUnit, Window};

use crate::model::Period;
use crate::rules::QuotaBuilder;

/// How quotas are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// `token_bucket`
    #[default]
    TokenBucket,
    /// `leaky_bucket`: refuses what does not fit.
    LeakyBucket,
    /// `leaky_queue`: makes requests wait their turn.
    LeakyQueue,
    /// `fixed_window`
    FixedWindow,
    /// `sliding_window`: about so many in any window, in 16 bytes.
    SlidingWindow,
    /// `sliding_log`: exactly so many in any window.
    SlidingLog,
    /// `concurrency`
    Concurrency,
}

/// An algorithm with the time that it counts over: everything but the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlgorithmSpec {
    /// So many at once, refilled over this period.
    TokenBucket(Nanos),
    /// The same, seen from the other side: the first of a burst is the one being served.
    LeakyBucket(Nanos),
    /// One after another, with so many waiting.
    LeakyQueue(Nanos),
    /// So many in each window.
    FixedWindow(Window),
    /// About so many in any window.
    SlidingWindow(Nanos),
    /// Exactly so many in any window.
    SlidingLog(Nanos),
    /// So many at once, each held at most this long.
    Concurrency(Nanos),
}

/// What a policy needs to know of an algorithm. Functions get core's quota of that algorithm.
#[derive(Debug)]
pub(crate) struct AlgorithmProperties {
    /// As policies name it.
    pub(crate) name: &'static str,
    /// What it promises, as docs/policy.md says it.
    pub(crate) guarantee: &'static str,
    /// What `burst` means, as docs/policy.md says it; none where the algorithm has no burst.
    pub(crate) burst: Option<&'static str>,
    /// Whether `wait` can promise an instant to one request and count on it for the next. Concurrency is refused before
    /// this is asked.
    pub(crate) supports_wait: bool,
    /// Whether days, weeks, months and years turn with the calendar.
    pub(crate) follows_calendar: bool,
    /// Whether the count must be bounded over every quota that shares a state.
    pub(crate) has_ceiling: bool,
    /// Why slices of it cannot be lent to nodes: `consistency: leased`.
    pub(crate) why_not_leased: Option<&'static str>,
    /// Whether nodes that lease it decide without the store.
    pub(crate) can_be_leased: bool,
    /// Why nodes cannot count it by themselves: `consistency: async`.
    pub(crate) why_not_async: Option<&'static str>,
    /// How `explain` describes the fallback quota of a node, where the fallback counts by another algorithm.
    pub(crate) fallback_note: &'static str,
    /// Which quotas may decide on one state, one after another.
    pub(crate) sharing: StateSharing,
    /// Whether so many units need to be charged in larger blocks.
    pub(crate) needs_larger_blocks: fn(&QuotaBuilder, u64) -> bool,
    /// How a bucket refills, or how large the blocks of a log are; none where units come back all at once.
    pub(crate) refill: fn(&Quota) -> Option<Refill>,
    /// The most that is admitted in any span of this length, both ends included, or let through by a queue; none where
    /// time is not what is limited or no one length fits.
    pub(crate) max_in_any_span: fn(&Quota, Nanos, u64) -> Option<u64>,
    /// About how many bytes a key with so many entries takes in memory and in Redis.
    pub(crate) bytes: fn(u64) -> (u64, u64),
    /// What it does, in words.
    pub(crate) describe: fn(&Quota, &ExplainContext<'_>) -> Option<String>,
}

/// What holds of an algorithm unless its file says otherwise.
const DEFAULTS: AlgorithmProperties = AlgorithmProperties {
    name: "",
    guarantee: "",
    burst: None,
    supports_wait: true,
    follows_calendar: false,
    has_ceiling: false,
    why_not_leased: None,
    can_be_leased: true,
    why_not_async: None,
    fallback_note: "",
    sharing: StateSharing::Any,
    needs_larger_blocks: |_, _| false,
    refill: |_| None,
    max_in_any_span: |_, _, _| None,
    // One word of state: a slot of 32 bytes; in Redis a key with its time to live takes about 133.
    bytes: |_| (32, 133),
    describe: |_, _| None,
};

/// Two words of state.
const fn two_word_bytes(_: u64) -> (u64, u64) {
    (43, 141)
}

/// Which quotas of one algorithm may decide on the same state without forgetting what the other has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateSharing {
    /// All of them.
    Any,
    /// Those that are charged in equal blocks.
    SameBlock,
    /// Those that count over the same time.
    SamePeriod,
}

/// What is known of a window while it is explained.
pub(crate) struct ExplainContext<'a> {
    /// How it is made.
    pub(crate) formula: &'a QuotaBuilder,
    /// `; never more than 10 in any minute`, where there is such a bound.
    pub(crate) never_clause: String,
    /// The most in any period, where there is such a bound.
    pub(crate) max_in_period: Option<u64>,
}

/// How a quota comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    /// The time in which one block is given back; buckets only.
    pub(crate) every: Option<Nanos>,
    /// Units that are charged together.
    pub(crate) block: u64,
    /// The most units admitted at one instant; by a queue, however much one request costs.
    pub(crate) at_once: u64,
    /// Whether only one request is admitted at an instant.
    pub(crate) is_queue: bool,
}

impl ExplainContext<'_> {
    /// What is counted.
    pub(crate) const fn unit(&self) -> QuotaUnit {
        self.formula.unit
    }
}

impl Algorithm {
    /// The algorithms that `algorithm` may name. Concurrency is a field of its own.
    pub(crate) const BY_NAME: [(&'static str, Self); 6] = [
        (token_bucket::PROPERTIES.name, Self::TokenBucket),
        (leaky_bucket::PROPERTIES.name, Self::LeakyBucket),
        (leaky_queue::PROPERTIES.name, Self::LeakyQueue),
        (fixed_window::PROPERTIES.name, Self::FixedWindow),
        (sliding_window::PROPERTIES.name, Self::SlidingWindow),
        (sliding_log::PROPERTIES.name, Self::SlidingLog),
    ];

    /// Everything that policies need to know of it.
    pub(crate) const fn properties(self) -> &'static AlgorithmProperties {
        match self {
            Self::TokenBucket => &token_bucket::PROPERTIES,
            Self::LeakyBucket => &leaky_bucket::PROPERTIES,
            Self::LeakyQueue => &leaky_queue::PROPERTIES,
            Self::FixedWindow => &fixed_window::PROPERTIES,
            Self::SlidingWindow => &sliding_window::PROPERTIES,
            Self::SlidingLog => &sliding_log::PROPERTIES,
            Self::Concurrency => &concurrency::PROPERTIES,
        }
    }

    /// As policies name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.properties().name
    }

    /// Whether `burst` means something to it.
    pub(crate) const fn has_burst(self) -> bool {
        self.properties().burst.is_some()
    }

    /// The names of those that have a burst, with `and` before the last.
    pub(crate) fn names_with_burst() -> String {
        let named = Self::BY_NAME.iter();
        let names: Vec<&str> = named
            .filter(|(_, algorithm)| algorithm.has_burst())
            .map(|(name, _)| *name)
            .collect();
        match names.split_last() {
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        }
    }

    /// Whether it counts how many at once, not how many per period.
    pub(crate) const fn is_concurrency(self) -> bool {
        matches!(self, Self::Concurrency)
    }

    /// The rule that counts a rate over this period, or in these windows where it follows the calendar. None of
    /// `concurrency`, which has no period.
    pub(crate) fn spec(
        self,
        period: Period,
        window: impl FnOnce() -> Option<Window>,
    ) -> Option<AlgorithmSpec> {
        let plain = period.fixed_length();
        Some(match self {
            Self::TokenBucket => AlgorithmSpec::TokenBucket(plain),
            Self::LeakyBucket => AlgorithmSpec::LeakyBucket(plain),
            Self::LeakyQueue => AlgorithmSpec::LeakyQueue(plain),
            Self::SlidingWindow => AlgorithmSpec::SlidingWindow(plain),
            Self::SlidingLog => AlgorithmSpec::SlidingLog(plain),
            Self::FixedWindow => AlgorithmSpec::FixedWindow(window()?),
            Self::Concurrency => return None,
        })
    }
}

impl AlgorithmSpec {
    /// The algorithm without the time.
    #[must_use]
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::TokenBucket(_) => Algorithm::TokenBucket,
            Self::LeakyBucket(_) => Algorithm::LeakyBucket,
            Self::LeakyQueue(_) => Algorithm::LeakyQueue,
            Self::FixedWindow(_) => Algorithm::FixedWindow,
            Self::SlidingWindow(_) => Algorithm::SlidingWindow,
            Self::SlidingLog(_) => Algorithm::SlidingLog,
            Self::Concurrency(_) => Algorithm::Concurrency,
        }
    }

    pub(crate) const fn properties(self) -> &'static AlgorithmProperties {
        self.algorithm().properties()
    }

    /// How far the units of a rate reach in time: the period or the length of a window.
    pub(crate) const fn span(self) -> Option<Nanos> {
        match self {
            Self::TokenBucket(span)
            | Self::LeakyBucket(span)
            | Self::LeakyQueue(span)
            | Self::SlidingWindow(span)
            | Self::SlidingLog(span)
            | Self::FixedWindow(Window::Epoch(span) | Window::FirstHit(span)) => Some(span),
            Self::FixedWindow(_) | Self::Concurrency(_) => None,
        }
    }

    /// What the time that it counts over is called after `per`; concurrency has none.
    pub(crate) fn period_name(self) -> Option<String> {
        match self {
            Self::FixedWindow(window) => Some(fixed_window::describe_window(window).0),
            _ => self.span().map(crate::humanize::period_name),
        }
    }

    /// The rule that remembers a value for as long as a window lasts. None of `concurrency`, which has no time.
    pub(crate) const fn distinct_value_spec(self) -> Option<Self> {
        match (self, self.span()) {
            (Self::FixedWindow(_), _) => Some(self),
            (_, Some(span)) => Some(Self::TokenBucket(span)),
            (_, None) => None,
        }
    }
}

/// Core's quota of so many units. May be called for a request, so it does not go through a table.
pub(crate) fn build(
    formula: &QuotaBuilder,
    units: u64,
    overdraft: u64,
) -> Result<Limit, InvalidQuota> {
    match formula.spec {
        AlgorithmSpec::TokenBucket(period) => {
            token_bucket::build(formula, period, units, overdraft)
        }
        AlgorithmSpec::LeakyBucket(period) => {
            leaky_bucket::build(formula, period, units, overdraft)
        }
        AlgorithmSpec::LeakyQueue(period) => leaky_queue::build(formula, period, units, overdraft),
        AlgorithmSpec::FixedWindow(window) => fixed_window::build(window, units, overdraft),
        AlgorithmSpec::SlidingWindow(length) => {
            sliding_window::build(formula, length, units, overdraft)
        }
        AlgorithmSpec::SlidingLog(length) => sliding_log::build(formula, length, units, overdraft),
        AlgorithmSpec::Concurrency(lease) => concurrency::build(lease, units),
    }
}

/// The first quota, accepting as much in a state that it shares with the second as that does.
#[must_use]
pub fn share_state(limit: Limit, other: &Limit) -> Limit {
    limit.sharing_state_with(other)
}

/// How often an interval fits into a span.
fn refill_count(interval: Nanos, span: Nanos) -> u64 {
    span.as_nanos() / interval.as_nanos().max(1)
}
