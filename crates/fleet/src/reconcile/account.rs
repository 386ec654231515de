//! The account of one key under one `async` limit: this node's charges, the fleet's known charges, and the unreported
//! ones.
//!
//! Must not know: locks, stores, other keys.

use std::num::NonZeroU32;

use tollgate_core::limit::{Limit, Op, Quota, State};
use tollgate_core::{
    FixedWindow, Nanos, Outcome, QuotaStatus, Receipt, SlidingCounter, Timestamp, TokenBucket,
};
use tollgate_store::{IdentifiedLimit, QuotaCheck, ReplyNote, StoreKey, StoreReply};

use super::random_drop::RandomDrop;

/// An account that was not used for this long is dropped, if it has no debt.
const IDLE_TIMEOUT: Nanos = Nanos::from_secs(2);

#[derive(Debug)]
pub(super) struct Account {
    pub(super) limit: IdentifiedLimit,
    pub(super) interval: Nanos,
    pub(super) key: Box<[u8]>,
    pub(super) slot_key: Option<Box<[u8]>>,
    /// This node's own charges.
    own: State,
    fleet: FleetSpending,
    random_drop: RandomDrop,
    /// Units that are not reported yet.
    unreported: u64,
    /// Units of the report in flight.
    pub(super) in_flight: Option<u64>,
    /// When the last report was sent.
    reported_at: Timestamp,
    /// When the store last replied, and the debt in its reply.
    last_reply: Option<(Timestamp, u64)>,
    last_used: Timestamp,
    is_touched: bool,
}

/// What is known about the fleet's charges, including this node's.
#[derive(Clone, Copy, Debug)]
enum FleetSpending {
    /// Nothing yet.
    Unknown,
    /// A bucket: the time at which it is full again.
    Bucket(u64),
    /// A window: the units left, and its end.
    Window { left: u64, until: Timestamp },
}

