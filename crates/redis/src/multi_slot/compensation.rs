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
use tollgate_store::{Note, Op, QuotaCheck, StoreError, StoreReply};

use super::Part;
use super::pieces::Piece;
use super::recent_denials::Lately;
use crate::store::Shared;
use crate::task::{Task, jittered};
use crate::topology::Place;
use crate::wire::ScriptCall;

/// How long a server remembers that something was given back. Nobody asks again after half of it.
const REMEMBERED: Nanos = Nanos::from_secs(30);
/// How long giving back is tried.
const TRIED_FOR: Duration = Duration::from_secs(10);
/// How long to wait between two rounds of trying.
const PAUSE: Duration = Duration::from_millis(100);
/// The most debts that wait. What is beyond stays charged until it refills, and is counted.
const MOST: usize = 4_096;

/// Something to be given back in one place.
#[derive(Debug)]
pub(crate) struct Debt {
    place: Place,
    request: ScriptCall,
    /// The parts of the batch that it is about.
    indices: Vec<usize>,
}

/// Where debts go that could not be paid at once, and the task that pays them.
#[derive(Debug)]
pub(crate) struct Debts {
    queue: mpsc::Sender<Debt>,
    unpaid: Arc<AtomicU64>,
    /// What ids begin with: no other store has it.
    first: u64,
    next: AtomicU64,
    lately: Lately,
    _payer: Task,
}

impl Debts {
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Self, StoreError> {
        let (queue, waiting) = mpsc::channel(MOST);
        let waiting = Arc::new(Mutex::new(waiting));
        let unpaid = Arc::new(AtomicU64::new(0));
        let (shared, counter) = (Arc::clone(shared), Arc::clone(&unpaid));
        let payer = Task::start(move || {
            pay(
                Arc::clone(&shared),
                Arc::clone(&waiting),
                Arc::clone(&counter),
            )
        })?;
        Ok(Self {
            queue,
            unpaid,
            first: RandomState::new().hash_one(1_u8),
            next: AtomicU64::new(0),
            lately: Lately::new(),
            _payer: payer,
        })
    }

    /// How many charges stayed although their batch was refused.
    pub(crate) fn unpaid(&self) -> u64 {
        self.unpaid.load(Ordering::Relaxed)
    }

    /// Who has refused lately, and is asked before anything is owed.
    pub(super) const fn lately(&self) -> &Lately {
        &self.lately
    }

    fn id(&self) -> u128 {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        (u128::from(self.first) << 64) | u128::from(next)
    }

    fn put(&self, debt: Debt) {
        if self.queue.try_send(debt).is_err() {
            self.unpaid.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Pays debts as they come, and again those that could not be paid, for a while.
async fn pay(
    shared: Arc<Shared>,
    waiting: Arc<Mutex<mpsc::Receiver<Debt>>>,
    unpaid: Arc<AtomicU64>,
) {
    let mut waiting = waiting.lock().await;
    let mut open: Vec<(Debt, Instant)> = Vec::new();
    loop {
        if open.is_empty() {
            let Some(debt) = waiting.recv().await else {
                return;
            };
            open.push((debt, Instant::now() + TRIED_FOR));
        }
        while open.len() < MOST
            && let Ok(debt) = waiting.try_recv()
        {
            open.push((debt, Instant::now() + TRIED_FOR));
        }
        let mut left = Vec::new();
        for (debt, until) in open {
            if shared.tell(debt.place, &debt.request).await {
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
pub(crate) struct Owed<'a> {
    debts: &'a Debts,
    owed: Vec<Debt>,
}

impl<'a> Owed<'a> {
    pub(super) const fn to(debts: &'a Debts) -> Self {
        Self {
            debts,
            owed: Vec::new(),
        }
    }

    /// The batch is admitted: nothing is owed.
    pub(super) fn forget(mut self) {
        self.owed.clear();
    }

    /// Remembers what a piece was charged.
    pub(super) fn add(
        &mut self,
        piece: &Piece,
        shared: &Shared,
        parts: &[Part<'_>],
        answers: &[StoreReply],
    ) {
        let charged: Vec<(usize, &Part<'_>, Receipt)> = piece
            .parts(parts)
            .filter_map(|(index, part)| {
                let answer = answers.get(index)?;
                is_charged(part.check.op, answer).then_some((index, part, answer.receipt))
            })
            .collect();
        let request = ScriptCall::undoing(
            shared.remembering(),
            charged
                .iter()
                .map(|(_, part, receipt)| (&part.check, part.named, *receipt)),
            self.debts.id(),
            REMEMBERED,
        );
        if let Ok(request) = request
            && !request.is_empty()
        {
            self.owed.push(Debt {
                place: piece.place,
                request,
                indices: charged.into_iter().map(|(index, ..)| index).collect(),
            });
        }
    }

    /// Gives everything back, and says in the answers where the limits stand then. Whether all of it is done.
    pub(super) async fn give_back(
        &mut self,
        shared: &Shared,
        parts: &[Part<'_>],
        answers: &mut [StoreReply],
        until: Instant,
    ) -> bool {
        let mut is_settled = true;
        while let Some(debt) = self.owed.last() {
            let checks: Vec<QuotaCheck<'_>> = debt
                .indices
                .iter()
                .filter_map(|index| parts.get(*index))
                .map(|part| QuotaCheck {
                    op: undone(part.check.op),
                    ..part.check
                })
                .collect();
            let mut own = vec![StoreReply::EMPTY; checks.len()];
            let asked = shared
                .ask(debt.place, &debt.request, &checks, &mut own, until)
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
            if let Some(debt) = self.owed.pop()
                && asked.is_err()
            {
                self.debts.put(debt);
            }
        }
        is_settled
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        for debt in self.owed.drain(..) {
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
    is_charge && answer.receipt.cost > 0 && matches!(answer.note, Note::Plain)
}

/// How the reply to giving this back is read.
const fn undone(op: Op) -> Op {
    match op {
        Op::Acquire { id, .. } => Op::Release(id),
        Op::Reserve { id, .. } => Op::CancelReserved(id),
        // By a marker instead of an id, and answered alike.
        _ => Op::CancelReserved(tollgate_core::reservation::ReservationId(0)),
    }
}
