//! One key of one limit, counted on this node: what it has spent itself, what it knows of the fleet, what it has yet to tell.
//!
//! Must not know: locks, stores, other keys.

use std::num::NonZeroU32;

use tollgate_core::limit::{Limit, Op, Quota, State};
use tollgate_core::{
    FixedWindow, Nanos, Outcome, QuotaStatus, Receipt, SlidingCounter, Timestamp, TokenBucket,
};
use tollgate_store::{IdentifiedLimit, QuotaCheck, ReplyNote, StoreKey, StoreReply};

use super::random_drop::RandomDrop;

/// An account that nobody has used for so long is forgotten, if nothing is owed.
const IDLE_TIMEOUT: Nanos = Nanos::from_secs(2);

#[derive(Debug)]
pub(super) struct Account {
    pub(super) limit: IdentifiedLimit,
    pub(super) interval: Nanos,
    pub(super) key: Box<[u8]>,
    pub(super) slot_key: Option<Box<[u8]>>,
    /// What this node alone has spent.
    own: State,
    fleet: FleetSpending,
    random_drop: RandomDrop,
    /// Units that the store has not been told of.
    unreported: u64,
    /// Units that it is being told of.
    pub(super) in_flight: Option<u64>,
    /// When units were last taken to be told.
    reported_at: Timestamp,
    /// When the store last answered, and the debt that it told of.
    last_reply: Option<(Timestamp, u64)>,
    last_used: Timestamp,
    is_touched: bool,
}

/// What is known of what the fleet has spent, this node among them.
#[derive(Clone, Copy, Debug)]
enum FleetSpending {
    /// Nothing yet.
    Unknown,
    /// A bucket: the instant at which it is full again.
    Bucket(u64),
    /// A window: units that are left of it, until an instant.
    Window { left: u64, until: Timestamp },
}

/// The limit as the store is asked to count by it: debt that nodes may have made together is kept, not forgiven.
pub(super) fn store_limit(limit: &Limit, interval: Nanos, nodes: NonZeroU32) -> Option<Limit> {
    let others = u64::from(nodes.get()).saturating_sub(1).max(1);
    if let Some(bucket) = limit.denying_bucket() {
        let bucket = overdrawn(bucket, interval, others);
        return Some(Limit::new(bucket).with_unit(limit.unit()));
    }
    let quota: Quota = match limit.quota() {
        Quota::FixedWindow(window) => {
            let debt = window.limit().saturating_mul(others);
            let window = FixedWindow::builder(window.limit(), window.window()).overdraft(debt);
            window.build().ok()?.into()
        }
        Quota::SlidingCounter(counter) => {
            let counted = |debt| {
                let counter = SlidingCounter::builder(counter.limit(), counter.window());
                counter.overdraft(debt).build()
            };
            // Two counts and what they are multiplied by have to fit; as much as does is better than none.
            let debt = counter.limit().saturating_mul(others);
            let most = std::iter::successors(Some(debt), |debt| (*debt > 0).then(|| debt / 2));
            most.into_iter().find_map(|debt| counted(debt).ok())?.into()
        }
        _ => return None,
    };
    Some(Limit::new(quota).with_unit(limit.unit()))
}

fn overdrawn(bucket: &TokenBucket, interval: Nanos, others: u64) -> TokenBucket {
    let each = bucket.refill_time().saturating_add(interval).as_nanos();
    bucket.with_extra_overdraft(Nanos::from_nanos(each.saturating_mul(others)))
}

impl Account {
    /// `None` if the limit cannot be counted like this, or the key is one that is not kept.
    pub(super) fn new(
        check: &QuotaCheck<'_>,
        place: Option<&StoreKey<'_>>,
        interval: Nanos,
        seed: u64,
        now: Timestamp,
    ) -> Option<Self> {
        store_limit(&check.limit.limit, interval, NonZeroU32::MIN)?;
        Some(Self {
            limit: *check.limit,
            interval,
            key: Box::from(check.key.single()?),
            slot_key: place.and_then(StoreKey::single).map(Box::from),
            own: State::default(),
            fleet: FleetSpending::Unknown,
            random_drop: RandomDrop::new(seed),
            unreported: 0,
            in_flight: None,
            reported_at: now,
            last_reply: None,
            last_used: now,
            is_touched: true,
        })
    }

    /// Takes the quota that is in force. What was spent stays spent, as far as the algorithm is the same.
    pub(super) fn set_limit(&mut self, ruled: &IdentifiedLimit, interval: Nanos) {
        self.interval = interval;
        if self.limit == *ruled || store_limit(&ruled.limit, interval, NonZeroU32::MIN).is_none() {
            return;
        }
        let of = |limit: &Limit| std::mem::discriminant(limit.quota());
        if of(&self.limit.limit) != of(&ruled.limit) {
            self.own = State::default();
            self.fleet = FleetSpending::Unknown;
        }
        self.limit = *ruled;
    }

