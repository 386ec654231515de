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
    first: u64,
    next: AtomicU64,
    recent_denials: RecentDenials,
    _worker: SupervisedTask,
}

impl CompensationQueue {
    pub(crate) fn start(shared: &Arc<StoreInner>) -> Result<Self, StoreError> {
        let (queue, waiting) = mpsc::channel(MAX_QUEUED);
        let waiting = Arc::new(Mutex::new(waiting));
        let unpaid = Arc::new(AtomicU64::new(0));
        let (shared, counter) = (Arc::clone(shared), Arc::clone(&unpaid));
        let payer = SupervisedTask::start(move || {
            run_compensations(
                Arc::clone(&shared),
                Arc::clone(&waiting),
                Arc::clone(&counter),
            )
        })?;
        Ok(Self {
            queue,
            abandoned: unpaid,
            first: RandomState::new().hash_one(1_u8),
            next: AtomicU64::new(0),
            recent_denials: RecentDenials::new(),
            _worker: payer,
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
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        (u128::from(self.first) << 64) | u128::from(next)
    }

    fn put(&self, debt: Compensation) {
        if self.queue.try_send(debt).is_err() {
            self.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs queued refunds, and retries failed ones for a while.
async fn run_compensations(
    shared: Arc<StoreInner>,
    waiting: Arc<Mutex<mpsc::Receiver<Compensation>>>,
    unpaid: Arc<AtomicU64>,
) {
    let mut waiting = waiting.lock().await;
    let mut open: Vec<(Compensation, Instant)> = Vec::new();
    loop {
        if open.is_empty() {
            let Some(debt) = waiting.recv().await else {
                return;
            };
            open.push((debt, Instant::now() + RETRY_FOR));
        }
        while open.len() < MAX_QUEUED
            && let Ok(debt) = waiting.try_recv()
        {
            open.push((debt, Instant::now() + RETRY_FOR));
        }
        let mut left = Vec::new();
        for (debt, until) in open {
            if shared.call_ignoring_reply(debt.slot, &debt.request).await {
                continue;
            }
            if Instant::now() < until {
                left.push((debt, until));
            } else {
                unpaid.fetch_add(1, Ordering::Relaxed);
            }
        }
        open = left;
        if !open.is_empty() {
            tokio::time::sleep(jittered(PAUSE)).await;
        }
    }
}

/// The refunds of one batch. On drop, those that are left go to the background task.
#[derive(Debug)]
pub(crate) struct PendingCompensations<'a> {
    debts: &'a CompensationQueue,
    pending: Vec<Compensation>,
}

impl<'a> PendingCompensations<'a> {
    pub(super) const fn new(debts: &'a CompensationQueue) -> Self {
        Self {
            debts,
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
        piece: &SlotBatch,
        shared: &StoreInner,
        parts: &[PlacedCheck<'_>],
        answers: &[StoreReply],
    ) {
        let charged: Vec<(usize, &PlacedCheck<'_>, Receipt)> = piece
            .checks(parts)
            .filter_map(|(index, part)| {
                let answer = answers.get(index)?;
                is_charged(part.check.op, answer).then_some((index, part, answer.receipt))
            })
            .collect();
        let request = ScriptCall::for_undo(
            shared.reservation_retention(),
            charged
                .iter()
                .map(|(_, part, receipt)| (&part.check, part.key_name, *receipt)),
            self.debts.id(),
            MARKER_TTL,
        );
        if let Ok(request) = request
            && !request.is_empty()
        {
            self.pending.push(Compensation {
                slot: piece.slot,
                request,
                indices: charged.into_iter().map(|(index, ..)| index).collect(),
            });
        }
    }

    /// Runs all refunds and updates the status in the replies. Returns whether all of them succeeded.
    pub(super) async fn run_all(
        &mut self,
        shared: &StoreInner,
        parts: &[PlacedCheck<'_>],
        answers: &mut [StoreReply],
        until: Instant,
    ) -> bool {
        let mut is_settled = true;
        while let Some(debt) = self.pending.last() {
            let checks: Vec<QuotaCheck<'_>> = debt
                .indices
                .iter()
                .filter_map(|index| parts.get(*index))
                .map(|part| QuotaCheck {
                    op: undo_op(part.check.op),
                    ..part.check
                })
                .collect();
            let mut own = vec![StoreReply::EMPTY; checks.len()];
            let asked = shared
                .decide_in_slot(debt.slot, &debt.request, &checks, &mut own, until)
                .await;
            for (index, own) in debt.indices.iter().zip(own) {
                if let Some(answer) = answers.get_mut(*index) {
                    answer.receipt = Receipt::default();
                    if asked.is_ok() {
                        answer.status = own.status;
                    }
                }
            }
            is_settled &= asked.is_ok();
            if let Some(debt) = self.pending.pop()
                && asked.is_err()
            {
                self.debts.put(debt);
            }
        }
        is_settled
    }
}

impl Drop for PendingCompensations<'_> {
    fn drop(&mut self) {
        for debt in self.pending.drain(..) {
            self.debts.put(debt);
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
