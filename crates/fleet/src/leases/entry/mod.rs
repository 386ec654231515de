//! What a node has of one key of one limit: slices, what is still to be told of them, and what the lender last said.
//!
//! All of it happens at an instant that is handed in, under a lock that somebody else holds. Must not know: locks, tables,
//! lenders, other keys.

mod answers;

use std::num::NonZeroU32;
use std::sync::Arc;

use arrayvec::ArrayVec;
use tokio::sync::Notify;
use tollgate_core::limit::Limit;
use tollgate_core::quota_lease::{LeaseGrant, LeaseReport, LeaseSpec, LocalLease, QuotaLeaseId};
use tollgate_core::{Nanos, Outcome, QuotaStatus, Timestamp, TokenBucket};
use tollgate_store::{Ruled, StoreError, StoreReply};

use super::terms::{LeaseOptions, Size, fair};

/// The most slices that are remembered until the lender has heard the last of them. One that is forgotten earlier is
/// written off, which costs a little of the quota and mints nothing.
const OVER: usize = 4;

/// What is told in one errand: the slices that are over, and those in use.
pub(super) type Reports = ArrayVec<LeaseReport, { OVER + 2 }>;

/// The bucket that slices of this limit are taken from, if it is one that can be lent.
pub(super) fn lendable(limit: &Limit) -> Option<&TokenBucket> {
    limit.denying_bucket()
}

/// What a node has of one key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) ruled: Ruled,
    pub(super) bucket: TokenBucket,
    pub(super) key: Arc<[u8]>,
    pub(super) place: Option<Arc<[u8]>>,
    current: Option<LocalLease>,
    next: Option<LocalLease>,
    over: ArrayVec<LocalLease, OVER>,
    refused: Option<Refused>,
    said: Option<(QuotaStatus, Timestamp)>,
    size: Size,
    /// Marks what is spent; another one whenever that can no longer be taken back.
    mark: u64,
    /// Units that turned out to be owed and are taken off the next slice.
    owed: u64,
    /// Units that those who wait need.
    waited_for: u64,
    pub(super) flight: Option<Arc<Flight>>,
    pub(super) is_queued: bool,
    last_used: Timestamp,
    last_told: Timestamp,
}

/// One errand that is under way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) landed: Notify,
    /// Empty while it is under way.
    pub(super) outcome: std::sync::OnceLock<Result<(), StoreError>>,
}

/// What the lender did not have.
#[derive(Clone, Copy, Debug)]
struct Refused {
    cost: u64,
    /// When it said that it would.
    until: Timestamp,
    /// When it is asked again.
    believed_until: Timestamp,
}

impl Refused {
    /// Whether this says that so much is refused too.
    fn covers(&self, now: Timestamp, cost: u64) -> bool {
        cost >= self.cost && now < self.believed_until
    }
}

/// An errand to be run.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) reports: Reports,
    pub(super) want: Option<LeaseSpec>,
    pub(super) sent: Timestamp,
}

/// What an entry can say at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    Spent(StoreReply),
    Denied(StoreReply),
    /// It cannot say.
    Unknown,
}

