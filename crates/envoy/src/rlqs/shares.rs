//! The share pool of one limit: assigns shares to claims so that the shares in use never add up to more than the limit.
//!
//! The server does not know which share a client uses, only what it sent and what the client may have missed. So a claim
//! reserves the largest share that its client may still use. That is the last share that was sent, until it expires. It is
//! also an earlier larger share, until a report proves that the smaller one has arrived, or the larger one expires. Only
//! unreserved units are assigned to other claims.
//!
//! The pool does no IO: reports, times and sent shares go in, new shares come out. Must not know: clients, messages, what the
//! units are.

use std::collections::BTreeMap;

use tollgate_core::fair_share::{Demand, allocate};
use tollgate_core::{Nanos, Timestamp};

/// The durations of assignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AssignmentTimes {
    /// The lifetime of an assignment after the client received it.
    pub(super) ttl: Nanos,
    /// A sent message has arrived after this long. A report that arrives later was written after the client received it.
    pub(super) grace: Nanos,
}

impl AssignmentTimes {
    /// How long an assignment may be in use after it was sent.
    pub(super) const fn hold_time(&self) -> Nanos {
        self.ttl.saturating_add(self.grace)
    }
}

/// A change of at least one fifth of a share is significant. Smaller ones are not sent, because Envoy resets a bucket when
/// its assignment changes.
const SIGNIFICANT_CHANGE_DIVISOR: u64 = 5;
/// A claim without demand gets this fraction of an equal share, at least one unit.
const MIN_SHARE_DIVISOR: u64 = 8;

/// The share pool of one limit.
#[derive(Debug)]
pub(super) struct SharePool {
    capacity: u64,
    claims: BTreeMap<u64, Claim>,
    /// The units that all claims reserve.
    held: u64,
    /// Until then clients of a previous process may use the whole limit.
    opens_at: Timestamp,
    /// Whether a claim has less than its minimum.
    is_short: bool,
    /// Whether a claim should have significantly more and there are not enough free units.
    is_contended: bool,
    minimum: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    /// Its demand, and the largest share that it can use.
    demand: u64,
    max_useful: u64,
    /// The planned share.
    target: u64,
    last_sent: Option<SentShare>,
    /// A larger share that was sent earlier and may still be in use.
    larger_share: Option<LargerShare>,
    /// Its bucket is abandoned or its client disconnected.
    is_leaving: bool,
}

#[derive(Clone, Copy, Debug)]
struct SentShare {
    share: u64,
    sent: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct LargerShare {
    share: u64,
    lowered: Timestamp,
    until: Timestamp,
}

/// Whether the difference between two shares is large enough to send a change.
fn is_significant_change(from: u64, to: u64) -> bool {
    from.abs_diff(to).saturating_mul(SIGNIFICANT_CHANGE_DIVISOR) >= from.max(to).max(1)
}

impl Claim {
    fn share(&self) -> u64 {
        self.last_sent.map_or(0, |given| given.share)
    }

    /// The largest share that its client may use.
    fn held(&self) -> u64 {
        self.share()
            .max(self.larger_share.map_or(0, |larger| larger.share))
    }
}

impl SharePool {
    /// A pool of `capacity` units. Until `opens` all of them may be in use by clients of a previous process.
    pub(super) const fn new(capacity: u64, opens: Timestamp) -> Self {
        Self {
            capacity,
            claims: BTreeMap::new(),
            held: 0,
            opens_at: opens,
            is_short: false,
            is_contended: false,
            minimum: 0,
        }
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// Changes the capacity. Sent shares stay reserved; the next plan lowers them if necessary.
    pub(super) const fn resize(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    /// Adds a claim, if it is new, that can use at most `most` units.
    pub(super) fn join(&mut self, id: u64, most: u64) {
        let claim = self.claims.entry(id).or_default();
        (claim.max_useful, claim.is_leaving) = (most, false);
    }

    /// Records a claim's demand. It rises at once and falls by half.
    pub(super) fn record_demand(&mut self, id: u64, demand: u64) {
        if let Some(claim) = self.claims.get_mut(&id) {
            let demand = demand.min(claim.max_useful);
            let halfway = claim.demand.min(claim.max_useful) / 2 + demand / 2;
            claim.demand = demand.max(halfway);
        }
    }

    /// Records a report, which proves that messages before the grace period arrived. Returns whether units became free.
    pub(super) fn confirm_delivery(
        &mut self,
        id: u64,
        now: Timestamp,
        spans: &AssignmentTimes,
    ) -> bool {
        self.update_claim(id, |claim| {
            let has_arrived = |larger: &LargerShare| now >= larger.lowered.after(spans.grace);
            if claim.larger_share.as_ref().is_some_and(has_arrived) {
                claim.larger_share = None;
            }
        })
    }

    /// Removes a claim. Its reserved units stay reserved until they expire.
    pub(super) fn leave(&mut self, id: u64) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.is_leaving = true;
            (claim.demand, claim.target) = (0, 0);
            if claim.held() == 0 {
                self.claims.remove(&id);
            }
        }
    }

    /// Releases expired shares. Returns whether units became free.
    pub(super) fn expire(&mut self, now: Timestamp, spans: &AssignmentTimes) -> bool {
        let before = self.held;
        let mut held = 0_u64;
        self.claims.retain(|_, claim| {
            let is_over = |given: &SentShare| now >= given.sent.after(spans.hold_time());
            claim.last_sent = claim.last_sent.filter(|given| !is_over(given));
            claim.larger_share = claim.larger_share.filter(|larger| now < larger.until);
            held = held.saturating_add(claim.held());
            !claim.is_leaving || claim.held() > 0
        });
        self.held = held;
        held < before
    }

