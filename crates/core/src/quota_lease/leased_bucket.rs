//! The lender's side: one bucket, the slices that are out, and decisions on what is left.

use alloc::vec::Vec;

use super::lease_request::{LeaseReport, LeaseSpec, QuotaLeaseId};
use crate::outcome::{Outcome, QuotaStatus};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::{Tat, TokenBucket};

/// The most slices that may be out at once.
pub const MAX_QUOTA_LEASES: usize = 1_024;

/// One slice that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuotaLease {
    /// Who has it.
    pub id: QuotaLeaseId,
    /// Blocks that were lent.
    pub blocks: u64,
    /// Blocks of them that were reported as spent in full. A block that is spent in part stays out, for the rest of it may
    /// be spent later than this part was.
    pub spent: u64,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// When it is written off as spent.
    pub expires: Timestamp,
}

impl QuotaLease {
    /// Blocks that may yet be spent.
    const fn out(&self) -> u64 {
        self.blocks.saturating_sub(self.spent)
    }
}

/// A token bucket of which parts are out on loan. The default is a full bucket with nothing out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct LeasedBucket {
    tat: Tat,
    /// Sorted by expiry, so that slices are written off in the order in which they expire.
    leases: Vec<QuotaLease>,
}

impl LeasedBucket {
    /// Decides on spending `cost` units at once, here and not from a slice.
    pub fn decide(&mut self, quota: &TokenBucket, now: Timestamp, cost: u64) -> Outcome {
        self.write_off(quota, now);
        if quota.blocks(cost) > quota.burst_blocks() {
            return Outcome::Never;
        }
        let transition = quota.less(self.outstanding()).decide(self.tat, now, cost);
        self.tat = transition.next.unwrap_or(self.tat);
        match transition.outcome {
            Outcome::Deny { .. } | Outcome::Never => Outcome::Deny {
                retry_after: self.time_until_fits(quota, now, cost),
            },
            admitted => admitted,
        }
    }

    /// Lends as much as is there, up to the most that is wanted; answers how many units. Asking again under the same id
    /// answers what it was lent, as far as it is wanted, and lends nothing more. Nothing is lent where the least is not there, or where too many
    /// slices are out.
    pub fn grant(&mut self, quota: &TokenBucket, now: Timestamp, want: &LeaseSpec) -> u64 {
        self.write_off(quota, now);
        let most = want.max_units / quota.block_size();
        if let Some(loan) = self.leases.iter().find(|loan| loan.id == want.id) {
            let blocks = loan.blocks.min(most);
            return blocks.saturating_mul(quota.block());
        }
        let left = quota.less(self.outstanding());
        let there = left.status(self.tat, now).remaining / quota.block_size();
        let blocks = there.min(most);
        let is_enough = blocks >= quota.blocks(want.min_units) && blocks > 0;
        if !is_enough || self.leases.len() >= MAX_QUOTA_LEASES {
            return 0;
        }
        let loan = QuotaLease {
            id: want.id,
            blocks,
            spent: 0,
            granted_at: now,
            expires: now.after(want.duration),
        };
        let index = self
            .leases
            .partition_point(|other| other.expires <= loan.expires);
        self.leases.insert(index, loan);
        blocks.saturating_mul(quota.block())
    }

    /// Takes note of what has become of a slice. Answers whether the slice is known; one that is unknown or written off
    /// changes nothing, for it is counted already. So does a report that says nothing new.
    pub fn apply_report(
        &mut self,
        quota: &TokenBucket,
        now: Timestamp,
        report: &LeaseReport,
    ) -> bool {
        self.write_off(quota, now);
        let Some(loan) = self.leases.iter_mut().find(|loan| loan.id == report.id) else {
            return false;
        };
        let blocks = match report.is_last {
            true => quota.blocks(report.spent),
            false => report.spent / quota.block_size(),
        };
        let blocks = blocks.min(loan.blocks).max(loan.spent);
        let more = blocks.saturating_sub(loan.spent);
        loan.spent = blocks;
        if report.is_last {
            loan.blocks = blocks;
        }
        if more > 0 {
            // Nothing can have been spent before the grant.
            let at = now
                .as_nanos()
                .saturating_sub(report.last_spend_age.as_nanos());
            let at = Timestamp::from_nanos(at).max(loan.granted_at);
            self.tat = charged(self.tat, at, quota.price(more)).min(furthest(quota, now));
        }
        self.leases.retain(|loan| loan.out() > 0);
        true
    }

