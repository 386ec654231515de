//! What one rule adds to a plan: its meters, each with its key, its quota and what is asked of it.
//!
//! Must not know: how the store is asked.

use tollgate_core::Timestamp;
use tollgate_policy::attributes::Attributes;
use tollgate_policy::model::Count;
use tollgate_policy::rules::{Chosen, Found, Keyed, Meter, MeterRef, Role, Rule};
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Op, Ruled};

use super::{Plan, Planned, QuotaAt, metered_of};
use crate::desk::{Desk, Until};
use crate::generation::{Entry, Generation, Metered};
use crate::lots::Lots;
use crate::verdict::Standing;
use crate::witness::Witness;

/// A request and what it is asked by.
pub(crate) struct Asking<'a> {
    pub(crate) generation: &'a Generation,
    pub(crate) request: &'a dyn Attributes,
    pub(crate) found: &'a Found,
    pub(crate) route: Option<&'a [u8]>,
    /// What the caller says it costs, whatever the rules say.
    pub(crate) cost: Option<u64>,
    pub(crate) manner: Manner,
    pub(crate) lots: &'a Lots,
    /// What operators have said, if they have said anything.
    pub(crate) desk: Option<&'a Desk>,
    /// What time it is, where operators have said something.
    pub(crate) now: Timestamp,
    /// Whether it matters where states lie.
    pub(crate) places: bool,
    /// Who is told of keys and quotas, if anybody wants to know.
    pub(crate) witness: Option<&'a dyn Witness>,
}

/// Whether a request is charged, only looked at, or given back what one like it was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Charge,
    Look,
    GiveBack,
}

/// What became of a rule's part in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// Its meters are asked, as far as they apply.
    Asked,
    /// Its key cannot be made, and it refuses without one.
    NoKey,
    /// Its key is blocked by an operator.
    Blocked(Until),
    /// There is no room for all of its meters.
    TooMany,
}

impl Plan {
    /// Plans what one rule asks. On anything but `Asked` the plan is as it was.
    pub(crate) fn add(&mut self, asking: &Asking<'_>, index: usize, standing: Standing) -> Added {
        let Some((rule, entry)) = asking.generation.rule(index) else {
            return Added::Asked;
        };
        let before = self.planned.len();
        let cost = asking
            .cost
            .unwrap_or_else(|| rule.price.of_request(asking.request, asking.route));
        let mut of = OfRule {
            asking,
            index,
            standing,
            rule,
            entry,
            cost,
            variant: None,
        };
        for (position, (meter, metered)) in rule.meters.iter().zip(&entry.meters).enumerate() {
            if meter.role == Role::Candidate {
                continue;
            }
            let added = self.add_meter(&mut of, position, meter, metered);
            if !matches!(added, Added::Asked) {
                self.planned.truncate(before);
                return added;
            }
        }
        Added::Asked
    }

    fn add_meter(
        &mut self,
        of: &mut OfRule<'_>,
        position: usize,
        meter: &Meter,
        metered: &Metered,
    ) -> Added {
        let asking = of.asking;
        if asking.manner == Manner::GiveBack && !of.gives_back(meter, metered) {
            return Added::Asked;
        }
        let place = MeterRef {
            rule: of.index,
            meter: position,
        };
        let key = match self.make_key(asking, place, metered) {
            (Keyed::Here, key) => key,
            (Keyed::Skip, _) => return Added::Asked,
            (Keyed::Deny, _) => return Added::NoKey,
        };
        let ordered = match asking.desk {
            Some(desk) if meter.role == Role::Main => {
                let rules = asking.generation.rules();
                desk.of_key(rules, of.index, self.keys.bytes(key))
            }
            _ => None,
        };
        if let Some(until) = ordered.and_then(|ordered| ordered.blocked(asking.now)) {
            return Added::Blocked(until);
        }
        let variant = match of.variant {
            Some(variant) => variant,
            None => {
                let bytes = self.keys.bytes(key);
                let variant = of.rule.choice.variant(asking.request, asking.route, bytes);
                *of.variant.insert(variant)
            }
        };
        let cost = match meter.role {
            Role::Block | Role::Seen => 1,
            _ if of.entry.counts_values => 1,
            _ => of.cost,
        };
        let own = || meter.chosen(variant, asking.request, asking.route);
        // A quota is large, so it is not passed through an option where there is none.
        let chosen = match ordered {
            None => own(),
            Some(ordered) => ordered.quota(position, asking.now).unwrap_or_else(own),
        };
        let Some(quota) = self.quota(metered, chosen, cost) else {
            return Added::Asked;
        };
        let op = of.op(meter, metered, cost);
        let planned = Planned {
            rule: of.index,
            meter: position,
            role: meter.role,
            op,
            cost,
            quota,
            key,
            place: self.make_place(asking, place, metered),
        };
        if metered.is_shared && self.is_joined(asking.generation, metered, &planned) {
            return Added::Asked;
        }
        if self.planned.len() >= MAX_CHECKS {
            return Added::TooMany;
        }
        self.planned.push(planned);
        Added::Asked
    }

