//! Decides on leases: skips the expired ones, then counts the places held.

use super::lease_set::{Lease, LeaseChange, LeaseEdit, LeaseId, LeaseSet};
use super::quota::Concurrency;
use crate::outcome::{Outcome, QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};

/// The leases as one decision sees them.
struct LeaseView {
    /// The number of expired leases.
    expired: usize,
    /// Places held by the leases that have not expired.
    used: u64,
    /// When a lease taken now would end.
    latest: u64,
    /// Whether a lease ends later than that, because the clock went back.
    is_ahead: bool,
}

impl Concurrency {
    /// Decides on acquiring `weight` places under `id`. A weight of zero is a peek and is always allowed. An id that already holds a
    /// lease keeps it without_change.
    ///
    /// A denial carries the time until enough leases have expired, if none is released before.
    pub fn acquire(
        &self,
        leases: &LeaseSet,
        now: Timestamp,
        id: LeaseId,
        weight: u64,
    ) -> Transition<LeaseEdit> {
        let view = self.view(leases, now);
        if weight == 0 {
            return without_change(&view, now, Outcome::Allow);
        }
        let held = leases
            .iter()
            .skip(view.expired)
            .find(|lease| lease.id == id);
        if let Some(held) = held {
            let receipt = Receipt {
                cost: 0,
                at: now,
                mark: held.expires.min(view.latest),
            };
            return Transition {
                receipt,
                ..without_change(&view, now, Outcome::Allow)
            };
        }
        if weight > self.limit {
            return without_change(&view, now, Outcome::Never);
        }
        let excess = view.used.saturating_add(weight).saturating_sub(self.limit);
        if excess > 0 {
            let retry_after = time_until_free(leases, &view, now, excess);
            return without_change(&view, now, Outcome::Deny { retry_after });
        }
        let lease = Lease {
            id,
            weight,
            expires: view.latest,
        };
        let receipt = Receipt {
            cost: weight,
            at: now,
            mark: lease.expires,
        };
        Transition {
            receipt,
            ..with_change(&view, now, LeaseChange::Acquire(lease))
        }
    }

    /// Extends the lease to its full duration from `now`. `None` if it is not held: it was released, or it has expired.
    pub fn renew(
        &self,
        leases: &LeaseSet,
        now: Timestamp,
        id: LeaseId,
    ) -> Option<Transition<LeaseEdit>> {
        let view = self.view(leases, now);
        leases
            .iter()
            .skip(view.expired)
            .find(|lease| lease.id == id)?;
        Some(with_change(&view, now, LeaseChange::Renew(id, view.latest)))
    }

    /// Releases the lease. Releasing a lease that is not held changes nothing.
    pub fn release(&self, leases: &LeaseSet, now: Timestamp, id: LeaseId) -> Transition<LeaseEdit> {
        let view = self.view(leases, now);
        if leases.iter().any(|lease| lease.id == id) {
            return with_change(&view, now, LeaseChange::Release(id));
        }
        without_change(&view, now, Outcome::Allow)
    }

    /// The status of these leases for a client.
    #[must_use]
    pub fn status(&self, leases: &LeaseSet, now: Timestamp) -> QuotaStatus {
        let view = self.view(leases, now);
        let last = match leases.iter().next_back() {
            Some(lease) if view.used > 0 => lease.expires.min(view.latest),
            _ => 0,
        };
        QuotaStatus {
            limit: self.limit,
            remaining: self.limit.saturating_sub(view.used),
            reset_after: Nanos::from_nanos(last.saturating_sub(now.as_nanos())),
        }
    }

    fn view(&self, leases: &LeaseSet, now: Timestamp) -> LeaseView {
        let latest = now.as_nanos().saturating_add(self.lease);
        let is_ahead = leases
            .iter()
            .next_back()
            .is_some_and(|lease| lease.expires > latest);
        let mut view = LeaseView {
            expired: 0,
            used: leases.total(),
            latest,
            is_ahead,
        };
        for lease in leases
            .iter()
            .take_while(|lease| lease.expires <= now.as_nanos())
        {
            view.expired = view.expired.saturating_add(1);
            view.used = view.used.saturating_sub(lease.weight);
        }
        view
    }
}

/// Time until leases of at least `excess` places have expired.
fn time_until_free(leases: &LeaseSet, view: &LeaseView, now: Timestamp, excess: u64) -> Nanos {
    let mut freed = 0_u64;
    let mut at = now.as_nanos();
    for lease in leases.iter().skip(view.expired) {
        freed = freed.saturating_add(lease.weight);
        at = lease.expires.min(view.latest);
        if freed >= excess {
            break;
        }
    }
    Nanos::from_nanos(at.saturating_sub(now.as_nanos()))
}

