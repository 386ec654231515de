//! Compensation of charges: refunds what a denied or failed batch was charged in other slots. A refund carries an id
//! that the server remembers, so it can be repeated until a reply arrives: within the decision if there is time,
//! otherwise by a background task.
//!
//! Must not know: which check denied.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use tollgate_core::{Nanos, Receipt};
use tollgate_store::{Op, QuotaCheck, ReplyNote, StoreError, StoreReply};

use super::PlacedCheck;
use super::recent_denials::RecentDenials;
use super::slot_batch::SlotBatch;
use crate::pool::CallDeadline;
use crate::store::StoreInner;
use crate::task::{SupervisedTask, jittered};
use crate::topology::HashSlot;
use crate::wire::ScriptCall;

/// How long a server remembers that a charge was refunded. No refund is retried for longer than half of it.
const MARKER_TTL: Nanos = Nanos::from_secs(30);
/// How long a refund is retried.
const RETRY_FOR: Duration = Duration::from_secs(10);
/// The longest pause between two rounds of retries.
const PAUSE: Duration = Duration::from_millis(100);
/// The largest number of queued refunds. Further charges stay until they refill, and are counted.
const MAX_QUEUED: usize = 4_096;

/// A refund in one slot.
#[derive(Debug)]
pub(crate) struct Compensation {
    slot: HashSlot,
    request: ScriptCall,
    /// The indices of the batch's checks that it refunds.
    indices: Vec<usize>,
}

/// The queue of refunds that could not be done at once, and the task that retries them.
#[derive(Debug)]
pub(crate) struct CompensationQueue {
    queue: mpsc::Sender<Compensation>,
    abandoned: Arc<AtomicU64>,
    /// The upper half of all refund ids: unique per store.
    id_prefix: u64,
    next_id: AtomicU64,
    recent_denials: RecentDenials,
    _worker: SupervisedTask,
}

impl CompensationQueue {
    pub(crate) fn start(store: &Arc<StoreInner>) -> Result<Self, StoreError> {
        let (queue, receiver) = mpsc::channel(MAX_QUEUED);
        let receiver = Arc::new(Mutex::new(receiver));
        let abandoned = Arc::new(AtomicU64::new(0));
        let (store, counter) = (Arc::clone(store), Arc::clone(&abandoned));
        let worker = SupervisedTask::start(move || {
            run_compensations(
                Arc::clone(&store),
                Arc::clone(&receiver),
                Arc::clone(&counter),
            )
        })?;
        Ok(Self {
            queue,
            abandoned,
            id_prefix: RandomState::new().hash_one(1_u8),
            next_id: AtomicU64::new(0),
            recent_denials: RecentDenials::new(),
            _worker: worker,
        })
    }

    /// How many charges stayed although their batch was denied.
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// The keys that denied recently; their slots are charged first.
    pub(super) const fn recent_denials(&self) -> &RecentDenials {
        &self.recent_denials
    }

    fn id(&self) -> u128 {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        (u128::from(self.id_prefix) << 64) | u128::from(number)
    }