    /// Plans the share of each claim. Returns the claims for which [`offer`](Self::offer) differs from the last sent share.
    pub(super) fn plan(&mut self, now: Timestamp) -> Vec<u64> {
        // The oldest claims come last: if there are fewer units than claims, they keep theirs.
        let staying = || {
            let newest_first = self.claims.values().rev();
            newest_first.filter(|claim| !claim.is_leaving)
        };
        let count = staying().count() as u64;
        let equal = self.capacity.checked_div(count).unwrap_or(0);
        self.minimum = (equal / MIN_SHARE_DIVISOR).max(1).min(self.capacity);
        let minimum = self.minimum;
        let demand = |claim: &Claim| Demand {
            units: claim.demand.max(minimum).min(claim.max_useful),
            weight: 1,
        };
        let demands: Vec<Demand> = staying().map(demand).collect();
        let mut shares = allocate(self.capacity, minimum, &demands);
        // Units without demand are assigned too, so that a later burst finds them.
        let given: u64 = shares.iter().sum();
        let room = |(claim, share): (&Claim, &u64)| Demand {
            units: claim.max_useful.saturating_sub(*share),
            weight: 1,
        };
        let rest: Vec<Demand> = staying().zip(&shares).map(room).collect();
        let rest = allocate(self.capacity.saturating_sub(given), 0, &rest);
        for (share, more) in shares.iter_mut().zip(rest) {
            *share = share.saturating_add(more);
        }
        let targets = shares.into_iter();
        let staying = self.claims.values_mut().rev();
        let staying = staying.filter(|claim| !claim.is_leaving);
        for (claim, target) in staying.zip(targets) {
            claim.target = target;
        }
        let is_short =
            |claim: &Claim| !claim.is_leaving && claim.share() < claim.target.min(minimum);
        self.is_short = self.claims.values().any(is_short);
        let is_wanted = |claim: &Claim| {
            let others = self.held.saturating_sub(claim.held());
            let room = self.capacity.saturating_sub(others);
            let (share, target) = (claim.share(), claim.target);
            target > share.max(room) && is_significant_change(share, target)
        };
        self.is_contended = self.claims.values().any(is_wanted);
        let is_changed = |id: &u64, claim: &Claim| {
            let offered = self.offer(*id, now);
            offered.is_some() && offered != claim.last_sent.map(|given| given.share)
        };
        let changed = self
            .claims
            .iter()
            .filter(|(id, claim)| is_changed(id, claim));
        changed.map(|(id, _)| *id).collect()
    }

    /// The share that can be sent for a claim now. `None` if there is none yet.
    pub(super) fn offer(&self, id: u64, now: Timestamp) -> Option<u64> {
        let claim = self.claims.get(&id).filter(|claim| !claim.is_leaving)?;
        let Claim { target, .. } = *claim;
        let others = self.held.saturating_sub(claim.held());
        let room = match now < self.opens_at {
            true => 0,
            false => self.capacity.saturating_sub(others),
        };
        let possible = target.min(room);
        let Some(given) = claim.last_sent else {
            // A new claim starts with its minimum.
            let is_enough = possible >= target.min(self.minimum);
            return is_enough.then_some(possible);
        };
        if target < given.share {
            let is_over = self.held > self.capacity;
            let is_lowered = claim.larger_share.is_some();
            // A claim that was just lowered is not lowered again before that has arrived, unless it must be.
            let is_worth = self.is_contended || is_significant_change(given.share, target);
            let is_due = is_over || self.is_short || (is_worth && !is_lowered);
            return Some(if is_due { target } else { given.share });
        }
        // Half of the missing units is worth a message. For less it waits until others release theirs.
        let missing = target.saturating_sub(given.share);
        let gained = possible.saturating_sub(given.share);
        let is_short = given.share < self.minimum;
        let is_worth = is_short || is_significant_change(given.share, possible);
        let is_due = gained > 0 && gained >= missing / 2 && is_worth;
        Some(if is_due { possible } else { given.share })
    }

    /// The last share that was sent, while it may be in use.
    pub(super) fn last_sent_share(&self, id: u64) -> Option<u64> {
        let given = self.claims.get(&id)?.last_sent?;
        Some(given.share)
    }

    /// Records that a share was sent, for the first time or again.
    pub(super) fn record_sent(
        &mut self,
        id: u64,
        share: u64,
        now: Timestamp,
        spans: &AssignmentTimes,
    ) {
        self.update_claim(id, |claim| {
            if let Some(old) = claim.last_sent.filter(|old| old.share > share) {
                let until = old.sent.after(spans.hold_time());
                let earlier = claim
                    .larger_share
                    .map_or((0, until), |one| (one.share, one.until));
                claim.larger_share = Some(LargerShare {
                    share: old.share.max(earlier.0),
                    lowered: now,
                    until: until.max(earlier.1),
                });
            }
            claim.larger_share = claim.larger_share.filter(|larger| larger.share > share);
            claim.last_sent = Some(SentShare { share, sent: now });
        });
    }

    /// The units that all clients may use together.
    #[cfg(test)]
    pub(super) const fn held(&self) -> u64 {
        self.held
    }

    /// Changes a claim and updates the reserved units. Returns whether units became free.
    fn update_claim(&mut self, id: u64, change: impl FnOnce(&mut Claim)) -> bool {
        let Some(claim) = self.claims.get_mut(&id) else {
            return false;
        };
        let before = claim.held();
        change(claim);
        let after = claim.held();
        self.held = self.held.saturating_sub(before).saturating_add(after);
        after < before
    }
}