/// The limit that the store counts by. It has an overdraft, so that debt which nodes made together is kept.
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
            let build = |debt| {
                let counter = SlidingCounter::builder(counter.limit(), counter.window());
                counter.overdraft(debt).build()
            };
            // Two counts and their product must fit; the largest overdraft that fits is used.
            let debt = counter.limit().saturating_mul(others);
            let overdrafts =
                std::iter::successors(Some(debt), |debt| (*debt > 0).then(|| debt / 2));
            overdrafts
                .into_iter()
                .find_map(|debt| build(debt).ok())?
                .into()
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
    /// `None` if the limit does not support it, or the key cannot be stored.
    pub(super) fn new(
        check: &QuotaCheck<'_>,
        slot_key: Option<&StoreKey<'_>>,
        interval: Nanos,
        seed: u64,
        now: Timestamp,
    ) -> Option<Self> {
        store_limit(&check.limit.limit, interval, NonZeroU32::MIN)?;
        Some(Self {
            limit: *check.limit,
            interval,
            key: Box::from(check.key.single()?),
            slot_key: slot_key.and_then(StoreKey::single).map(Box::from),
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

    /// Sets the current quota. Charges stay if the algorithm is the same.
    pub(super) fn set_limit(&mut self, limit: &IdentifiedLimit, interval: Nanos) {
        self.interval = interval;
        if self.limit == *limit || store_limit(&limit.limit, interval, NonZeroU32::MIN).is_none() {
            return;
        }
        let algorithm = |limit: &Limit| std::mem::discriminant(limit.quota());
        if algorithm(&self.limit.limit) != algorithm(&limit.limit) {
            self.own = State::default();
            self.fleet = FleetSpending::Unknown;
        }
        self.limit = *limit;
    }

    /// Decides. The flag tells whether the request was dropped at random.
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
        let reply = StoreReply {
            outcome: Outcome::Allow,
            status: self.status(now),
            receipt,
            note: ReplyNote::Plain,
        };
        (reply, false)
    }

    /// What [`spend`](Self::spend) would decide, apart from random drops.
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

    /// Corrects a charge. A lower cost is only refunded while it is unreported, because reported charges are sums.
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
                // Never below this node's own charges.
                *tat = lowered.max(own_tat(&self.own));
            }
            FleetSpending::Window { left, .. } => *left = left.saturating_add(less),
        }
    }

    /// Whether a report is due: five times in each interval, if the account was used or has unreported units.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let is_time = now.since(self.reported_at) >= self.report_period();
        is_time && self.in_flight.is_none() && (self.is_touched || self.unreported > 0)
    }

    /// Whether there are unreported units.
    pub(super) const fn has_unreported(&self) -> bool {
        self.unreported > 0 && self.in_flight.is_none()
    }

    /// Whether the account can be dropped without loss.
    pub(super) fn is_forgettable(&self, now: Timestamp) -> bool {
        let is_fresh = self.status(now).reset_after.is_zero();
        let is_told = self.unreported == 0 && self.in_flight.is_none();
        is_fresh && is_told && now.since(self.last_used) >= IDLE_TIMEOUT
    }

    /// Takes the unreported units for a report.
    pub(super) fn take_unreported(&mut self, now: Timestamp) -> u64 {
        let units = std::mem::take(&mut self.unreported);
        self.in_flight = Some(units);
        self.reported_at = now;
        self.is_touched = false;
        units
    }

    /// The store has replied with the fleet's status.
    pub(super) fn on_reply(&mut self, now: Timestamp, status: &QuotaStatus, limit: &Limit) {
        self.in_flight = None;
        let debt = status.reset_after.as_nanos();
        let before = self.last_reply.replace((now, debt));
        if let Some(bucket) = limit.denying_bucket() {
            if let Some((at, before)) = before {
                // The debt beyond the rest of the previous debt was spent meanwhile, by all nodes.
                let allowed = now.since(at).as_nanos();
                let spent = debt.saturating_sub(before.saturating_sub(allowed));
                // This node's own debt is handled by its own bucket.
                let own = own_tat(&self.own).saturating_sub(now.as_nanos());
                let late = self.report_period().as_nanos().saturating_mul(2);
                let is_others = debt > own.saturating_add(late);
                let is_in_debt = is_others && debt > bucket.refill_time().as_nanos() / 2;
                self.random_drop.update(spent, allowed, is_in_debt);
            }
            let tat = now.as_nanos().saturating_add(debt);
            let tat = tat.saturating_add(price(limit, self.unreported).as_nanos());
            self.fleet = FleetSpending::Bucket(tat.max(own_tat(&self.own)));
        } else {
            let left = status.remaining.saturating_sub(self.unreported);
            let until = now.after(status.reset_after);
            self.fleet = FleetSpending::Window { left, until };
        }
    }

    /// The report failed. Its units are reported again, even if the store may have counted them. They may then count
    /// twice, which denies more for a while. Dropping them would let the bound grow with every lost reply.
    pub(super) const fn on_failure(&mut self) {
        if let Some(units) = self.in_flight.take() {
            self.unreported = self.unreported.saturating_add(units);
        }
    }

    /// Charges this node's own state. `None` if it does not admit.
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
                // Charges count at the store from when they are reported, not from when they were made. So the debt is
                // too high by up to one report period. Without this correction, a burst smaller than what is spent in
                // one period could never be used.
                let tat = tat.saturating_sub(self.report_period().as_nanos());
                bucket.decide(tat, now, cost).outcome
            }
            (FleetSpending::Window { left, until }, _) if now < until && cost > left => {
                Outcome::Deny {
                    retry_after: match self.limit.limit.quota() {
                        Quota::FixedWindow(_) => until.since(now),
                        // Only the store knows when a part of it slides out.
                        _ => self.time_to_next_report(now),
                    },
                }
            }
            _ => Outcome::Allow,
        }
    }

    /// The time between reports. Another node sees a report after at most two periods and two maintenance rounds; one
    /// more period is what [`fleet_outcome`](Self::fleet_outcome) allows. The sum is within the interval.
    const fn report_period(&self) -> Nanos {
        Nanos::from_nanos(self.interval.as_nanos() / 5)
    }

    /// The time to the next report.
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

    /// The lower of this node's own status and the fleet's.
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

/// The time that this many units of a bucket take to refill; zero for other algorithms.
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
