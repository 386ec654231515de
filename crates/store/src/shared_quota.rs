//! The contract of quotas that clients of one server share: what remains of each limit as the server last reported it, less
//! what the clients have taken since, and their retry budget.
//!
//! Must not know: where it is stored, header fields, pace.

use std::fmt;

use tollgate_core::Nanos;

use crate::key::StoreKey;
use crate::remote::StoreFuture;

/// The most limits of one exchange.
pub const MAX_SHARED_LIMITS: usize = 8;

/// State that clients share.
pub trait SharedQuotaStore: Send + Sync + fmt::Debug {
    /// Reports, takes, or both, in one step. The future completes within the store's own deadline.
    fn exchange<'a>(
        &'a self,
        partition: StoreKey<'a>,
        exchange: &'a QuotaExchange,
    ) -> StoreFuture<'a, QuotaExchangeReply>;

    /// A keyed digest of credentials, the same in every process that shares the store.
    fn digest(&self, credentials: StoreKey<'_>) -> u64;
}

/// What a client tells the store about one partition of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaExchange {
    /// Whether to take the costs of one request.
    pub is_take: bool,
    /// For how long the server asked all requests to stop.
    pub block: Nanos,
    /// The change of the retry budget.
    pub retries: RetryBudgetChange,
    /// The limits, at most [`MAX_SHARED_LIMITS`]. The store ignores more.
    pub limits: Vec<SharedLimit>,
}

/// A change of the shared retry budget: one retry for every five requests, and at most ten saved up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryBudgetChange {
    /// None.
    #[default]
    None,
    /// A first try earns a part of a retry, if it is taken.
    Earn,
    /// A retry.
    Spend,
}

/// One limit of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLimit {
    /// Identifies the limit within its partition.
    pub id: u64,
    /// What the request costs.
    pub cost: u64,
    /// The quota of a window, if the server says it.
    pub quota: Option<u64>,
    /// The window; zero if the server does not say it.
    pub window: Nanos,
    /// What the server has reported, if this exchange reports.
    pub report: Option<LimitReport>,
}

/// What a response reports about a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReport {
    /// What remains.
    pub remaining: u64,
    /// The time until it resets.
    pub reset_after: Nanos,
    /// The count of the request whose response it is, from [`QuotaExchangeReply::counts`]. `None` if the request did not take
    /// from this limit.
    pub count: Option<u64>,
}

/// The store's reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaExchangeReply {
    /// How long the request has to wait before it asks again. Zero if it was taken, or did not ask.
    pub wait: Nanos,
    /// Whether the retry budget allows the retry.
    pub may_retry: bool,
    /// For each limit, how many units were ever taken from it.
    pub counts: Vec<u64>,
}
