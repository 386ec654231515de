//! The store: encodes a batch as one call and decodes its reply.
//!
//! Must not know: how calls are encoded, how connections are kept, which server has a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use tollgate_core::compose::BatchOutcome;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{QuotaCheck, StoreError, StoreErrorKind, StoreKey, StoreReply};

use crate::key_name::{KeyHashSecret, KeyName};
use crate::multi_slot::{self, CompensationQueue, PlacedCheck};
use crate::options::{RedisOptions, ReservationRetention};
use crate::pool::CallDeadline;
use crate::remote_store::ProbeKeys;
use crate::topology::{HashSlot, ServerWarning, Topology};
use crate::wire::{ScriptCall, ServerReply, decode};

/// Decides in Redis or Valkey, exactly: one round trip, one script and one clock for all keys in one slot.
#[derive(Debug)]
pub struct RedisStore {
    inner: Arc<StoreInner>,
    in_flight: Semaphore,
    compensations: CompensationQueue,
    probe_keys: ProbeKeys,
}

impl RedisStore {
    /// Connects to the servers. If they are unreachable, the store replies [`StoreErrorKind::Unreachable`] and keeps
    /// trying in the background. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The address or the TLS options are invalid.
    pub async fn connect(options: RedisOptions) -> Result<Self, StoreError> {
        let topology = Topology::open(&options).await?;
        let in_flight = Semaphore::new(options.max_in_flight.max(1));
        let inner = Arc::new(StoreInner {
            options,
            topology,
            corrupt: AtomicU64::new(0),
        });
        let compensations = CompensationQueue::start(&inner)?;
        let probe_keys = ProbeKeys::find(inner.options.secret, &inner.topology);
        Ok(Self {
            inner,
            in_flight,
            compensations,
            probe_keys,
        })
    }

    /// Decides a batch, all or nothing, as [`tollgate_store::Store`] does, asynchronously.
    ///
    /// The future completes within the deadline, whatever the servers do. Dropping it does not recall a call that was
    /// sent.
    ///
    /// In a cluster and on several servers, the keys of a batch may be in several slots. Such a batch is charged slot
    /// by slot, and the charges are refunded when a later slot denies. Other requests may see those charges until the
    /// deadline. If a server fails in between, at most the batch's own cost stays charged, once, until it refills.
    ///
    /// # Errors
    ///
    /// The batch is invalid, or a server did not reply. No call is repeated that may have been executed.
    pub async fn decide(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        self.decide_tagged(&[], checks, answers).await
    }

