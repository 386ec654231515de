//! The contract of a remote store: the same batches as [`Store`](crate::Store), asynchronous, and its partitions.
//!
//! It completes every call within its own deadline and never repeats a call that may have been executed. Its futures
//! are boxed: a network call costs a thousand times as much as the allocation. Must not know: which store it is, what
//! is decided without it.

use std::fmt;
use std::pin::Pin;

use tollgate_core::compose::BatchOutcome;

use crate::contract::{IdentifiedLimit, QuotaCheck, StoreReply};
use crate::key::StoreKey;
use crate::store_error::StoreError;

/// The future of a remote call.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store that several nodes share and that may be unavailable.
pub trait RemoteStore: Send + Sync + fmt::Debug {
    /// The number of partitions that can fail independently, at least one.
    fn partition_count(&self) -> usize;

    /// The partition of this key, stored by `routing_key` or, without one, by the key itself.
    fn partition_of(&self, key: &StoreKey<'_>, routing_key: Option<&StoreKey<'_>>) -> usize;

    /// Decides a batch, all or nothing, like [`Store::decide`](crate::Store::decide). `routing_keys` has for each check
    /// the key that selects its location, if it is not the check's own key. It may be empty.
    fn decide<'a>(
        &'a self,
        routing_keys: &'a [Option<StoreKey<'a>>],
        checks: &'a [QuotaCheck<'a>],
        answers: &'a mut [StoreReply],
    ) -> StoreFuture<'a, BatchOutcome>;

    /// Checks whether one partition can decide, by a decision on a state that no caller uses.
    fn probe(&self, partition: usize) -> StoreFuture<'_, ()>;

    /// Deletes the state of one key under one limit. Returns whether there was any.
    fn erase<'a>(
        &'a self,
        routing_key: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
    ) -> StoreFuture<'a, bool>;

    /// Whether any server is connected, as far as is known.
    fn is_connected(&self) -> bool;

    /// How many calls wait to be sent, because the servers have as many as they can answer in time.
    fn waiting_calls(&self) -> usize {
        0
    }
}
