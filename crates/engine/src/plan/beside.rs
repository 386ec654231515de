//! What is asked beside the limits: a rule's candidate, and by which key its lot is drawn.
//!
//! Must not know: what comes of it.

use tollgate_core::Outcome;
use tollgate_policy::model::Count;
use tollgate_policy::rules::{KeyBuffer, Keyed, MeterRef, Role};
use tollgate_store::Op;
use tollgate_store::contract::MAX_CHECKS;

use super::{Asking, Plan, Planned};
use crate::generation::Metered;
use crate::trial::Word;
use crate::verdict::Standing;

impl Plan {
    /// Makes room for other questions about the same request. The keys that were made are kept.
    pub(crate) fn restart(&mut self) {
        self.planned.clear();
        self.answers.clear();
        self.computed.clear();
    }

    /// Whether the store has answered to what is planned.
    pub(crate) fn is_answered(&self) -> bool {
        self.answers.len() == self.planned.len()
    }

    /// Every check with what came of it, as far as it was asked.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&Planned, Option<Outcome>)> {
        let answers = self.answers.iter().map(|answer| Some(answer.outcome));
        let answers = answers.chain(std::iter::repeat(None));
        self.planned.iter().zip(answers)
    }

    /// The key of a rule's first meter: of a hierarchy the widest level's.
    pub(crate) fn first_key(&mut self, asking: &Asking<'_>, rule: usize) -> Option<&[u8]> {
        let (_, entry) = asking.generation.rule(rule)?;
        let (_, key) = self.make_key(asking, MeterRef { rule, meter: 0 }, entry.meters.first()?);
        Some(self.keys.bytes(key))
    }

    /// Plans what a rule's candidate is asked about a request that goes on or not. Answers whether there is anything
    /// to be asked: a tier's or an override's quota is not the one that the candidate stands for.
    pub(crate) fn add_candidate(
        &mut self,
        asking: &Asking<'_>,
        word: &Word,
        standing: Standing,
        goes_on: bool,
    ) -> bool {
        let Some((rule, entry)) = asking.generation.rule(word.rule) else {
            return false;
        };
        for (position, (meter, metered)) in rule.meters.iter().zip(&entry.meters).enumerate() {
            if meter.role != Role::Candidate {
                continue;
            }
            let place = MeterRef {
                rule: word.rule,
                meter: position,
            };
            let (Keyed::Here, key) = self.make_key(asking, place, metered) else {
                return false;
            };
            let bytes = self.keys.bytes(key);
            let rules = asking.generation.rules();
            let desk = asking.desk;
            let desk = desk.and_then(|desk| desk.of_key(rules, word.rule, bytes));
            let is_own = rule.choice.is_own()
                || rule.choice.variant(asking.request, asking.route, bytes) == 0;
            if !is_own || desk.is_some_and(|desk| desk.has_quota(asking.now)) {
                return false;
            }
            let chosen = meter.chosen(0, asking.request, asking.route);
            let Some(quota) = self.quota(metered, chosen, word.cost) else {
                continue;
            };
            // As with the limit itself: in shadow it charges nothing to a state that it shares.
            let is_guest = metered.is_shared && standing == Standing::Shadow;
            let op = if metered.is_concurrency {
                let holds = goes_on && !is_guest;
                Op::Acquire {
                    id: asking.lots.draw(),
                    weight: if holds { word.cost } else { 0 },
                }
            } else if is_guest {
                Op::Peek(word.cost)
            } else if rule.charge_always {
                Op::ChargeAlways(word.cost)
            } else if rule.count != Count::Requests {
                Op::Peek(word.cost)
            } else {
                Op::Spend(word.cost)
            };
            if self.planned.len() >= MAX_CHECKS {
                return false;
            }
            let place = self.make_place(asking, place, metered);
            self.planned.push(Planned {
                rule: word.rule,
                meter: position,
                role: Role::Candidate,
                op,
                cost: word.cost,
                quota,
                key,
                place,
            });
        }
        !self.planned.is_empty()
    }

    /// Makes what says where a fleet keeps a meter's state, if it is not the key and anybody wants to know.
    #[inline]
    pub(super) fn make_place(
        &mut self,
        asking: &Asking<'_>,
        place: MeterRef,
        metered: &Metered,
    ) -> Option<usize> {
        if !asking.places {
            return None;
        }
        self.place(asking, place, metered)
    }

    fn place(&mut self, asking: &Asking<'_>, place: MeterRef, metered: &Metered) -> Option<usize> {
        let number = metered.place?;
        let rules = asking.generation.rules();
        let make =
            |buffer: &mut KeyBuffer| match rules.place(place, asking.request, asking.found, buffer)
            {
                true => Keyed::Here,
                false => Keyed::Skip,
            };
        let (keyed, at) = self.keys.of(number, make);
        (keyed == Keyed::Here).then_some(at)
    }

    /// Makes the key of a meter, unless it was made before.
    #[inline]
    pub(super) fn make_key(
        &mut self,
        asking: &Asking<'_>,
        place: MeterRef,
        metered: &Metered,
    ) -> (Keyed, usize) {
        let rules = asking.generation.rules();
        let make = |buffer: &mut KeyBuffer| rules.key(place, asking.request, asking.found, buffer);
        self.keys.of(metered.key, make)
    }
}
