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
use tollgate_store::{Answer, Check, ErrorKind, Key, Note, Op, Ruled, StoreError};

use crate::asks::{Asks, Shared, Sharing};
use crate::deny_cache::Keep;
use crate::generation::Generation;
use crate::plan::{Plan, Planned};

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
    /// Where a fleet keeps it, if not where the key says.
    place: Option<Range<usize>>,
    keep: Keep,
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
            let Some(ruled) = plan.ruled(generation, planned) else {
                continue;
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
            let (key, place) = (add(plan.key_of(planned)), plan.place_of(planned).map(add));
            let metered = entry.meters.get(planned.meter);
            ticket.owed.push(Owed {
                rule: planned.rule,
                ruled: *ruled,
                key,
                place,
                keep: metered.map_or(Keep::Never, |metered| metered.keep),
                role: planned.role,
                cost: planned.cost,
                what,
            });
        }
    }

    /// Settles everything by what the response says.
    pub(crate) async fn respond<S: Asks>(
        &self,
        store: &S,
        response: &dyn Response,
    ) -> Result<(), StoreError> {
        self.each(store, |rule, owed| match owed.what {
            Due::Place(id) => Some(Op::Release(id)),
            Due::Estimate(receipt) => {
                let actual = actual_cost(rule, response)?;
                Some(Op::Settle { receipt, actual })
            }
            Due::Response => {
                let counts = match &rule.count {
                    Count::Responses(of) => of.iter().any(|one| one.holds(response.status())),
                    _ => false,
                };
                let cost = actual_cost(rule, response).unwrap_or(owed.cost);
                counts.then_some(Op::ChargeAlways(cost))
            }
        })
        .await
    }

    /// Settles everything at what the work really cost.
    pub(crate) async fn settle<S: Asks>(&self, store: &S, actual: u64) -> Result<(), StoreError> {
        self.each(store, |_, owed| match owed.what {
            Due::Place(id) => Some(Op::Release(id)),
            Due::Estimate(receipt) => Some(Op::Settle { receipt, actual }),
            Due::Response => None,
        })
        .await
    }

    /// Gives everything back: the work did not happen.
    pub(crate) async fn cancel<S: Asks>(&self, store: &S) -> Result<(), StoreError> {
        self.each(store, |_, owed| match owed.what {
            Due::Place(id) => Some(Op::Release(id)),
            Due::Estimate(receipt) => Some(Op::Settle { receipt, actual: 0 }),
            Due::Response => None,
        })
        .await
    }

    /// Extends the leases of its places. Answers whether all of them are still held.
    pub(crate) async fn renew<S: Asks>(&self, store: &S) -> Result<bool, StoreError> {
        let mut are_held = true;
        for owed in &self.owed {
            if let Due::Place(id) = owed.what {
                let answer = self.ask(store, owed, Op::Renew(id)).await?;
                are_held &= answer.note != Note::LeaseNotHeld;
            }
        }
        Ok(are_held)
    }

    /// Whether it holds places that must be renewed while the work goes on.
    #[must_use]
    pub fn holds_places(&self) -> bool {
        let is_place = |owed: &Owed| matches!(owed.what, Due::Place(_));
        self.owed.iter().any(is_place)
    }

    /// Carries out what is due, all of it even if some fails; answers the first failure.
    async fn each<S: Asks>(
        &self,
        store: &S,
        due: impl Fn(&Rule, &Owed) -> Option<Op>,
    ) -> Result<(), StoreError> {
        let mut result = Ok(());
        for owed in &self.owed {
            let Some((rule, _)) = self.generation.rule(owed.rule) else {
                continue;
            };
            if let Some(op) = due(rule, owed)
                && let Err(error) = self.ask(store, owed, op).await
            {
                result = result.and(Err(error));
            }
        }
        result
    }

    fn sharing(&self, owed: &Owed) -> Sharing<'_> {
        let Some((rule, _)) = self.generation.rule(owed.rule) else {
            return Sharing::EXACT;
        };
        let place = owed.place.clone().and_then(|place| self.keys.get(place));
        Sharing {
            generation: self.generation.number(),
            is_local: owed.role == Role::Local,
            consistency: match owed.role {
                Role::Main => rule.consistency,
                _ => Consistency::Exact,
            },
            on_failure: rule.on_store_failure,
            keep: owed.keep,
            place: place.and_then(|place| Key::of(place).ok()),
            plain: None,
            is_counter: false,
        }
    }

    async fn ask<S: Asks>(&self, store: &S, owed: &Owed, op: Op) -> Result<Answer, StoreError> {
        let bytes = self.keys.get(owed.key.clone()).unwrap_or_default();
        let key = Key::of(bytes)
            .map_err(|error| StoreError::new(ErrorKind::BadRequest, error.to_string()))?;
        let check = Check {
            key,
            ruled: &owed.ruled,
            op,
        };
        let mut answers = [Answer::EMPTY];
        let shared = By { ticket: self, owed };
        let _one_limit_needs_no_verdict = store.ask(&[check], &shared, &mut answers).await?;
        let [answer] = answers;
        Ok(answer)
    }
}

/// One thing that a ticket owes.
struct By<'a> {
    ticket: &'a Ticket,
    owed: &'a Owed,
}

impl Shared for By<'_> {
    fn sharing(&self, _position: usize) -> Sharing<'_> {
        self.ticket.sharing(self.owed)
    }
}

fn actual_cost(rule: &Rule, response: &dyn Response) -> Option<u64> {
    let header = rule.price.response_header()?;
    rule.price.of_response(response.header(header))
}

/// What one check leaves to be done.
fn due(rule: &Rule, is_open: bool, planned: &Planned, answer: &Answer) -> Option<Due> {
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