    /// `None`: this key is not limited here.
    pub(super) fn quota(
        &mut self,
        metered: &Metered,
        chosen: Chosen,
        cost: u64,
    ) -> Option<QuotaAt> {
        match chosen {
            Chosen::Unlimited => None,
            Chosen::Listed(index) => {
                let patient = metered.patient.get(index).and_then(Option::as_ref);
                let may_wait = patient.is_some_and(|(_, patient)| cost <= patient.most);
                Some(if may_wait {
                    QuotaAt::Patient(index)
                } else {
                    QuotaAt::Listed(index)
                })
            }
            Chosen::Computed(limit) => {
                let id = metered.id;
                let patience = metered.patience.as_ref();
                let patient = patience
                    .and_then(|patience| patience.stretch(&limit))
                    .filter(|patient| cost <= patient.most);
                let limit = match (&patient, patience) {
                    (Some(patient), _) => patient.limit,
                    (None, Some(patience)) => patience.own(&limit),
                    (None, None) => limit,
                };
                self.computed.push((Ruled { id, limit }, patient));
                Some(QuotaAt::Computed(self.computed.len() - 1))
            }
        }
    }

    /// Whether the same state is asked about already, by a rule that shares it. It is charged once, at the higher cost,
    /// and the first of the rules speaks for both.
    fn is_joined(&mut self, generation: &Generation, metered: &Metered, new: &Planned) -> bool {
        let bytes = self.keys.bytes(new.key);
        let is_same = |other: &Planned| {
            let id = metered_of(generation, other).map(|metered| metered.id);
            id == Some(metered.id) && self.keys.bytes(other.key) == bytes
        };
        let Some(position) = self.planned.iter().position(is_same) else {
            return false;
        };
        if let Some(other) = self.planned.get_mut(position)
            && other.cost < new.cost
        {
            (other.op, other.cost, other.quota) = (new.op, new.cost, new.quota);
        }
        true
    }
}

/// A rule while it is planned.
struct OfRule<'a> {
    asking: &'a Asking<'a>,
    index: usize,
    standing: Standing,
    rule: &'a Rule,
    entry: &'a Entry,
    cost: u64,
    variant: Option<usize>,
}

impl OfRule<'_> {
    /// What a meter is asked.
    fn op(&self, meter: &Meter, metered: &Metered, cost: u64) -> Op {
        // What a limit in shadow would charge to a state that it shares, an enforced one would have to pay for.
        let is_guest = metered.is_shared && self.standing == Standing::Shadow;
        let looks = self.asking.manner == Manner::Look || is_guest;
        match meter.role {
            _ if self.asking.manner == Manner::GiveBack && !is_guest => Op::Credit(cost),
            // Nobody can look at how long places are taken; holding none says how many there are.
            _ if metered.is_concurrency => Op::Acquire {
                id: self.asking.lots.draw(),
                weight: if looks { 0 } else { cost },
            },
            Role::Block => Op::Peek(1),
            Role::Main if self.rule.charge_always => {
                if looks {
                    Op::Peek(0)
                } else {
                    Op::ChargeAlways(cost)
                }
            }
            _ if looks => Op::Peek(cost),
            Role::Main | Role::Local if self.rule.count != Count::Requests => Op::Peek(cost),
            _ => Op::Spend(cost),
        }
    }

    /// Whether units can be given back to a meter: it counts what requests cost, and not who or how many there are.
    fn gives_back(&self, meter: &Meter, metered: &Metered) -> bool {
        matches!(meter.role, Role::Main | Role::Local)
            && !metered.is_concurrency
            && !self.entry.counts_values
            && self.rule.count == Count::Requests
    }
}
