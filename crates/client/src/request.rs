//! What the pacer has to know about a request: where it goes, what it costs, how urgent it is.
//!
//! Must not know: any HTTP library.

use tollgate_core::Timestamp;
use tollgate_http::LimitUnit;

/// A request, as the pacer sees it.
///
/// ```
/// use tollgate_client::{PaceRequest, Priority, RequestCost};
/// use tollgate_core::Timestamp;
///
/// let request = PaceRequest::new("api.example.com")
///     .with_route("POST /v1/messages")
///     .with_cost(RequestCost::NONE.with_input_tokens(1_200).with_output_tokens(500))
///     .with_priority(Priority::High)
///     .with_deadline(Timestamp::from_secs(1_700_000_030));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PaceRequest<'a> {
    pub(crate) partition: &'a str,
    pub(crate) route: &'a str,
    pub(crate) cost: RequestCost,
    pub(crate) priority: Priority,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) is_retry: bool,
    /// Since when it waits, if it had its turn before and had to give it back.
    pub(crate) waits_since: Option<Timestamp>,
}

impl<'a> PaceRequest<'a> {
    /// A request to a host. Requests with different credentials usually have different quotas: then add a digest of the
    /// credentials to the name.
    #[must_use]
    pub const fn new(partition: &'a str) -> Self {
        Self {
            partition,
            route: "",
            cost: RequestCost::NONE,
            priority: Priority::Normal,
            deadline: None,
            is_retry: false,
            waits_since: None,
        }
    }

    /// Sets the route, if routes of the host have quotas of their own.
    #[must_use]
    pub const fn with_route(mut self, route: &'a str) -> Self {
        self.route = route;
        self
    }

    /// Sets the estimated cost in units other than requests.
    #[must_use]
    pub const fn with_cost(mut self, cost: RequestCost) -> Self {
        self.cost = cost;
        self
    }

    /// Sets the priority.
    #[must_use]
    pub const fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the time by which the request has to be sent. A request that cannot be sent by then fails at once.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Timestamp) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Marks a retry: it goes before requests that were never sent, and adds nothing to the retry budget.
    #[must_use]
    pub const fn as_retry(mut self) -> Self {
        self.is_retry = true;
        self
    }
}

/// The cost of a request in each unit. Every request costs one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RequestCost {
    bytes: u32,
    input_tokens: u32,
    output_tokens: u32,
}

impl RequestCost {
    /// Only the request itself.
    pub const NONE: Self = Self {
        bytes: 0,
        input_tokens: 0,
        output_tokens: 0,
    };

    /// Sets the bytes of content.
    #[must_use]
    pub const fn with_bytes(mut self, bytes: u32) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the tokens of the prompt.
    #[must_use]
    pub const fn with_input_tokens(mut self, tokens: u32) -> Self {
        self.input_tokens = tokens;
        self
    }

    /// Sets the tokens of the answer: estimate the most that it may have.
    #[must_use]
    pub const fn with_output_tokens(mut self, tokens: u32) -> Self {
        self.output_tokens = tokens;
        self
    }

    pub(crate) fn of(&self, unit: LimitUnit) -> f64 {
        // A cost beyond that is beyond every quota.
        f64::from(u32::try_from(self.units(unit)).unwrap_or(u32::MAX))
    }

    pub(crate) fn units(&self, unit: LimitUnit) -> u64 {
        match unit {
            LimitUnit::Requests | LimitUnit::ConcurrentRequests => 1,
            LimitUnit::Bytes => u64::from(self.bytes),
            LimitUnit::InputTokens => u64::from(self.input_tokens),
            LimitUnit::OutputTokens => u64::from(self.output_tokens),
            LimitUnit::Tokens => u64::from(self.input_tokens) + u64::from(self.output_tokens),
            _ => 0,
        }
    }
}

/// Which of several waiting requests is sent first. Within a priority it is the one that has waited longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Before all others, such as requests of people who wait.
    High,
    /// The default.
    #[default]
    Normal,
    /// After all others, such as requests of a batch.
    Low,
}

impl Priority {
    pub(crate) const COUNT: usize = 3;

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }
}
