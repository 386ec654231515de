//! What was charged and may have to be given back. Giving back is asked for by an id that the server remembers, so it can be
//! repeated until it is heard: within the decision if there is time, and by a task in the background if not.
//!
//! Must not know: who refused.

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

/// How long a server remembers that something was given back. Nobody asks again after half of it.
const MARKER_TTL: Nanos = Nanos::from_secs(30);
/// How long giving back is tried.
const RETRY_FOR: Duration = Duration::from_secs(10);
/// How long to wait between two rounds of trying.
const PAUSE: Duration = Duration::from_millis(100);
/// The most debts that wait. What is beyond stays charged until it refills, and is counted.
const MAX_QUEUED: usize = 4_096;

/// Something to be given back in one place.
#[derive(Debug)]
pub(crate) struct Compensation {
    slot: HashSlot,
    request: ScriptCall,
    /// The parts of the batch that it is about.
    indices: Vec<usize>,
}

/// Where debts go that could not be paid at once, and the task that pays them.
#[derive(Debug)]
pub(crate) struct CompensationQueue {
    queue: mpsc::Sender<Compensation>,
    abandoned: Arc<AtomicU64>,
    /// What ids begin with: no other store has it.
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

    /// How many charges stayed although their batch was refused.
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Who has refused lately, and is asked before anything is owed.
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

/// Pays debts as they come, and again those that could not be paid, for a while.
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

/// What one batch owes. Dropped with something in it, the task pays.
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

    /// The batch is admitted: nothing is owed.
    pub(super) fn forget(mut self) {
        self.pending.clear();
    }

    /// Remembers what a piece was charged.
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

    /// Gives everything back, and says in the answers where the limits stand then. Whether all of it is done.
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

/// Whether an answer says that something was charged by this batch and no other.
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

/// How the reply to giving this back is read.
const fn undo_op(op: Op) -> Op {
    match op {
        Op::Acquire { id, .. } => Op::Release(id),
        Op::Reserve { id, .. } => Op::CancelReserved(id),
        // By a marker instead of an id, and answered alike.
        _ => Op::CancelReserved(tollgate_core::reservation::ReservationId(0)),
    }
}
