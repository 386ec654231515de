//! Everything a policy needs to know about an algorithm: its name, its guarantee, its fields, how to build core's quota
//! and how to explain it.
//!
//! Each algorithm has one file with its [`AlgorithmProperties`] and its quota constructor. This file has the enums and
//! the only `match`es on them. Must not know: files, limits, requests.

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

/// The algorithm that counts a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// `token_bucket`
    #[default]
    TokenBucket,
    /// `leaky_bucket`: denies a request that does not fit.
    LeakyBucket,
    /// `leaky_queue`: makes requests wait.
    LeakyQueue,
    /// `fixed_window`
    FixedWindow,
    /// `sliding_window`: approximate maximum in any window, in 16 bytes.
    SlidingWindow,
    /// `sliding_log`: exact maximum in any window.
    SlidingLog,
    /// `concurrency`
    Concurrency,
}

/// An algorithm with the period, window or lease that it counts over. Only the number of units is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlgorithmSpec {
    /// A burst, refilled over this period.
    TokenBucket(Nanos),
    /// The same counting as a token bucket, seen as a level that drains over this period.
    LeakyBucket(Nanos),
    /// A queue that admits one request after another.
    LeakyQueue(Nanos),
    /// A maximum in each window.
    FixedWindow(Window),
    /// An approximate maximum in any window of this length.
    SlidingWindow(Nanos),
    /// An exact maximum in any window of this length.
    SlidingLog(Nanos),
    /// A maximum of held permits, each with a lease of this length.
    Concurrency(Nanos),
}

/// What policies need to know about an algorithm. The functions get core's quota of that algorithm.
#[derive(Debug)]
pub(crate) struct AlgorithmProperties {
    /// The name in policies.
    pub(crate) name: &'static str,
    /// Names that other programs and articles use for it, to suggest ours.
    pub(crate) other_names: &'static [&'static str],
    /// The guarantee, as docs/policy.md prints it.
    pub(crate) guarantee: &'static str,
    /// The meaning of `burst`, as docs/policy.md prints it. `None` if the algorithm has no burst.
    pub(crate) burst: Option<&'static str>,
    /// Whether `wait` works: the algorithm can reserve an instant for one request and count it for the next. `check`
    /// refuses `wait` with concurrency before it reads this.
    pub(crate) supports_wait: bool,
    /// Whether windows of days, weeks, months and years follow the calendar.
    pub(crate) follows_calendar: bool,
    /// Whether all quotas that share a state need the same upper bound on the count.
    pub(crate) has_ceiling: bool,
    /// Why nodes cannot lease parts of the quota (`consistency: leased`). `None` if they can.
    pub(crate) why_not_leased: Option<&'static str>,
    /// Whether a node with a lease decides without the store.
    pub(crate) can_be_leased: bool,
    /// Why nodes cannot count it locally (`consistency: async`). `None` if they can.
    pub(crate) why_not_async: Option<&'static str>,
    /// What `explain` adds about the fallback quota of a node, if the fallback uses another algorithm.
    pub(crate) fallback_note: &'static str,
    /// Which quotas may use the same state one after another.
    pub(crate) sharing: StateSharing,
    /// Whether this number of units must be charged in larger blocks.
    pub(crate) needs_larger_blocks: fn(&QuotaBuilder, u64) -> bool,
    /// How a bucket refills, or the block size of a log. `None` if all units come back at once.
    pub(crate) refill: fn(&Quota) -> Option<Refill>,
    /// The maximum admitted in any span of this length, both ends included. For a queue: the maximum that leaves it.
    /// `None` if the quota does not limit time or has no fixed length.
    pub(crate) max_in_any_span: fn(&Quota, Nanos, u64) -> Option<u64>,
    /// Approximate bytes per key in memory and in Redis, for this number of entries.
    pub(crate) bytes: fn(u64) -> (u64, u64),
    /// Describes the quota for people.
    pub(crate) describe: fn(&Quota, &ExplainContext<'_>) -> Option<String>,
}

/// The properties of an algorithm unless its file overrides them.
const DEFAULTS: AlgorithmProperties = AlgorithmProperties {
    name: "",
    other_names: &[],
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
    // One word of state: a slot of 32 bytes. In Redis a key with a TTL takes about 133 bytes.
    bytes: |_| (32, 133),
    describe: |_, _| None,
};

/// Two words of state.
const fn two_word_bytes(_: u64) -> (u64, u64) {
    (43, 141)
}

/// Which quotas of one algorithm may share a state without losing each other's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateSharing {
    /// All quotas.
    Any,
    /// Quotas with the same block size.
    SameBlock,
    /// Quotas with the same period or window.
    SamePeriod,
}

