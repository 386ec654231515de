//! A store that is somewhere else: the same batches, awaited, and what is to be known about its being away.
//!
//! It decides within a deadline of its own, whatever happens to it, and never repeats a call that may have been carried
//! out. Its futures are boxed: a call that leaves the machine costs a thousand times as much as the box. Must not know:
//! which store it is, what is decided without it.

use std::fmt;
use std::pin::Pin;

use tollgate_core::compose::BatchOutcome;

use crate::contract::{IdentifiedLimit, QuotaCheck, StoreReply};
use crate::key::StoreKey;
use crate::store_error::StoreError;

/// What a remote store will answer.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store that many share and that may be away.
pub trait RemoteStore: Send + Sync + fmt::Debug {
    /// Into how many parts it falls that may be away by themselves, at least one.
    fn partition_count(&self) -> usize;

    /// Which of them has this key, if it is kept where `place` says or, without that, where it says itself.
    fn partition_of(&self, key: &StoreKey<'_>, place: Option<&StoreKey<'_>>) -> usize;

    /// Decides on a batch, all or nothing: [`Store::decide`](crate::Store::decide), awaited. `places` has for each check
    /// what it is placed by, if it is not its key; or it is empty.
    fn decide<'a>(
        &'a self,
        places: &'a [Option<StoreKey<'a>>],
        checks: &'a [QuotaCheck<'a>],
        answers: &'a mut [StoreReply],
    ) -> StoreFuture<'a, BatchOutcome>;

    /// Whether one part decides: a decision that nobody asked for, on a state that is nobody's.
    fn probe(&self, part: usize) -> StoreFuture<'_, ()>;

    /// Forgets what one key has used of one limit. Answers whether there was anything.
    fn erase<'a>(
        &'a self,
        place: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        ruled: &'a IdentifiedLimit,
    ) -> StoreFuture<'a, bool>;

    /// Whether it can be asked at all at the moment, as far as is known.
    fn is_connected(&self) -> bool;
}