    /// Decides, and says whether it was by lot.
    pub(super) fn spend(&mut self, now: Timestamp, cost: u64) -> (StoreReply, bool) {
        self.last_used = self.last_used.max(now);
        self.is_touched = true;
        if cost > 0 && self.random_drop.should_drop() {
            let retry_after = self.time_to_next_report(now);
            return (self.denied_reply(now, cost, retry_after), true);
        }
        let denied = self.peek(now, cost);
        if !denied.outcome.is_admitted() {
            return (denied, false);
        }
        let Some(receipt) = self.charge(now, Op::Spend(cost)) else {
            return (self.denied_reply(now, cost, self.interval), false);
        };
        self.unreported = self.unreported.saturating_add(cost);
        self.charge_fleet(now, cost);
        let answer = StoreReply {
            outcome: Outcome::Allow,
            status: self.status(now),
            receipt,
            note: ReplyNote::Plain,
        };
        (answer, false)
    }

    /// Says what would be decided, if no lot is drawn.
    pub(super) fn peek(&self, now: Timestamp, cost: u64) -> StoreReply {
        let own = self.limit.limit.decide(&self.own, now, Op::Spend(cost));
        let own = own.map_or(Outcome::Never, |transition| transition.outcome);
        let fleet = self.fleet_outcome(now, cost);
        let wait = |outcome| match outcome {
            Outcome::Deny { retry_after } => retry_after,
            _ => Nanos::ZERO,
        };
        let outcome = match (own, fleet) {
            (Outcome::Never, _) | (_, Outcome::Never) => Outcome::Never,
            (Outcome::Deny { .. }, _) | (_, Outcome::Deny { .. }) => Outcome::Deny {
                retry_after: wait(own).max(wait(fleet)),
            },
            _ => Outcome::Allow,
        };
        match outcome {
            Outcome::Deny { retry_after } => self.denied_reply(now, cost, retry_after),
            outcome => StoreReply {
                outcome,
                status: self.status(now),
                receipt: Receipt::empty(now),
                note: ReplyNote::Plain,
            },
        }
    }

    /// Corrects a charge. Less comes back only while it has not been told: what is counted with others cannot be picked out.
    pub(super) fn settle(&mut self, now: Timestamp, receipt: &Receipt, actual: u64) {
        let Some(less) = receipt.cost.checked_sub(actual) else {
            let more = actual.saturating_sub(receipt.cost);
            self.charge(now, Op::ChargeAlways(more));
            self.unreported = self.unreported.saturating_add(more);
            self.charge_fleet(now, more);
            return;
        };
        if less == 0 || less > self.unreported || receipt.at < self.reported_at {
            return;
        }
        self.unreported = self.unreported.saturating_sub(less);
        let receipt = *receipt;
        self.charge(now, Op::Settle { receipt, actual });
        match &mut self.fleet {
            FleetSpending::Unknown => {}
            FleetSpending::Bucket(tat) => {
                let price = price(&self.limit.limit, less);
                let lowered = tat.saturating_sub(price.as_nanos());
                // Never below what this node alone has spent.
                *tat = lowered.max(own_tat(&self.own));
            }
            FleetSpending::Window { left, .. } => *left = left.saturating_add(less),
        }
    }