    /// The same with hash tags: keys with the same tag are in one slot and are decided together. `tags` has one element
    /// per check, or is empty. Always use the same tag for the same key, or it is counted twice.
    ///
    /// # Errors
    /// The batch is invalid, or a server did not reply.
    pub async fn decide_tagged(
        &self,
        tags: &[Option<StoreKey<'_>>],
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        if checks.len() != answers.len() {
            return Err(bad_request("answers and checks must have the same length"));
        }
        if !tags.is_empty() && tags.len() != checks.len() {
            return Err(bad_request("tags must be empty or as long as checks"));
        }
        if checks.len() > MAX_CHECKS {
            return Err(bad_request(
                "too many checks in one batch, the maximum is 128",
            ));
        }
        if checks.is_empty() {
            return Ok(BatchOutcome::default());
        }
        let _permit = self.permit()?;
        let [check] = checks else {
            // Boxed, so that the futures of single checks stay small: most batches have one check.
            return Box::pin(self.decide_several(tags, checks, answers)).await;
        };
        let tag = tags.first().and_then(Option::as_ref);
        let key_name = KeyName::new(self.inner.options.secret, &check.key, tag);
        let slot = self.inner.topology.slot_of(key_name.tag());
        let only = std::iter::once((check, key_name));
        let retention = self.inner.reservation_retention();
        let request = ScriptCall::for_named_checks(retention, only, None)?;
        let mut deadline = CallDeadline::new(self.inner.options.deadline);
        self.inner
            .decide_in_slot(slot, &request, checks, answers, &mut deadline)
            .await
    }

    /// Decides several checks, which may be in several slots.
    async fn decide_several(
        &self,
        tags: &[Option<StoreKey<'_>>],
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        let inner = &self.inner;
        let mut deadline = CallDeadline::new(inner.options.deadline);
        let place_check = |(index, check): (usize, &QuotaCheck<'_>)| {
            let tag = tags.get(index).and_then(Option::as_ref);
            let key_name = KeyName::new(inner.options.secret, &check.key, tag);
            (key_name, inner.topology.slot_of(key_name.tag()))
        };
        let placed: Vec<PlacedCheck<'_>> = checks
            .iter()
            .enumerate()
            .map(|(index, check)| {
                let (key_name, slot) = place_check((index, check));
                PlacedCheck {
                    check: *check,
                    key_name,
                    slot,
                }
            })
            .collect();
        let first = placed.first().map(|check| check.slot);
        match first {
            Some(slot) if placed.iter().all(|check| check.slot == slot) => {
                let named = placed.iter().map(|check| (&check.check, check.key_name));
                let request =
                    ScriptCall::for_named_checks(inner.reservation_retention(), named, None)?;
                inner
                    .decide_in_slot(slot, &request, checks, answers, &mut deadline)
                    .await
            }
            _ => {
                multi_slot::decide(inner, &self.compensations, &placed, answers, &mut deadline)
                    .await
            }
        }
    }

    /// Asks the servers about themselves and returns warnings: replicas, eviction, old versions, an undeclared cluster.
    /// Meant for the start; nothing depends on it, and it may take several connect deadlines.
    pub async fn inspect(&self) -> Vec<ServerWarning> {
        let timeout = self.inner.options.connect_deadline.saturating_mul(2);
        self.inner.topology.inspect(timeout).await
    }

    /// Whether any server is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inner.topology.is_connected()
    }

    /// How many calls wait to be sent, because the servers have as many as they can answer in time.
    #[must_use]
    pub fn waiting_calls(&self) -> usize {
        self.inner
            .topology
            .pools()
            .iter()
            .map(|pool| pool.waiting_calls())
            .sum()
    }

    /// How many states could not be parsed so far. They counted as absent and were overwritten.
    #[must_use]
    pub fn corrupt_states(&self) -> u64 {
        self.inner.corrupt.load(Ordering::Relaxed)
    }

    /// A permit for one more call in flight.
    fn permit(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        let Ok(permit) = self.in_flight.try_acquire() else {
            let detail = "the maximum of calls in flight is reached";
            return Err(StoreError::new(StoreErrorKind::Busy, detail));
        };
        Ok(permit)
    }

    /// How many charges stayed although another slot had denied the batch, because the server could not be reached in
    /// time for the refund.
    #[must_use]
    pub fn uncompensated_charges(&self) -> u64 {
        self.compensations.abandoned()
    }

    pub(crate) const fn inner(&self) -> &Arc<StoreInner> {
        &self.inner
    }
}

impl RedisStore {
    pub(crate) fn topology(&self) -> &Topology {
        &self.inner.topology
    }

    pub(crate) fn secret(&self) -> KeyHashSecret {
        self.inner.options.secret
    }

    pub(crate) const fn probe_keys(&self) -> &ProbeKeys {
        &self.probe_keys
    }

    /// Calls a script on one key and decodes the reply with `read`, which also returns the number of corrupt states.
    pub(crate) async fn call<T>(
        &self,
        key_name: KeyName,
        request: &ScriptCall,
        decode_reply: impl FnOnce(&[i64]) -> Result<(T, u64), StoreError>,
    ) -> Result<T, StoreError> {
        let _permit = self.permit()?;
        let inner = &self.inner;
        let mut deadline = CallDeadline::new(inner.options.deadline);
        let slot = inner.topology.slot_of(key_name.tag());
        let reply = inner.topology.call(slot, request, &mut deadline).await?;
        let (value, corrupt) = read_integers(&reply, decode_reply)
            .inspect_err(|_| inner.topology.discard_connection(slot))?;
        inner.corrupt.fetch_add(corrupt, Ordering::Relaxed);
        Ok(value)
    }

