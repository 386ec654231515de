//! One limit and those who share it: who is given how much, so that what all of them may be running on never adds up to
//! more than the limit.
//!
//! Nobody tells us what a client is running on; it is known only from what it was sent and from what it can have missed. So
//! a claim holds the largest share that it may still be running on: what it was sent last until that has expired, and
//! whatever it was sent before that was larger, until a report shows that the smaller one has arrived or the larger one has
//! expired. Only what nobody holds is given to others.
//!
//! Pure: reports, times and what was sent go in, shares come out. Must not know: clients, messages, what a share is of.

use std::collections::BTreeMap;

use tollgate_core::fair_share::{Demand, allocate};
use tollgate_core::{Nanos, Timestamp};

/// How long things last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AssignmentTimes {
    /// How long an assignment is in force after a client has it.
    pub(super) ttl: Nanos,
    /// What is sent has arrived after so long, and what is reported later than that was written after it had.
    pub(super) grace: Nanos,
}

impl AssignmentTimes {
    /// How long after it was sent an assignment may be in force.
    pub(super) const fn hold_time(&self) -> Nanos {
        self.ttl.saturating_add(self.grace)
    }
}

/// A part that is at least so much of the whole is worth a change: less is not, because clients start other buckets when
/// their assignment changes.
const SIGNIFICANT_CHANGE_DIVISOR: u64 = 5;
/// Whoever wants nothing is still given this part of an equal share, and one at least.
const MIN_SHARE_DIVISOR: u64 = 8;

/// One limit and those who share it.
#[derive(Debug)]
pub(super) struct SharePool {
    capacity: u64,
    claims: BTreeMap<u64, Claim>,
    /// What all claims hold together.
    held: u64,
    /// Until then everything may be held by clients of whoever gave out shares before us.
    opens_at: Timestamp,
    /// Whether somebody who should have something has not even the minimum.
    is_short: bool,
    /// Whether somebody should have so much more that it is worth a change, and there is no room for it.
    is_contended: bool,
    minimum: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    /// What it would use, and the most that is of use to it.
    demand: u64,
    max_useful: u64,
    /// What it should have.
    target: u64,
    last_sent: Option<SentShare>,
    /// A larger share from which it was lowered.
    larger_share: Option<LargerShare>,
    /// It will not be given anything any more.
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

/// Whether the way from one share to another is worth a change.
fn is_significant_change(from: u64, to: u64) -> bool {
    from.abs_diff(to).saturating_mul(SIGNIFICANT_CHANGE_DIVISOR) >= from.max(to).max(1)
}

impl Claim {
    fn share(&self) -> u64 {
        self.last_sent.map_or(0, |given| given.share)
    }

    /// The largest share that it may be running on.
    fn held(&self) -> u64 {
        self.share()
            .max(self.larger_share.map_or(0, |above| above.share))
    }
}

impl SharePool {
    /// A limit of so many units of which nobody holds anything but those who held it before `opens`.
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

    /// Another limit. Shares that are out stay held: if it is smaller, they are lowered by the next plan.
    pub(super) const fn resize(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    /// Somebody has a claim, if he had none, of which no more than `most` is of use to him.
    pub(super) fn join(&mut self, id: u64, most: u64) {
        let claim = self.claims.entry(id).or_default();
        (claim.max_useful, claim.is_leaving) = (most, false);
    }

    /// What somebody would use, as he has just reported: up at once, down by halves.
    pub(super) fn record_demand(&mut self, id: u64, wants: u64) {
        if let Some(claim) = self.claims.get_mut(&id) {
            let wants = wants.min(claim.max_useful);
            let halfway = claim.demand.min(claim.max_useful) / 2 + wants / 2;
            claim.demand = wants.max(halfway);
        }
    }

    /// A report has come, so what was sent a while ago has arrived. Answers whether that set something free.
    pub(super) fn confirm_delivery(
        &mut self,
        id: u64,
        now: Timestamp,
        spans: &AssignmentTimes,
    ) -> bool {
        self.update_claim(id, |claim| {
            let has_arrived = |above: &LargerShare| now >= above.lowered.after(spans.grace);
            if claim.larger_share.as_ref().is_some_and(has_arrived) {
                claim.larger_share = None;
            }
        })
    }

    /// Somebody is gone or was told to forget it. What it holds it holds until that has expired.
    pub(super) fn leave(&mut self, id: u64) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.is_leaving = true;
            (claim.demand, claim.target) = (0, 0);
            if claim.held() == 0 {
                self.claims.remove(&id);
            }
        }
    }

    /// Time has passed. Answers whether that set something free.
    pub(super) fn expire(&mut self, now: Timestamp, spans: &AssignmentTimes) -> bool {
        let before = self.held;
        let mut held = 0_u64;
        self.claims.retain(|_, claim| {
            let is_over = |given: &SentShare| now >= given.sent.after(spans.hold_time());
            claim.last_sent = claim.last_sent.filter(|given| !is_over(given));
            claim.larger_share = claim.larger_share.filter(|above| now < above.until);
            held = held.saturating_add(claim.held());
            !claim.is_leaving || claim.held() > 0
        });
        self.held = held;
        held < before
    }

    /// Decides who should have how much, and answers who is to be looked at because of it: those for whom
    /// [`offer`](Self::offer) has something other than they have.
    pub(super) fn plan(&mut self, now: Timestamp) -> Vec<u64> {
        // The oldest come last: where there is not even one unit for everybody, they keep theirs.
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
        // What nobody asked for is shared out too: a burst that comes tomorrow should find it there.
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
        let is_news = |id: &u64, claim: &Claim| {
            let offered = self.offer(*id, now);
            offered.is_some() && offered != claim.last_sent.map(|given| given.share)
        };
        let news = self.claims.iter().filter(|(id, claim)| is_news(id, claim));
        news.map(|(id, _)| *id).collect()
    }

    /// The share that can be sent to somebody now; nothing if there is none for it yet.
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
            // Who has nothing yet takes what makes a beginning.
            let is_enough = possible >= target.min(self.minimum);
            return is_enough.then_some(possible);
        };
        if target < given.share {
            let is_over = self.held > self.capacity;
            let is_lowered = claim.larger_share.is_some();
            // Whoever was just lowered is not lowered again before that has arrived, unless it must be.
            let is_worth = self.is_contended || is_significant_change(given.share, target);
            let is_due = is_over || self.is_short || (is_worth && !is_lowered);
            return Some(if is_due { target } else { given.share });
        }
        // Half of the way is worth going; for less it waits until others have let go.
        let missing = target.saturating_sub(given.share);
        let gained = possible.saturating_sub(given.share);
        let is_short = given.share < self.minimum;
        let is_worth = is_short || is_significant_change(given.share, possible);
        let is_due = gained > 0 && gained >= missing / 2 && is_worth;
        Some(if is_due { possible } else { given.share })
    }

    /// What somebody was sent last, while that may be in force.
    pub(super) fn last_sent_share(&self, id: u64) -> Option<u64> {
        let given = self.claims.get(&id)?.last_sent?;
        Some(given.share)
    }

    /// A share was sent, for the first time or again.
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
            claim.larger_share = claim.larger_share.filter(|above| above.share > share);
            claim.last_sent = Some(SentShare { share, sent: now });
        });
    }

    /// What all of them may be running on together.
    #[cfg(test)]
    pub(super) const fn held(&self) -> u64 {
        self.held
    }

    /// Changes a claim and what is held; answers whether that is less than before.
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