    /// What a client that asks here may be told.
    #[must_use]
    pub fn status(&self, quota: &TokenBucket, now: Timestamp) -> QuotaStatus {
        let mut current = self.clone();
        current.write_off(quota, now);
        status_from_parts(
            quota,
            current.tat,
            current.outstanding(),
            current.reset_at(quota),
            now,
        )
    }

    /// The slices that are out, those that expire soonest first.
    #[must_use]
    pub fn leases(&self) -> &[QuotaLease] {
        &self.leases
    }

    /// The instant after which, if nothing else happens, this book equals a fresh one: what its state must outlive.
    #[must_use]
    pub fn reset_at(&self, quota: &TokenBucket) -> u64 {
        let written_off =
            |tat, loan: &QuotaLease| charged(tat, loan.expires, quota.price(loan.out()));
        self.leases.iter().fold(self.tat, written_off)
    }

    /// Blocks that are out.
    fn outstanding(&self) -> u64 {
        self.leases
            .iter()
            .fold(0, |sum, loan| sum.saturating_add(loan.out()))
    }

    /// Counts slices that have expired as spent at their expiry, in that order.
    ///
    /// If the clock went back, a state that lies too far ahead is brought back to what the quota allows, and a
    /// slice granted ahead of now gets its whole life again from now: its holder, who counts by its own clock, has
    /// no more than that left.
    pub(super) fn write_off(&mut self, quota: &TokenBucket, now: Timestamp) {
        let mut is_moved = false;
        for loan in self.leases.iter_mut().filter(|loan| loan.granted_at > now) {
            loan.expires = now.after(loan.expires.since(loan.granted_at));
            loan.granted_at = now;
            is_moved = true;
        }
        if is_moved {
            self.leases.sort_by_key(|loan| loan.expires);
        }
        let expired = self.leases.partition_point(|loan| loan.expires <= now);
        for loan in self.leases.drain(..expired) {
            self.tat = charged(self.tat, loan.expires, quota.price(loan.out()));
        }
        self.tat = self.tat.min(furthest(quota, now));
    }

    /// Time until one more block could be lent, if whatever was just lent is spent at once: then as much of the debt is new as
    /// of the capacity comes back.
    pub(super) fn next_block(&self, quota: &TokenBucket, now: Timestamp) -> Nanos {
        let capacity = quota.less(self.outstanding()).refill_time().as_nanos();
        let room = capacity.saturating_sub(quota.debt(self.tat, now));
        quota.interval().saturating_sub(Nanos::from_nanos(room))
    }

    /// Time until the cost fits if nothing is spent, reported or returned meanwhile: between one expiry and the
    /// next the bucket drains, and at each expiry a slice becomes debt. Zero if it never will.
    pub fn time_until_fits(&self, quota: &TokenBucket, now: Timestamp, cost: u64) -> Nanos {
        let blocks = quota.blocks(cost);
        let (mut tat, mut out, mut from) = (self.tat, self.outstanding(), now.as_nanos());
        let mut expiries = self.leases.iter();
        loop {
            let next = expiries.next();
            let room = quota.burst_blocks().saturating_sub(out);
            if let Some(spare) = room.checked_sub(blocks) {
                let fits_at = tat.saturating_sub(quota.price(spare)).max(from);
                if next.is_none_or(|loan| fits_at < loan.expires.as_nanos()) {
                    return Nanos::from_nanos(fits_at.saturating_sub(now.as_nanos()));
                }
            }
            let Some(loan) = next else { return Nanos::ZERO };
            tat = charged(tat, loan.expires, quota.price(loan.out()));
            out = out.saturating_sub(loan.out());
            from = loan.expires.as_nanos();
        }
    }
}

/// What a client may be told about a book, by what is left of it: the bucket's state, the blocks that are out, and when it is
/// as new. For lenders that keep a book elsewhere.
#[must_use]
pub fn status_from_parts(
    quota: &TokenBucket,
    tat: Tat,
    out: u64,
    forgettable_at: u64,
    now: Timestamp,
) -> QuotaStatus {
    QuotaStatus {
        limit: quota.limit(),
        remaining: quota.less(out).status(tat, now).remaining,
        // Slices that are out are part of what was used, and written off before the book is as new.
        reset_after: Nanos::from_nanos(forgettable_at.saturating_sub(now.as_nanos())),
    }
}

