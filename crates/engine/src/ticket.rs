//! A ticket: what an admitted request has to settle later. That is permits to release, estimates to correct, and
//! responses to count.
//!
//! Must not know: how verdicts are made.

mod response_summary;
mod saved;
mod wait_ticket;

pub use response_summary::ResponseSummary;
pub use saved::SavedTicket;
pub use wait_ticket::WaitTicket;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::Quota;
use tollgate_core::{Nanos, Outcome, Receipt, Timestamp};
use tollgate_policy::model::{Consistency, Count};
use tollgate_policy::rules::{MeterRole, Rule};
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, ReplyNote, StoreKey, StoreReply};

use crate::generation::Generation;
use crate::plan::{Plan, PlannedCheck};
use crate::settlement::{SettleAction, Settlement};
use crate::sharing::{DenialCaching, Sharing};

/// A response of the upstream, as limits see it.
pub trait Response: Sync {
    /// The status code.
    fn status(&self) -> u16;

    /// The value of a header; names are lowercase.
    fn header(&self, name: &str) -> Option<&[u8]>;

    /// The bytes of the body, once all of it was sent or the client is gone. `None` if they are not known.
    fn body_bytes(&self) -> Option<u64> {
        None
    }
}

/// A response without headers.
impl Response for u16 {
    fn status(&self) -> u16 {
        *self
    }

    fn header(&self, _name: &str) -> Option<&[u8]> {
        None
    }
}

/// What an admitted request has to settle later.
///
/// Settle it once, with the response; so it cannot be cloned. A lost ticket keeps its permits until their leases
/// expire, and leaves estimates uncorrected.
#[must_use = "settle it with the response, or its permits are held until their leases expire"]
pub struct Ticket {
    generation: Arc<Generation>,
    items: Vec<TicketItem>,
    /// The keys of all items, concatenated.
    keys: Vec<u8>,
}

struct TicketItem {
    rule: usize,
    limit: IdentifiedLimit,
    key: Range<usize>,
    /// The key that selects the fleet's hash slot, if not its own.
    slot_key: Option<Range<usize>>,
    denial_caching: DenialCaching,
    role: MeterRole,
    cost: u64,
    kind: TicketItemKind,
    wait: Option<PromisedTurn>,
}

/// When a request that waits may proceed, and how a cancelled wait is refunded.
#[derive(Clone, Copy, Debug)]
struct PromisedTurn {
    turn: Timestamp,
    cancelling: IdentifiedLimit,
}

#[derive(Clone, Copy, Debug)]
enum TicketItemKind {
    /// A permit to release.
    Permit(LeaseId),
    /// An estimate to correct.
    Estimate(Receipt),
    /// A response that may have to be counted.
    Response,
}

impl Ticket {
    /// Adds the items of a plan's checks.
    pub(crate) fn collect(
        ticket: &mut Option<Self>,
        generation: &Arc<Generation>,
        plan: &Plan,
        reserves: bool,
    ) {
        for (planned, reply) in plan.with_replies() {
            let Some((rule, entry)) = generation.rule(planned.rule) else {
                continue;
            };
            // A recorded distinct value stays recorded, so its charge is not refunded.
            let is_open = entry.awaits_response || (reserves && !entry.counts_values);
            let Some(kind) = item_kind(rule, is_open, planned, reply) else {
                continue;
            };
            Self::push(ticket, generation, plan, planned, kind, Some(reply));
        }
    }

    /// Adds what was charged to a request that has to wait, and that no other ticket of it settles.
    pub(crate) fn collect_wait(
        ticket: &mut Option<Self>,
        generation: &Arc<Generation>,
        plan: &Plan,
    ) {
        for (planned, reply) in plan.with_replies() {
            let Some((rule, entry)) = generation.rule(planned.rule) else {
                continue;
            };
            let is_settled_elsewhere =
                entry.awaits_response || matches!(planned.op, Op::Acquire { .. });
            if is_settled_elsewhere || entry.counts_values {
                continue;
            }
            if let Some(kind) = item_kind(rule, true, planned, reply) {
                Self::push(ticket, generation, plan, planned, kind, Some(reply));
            }
        }
    }

    /// Adds permits that the current batch may have acquired, whatever the store answered. Releasing a permit that is
    /// not held changes nothing.
    pub(crate) fn collect_permits(
        ticket: &mut Option<Self>,
        generation: &Arc<Generation>,
        plan: &Plan,
    ) {
        for planned in plan.planned() {
            if let Op::Acquire { id, weight } = planned.op
                && weight > 0
            {
                Self::push(
                    ticket,
                    generation,
                    plan,
                    planned,
                    TicketItemKind::Permit(id),
                    None,
                );
            }
        }
    }