fn with_change(view: &LeaseView, now: Timestamp, change: LeaseChange) -> Transition<LeaseEdit> {
    let edit = LeaseEdit {
        expired: view.expired,
        latest: view.latest,
        change,
    };
    let receipt = Receipt::empty(now);
    Transition {
        outcome: Outcome::Allow,
        next: Some(edit),
        receipt,
    }
}

/// Changes no lease; edits the set only if the clock went back.
fn without_change(view: &LeaseView, now: Timestamp, outcome: Outcome) -> Transition<LeaseEdit> {
    let edit = LeaseEdit {
        expired: view.expired,
        latest: view.latest,
        change: LeaseChange::Nothing,
    };
    let receipt = Receipt::empty(now);
    Transition {
        outcome,
        next: view.is_ahead.then_some(edit),
        receipt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Nanos = Nanos::from_secs(10);

    fn quota() -> Concurrency {
        Concurrency::new(2, LEASE).unwrap()
    }

    fn acquire(leases: &mut LeaseSet, second: u64, id: u128) -> Outcome {
        let transition = quota().acquire(leases, Timestamp::from_secs(second), LeaseId(id), 1);
        if let Some(edit) = transition.next {
            leases.apply(edit);
        }
        transition.outcome
    }

    #[test]
    fn a_lost_holder_loses_its_place_when_its_lease_expires() {
        let mut leases = LeaseSet::default();
        assert_eq!(acquire(&mut leases, 0, 1), Outcome::Allow);
        assert_eq!(acquire(&mut leases, 4, 2), Outcome::Allow);
        let denied = Outcome::Deny {
            retry_after: Nanos::from_secs(5),
        };
        assert_eq!(acquire(&mut leases, 5, 3), denied);
        assert_eq!(acquire(&mut leases, 10, 3), Outcome::Allow);
        assert_eq!(leases.len(), 2);
    }

    #[test]
    fn a_renewed_lease_lasts_and_an_expired_one_cannot_be_renewed() {
        let mut leases = LeaseSet::default();
        acquire(&mut leases, 0, 1);
        let renewed = quota()
            .renew(&leases, Timestamp::from_secs(9), LeaseId(1))
            .unwrap();
        leases.apply(renewed.next.unwrap());
        assert_eq!(
            quota().status(&leases, Timestamp::from_secs(18)).remaining,
            1
        );
        assert_eq!(
            quota().renew(&leases, Timestamp::from_secs(19), LeaseId(1)),
            None
        );
        assert_eq!(
            quota().renew(&leases, Timestamp::from_secs(9), LeaseId(7)),
            None
        );
    }

    #[test]
    fn acquiring_again_under_the_same_id_takes_no_second_place() {
        let mut leases = LeaseSet::default();
        acquire(&mut leases, 0, 1);
        acquire(&mut leases, 1, 1);
        assert_eq!(
            quota().status(&leases, Timestamp::from_secs(1)).remaining,
            1
        );
        let status = quota().status(&leases, Timestamp::from_secs(1));
        assert_eq!(status.reset_after, Nanos::from_secs(9), "nor does it renew");
    }

    /// A client repeats its call after the limit was lowered below the weight of its lease: it keeps the lease.
    #[test]
    fn a_lease_stays_held_when_the_limit_drops_below_its_weight() {
        let mut leases = LeaseSet::default();
        let held = quota().acquire(&leases, Timestamp::EPOCH, LeaseId(1), 2);
        leases.apply(held.next.unwrap());
        let lowered = Concurrency::new(1, LEASE).unwrap();
        let again = lowered.acquire(&leases, Timestamp::EPOCH, LeaseId(1), 2);
        assert_eq!(again.outcome, Outcome::Allow);
        assert_eq!(lowered.status(&leases, Timestamp::EPOCH).remaining, 0);
    }

    #[test]
    fn a_clock_that_goes_back_cannot_keep_a_place_longer_than_a_lease() {
        let mut leases = LeaseSet::default();
        acquire(&mut leases, 1_000, 1);
        acquire(&mut leases, 1_000, 2);
        assert_eq!(
            acquire(&mut leases, 5, 3),
            Outcome::Deny { retry_after: LEASE }
        );
        assert_eq!(acquire(&mut leases, 15, 3), Outcome::Allow);
    }
}
