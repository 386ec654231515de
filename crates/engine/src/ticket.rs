//! What a request still owes when it is admitted: places to give back, estimates to settle, responses to count.
//!
//! Must not know: how verdicts are made.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use tollgate_core::Receipt;
use tollgate_core::concurrency::LeaseId;
use tollgate_policy::model::{Consistency, Count};
use tollgate_policy::rules::{Role, Rule};
use tollgate_store::{Note, Op, QuotaCheck, Ruled, StoreKey, StoreReply};

use crate::generation::Generation;
use crate::plan::{Plan, PlannedCheck};
use crate::settlement::{SettleAction, Settlement};
use crate::sharing::{DenialCaching, Sharing};

/// What an upstream answered, as far as limits look at it.
pub trait Response: Sync {
    /// Its status.
    fn status(&self) -> u16;

    /// The value of a header; names are lower-case.
    fn header(&self, name: &str) -> Option<&[u8]>;
}

/// A status alone.
impl Response for u16 {
    fn status(&self) -> u16 {
        *self
    }

    fn header(&self, _name: &str) -> Option<&[u8]> {
        None
    }
}

/// What an admitted request still owes.
///
/// It is to be handed back with the response, once; that is why it cannot be copied. One that is lost keeps its places
/// until their leases end and leaves estimates as they are.
#[must_use = "hand it back with the response, or its places are held until their leases end"]
pub struct Ticket {
    generation: Arc<Generation>,
    owed: Vec<Owed>,
    /// The keys of all that is owed, one after another.
    keys: Vec<u8>,
}

struct Owed {
    rule: usize,
    ruled: Ruled,
    key: Range<usize>,
    /// The key that says where a fleet keeps it, if not its own.
    slot_key: Option<Range<usize>>,
    denial_caching: DenialCaching,
    role: Role,
    cost: u64,
    what: Due,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    /// A place to give back.
    Place(LeaseId),
    /// An estimate to correct.
    Estimate(Receipt),
    /// A response that may have to be counted.
    Response,
}

impl Ticket {
    /// Adds what the answered checks of a plan still owe.
    pub(crate) fn collect(
        ticket: &mut Option<Self>,
        generation: &Arc<Generation>,
        plan: &Plan,
        reserves: bool,
    ) {
        for (planned, answer) in plan.answered() {
            let Some((rule, entry)) = generation.rule(planned.rule) else {
                continue;
            };
            // What a value was charged for stays seen, so it is not given back either.
            let is_open = entry.awaits_response || (reserves && !entry.counts_values);
            let Some(what) = due(rule, is_open, planned, answer) else {
                continue;
            };
            Self::push(ticket, generation, plan, planned, what);
        }
    }

    /// Adds places that a batch under way may have taken, whatever the store has answered. Giving back a place that is not
    /// held changes nothing.
    pub(crate) fn collect_places(
        ticket: &mut Option<Self>,
        generation: &Arc<Generation>,
        plan: &Plan,
    ) {
        for planned in plan.planned() {
            if let Op::Acquire { id, weight } = planned.op
                && weight > 0
            {
                Self::push(ticket, generation, plan, planned, Due::Place(id));
            }
        }
    }

    fn push(
        ticket: &mut Option<Self>,
        generation: &Arc<Generation>,
        plan: &Plan,
        planned: &PlannedCheck,
        what: Due,
    ) {
        let Some(ruled) = plan.ruled(generation, planned) else {
            return;
        };
        let ticket = ticket.get_or_insert_with(|| Self {
            generation: Arc::clone(generation),
            owed: Vec::new(),
            keys: Vec::new(),
        });
        let mut add = |bytes: &[u8]| {
            let from = ticket.keys.len();
            ticket.keys.extend_from_slice(bytes);
            from..ticket.keys.len()
        };
        let (key, slot_key) = (add(plan.key(planned.key)), plan.slot_key(planned).map(add));
        let meter = generation.meter(planned.rule, planned.meter);
        ticket.owed.push(Owed {
            rule: planned.rule,
            ruled: *ruled,
            key,
            slot_key,
            denial_caching: meter.map_or(DenialCaching::Never, |meter| meter.denial_caching),
            role: planned.role,
            cost: planned.cost,
            what,
        });
    }

    /// What has to be asked of a store to settle it in this way: to be run by a driver.
    pub const fn settlement<'t>(&'t self, action: SettleAction<'t>) -> Settlement<'t> {
        Settlement::new(self, action)
    }