    fn push(
        ticket: &mut Option<Self>,
        generation: &Arc<Generation>,
        plan: &Plan,
        planned: &PlannedCheck,
        kind: TicketItemKind,
        reply: Option<&StoreReply>,
    ) {
        let Some(limit) = plan.limit_of(generation, planned) else {
            return;
        };
        let ticket = ticket.get_or_insert_with(|| Self {
            generation: Arc::clone(generation),
            items: Vec::new(),
            keys: Vec::new(),
        });
        let mut add = |bytes: &[u8]| {
            let from = ticket.keys.len();
            ticket.keys.extend_from_slice(bytes);
            from..ticket.keys.len()
        };
        let (key, slot_key) = (add(plan.key(planned.key)), plan.slot_key(planned).map(add));
        let meter = generation.meter(planned.rule, planned.meter);
        let wait = reply.and_then(|reply| match reply.outcome {
            Outcome::Wait(wait) => Some(PromisedTurn {
                turn: reply.receipt.at.after(wait),
                cancelling: plan.cancelling_limit(generation, planned)?,
            }),
            _ => None,
        });
        ticket.items.push(TicketItem {
            rule: planned.rule,
            limit: *limit,
            key,
            slot_key,
            denial_caching: meter.map_or(DenialCaching::Never, |meter| meter.denial_caching),
            role: planned.role,
            cost: planned.cost,
            kind,
            wait,
        });
    }

    /// The settlement of this ticket, to be run by a driver.
    pub const fn settlement<'t>(&'t self, action: SettleAction<'t>) -> Settlement<'t> {
        Settlement::new(self, action)
    }

    /// Whether it holds permits whose leases must be renewed while the work is running.
    #[must_use]
    pub fn has_permits(&self) -> bool {
        let is_permit = |item: &TicketItem| matches!(item.kind, TicketItemKind::Permit(_));
        self.items.iter().any(is_permit)
    }

    /// The shortest lease of its permits. `None` if it has none.
    #[must_use]
    pub fn shortest_lease(&self) -> Option<Nanos> {
        let leases = self
            .items
            .iter()
            .filter_map(|item| match item.limit.limit.quota() {
                Quota::Concurrency(quota) => Some(quota.lease_duration()),
                _ => None,
            });
        leases.min()
    }

    /// Takes out what is settled when the body of the response has ended: permits, and costs by the bytes of the body. The
    /// head of the response settles what stays. `None` if nothing waits for the body.
    pub fn take_until_body_end(&mut self) -> Option<Self> {
        let waits_for_body = |item: &TicketItem| {
            let rule = self.generation.rule(item.rule);
            matches!(item.kind, TicketItemKind::Permit(_))
                || rule.is_some_and(|(rule, _)| rule.cost.is_response_body())
        };
        if !self.items.iter().any(waits_for_body) {
            return None;
        }
        let (later, now) = std::mem::take(&mut self.items)
            .into_iter()
            .partition(waits_for_body);
        self.items = now;
        Some(Self {
            generation: Arc::clone(&self.generation),
            items: later,
            keys: self.keys.clone(),
        })
    }

    /// Whether there is nothing to settle.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number of items.
    pub(crate) const fn len(&self) -> usize {
        self.items.len()
    }

    /// The store operation for one item, if it needs one.
    pub(crate) fn op_at(&self, position: usize, action: SettleAction<'_>) -> Option<Op> {
        self.op(self.items.get(position)?, action)
    }