    /// Whether the store should be asked: five times in each interval, if anybody has come or something is to be told.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let is_time = now.since(self.reported_at) >= self.report_period();
        is_time && self.in_flight.is_none() && (self.is_touched || self.unreported > 0)
    }

    /// Whether there is something that the store has not been told.
    pub(super) const fn has_unreported(&self) -> bool {
        self.unreported > 0 && self.in_flight.is_none()
    }

    /// Whether nothing is lost if this is forgotten.
    pub(super) fn is_forgettable(&self, now: Timestamp) -> bool {
        let is_fresh = self.status(now).reset_after.is_zero();
        let is_told = self.unreported == 0 && self.in_flight.is_none();
        is_fresh && is_told && now.since(self.last_used) >= IDLE_TIMEOUT
    }

    /// Takes what is to be told.
    pub(super) fn take_unreported(&mut self, now: Timestamp) -> u64 {
        let units = std::mem::take(&mut self.unreported);
        self.in_flight = Some(units);
        self.reported_at = now;
        self.is_touched = false;
        units
    }

    /// The store has counted it, and says where the fleet stands.
    pub(super) fn on_reply(&mut self, now: Timestamp, status: &QuotaStatus, merged: &Limit) {
        self.in_flight = None;
        let debt = status.reset_after.as_nanos();
        let before = self.last_reply.replace((now, debt));
        if let Some(bucket) = merged.denying_bucket() {
            if let Some((at, before)) = before {
                // What is owed beyond what is left of the last debt was spent meanwhile, by all.
                let allowed = now.since(at).as_nanos();
                let spent = debt.saturating_sub(before.saturating_sub(allowed));
                // A debt that is this node's own is its own bucket's business.
                let own = own_tat(&self.own).saturating_sub(now.as_nanos());
                let late = self.report_period().as_nanos().saturating_mul(2);
                let is_others = debt > own.saturating_add(late);
                let is_in_debt = is_others && debt > bucket.refill_time().as_nanos() / 2;
                self.random_drop.update(spent, allowed, is_in_debt);
            }
            let tat = now.as_nanos().saturating_add(debt);
            let tat = tat.saturating_add(price(merged, self.unreported).as_nanos());
            self.fleet = FleetSpending::Bucket(tat.max(own_tat(&self.own)));
        } else {
            let left = status.remaining.saturating_sub(self.unreported);
            let until = now.after(status.reset_after);
            self.fleet = FleetSpending::Window { left, until };
        }
    }

    /// The store has not answered. It is told again, even if it may have heard: what was admitted has to count. It may then count
    /// twice, which denies more for a while; not to count would let the bound grow with every answer that is lost.
    pub(super) const fn on_failure(&mut self) {
        if let Some(units) = self.in_flight.take() {
            self.unreported = self.unreported.saturating_add(units);
        }
    }

    /// Charges what this node has spent. `None` if it was not admitted.
    fn charge(&mut self, now: Timestamp, op: Op) -> Option<Receipt> {
        let transition = self.limit.limit.decide(&self.own, now, op).ok()?;
        if let Some(edit) = transition.next {
            self.own.apply(edit);
        }
        transition
            .outcome
            .is_admitted()
            .then_some(transition.receipt)
    }

    fn charge_fleet(&mut self, now: Timestamp, cost: u64) {
        match &mut self.fleet {
            FleetSpending::Unknown => {}
            FleetSpending::Bucket(tat) => {
                let price = price(&self.limit.limit, cost).as_nanos();
                *tat = (*tat).max(now.as_nanos()).saturating_add(price);
            }
            FleetSpending::Window { left, .. } => *left = left.saturating_sub(cost),
        }
    }

    fn fleet_outcome(&self, now: Timestamp, cost: u64) -> Outcome {
        match (self.fleet, self.limit.limit.denying_bucket()) {
            (FleetSpending::Bucket(tat), Some(bucket)) => {
                // Everybody's spending is charged when it is told, and not when it was spent, so the debt is too large by up to
                // the time between. Without this a burst that is smaller than what is spent in that time would never be met.
                let tat = tat.saturating_sub(self.report_period().as_nanos());
                bucket.decide(tat, now, cost).outcome
            }
            (FleetSpending::Window { left, until }, _) if now < until && cost > left => {
                Outcome::Deny {
                    retry_after: match self.limit.limit.quota() {
                        Quota::FixedWindow(_) => until.since(now),
                        // When some of it has slid out is known to the store.
                        _ => self.time_to_next_report(now),
                    },
                }
            }
            _ => Outcome::Allow,
        }
    }

    /// How long the store is left alone. What one node tells another hears after at most two of these and twice the time until
    /// somebody looks; one more is what [`fleet_says`](Self::fleet_says) lets pass. All of that is within the interval.
    const fn report_period(&self) -> Nanos {
        Nanos::from_nanos(self.interval.as_nanos() / 5)
    }

    /// Time until the store is asked next.
    fn time_to_next_report(&self, now: Timestamp) -> Nanos {
        let next = self.reported_at.after(self.report_period());
        next.since(now).max(Nanos::from_nanos(1_000_000))
    }

    fn denied_reply(&self, now: Timestamp, cost: u64, retry_after: Nanos) -> StoreReply {
        let status = self.status(now);
        StoreReply {
            outcome: Outcome::Deny { retry_after },
            status: QuotaStatus {
                remaining: status.remaining.min(cost.saturating_sub(1)),
                ..status
            },
            receipt: Receipt::empty(now),
            note: ReplyNote::Plain,
        }
    }

    /// The worse of what this node has spent and what the fleet has.
    fn status(&self, now: Timestamp) -> QuotaStatus {
        let own = self.limit.limit.status(&self.own, now);
        let fleet = match (self.fleet, self.limit.limit.denying_bucket()) {
            (FleetSpending::Bucket(tat), Some(bucket)) => {
                let debt = tat.saturating_sub(now.as_nanos());
                QuotaStatus {
                    reset_after: Nanos::from_nanos(debt),
                    ..bucket.status(tat, now)
                }
            }
            (FleetSpending::Window { left, until }, _) if now < until => QuotaStatus {
                limit: own.limit,
                remaining: left.min(own.limit),
                reset_after: until.since(now),
            },
            _ => own,
        };
        QuotaStatus {
            limit: own.limit,
            remaining: own.remaining.min(fleet.remaining),
            reset_after: own.reset_after.max(fleet.reset_after),
        }
    }
}

/// What so many units of a bucket are in time; nothing for others.
fn price(limit: &Limit, units: u64) -> Nanos {
    limit.denying_bucket().map_or(Nanos::ZERO, |bucket| {
        let blocks = units.div_ceil(bucket.block().max(1));
        Nanos::from_nanos(blocks.saturating_mul(bucket.interval().as_nanos()))
    })
}

fn own_tat(own: &State) -> u64 {
    match own {
        State::Bucket(tat) => *tat,
        _ => 0,
    }
}