/// The furthest that a bucket's state may lie ahead.
fn furthest(quota: &TokenBucket, now: Timestamp) -> Tat {
    now.as_nanos().saturating_add(quota.ceiling().as_nanos())
}

/// The bucket's state after `price` was spent at `at`.
fn charged(tat: Tat, at: Timestamp, price: u64) -> Tat {
    tat.max(at.as_nanos()).saturating_add(price)
}

#[cfg(test)]
mod tests {
    use super::super::lease_request::LeaseRequest;
    use super::*;
    use crate::rate::Rate;

    const LIFE: Nanos = Nanos::from_secs(10);

    fn quota() -> TokenBucket {
        TokenBucket::builder(Rate::per_second(1))
            .burst(10)
            .build()
            .unwrap()
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(second)
    }

    fn want(id: u128, most: u64) -> LeaseSpec {
        LeaseSpec {
            id: QuotaLeaseId(id),
            min_units: 1,
            max_units: most,
            duration: LIFE,
        }
    }

    fn report(id: u128, spent: u64, ago: u64) -> LeaseReport {
        LeaseReport {
            id: QuotaLeaseId(id),
            spent,
            last_spend_age: Nanos::from_secs(ago),
            is_last: false,
        }
    }

    fn last(id: u128, spent: u64) -> LeaseReport {
        LeaseReport {
            is_last: true,
            ..report(id, spent, 0)
        }
    }

    #[test]
    fn what_is_out_on_loan_is_not_admitted_here() {
        let mut book = LeasedBucket::default();
        assert_eq!(book.grant(&quota(), at(0), &want(1, 7)), 7);
        assert_eq!(
            book.grant(&quota(), at(0), &want(1, 7)),
            7,
            "asking again lends no more"
        );
        assert_eq!(book.decide(&quota(), at(0), 3), Outcome::Allow);
        assert_eq!(book.grant(&quota(), at(0), &want(2, 5)), 0);
        assert_eq!(book.status(&quota(), at(0)).remaining, 0);
        assert_eq!(book.decide(&quota(), at(0), 11), Outcome::Never);
    }

    #[test]
    fn nothing_is_lent_where_the_least_is_not_there() {
        let mut book = LeasedBucket::default();
        book.decide(&quota(), at(0), 6);
        let five = LeaseSpec {
            min_units: 5,
            ..want(1, 10)
        };
        let errand = LeaseRequest {
            lease: Some(five),
            ..LeaseRequest::default()
        };
        let refused = book.handle(&quota(), at(0), &errand);
        assert_eq!((refused.units, refused.retry_after), (0, Nanos::SECOND));
        assert_eq!(book.handle(&quota(), at(1), &errand).units, 5);
    }

    #[test]
    fn an_errand_that_is_denied_borrows_nothing() {
        let mut book = LeasedBucket::default();
        let errand = LeaseRequest {
            direct_cost: 8,
            lease: Some(want(1, 1)),
            ..LeaseRequest::default()
        };
        assert_eq!(book.handle(&quota(), at(0), &errand).units, 1);
        let errand = LeaseRequest {
            lease: Some(want(2, 1)),
            ..errand
        };
        let denied = book.handle(&quota(), at(0), &errand);
        assert!(matches!(denied.direct_outcome, Outcome::Deny { .. }));
        assert_eq!((denied.units, denied.status.remaining), (0, 1));
    }

    #[test]
    fn a_dead_node_costs_what_it_held_and_no_more() {
        let mut book = LeasedBucket::default();
        book.grant(&quota(), at(0), &want(1, 10));
        let denied = book.decide(&quota(), at(0), 1);
        assert_eq!(
            denied,
            Outcome::Deny {
                retry_after: Nanos::from_secs(11)
            }
        );
        let early = Timestamp::from_nanos(10_999_999_999);
        assert!(!book.decide(&quota(), early, 1).is_admitted());
        assert_eq!(book.decide(&quota(), at(11), 1), Outcome::Allow);
    }