impl Entry {
    pub(super) fn new(
        ruled: Ruled,
        bucket: TokenBucket,
        key: &[u8],
        place: Option<&[u8]>,
        mark: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            ruled,
            bucket,
            key: Arc::from(key),
            place: place.map(Arc::from),
            current: None,
            next: None,
            over: ArrayVec::new(),
            refused: None,
            said: None,
            size: Size::default(),
            mark,
            owed: 0,
            waited_for: 0,
            flight: None,
            is_queued: false,
            last_used: now,
            last_told: now,
        }
    }

    /// Takes the quota that is in force: a slice stays what it is.
    pub(super) fn ruled_by(&mut self, ruled: &Ruled) {
        if let (true, Some(bucket)) = (self.ruled != *ruled, lendable(&ruled.limit)) {
            self.ruled = *ruled;
            self.bucket = *bucket;
            self.refused = None;
        }
    }

    /// Spends from what is here, or says that nothing is there, or that it does not know. `marks` makes marks.
    pub(super) fn spend(&mut self, now: Timestamp, cost: u64, marks: impl Fn() -> u64) -> Said {
        self.last_used = self.last_used.max(now);
        if cost > self.bucket.limit() {
            return Said::Denied(self.answer(now, Outcome::Never, 0));
        }
        if cost == 0 {
            return Said::Spent(self.answer(now, Outcome::Allow, 0));
        }
        let spends = |slice: &mut LocalLease| slice.spend(now, cost);
        if self.current.as_mut().is_some_and(spends) {
            return Said::Spent(self.answer(now, Outcome::Allow, cost));
        }
        if self.next.as_mut().is_some_and(spends) {
            if let Some(used_up) = self.current.take() {
                self.finish(used_up);
            }
            self.current = self.next.take();
            self.mark = marks();
            return Said::Spent(self.answer(now, Outcome::Allow, cost));
        }
        match self.refused {
            Some(refused) if refused.covers(now, cost) => self.refuse(now, &refused, cost),
            _ => Said::Unknown,
        }
    }

    /// An errand is under way from now on.
    pub(super) fn take_off(&mut self) -> Arc<Flight> {
        let flight = Arc::<Flight>::default();
        self.flight = Some(Arc::clone(&flight));
        flight
    }

    /// Whether another slice should be on its way before this one is used up.
    pub(super) fn wants_more(&self, now: Timestamp) -> bool {
        let reserve = self.size.reserve();
        let is_refused = self
            .refused
            .is_some_and(|refused| now < refused.believed_until);
        reserve > 0
            && self.next.is_none()
            && self.flight.is_none()
            && !self.is_queued
            && !is_refused
            && self.left(now) <= reserve
    }

    /// Takes back a spend that others refused, if it can be. Answers how much.
    pub(super) fn unspend(&mut self, now: Timestamp, mark: u64, cost: u64) -> u64 {
        let Some(slice) = self.current.as_mut() else {
            return 0;
        };
        if mark != self.mark || !slice.is_active(now) {
            return 0;
        }
        let told = slice.reported();
        slice.refund(cost, told)
    }

    /// Notes that what was spent has turned out to cost more: from the slice, and if that is used up from the next.
    pub(super) fn owe(&mut self, now: Timestamp, more: u64) {
        self.owed = self.owed.saturating_add(more).min(self.bucket.limit());
        self.pay(now);
    }

    fn pay(&mut self, now: Timestamp) {
        if let Some(slice) = self.current.as_mut().filter(|_| self.owed > 0) {
            let part = self.owed.min(slice.remaining());
            if slice.spend(now, part) {
                self.owed = self.owed.saturating_sub(part);
            }
        }
    }

    /// Somebody waits for the errand that is under way.
    pub(super) const fn wait_for(&mut self, cost: u64) {
        self.waited_for = self.waited_for.saturating_add(cost);
    }

    /// What to ask for `cost` units at once, or, without, so that they need not be asked for.
    pub(super) fn plan(
        &mut self,
        terms: &LeaseOptions,
        nodes: NonZeroU32,
        now: Timestamp,
        (cost, id): (Option<u64>, QuotaLeaseId),
        marks: impl Fn() -> u64,
    ) -> Planned {
        let need = cost.unwrap_or(1).saturating_add(self.waited_for);
        self.waited_for = 0;
        self.size.at_most(fair(&self.bucket, nodes));
        if cost.is_some() {
            // What is left is too little. It goes back, so that it is not missing from what is asked for.
            self.finish_all();
        }
        let least = cost.unwrap_or(1).max(1);
        let fair = fair(&self.bucket, nodes).max(least);
        let want = LeaseSpec {
            id,
            min_units: least,
            max_units: self.size.most(&self.bucket, nodes, need.min(fair)),
            duration: terms.life,
        };
        Planned {
            want: Some(want),
            ..self.tell(now, marks)
        }
    }

    /// What to tell, without asking for anything.
    pub(super) fn tell(&mut self, now: Timestamp, marks: impl Fn() -> u64) -> Planned {
        // What was told can no longer be taken back.
        self.mark = marks();
        self.last_told = now;
        let over = self.over.iter_mut().map(|slice| slice.report(now, true));
        let mut reports: Reports = over.collect();
        for slice in self.current.iter_mut().chain(&mut self.next) {
            if slice.spent() > 0 {
                reports.push(slice.report(now, false));
            }
        }
        Planned {
            reports,
            want: None,
            sent: now,
        }
    }

    /// The lender has answered.
    pub(super) fn granted(
        &mut self,
        terms: &LeaseOptions,
        planned: &Planned,
        granted: &LeaseGrant,
        marks: impl Fn() -> u64,
    ) {
        let is_told = |slice: &LocalLease| {
            let mut told = planned.reports.iter().filter(|report| report.is_last);
            told.any(|report| report.id == slice.id())
        };
        self.over.retain(|slice| !is_told(slice));
        self.said = Some((granted.status, planned.sent));
        let Some(want) = planned.want else { return };
        let (is_refused, wait) = (granted.units == 0, granted.retry_after);
        // What is left where nothing was lent, or nothing beyond it, will not be more for a while.
        let pause = wait.max(terms.pause).min(terms.belief);
        self.refused = (is_refused || !wait.is_zero()).then(|| Refused {
            cost: if is_refused { want.min_units } else { 1 },
            until: planned.sent.after(wait),
            believed_until: planned.sent.after(pause),
        });
        if is_refused {
            return;
        }
        self.size.borrowed(planned.sent, granted.units);
        let margin = terms.margin;
        let slice = LocalLease::new(
            want.id,
            granted.units,
            planned.sent,
            granted.duration,
            margin,
        );
        if self.current.is_some_and(|slice| slice.remaining() > 0) {
            if let Some(other) = self.next.replace(slice) {
                self.finish(other);
            }
        } else {
            self.mark = marks();
            if let Some(used_up) = self.current.replace(slice) {
                self.finish(used_up);
            }
        }
        self.pay(planned.sent);
    }

    /// The lender has not answered. If it may have lent something all the same, that is given back unused.
    pub(super) fn failed(&mut self, planned: &Planned, may_have_lent: bool) {
        if let Some(want) = planned.want.filter(|_| may_have_lent) {
            let nothing = LocalLease::new(want.id, 0, planned.sent, Nanos::ZERO, Nanos::ZERO);
            self.finish(nothing);
        }
    }

    /// Gives back everything that is not in use: what is dead, and if nobody has come for a while all of it.
    pub(super) fn tidy(&mut self, terms: &LeaseOptions, now: Timestamp) {
        let is_idle = !self.is_used(terms, now);
        for slot in [&mut self.current, &mut self.next] {
            if let Some(slice) = slot.take_if(|slice| is_idle || !slice.is_active(now)) {
                keep(&mut self.over, slice);
            }
        }
        // What the lender has written off need not be told.
        let is_awaited = |slice: &LocalLease| {
            now < slice
                .expires_at()
                .after(terms.margin.saturating_add(terms.life))
        };
        self.over.retain(|slice| is_awaited(slice));
    }

    /// Whether there is something that the lender should hear of by now.
    pub(super) fn has_news(&self, terms: &LeaseOptions, now: Timestamp) -> bool {
        let is_due = now.since(self.last_told) >= terms.idle;
        let untold = |slice: &LocalLease| slice.spent() > slice.reported();
        let is_news = !self.over.is_empty() || self.current.iter().chain(&self.next).any(untold);
        is_due && is_news
    }

    /// Whether somebody has come lately.
    pub(super) fn is_used(&self, terms: &LeaseOptions, now: Timestamp) -> bool {
        now.since(self.last_used) < terms.idle
    }

    /// Whether nothing is lost if this is forgotten.
    pub(super) fn is_idle(&self, terms: &LeaseOptions, now: Timestamp) -> bool {
        let is_refused = self
            .refused
            .is_some_and(|refused| now < refused.believed_until);
        self.current.is_none()
            && self.next.is_none()
            && self.over.is_empty()
            && self.flight.is_none()
            && self.owed == 0
            && !self.is_queued
            && !is_refused
            && !self.is_used(terms, now)
    }

    /// Gives everything back.
    pub(super) fn finish_all(&mut self) {
        for slice in [self.current.take(), self.next.take()]
            .into_iter()
            .flatten()
        {
            self.finish(slice);
        }
    }

    pub(super) const fn forget_refusal(&mut self) {
        self.refused = None;
    }

    pub(super) fn has_slices(&self) -> bool {
        self.current.is_some() || self.next.is_some() || !self.over.is_empty()
    }

    fn finish(&mut self, slice: LocalLease) {
        keep(&mut self.over, slice);
    }
}

/// Remembers a slice until the lender has heard of its end; if there are too many, the oldest is forgotten.
fn keep(over: &mut ArrayVec<LocalLease, OVER>, slice: LocalLease) {
    if over.is_full() {
        over.remove(0);
    }
    over.push(slice);
}