/// What is known about a window while it is explained.
pub(crate) struct ExplainContext<'a> {
    /// The builder of the window's quota.
    pub(crate) builder: &'a QuotaBuilder,
    /// `; never more than 10 in any minute`, or empty if there is no such bound.
    pub(crate) never_clause: String,
    /// The maximum in any period, if there is one.
    pub(crate) max_in_period: Option<u64>,
}

/// How a quota refills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    /// The time in which one block refills; buckets only.
    pub(crate) every: Option<Nanos>,
    /// Units that are charged together.
    pub(crate) block: u64,
    /// The maximum admitted at one instant. For a queue: the maximum cost of one request.
    pub(crate) at_once: u64,
    /// Whether only one request is admitted at an instant.
    pub(crate) is_queue: bool,
}

impl ExplainContext<'_> {
    /// What is counted.
    pub(crate) const fn unit(&self) -> QuotaUnit {
        self.builder.unit
    }
}

impl Algorithm {
    /// The values of `algorithm`. Concurrency has a field of its own.
    pub(crate) const BY_NAME: [(&'static str, Self); 6] = [
        (token_bucket::PROPERTIES.name, Self::TokenBucket),
        (leaky_bucket::PROPERTIES.name, Self::LeakyBucket),
        (leaky_queue::PROPERTIES.name, Self::LeakyQueue),
        (fixed_window::PROPERTIES.name, Self::FixedWindow),
        (sliding_window::PROPERTIES.name, Self::SlidingWindow),
        (sliding_log::PROPERTIES.name, Self::SlidingLog),
    ];

    /// The algorithm that other programs call so.
    pub(crate) fn by_other_name(text: &str) -> Option<Self> {
        let is_called = |algorithm: Self| {
            algorithm
                .properties()
                .other_names
                .iter()
                .any(|name| name.eq_ignore_ascii_case(text))
        };
        let mut all = Self::BY_NAME.into_iter().map(|(_, algorithm)| algorithm);
        all.find(|algorithm| is_called(*algorithm))
    }

    /// The properties of this algorithm.
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

    /// The name in policies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.properties().name
    }

    /// Whether the algorithm has a `burst`.
    pub(crate) const fn has_burst(self) -> bool {
        self.properties().burst.is_some()
    }

    /// The names of the algorithms with a burst, with `and` before the last.
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

    /// Whether it limits concurrency, not a rate.
    pub(crate) const fn is_concurrency(self) -> bool {
        matches!(self, Self::Concurrency)
    }

    /// The spec that counts a rate over this period, or in this window if the algorithm follows the calendar. `None`
    /// for `concurrency`, which has no period.
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
    /// The algorithm without its period.
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

    /// The period, or the length of a window.
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

    /// The name of the period after `per`; `None` for concurrency.
    pub(crate) fn period_name(self) -> Option<String> {
        match self {
            Self::FixedWindow(window) => Some(fixed_window::describe_window(window).0),
            _ => self.span().map(crate::humanize::period_name),
        }
    }

    /// The spec that remembers one distinct value for the length of a window. `None` for `concurrency`, which has no
    /// period.
    pub(crate) const fn distinct_value_spec(self) -> Option<Self> {
        match (self, self.span()) {
            (Self::FixedWindow(_), _) => Some(self),
            (_, Some(span)) => Some(Self::TokenBucket(span)),
            (_, None) => None,
        }
    }
}

/// Builds core's quota for this number of units. It may run per request, so it uses a `match` instead of the table.
pub(crate) fn build(
    builder: &QuotaBuilder,
    units: u64,
    overdraft: u64,
) -> Result<Limit, InvalidQuota> {
    match builder.spec {
        AlgorithmSpec::TokenBucket(period) => {
            token_bucket::build(builder, period, units, overdraft)
        }
        AlgorithmSpec::LeakyBucket(period) => {
            leaky_bucket::build(builder, period, units, overdraft)
        }
        AlgorithmSpec::LeakyQueue(period) => leaky_queue::build(builder, period, units, overdraft),
        AlgorithmSpec::FixedWindow(window) => fixed_window::build(window, units, overdraft),
        AlgorithmSpec::SlidingWindow(length) => {
            sliding_window::build(builder, length, units, overdraft)
        }
        AlgorithmSpec::SlidingLog(length) => sliding_log::build(builder, length, units, overdraft),
        AlgorithmSpec::Concurrency(lease) => concurrency::build(lease, units),
    }
}

/// The first quota with the larger ceiling of both, so that both can share one state.
#[must_use]
pub fn share_state(limit: Limit, other: &Limit) -> Limit {
    limit.sharing_state_with(other)
}

/// How often an interval fits into a span.
fn refill_count(interval: Nanos, span: Nanos) -> u64 {
    span.as_nanos() / interval.as_nanos().max(1)
}