    /// Whether it holds places that must be renewed while the work goes on.
    #[must_use]
    pub fn holds_places(&self) -> bool {
        let is_place = |owed: &Owed| matches!(owed.what, Due::Place(_));
        self.owed.iter().any(is_place)
    }

    /// How many things are owed.
    pub(crate) const fn len(&self) -> usize {
        self.owed.len()
    }

    /// What the store is asked about one of them, if anything.
    pub(crate) fn op_at(&self, position: usize, action: SettleAction<'_>) -> Option<Op> {
        self.op(self.owed.get(position)?, action)
    }

    pub(crate) fn check_at(&self, position: usize, op: Op) -> Option<QuotaCheck<'_>> {
        self.check(self.owed.get(position)?, op)
    }

    pub(crate) fn sharing_at(&self, position: usize) -> Sharing<'_> {
        self.owed
            .get(position)
            .map_or(Sharing::EXACT, |owed| self.sharing(owed))
    }

    fn sharing(&self, owed: &Owed) -> Sharing<'_> {
        let Some((rule, _)) = self.generation.rule(owed.rule) else {
            return Sharing::EXACT;
        };
        let slot_key = owed.slot_key.clone().and_then(|key| self.keys.get(key));
        Sharing {
            version: self.generation.version(),
            is_local: owed.role == Role::Local,
            consistency: match owed.role {
                Role::Main => rule.consistency,
                _ => Consistency::Exact,
            },
            on_failure: rule.on_store_failure,
            denial_caching: owed.denial_caching,
            slot_key: slot_key.and_then(|key| StoreKey::of(key).ok()),
            plain: None,
            is_counter: false,
        }
    }

    fn check<'a>(&'a self, owed: &'a Owed, op: Op) -> Option<QuotaCheck<'a>> {
        let bytes = self.keys.get(owed.key.clone())?;
        Some(QuotaCheck {
            key: StoreKey::of(bytes).ok()?,
            ruled: &owed.ruled,
            op,
        })
    }

    /// What the store is asked about one thing that is owed.
    fn op(&self, owed: &Owed, action: SettleAction<'_>) -> Option<Op> {
        match (owed.what, action) {
            (Due::Place(id), SettleAction::Renew) => Some(Op::Renew(id)),
            (Due::Place(id), _) => Some(Op::Release(id)),
            (Due::Estimate(receipt), SettleAction::Respond(response)) => {
                let (rule, _) = self.generation.rule(owed.rule)?;
                let actual = actual_cost(rule, response)?;
                Some(Op::Settle { receipt, actual })
            }
            (Due::Estimate(receipt), SettleAction::Settle(actual)) => {
                Some(Op::Settle { receipt, actual })
            }
            (Due::Estimate(receipt), SettleAction::Cancel) => {
                Some(Op::Settle { receipt, actual: 0 })
            }
            (Due::Response, SettleAction::Respond(response)) => {
                let (rule, _) = self.generation.rule(owed.rule)?;
                let is_counted = match &rule.count {
                    Count::Responses(of) => of.iter().any(|one| one.holds(response.status())),
                    _ => false,
                };
                let cost = actual_cost(rule, response).unwrap_or(owed.cost);
                is_counted.then_some(Op::ChargeAlways(cost))
            }
            (Due::Estimate(_) | Due::Response, _) => None,
        }
    }
}

fn actual_cost(rule: &Rule, response: &dyn Response) -> Option<u64> {
    let header = rule.price.response_header()?;
    rule.price.of_response(response.header(header))
}

/// What one check leaves to be done.
fn due(rule: &Rule, is_open: bool, planned: &PlannedCheck, answer: &StoreReply) -> Option<Due> {
    if let Op::Acquire { id, weight } = planned.op {
        return (weight > 0).then_some(Due::Place(id));
    }
    let counts = matches!(planned.role, Role::Main | Role::Local | Role::Candidate);
    if !is_open || !counts {
        return None;
    }
    match (&rule.count, planned.op) {
        (Count::Responses(_), _) => Some(Due::Response),
        (Count::Requests, Op::Spend(_) | Op::ChargeAlways(_)) if answer.note == Note::Plain => {
            Some(Due::Estimate(answer.receipt))
        }
        _ => None,
    }
}

impl fmt::Debug for Ticket {
    /// Keys are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("generation", &self.generation.number())
            .field("owed", &self.owed.len())
            .finish_non_exhaustive()
    }
}