    #[test]
    fn a_report_counts_from_when_it_was_spent() {
        let mut book = LeasedBucket::default();
        book.grant(&quota(), at(0), &want(1, 10));
        assert!(book.apply_report(&quota(), at(6), &report(1, 10, 4)));
        assert_eq!(
            book.status(&quota(), at(6)).remaining,
            4,
            "four seconds have refilled four"
        );
        assert!(
            !book.apply_report(&quota(), at(6), &report(1, 10, 0)),
            "nothing is left to report on"
        );
    }

    #[test]
    fn a_slice_given_back_is_there_again_at_once() {
        let mut book = LeasedBucket::default();
        book.grant(&quota(), at(0), &want(1, 10));
        book.apply_report(&quota(), at(1), &report(1, 2, 0));
        assert!(book.apply_report(&quota(), at(1), &last(1, 2)));
        assert_eq!(book.status(&quota(), at(1)).remaining, 8);
        assert!(!book.apply_report(&quota(), at(1), &last(1, 2)));
    }

    /// Found in review, caught by the simulation: a node spends five of ten, its report is lost, and it returns the
    /// rest. The return used to take all ten back, so the five were never counted.
    #[test]
    fn a_return_does_not_forgive_what_a_lost_report_would_have_told() {
        let mut book = LeasedBucket::default();
        book.grant(&quota(), at(0), &want(1, 10));
        assert!(book.apply_report(&quota(), at(1), &last(1, 5)));
        assert_eq!(book.status(&quota(), at(1)).remaining, 5);
        assert!(
            !book.apply_report(&quota(), at(1), &report(1, 5, 1)),
            "overtaken"
        );
        assert_eq!(book.status(&quota(), at(1)).remaining, 5);
    }

    /// While reports said what was new, one that arrived twice moved units into the debt that were spent only later, when
    /// refill had replaced them. Seen when every order of messages was modelled.
    #[test]
    fn a_report_that_arrives_twice_is_counted_once() {
        let mut book = LeasedBucket::default();
        book.grant(&quota(), at(0), &want(1, 10));
        for _ in 0..2 {
            assert!(book.apply_report(&quota(), at(0), &report(1, 4, 0)));
        }
        assert_eq!(book.leases().first().map(QuotaLease::out), Some(6));
        assert!(
            book.apply_report(&quota(), at(0), &report(1, 3, 0)),
            "an older one"
        );
        assert_eq!(book.leases().first().map(QuotaLease::out), Some(6));
    }

    /// Found in review, caught by the simulation: in blocks of ten, a report of one unit was charged as a block and the
    /// block forgotten, but its other nine could still be spent, after refill had replaced them.
    #[test]
    fn a_block_reported_in_part_stays_out_until_it_is_spent_or_given_back() {
        let quota = TokenBucket::builder(Rate::per_second(10))
            .burst(20)
            .block(10)
            .build()
            .unwrap();
        let mut book = LeasedBucket::default();
        assert_eq!(book.grant(&quota, at(0), &want(1, 10)), 10);
        assert!(book.apply_report(&quota, at(0), &report(1, 1, 0)));
        assert_eq!(
            book.status(&quota, at(9)).remaining,
            10,
            "nine may yet be spent"
        );
        let mut other = book.clone();
        assert!(other.apply_report(&quota, at(9), &last(1, 1)));
        assert_eq!(other.leases(), []);
        assert_eq!(other.status(&quota, at(9)).remaining, 10, "charged whole");
        assert!(book.apply_report(&quota, at(9), &report(1, 10, 0)));
        assert_eq!(book.leases(), []);
        assert_eq!(
            book.status(&quota, at(9)).remaining,
            10,
            "now the block is spent"
        );
    }

    #[test]
    fn the_reset_waits_for_slices_that_are_out() {
        let mut book = LeasedBucket::default();
        book.grant(&quota(), at(0), &want(1, 4));
        assert_eq!(
            book.status(&quota(), at(0)).reset_after,
            Nanos::from_secs(14),
            "written off after ten seconds, refilled after four more"
        );
    }

    #[test]
    fn the_book_must_outlive_every_slice_written_off() {
        let mut book = LeasedBucket::default();
        book.grant(&quota(), at(0), &want(1, 4));
        let longer = LeaseSpec {
            duration: Nanos::from_secs(12),
            ..want(2, 4)
        };
        book.grant(&quota(), at(0), &longer);
        assert_eq!(book.reset_at(&quota()), 18_000_000_000);
    }
}