    pub(crate) fn check_at(&self, position: usize, op: Op) -> Option<QuotaCheck<'_>> {
        self.check(self.items.get(position)?, op)
    }

    /// Takes every item out that still waits for its turn. The others can be cancelled at once, in any order.
    pub fn take_waits(&mut self, now: Timestamp) -> Vec<WaitTicket> {
        let mut waits = Vec::new();
        let items = std::mem::take(&mut self.items);
        for item in items {
            let promised = item.wait.filter(|promised| promised.turn >= now);
            let (TicketItemKind::Estimate(receipt), Some(promised)) = (item.kind, promised) else {
                self.items.push(item);
                continue;
            };
            waits.push(WaitTicket {
                limit: item.limit.id,
                key: self.keys.get(item.key.clone()).unwrap_or_default().into(),
                receipt,
                turn: promised.turn,
                is_leaky_queue: matches!(item.limit.limit.quota(), Quota::LeakyBucket(_)),
                ticket: Self {
                    generation: Arc::clone(&self.generation),
                    items: vec![TicketItem {
                        limit: promised.cancelling,
                        ..item
                    }],
                    keys: self.keys.clone(),
                },
            });
        }
        waits
    }

    pub(crate) fn sharing_at(&self, position: usize) -> Sharing<'_> {
        self.items
            .get(position)
            .map_or(Sharing::EXACT, |item| self.sharing(item))
    }

    fn sharing(&self, item: &TicketItem) -> Sharing<'_> {
        let Some((rule, _)) = self.generation.rule(item.rule) else {
            return Sharing::EXACT;
        };
        let slot_key = item.slot_key.clone().and_then(|key| self.keys.get(key));
        Sharing {
            version: self.generation.version(),
            is_local: item.role == MeterRole::Local,
            consistency: match item.role {
                MeterRole::Main => rule.consistency,
                _ => Consistency::Exact,
            },
            on_failure: rule.on_store_failure,
            denial_caching: item.denial_caching,
            slot_key: slot_key.and_then(|key| StoreKey::new(key).ok()),
            base_limit: None,
            is_envoy_counter: false,
        }
    }

    fn check<'a>(&'a self, item: &'a TicketItem, op: Op) -> Option<QuotaCheck<'a>> {
        let bytes = self.keys.get(item.key.clone())?;
        Some(QuotaCheck {
            key: StoreKey::new(bytes).ok()?,
            limit: &item.limit,
            op,
        })
    }

    /// The store operation for one item.
    fn op(&self, item: &TicketItem, action: SettleAction<'_>) -> Option<Op> {
        match (item.kind, action) {
            (TicketItemKind::Permit(id), SettleAction::Renew) => Some(Op::Renew(id)),
            (TicketItemKind::Permit(id), SettleAction::Reacquire) => Some(Op::Acquire {
                id,
                weight: item.cost,
            }),
            (TicketItemKind::Permit(id), _) => Some(Op::Release(id)),
            (TicketItemKind::Estimate(receipt), SettleAction::Respond(response)) => {
                let (rule, _) = self.generation.rule(item.rule)?;
                let is_refunded = rule.refund.iter().any(|one| one.matches(response.status()));
                let actual = match is_refunded {
                    true => 0,
                    false => actual_cost(rule, response)?,
                };
                Some(Op::Settle { receipt, actual })
            }
            (TicketItemKind::Estimate(receipt), SettleAction::Settle(actual)) => {
                Some(Op::Settle { receipt, actual })
            }
            (TicketItemKind::Estimate(receipt), SettleAction::Cancel) => {
                Some(Op::Settle { receipt, actual: 0 })
            }
            (TicketItemKind::Estimate(receipt), SettleAction::LeaveQueue { end, cost, kept }) => {
                let mark = end;
                let receipt = Receipt {
                    cost,
                    mark,
                    ..receipt
                };
                let actual = kept;
                Some(Op::Settle { receipt, actual })
            }
            (TicketItemKind::Response, SettleAction::Respond(response)) => {
                let (rule, _) = self.generation.rule(item.rule)?;
                let is_counted = match &rule.count {
                    Count::Responses(statuses) => {
                        statuses.iter().any(|one| one.matches(response.status()))
                    }
                    _ => false,
                };
                let cost = actual_cost(rule, response).unwrap_or(item.cost);
                is_counted.then_some(Op::ChargeAlways(cost))
            }
            (TicketItemKind::Estimate(_) | TicketItemKind::Response, _) => None,
        }
    }
}

fn actual_cost(rule: &Rule, response: &dyn Response) -> Option<u64> {
    if rule.cost.is_response_body() {
        return rule.cost.response_body_cost(response.body_bytes()?);
    }
    let header = rule.cost.response_header()?;
    rule.cost.response_cost(response.header(header))
}

/// What one check leaves to settle.
fn item_kind(
    rule: &Rule,
    is_open: bool,
    planned: &PlannedCheck,
    reply: &StoreReply,
) -> Option<TicketItemKind> {
    if let Op::Acquire { id, weight } = planned.op {
        return (weight > 0).then_some(TicketItemKind::Permit(id));
    }
    let is_charging_role = matches!(
        planned.role,
        MeterRole::Main
            | MeterRole::Local
            | MeterRole::Share
            | MeterRole::Spillover
            | MeterRole::Candidate
    );
    if !is_open || !is_charging_role {
        return None;
    }
    match (&rule.count, planned.op) {
        (Count::Responses(_), _) => Some(TicketItemKind::Response),
        (Count::Requests, Op::Spend(_) | Op::ChargeAlways(_)) if reply.note == ReplyNote::Plain => {
            Some(TicketItemKind::Estimate(reply.receipt))
        }
        _ => None,
    }
}

impl fmt::Debug for Ticket {
    /// Hides the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("generation", &self.generation.number())
            .field("owed", &self.items.len())
            .finish_non_exhaustive()
    }
}