    /// Calls a script that replies with one number.
    pub(crate) async fn call_for_count(
        &self,
        key_name: KeyName,
        request: &ScriptCall,
    ) -> Result<i64, StoreError> {
        let mut deadline = CallDeadline::new(self.inner.options.deadline);
        let slot = self.inner.topology.slot_of(key_name.tag());
        let topology = &self.inner.topology;
        let reply = topology.call(slot, request, &mut deadline).await?;
        let invalid_reply =
            || StoreError::new(StoreErrorKind::InvalidReply, "the reply is not one number");
        read_integers(&reply, |integers| {
            integers.first().copied().ok_or_else(invalid_reply)
        })
    }
}

/// The part of the store that decisions and background tasks share.
#[derive(Debug)]
pub(crate) struct StoreInner {
    options: RedisOptions,
    topology: Topology,
    corrupt: AtomicU64,
}

impl StoreInner {
    pub(crate) const fn reservation_retention(&self) -> ReservationRetention {
        self.options.reservation_retention
    }

    pub(crate) const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Calls a script in one slot and decodes the replies to its checks.
    pub(crate) async fn decide_in_slot(
        &self,
        slot: HashSlot,
        request: &ScriptCall,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
        deadline: &mut CallDeadline,
    ) -> Result<BatchOutcome, StoreError> {
        let reply = self.topology.call(slot, request, deadline).await?;
        let batch = read_integers(&reply, |integers| decode(checks, integers, answers))
            .inspect_err(|_| self.topology.discard_connection(slot))?;
        if batch.corrupt > 0 {
            self.corrupt.fetch_add(batch.corrupt, Ordering::Relaxed);
        }
        Ok(batch.outcome)
    }

    /// Calls a script in one slot and ignores the content of the reply. Returns whether it was executed.
    pub(crate) async fn call_ignoring_reply(&self, slot: HashSlot, request: &ScriptCall) -> bool {
        let mut deadline = CallDeadline::new(self.options.deadline);
        let reply = self.topology.call(slot, request, &mut deadline).await;
        reply.is_ok_and(|reply| read_integers(&reply, |_| Ok(())).is_ok())
    }
}

fn bad_request(detail: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::BadRequest, detail)
}

/// Reads a script's reply, which is a flat list of integers.
fn read_integers<T>(
    reply: &ServerReply,
    decode_reply: impl FnOnce(&[i64]) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let integer = |value: &Value| match value {
        Value::Int(n) => Some(*n),
        _ => None,
    };
    let long_reply: Option<Vec<i64>> = match reply {
        ServerReply::Integers(integers) => return decode_reply(integers),
        ServerReply::Other(Value::Array(values)) => values.iter().map(integer).collect(),
        ServerReply::Other(_) => None,
    };
    let invalid_reply = || {
        StoreError::new(
            StoreErrorKind::InvalidReply,
            "the reply is not a list of integers",
        )
    };
    decode_reply(&long_reply.ok_or_else(invalid_reply)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each decision boxes this future. It had 1,648 bytes: common allocators have fast lists only up to about 1 KiB, and the
    /// whole future is copied when it is boxed.
    #[test]
    fn the_future_of_a_decision_is_small() {
        type Decide<F> = fn(
            &'static RedisStore,
            &'static [Option<StoreKey<'static>>],
            &'static [QuotaCheck<'static>],
            &'static mut [StoreReply],
        ) -> F;
        const fn size<F>(_: Decide<F>) -> usize {
            size_of::<F>()
        }
        let size = size(|store, tags, checks, answers| store.decide_tagged(tags, checks, answers));
        assert!(size <= 1_000, "{size} bytes");
    }
}