    fn put(&self, compensation: Compensation) {
        if self.queue.try_send(compensation).is_err() {
            self.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs queued refunds, and retries failed ones for a while.
async fn run_compensations(
    store: Arc<StoreInner>,
    receiver: Arc<Mutex<mpsc::Receiver<Compensation>>>,
    abandoned: Arc<AtomicU64>,
) {
    let mut receiver = receiver.lock().await;
    let mut retrying: Vec<(Compensation, Instant)> = Vec::new();
    loop {
        if retrying.is_empty() {
            let Some(compensation) = receiver.recv().await else {
                return;
            };
            retrying.push((compensation, Instant::now() + RETRY_FOR));
        }
        while retrying.len() < MAX_QUEUED
            && let Ok(compensation) = receiver.try_recv()
        {
            retrying.push((compensation, Instant::now() + RETRY_FOR));
        }
        let mut failed = Vec::new();
        for (compensation, until) in retrying {
            if store
                .call_ignoring_reply(compensation.slot, &compensation.request)
                .await
            {
                continue;
            }
            if Instant::now() < until {
                failed.push((compensation, until));
            } else {
                abandoned.fetch_add(1, Ordering::Relaxed);
            }
        }
        retrying = failed;
        if !retrying.is_empty() {
            tokio::time::sleep(jittered(PAUSE)).await;
        }
    }
}

/// The refunds of one batch. On drop, those that are left go to the background task.
#[derive(Debug)]
pub(crate) struct PendingCompensations<'a> {
    queue: &'a CompensationQueue,
    pending: Vec<Compensation>,
}

impl<'a> PendingCompensations<'a> {
    pub(super) const fn new(queue: &'a CompensationQueue) -> Self {
        Self {
            queue,
            pending: Vec::new(),
        }
    }

    /// The batch is admitted: nothing is refunded.
    pub(super) fn forget(mut self) {
        self.pending.clear();
    }

    /// Adds the refund of a charged slot batch.
    pub(super) fn add(
        &mut self,
        group: &SlotBatch,
        store: &StoreInner,
        checks: &[PlacedCheck<'_>],
        answers: &[StoreReply],
    ) {
        let charged: Vec<(usize, &PlacedCheck<'_>, Receipt)> = group
            .checks(checks)
            .filter_map(|(index, check)| {
                let answer = answers.get(index)?;
                is_charged(check.check.op, answer).then_some((index, check, answer.receipt))
            })
            .collect();
        let request = ScriptCall::for_undo(
            store.reservation_retention(),
            charged
                .iter()
                .map(|(_, check, receipt)| (&check.check, check.key_name, *receipt)),
            self.queue.id(),
            MARKER_TTL,
        );
        if let Ok(request) = request
            && !request.is_empty()
        {
            self.pending.push(Compensation {
                slot: group.slot,
                request,
                indices: charged.into_iter().map(|(index, ..)| index).collect(),
            });
        }
    }

    /// Runs all refunds and updates the status in the replies. Returns whether all of them succeeded.
    pub(super) async fn run_all(
        &mut self,
        store: &StoreInner,
        checks: &[PlacedCheck<'_>],
        answers: &mut [StoreReply],
        deadline: &mut CallDeadline,
    ) -> bool {
        let mut is_refunded = true;
        while let Some(compensation) = self.pending.last() {
            let checks: Vec<QuotaCheck<'_>> = compensation
                .indices
                .iter()
                .filter_map(|index| checks.get(*index))
                .map(|check| QuotaCheck {
                    op: undo_op(check.check.op),
                    ..check.check
                })
                .collect();
            let mut replies = vec![StoreReply::EMPTY; checks.len()];
            let result = store
                .decide_in_slot(
                    compensation.slot,
                    &compensation.request,
                    &checks,
                    &mut replies,
                    deadline,
                )
                .await;
            for (index, reply) in compensation.indices.iter().zip(replies) {
                if let Some(answer) = answers.get_mut(*index) {
                    answer.receipt = Receipt::default();
                    if result.is_ok() {
                        answer.status = reply.status;
                    }
                }
            }
            is_refunded &= result.is_ok();
            if let Some(compensation) = self.pending.pop()
                && result.is_err()
            {
                self.queue.put(compensation);
            }
        }
        is_refunded
    }
}

impl Drop for PendingCompensations<'_> {
    fn drop(&mut self) {
        for compensation in self.pending.drain(..) {
            self.queue.put(compensation);
        }
    }
}

/// Whether a reply says that this batch, and no other, was charged.
const fn is_charged(op: Op, answer: &StoreReply) -> bool {
    let is_charge = matches!(
        op,
        Op::Spend(_)
            | Op::SpendUpTo(_)
            | Op::ChargeAlways(_)
            | Op::Reserve { .. }
            | Op::Acquire { .. }
    );
    is_charge && answer.receipt.cost > 0 && matches!(answer.note, ReplyNote::Plain)
}

/// The operation by which the reply to a refund is decoded.
const fn undo_op(op: Op) -> Op {
    match op {
        Op::Acquire { id, .. } => Op::Release(id),
        Op::Reserve { id, .. } => Op::CancelReserved(id),
        // Undone by a marker instead of an id; the reply has the same format.
        _ => Op::CancelReserved(tollgate_core::reservation::ReservationId(0)),
    }
}
