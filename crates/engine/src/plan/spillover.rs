//! Spillover quotas: when a limit's own quota has no room, the batch is asked again with its second quota instead.
//!
//! A denied batch charges nothing, so each request is charged to one of the two. Two requests at the boundary may each use
//! either, and never more than both hold. Every rule is swapped at most once, so the number of batches is bounded. Must not know: how the store is
//! asked.

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::rules::MeterRole;
use tollgate_store::{Op, ReplyNote, StoreReply};

use super::{Plan, PlanContext, PlannedCheck};

impl Plan {
    /// The batch was denied: replaces the checks of every limit whose own quota has no room by the check of its spillover
    /// quota. Returns whether there is a batch to ask again. If not, a limit without room in both reports the quota that
    /// has room sooner.
    pub(crate) fn retry_with_spillover(&mut self, context: &PlanContext<'_>) -> bool {
        let mut is_changed = false;
        let mut from = 0;
        while let Some(position) = self.next_without_room(from) {
            from = position.saturating_add(1);
            let denied = self.planned.get(position).copied();
            let planned =
                denied.and_then(|denied| self.plan_spillover(context, denied.rule, denied.cost));
            if let Some(planned) = planned {
                from = self.replace_main(planned).saturating_add(1);
                is_changed = true;
            }
        }
        if !is_changed {
            self.report_sooner();
            return false;
        }
        // They belong to the previous batch.
        self.replies.clear();
        for planned in &mut self.planned {
            // A late release of the denied batch must not release a permit of the next one.
            if let Op::Acquire { id, .. } = &mut planned.op {
                *id = context.lease_ids.generate();
            }
        }
        true
    }

    /// The next limit's own check that denies because its quota has no room. Without memory for the key nobody knows whether it
    /// has.
    fn next_without_room(&self, from: usize) -> Option<usize> {
        let checks = self.with_replies().enumerate().skip(from);
        let mut denied = checks.filter(|(_, (planned, reply))| {
            planned.role == MeterRole::Main
                && !matches!(reply.note, ReplyNote::NotChecked | ReplyNote::Overflow)
                && !reply.outcome.is_admitted()
        });
        denied.next().map(|(position, _)| position)
    }

    /// Puts the check of a spillover quota in the place of its limit's own checks, and returns its position.
    fn replace_main(&mut self, spillover: PlannedCheck) -> usize {
        let is_main =
            |one: &PlannedCheck| one.rule == spillover.rule && one.role == MeterRole::Main;
        let first = self.planned.iter().position(is_main).unwrap_or_default();
        while self.planned.get(first).is_some_and(is_main) && first < self.replies.len() {
            let main = self.planned.remove(first);
            self.spilled.push((main, self.replies.remove(first)));
        }
        self.planned.insert(first, spillover);
        self.replies
            .insert(first.min(self.replies.len()), StoreReply::EMPTY);
        first
    }

    /// Where both quotas of a limit denied, keeps the checks of the one that has room sooner: `Retry-After` is the smaller one.
    fn report_sooner(&mut self) {
        let mut spilled = std::mem::take(&mut self.spilled);
        for mains in spilled.chunk_by(|(one, _), (other, _)| one.rule == other.rule) {
            let own = mains.iter().map(|(_, reply)| wait_of(reply.outcome)).max();
            let is_second = |(planned, _): &(&PlannedCheck, &StoreReply)| {
                planned.role == MeterRole::Spillover
                    && mains
                        .first()
                        .is_some_and(|(main, _)| main.rule == planned.rule)
            };
            let second = self.with_replies().position(|check| is_second(&check));
            let Some(position) = second else {
                continue;
            };
            let Some(reply) = self.replies.get(position) else {
                continue;
            };
            let is_denied = reply.note != ReplyNote::NotChecked && !reply.outcome.is_admitted();
            if is_denied && own <= Some(wait_of(reply.outcome)) {
                let range = position..position.saturating_add(1);
                self.planned
                    .splice(range.clone(), mains.iter().map(|(main, _)| *main));
                self.replies
                    .splice(range, mains.iter().map(|(_, reply)| *reply));
            }
        }
        spilled.clear();
        self.spilled = spilled;
    }
}

/// How long an outcome makes the request wait.
const fn wait_of(outcome: Outcome) -> Nanos {
    match outcome {
        Outcome::Allow | Outcome::Wait(_) => Nanos::ZERO,
        Outcome::Deny { retry_after } => retry_after,
        Outcome::Never => Nanos::MAX,
    }
}
