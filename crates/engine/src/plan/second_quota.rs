//! Second quotas: when a limit's own quota has no room, the batch is asked again with another quota instead. That is its spillover
//! quota, or of a limit with shares the common bucket, from which a request without room in its share borrows.
//!
//! A denied batch charges nothing, so each request is charged to one of the two. Two requests at the boundary may each use
//! either, and never more than both hold. Every rule is swapped at most once, so the number of batches is bounded. Must not know: how the
//! store is asked.

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::rules::MeterRole;
use tollgate_store::{Op, ReplyNote, StoreReply};

use super::rule_planner::RulePlanner;
use super::{AddedRule, Plan, PlanContext, PlannedCheck};
use crate::verdict::EnforcementMode;

impl Plan {
    /// Plans the share of a request, if it has one. Then the share decides, and the common bucket is only charged: an owner may
    /// overdraw it. The checks of the rule start at `from`.
    pub(super) fn add_share(&mut self, planner: &mut RulePlanner<'_>, from: usize) -> AddedRule {
        let Some(common) = self.planned.get(from).copied() else {
            return AddedRule::Planned;
        };
        let variant = planner.variant_of(self.key(common.key));
        let meters = planner.entry.meters.iter().enumerate();
        let mut shares = meters.filter(|(_, state)| state.role == MeterRole::Share);
        let share = variant.checked_sub(1).and_then(|index| shares.nth(index));
        let Some((position, state)) = share else {
            return AddedRule::Planned;
        };
        let before = self.planned.len();
        let added = self.add_meter(planner, position, state);
        if self.planned.len() > before
            && let Some(common) = self.planned.get_mut(from)
        {
            common.op = match common.op {
                Op::Spend(cost) => Op::ChargeAlways(cost),
                // It never denies, and its reply tells what could be borrowed.
                Op::Peek(_) => Op::Peek(0),
                other => other,
            };
        }
        added
    }

    /// The batch was denied: replaces the checks of every limit whose own quota has no room by the check of its second
    /// quota. Returns whether there is a batch to ask again. If not, a limit without room in both reports the quota that
    /// has room sooner.
    pub(crate) fn retry_with_second_quota(&mut self, context: &PlanContext<'_>) -> bool {
        let mut is_changed = false;
        let mut from = 0;
        while let Some(position) = self.next_without_room(from) {
            from = position.saturating_add(1);
            let denied = self.planned.get(position).copied();
            let second = denied.and_then(|denied| match denied.role {
                MeterRole::Share => self.plan_borrowing(&denied),
                _ => self.plan_spillover(context, denied.rule, denied.cost),
            });
            if let Some(second) = second {
                from = self.replace_own(second).saturating_add(1);
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

    /// The next check of a limit's own quota or share that denies because it has no room. Without memory for the key nobody knows
    /// whether a quota has; a share may borrow nevertheless, because the common bucket bounds the quota.
    fn next_without_room(&self, from: usize) -> Option<usize> {
        let checks = self.with_replies().enumerate().skip(from);
        let mut denied = checks.filter(|(_, (planned, reply))| {
            let may_retry = match planned.role {
                MeterRole::Main => {
                    !matches!(reply.note, ReplyNote::NotChecked | ReplyNote::Overflow)
                }
                MeterRole::Share => reply.note != ReplyNote::NotChecked,
                _ => false,
            };
            may_retry && !reply.outcome.is_admitted()
        });
        denied.next().map(|(position, _)| position)
    }

    /// The check of a rule's spillover quota, if it has one. The batch is unchanged.
    fn plan_spillover(
        &mut self,
        context: &PlanContext<'_>,
        index: usize,
        cost: u64,
    ) -> Option<PlannedCheck> {
        let (rule, entry) = context.generation.rule(index)?;
        let mut meters = entry.meters.iter().enumerate();
        let (position, state) = meters.find(|(_, state)| state.role == MeterRole::Spillover)?;
        let mut planner = RulePlanner {
            context,
            index,
            // No other limit shares its state, so it makes no difference.
            enforcement: EnforcementMode::Enforced,
            rule,
            entry,
            cost,
            variant: None,
        };
        let before = self.planned.len();
        let added = self.add_meter(&mut planner, position, state);
        let planned = self.planned.get(before).copied();
        self.planned.truncate(before);
        planned.filter(|_| added == AddedRule::Planned)
    }

    /// The check of the common bucket by which a request borrows that has no room in its share. The batch is unchanged.
    fn plan_borrowing(&self, share: &PlannedCheck) -> Option<PlannedCheck> {
        let is_common = |one: &&PlannedCheck| one.rule == share.rule && one.role == MeterRole::Main;
        let common = self.planned.iter().copied().find(|one| is_common(&one))?;
        // A share is asked as a limit without shares would be: it spends or peeks.
        Some(PlannedCheck {
            op: share.op,
            ..common
        })
    }

    /// Puts the check of a second quota in the place of its limit's own checks, and returns its position.
    fn replace_own(&mut self, second: PlannedCheck) -> usize {
        let is_own = |one: &PlannedCheck| is_own(one, second.rule);
        let first = self.planned.iter().position(is_own).unwrap_or_default();
        let mut position = first;
        while let Some(one) = self
            .planned
            .get(position)
            .filter(|_| position < self.replies.len())
        {
            if is_own(one) {
                let own = self.planned.remove(position);
                self.replaced.push((own, self.replies.remove(position)));
            } else if one.rule == second.rule {
                position = position.saturating_add(1);
            } else {
                break;
            }
        }
        self.planned.insert(first, second);
        self.replies
            .insert(first.min(self.replies.len()), StoreReply::EMPTY);
        first
    }

    /// Where both quotas of a limit denied, keeps the checks of the one that has room sooner: `Retry-After` is the smaller one.
    fn report_sooner(&mut self) {
        let mut replaced = std::mem::take(&mut self.replaced);
        for own in replaced.chunk_by(|(one, _), (other, _)| one.rule == other.rule) {
            let own_wait = own.iter().map(|(_, reply)| wait_of(reply.outcome)).max();
            // The own checks are replaced, so the only one left is the second.
            let is_second = |(planned, _): (&PlannedCheck, &StoreReply)| {
                let rule = own.first().map(|(one, _)| one.rule);
                Some(planned.rule) == rule
                    && matches!(planned.role, MeterRole::Main | MeterRole::Spillover)
            };
            let Some(position) = self.with_replies().position(is_second) else {
                continue;
            };
            let Some(reply) = self.replies.get(position) else {
                continue;
            };
            let is_denied = reply.note != ReplyNote::NotChecked && !reply.outcome.is_admitted();
            if is_denied && own_wait <= Some(wait_of(reply.outcome)) {
                let range = position..position.saturating_add(1);
                self.planned
                    .splice(range.clone(), own.iter().map(|(one, _)| *one));
                self.replies
                    .splice(range, own.iter().map(|(_, reply)| *reply));
            }
        }
        replaced.clear();
        self.replaced = replaced;
    }
}

/// Whether a check is of this rule's own quota or of a share of it.
fn is_own(planned: &PlannedCheck, rule: usize) -> bool {
    planned.rule == rule && matches!(planned.role, MeterRole::Main | MeterRole::Share)
}

/// How long an outcome makes the request wait.
const fn wait_of(outcome: Outcome) -> Nanos {
    match outcome {
        Outcome::Allow | Outcome::Wait(_) => Nanos::ZERO,
        Outcome::Deny { retry_after } => retry_after,
        Outcome::Never => Nanos::MAX,
    }
}
