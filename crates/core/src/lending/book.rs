//! The lender's side: one bucket, the slices that are out, and decisions on what is left.

use alloc::vec::Vec;

use crate::outcome::{Outcome, Status};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::{Tat, TokenBucket};

/// The most slices that may be out at once.
pub const MAX_LOANS: usize = 4_096;

/// The name of one slice, chosen by the node that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoanId(pub u128);

/// One slice that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Who has it.
    pub id: LoanId,
    /// Blocks not yet reported as spent, or not in full.
    pub blocks: u64,
    /// Units reported as spent of a block that is not yet spent in full. The block stays out until it is, for the rest
    /// of it may be spent later than this part was.
    pub part: u64,
    /// When it was granted.
    pub granted: Timestamp,
    /// When it is written off as spent.
    pub expires: Timestamp,
}

/// A token bucket of which parts are out on loan. The default is a full bucket with nothing out.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Book {
    tat: Tat,
    /// Sorted by expiry, so that slices are written off in the order in which they expire.
    loans: Vec<Loan>,
}

impl Book {
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

    /// Lends up to `want` units for `life`, as much as is there; answers how many. Asking again under the same id
    /// answers what it still has and lends nothing more. Nothing is lent where nothing is there, or where too many
    /// slices are out.
    pub fn lend(
        &mut self,
        quota: &TokenBucket,
        now: Timestamp,
        id: LoanId,
        want: u64,
        life: Nanos,
    ) -> u64 {
        self.write_off(quota, now);
        if let Some(loan) = self.loans.iter().find(|loan| loan.id == id) {
            let units = loan.blocks.saturating_mul(quota.block());
            return units.saturating_sub(loan.part);
        }
        let there = quota
            .less(self.outstanding())
            .status(self.tat, now)
            .remaining
            / quota.block_size();
        let blocks = there.min(want / quota.block_size());
        if blocks == 0 || self.loans.len() >= MAX_LOANS {
            return 0;
        }
        let loan = Loan {
            id,
            blocks,
            part: 0,
            granted: now,
            expires: now.after(life),
        };
        let index = self
            .loans
            .partition_point(|other| other.expires <= loan.expires);
        self.loans.insert(index, loan);
        blocks.saturating_mul(quota.block())
    }

    /// Takes note that `spent` units of a slice were spent, the last of them at `at`. Answers whether the slice is
    /// known; one that is unknown or written off changes nothing, for it is counted already.
    ///
    /// `at` is the node's reading of its clock. As far as that clock is behind this one, so much more than the quota
    /// may be admitted in all, once.
    pub fn report(
        &mut self,
        quota: &TokenBucket,
        now: Timestamp,
        id: LoanId,
        spent: u64,
        at: Timestamp,
    ) -> bool {
        self.write_off(quota, now);
        let Some(loan) = self.loans.iter_mut().find(|loan| loan.id == id) else {
            return false;
        };
        let units = loan.part.saturating_add(spent);
        let blocks = (units / quota.block_size()).min(loan.blocks);
        loan.part = units.saturating_sub(blocks.saturating_mul(quota.block()));
        loan.blocks = loan.blocks.saturating_sub(blocks);
        // A node's clock may be off. Nothing can have been spent before the grant; after now is now.
        let at = at.max(loan.granted).min(now);
        self.tat = charged(self.tat, at, quota.price(blocks));
        self.loans.retain(|loan| loan.blocks > 0);
        true
    }

    /// Takes the rest of a slice back, except for `unconfirmed` units: what its holder has spent and does not know to
    /// have been reported. These stay out until their report comes or the slice expires, so that a report that was lost
    /// or overtaken by the return is not forgiven. Returning again changes nothing. Answers whether the slice was known.
    pub fn give_back(
        &mut self,
        quota: &TokenBucket,
        now: Timestamp,
        id: LoanId,
        unconfirmed: u64,
    ) -> bool {
        self.write_off(quota, now);
        let Some(loan) = self.loans.iter_mut().find(|loan| loan.id == id) else {
            return false;
        };
        let kept = quota.blocks(unconfirmed.saturating_add(loan.part));
        loan.blocks = loan.blocks.min(kept);
        self.loans.retain(|loan| loan.blocks > 0);
        true
    }

    /// What a client that asks here may be told.
    #[must_use]
    pub fn status(&self, quota: &TokenBucket, now: Timestamp) -> Status {
        let mut current = self.clone();
        current.write_off(quota, now);
        let left = quota.less(current.outstanding()).status(current.tat, now);
        let fresh_at = current.forgettable_at(quota);
        Status {
            limit: quota.limit(),
            remaining: left.remaining,
            // Slices that are out are part of what was used, and written off before the book is as new.
            reset_after: Nanos::from_nanos(fresh_at.saturating_sub(now.as_nanos())),
        }
    }

    /// The slices that are out, those that expire soonest first.
    #[must_use]
    pub fn loans(&self) -> &[Loan] {
        &self.loans
    }

    /// The instant after which, if nothing else happens, this book equals a fresh one: what its state must outlive.
    #[must_use]
    pub fn forgettable_at(&self, quota: &TokenBucket) -> u64 {
        let written_off = |tat, loan: &Loan| charged(tat, loan.expires, quota.price(loan.blocks));
        self.loans.iter().fold(self.tat, written_off)
    }

    /// Blocks that are out.
    fn outstanding(&self) -> u64 {
        self.loans
            .iter()
            .fold(0, |sum, loan| sum.saturating_add(loan.blocks))
    }

    /// Counts slices that have expired as spent at their expiry, in that order.
    ///
    /// If the clock went back, a state that lies too far ahead is brought back to what the quota allows, and a
    /// slice granted ahead of now gets its whole life again from now: its holder, who counts by its own clock, has
    /// no more than that left.
    fn write_off(&mut self, quota: &TokenBucket, now: Timestamp) {
        let mut is_moved = false;
        for loan in self.loans.iter_mut().filter(|loan| loan.granted > now) {
            loan.expires = now.after(loan.expires.since(loan.granted));
            loan.granted = now;
            is_moved = true;
        }
        if is_moved {
            self.loans.sort_by_key(|loan| loan.expires);
        }
        let expired = self.loans.partition_point(|loan| loan.expires <= now);
        for loan in self.loans.drain(..expired) {
            self.tat = charged(self.tat, loan.expires, quota.price(loan.blocks));
        }
        self.tat = self
            .tat
            .min(now.as_nanos().saturating_add(quota.ceiling().as_nanos()));
    }

    /// Time until the cost fits if nothing is spent, reported or returned meanwhile: between one expiry and the
    /// next the bucket drains, and at each expiry a slice becomes debt.
    fn time_until_fits(&self, quota: &TokenBucket, now: Timestamp, cost: u64) -> Nanos {
        let blocks = quota.blocks(cost);
        let (mut tat, mut out, mut from) = (self.tat, self.outstanding(), now.as_nanos());
        let mut expiries = self.loans.iter();
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
            tat = charged(tat, loan.expires, quota.price(loan.blocks));
            out = out.saturating_sub(loan.blocks);
            from = loan.expires.as_nanos();
        }
    }
}

/// The bucket's state after `price` was spent at `at`.
fn charged(tat: Tat, at: Timestamp, price: u64) -> Tat {
    tat.max(at.as_nanos()).saturating_add(price)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;

    const LIFE: Nanos = Nanos::from_secs(10);

    fn quota() -> TokenBucket {
        TokenBucket::at(Rate::per_second(1))
            .burst(10)
            .build()
            .unwrap()
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(second)
    }

    #[test]
    fn what_is_out_on_loan_is_not_admitted_here() {
        let mut book = Book::default();
        assert_eq!(book.lend(&quota(), at(0), LoanId(1), 7, LIFE), 7);
        assert_eq!(
            book.lend(&quota(), at(0), LoanId(1), 7, LIFE),
            7,
            "asking again lends no more"
        );
        assert_eq!(book.decide(&quota(), at(0), 3), Outcome::Allow);
        assert_eq!(book.lend(&quota(), at(0), LoanId(2), 5, LIFE), 0);
        assert_eq!(book.status(&quota(), at(0)).remaining, 0);
        assert_eq!(book.decide(&quota(), at(0), 11), Outcome::Never);
    }

    #[test]
    fn a_dead_node_costs_what_it_held_and_no_more() {
        let mut book = Book::default();
        book.lend(&quota(), at(0), LoanId(1), 10, LIFE);
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
        let mut book = Book::default();
        book.lend(&quota(), at(0), LoanId(1), 10, LIFE);
        assert!(book.report(&quota(), at(6), LoanId(1), 10, at(2)));
        assert_eq!(
            book.status(&quota(), at(6)).remaining,
            4,
            "four seconds have refilled four"
        );
        assert!(
            !book.report(&quota(), at(6), LoanId(1), 1, at(6)),
            "nothing is left to report on"
        );
    }

    #[test]
    fn a_slice_given_back_is_there_again_at_once() {
        let mut book = Book::default();
        book.lend(&quota(), at(0), LoanId(1), 10, LIFE);
        book.report(&quota(), at(1), LoanId(1), 2, at(1));
        assert!(book.give_back(&quota(), at(1), LoanId(1), 0));
        assert_eq!(book.status(&quota(), at(1)).remaining, 8);
        assert!(!book.give_back(&quota(), at(1), LoanId(1), 0));
    }

    /// Found in review, caught by the simulation: a node spends five of ten, its report is lost, and it returns the
    /// rest. The return used to take all ten back, so the five were never counted.
    #[test]
    fn a_return_does_not_forgive_what_a_lost_report_would_have_told() {
        let mut book = Book::default();
        book.lend(&quota(), at(0), LoanId(1), 10, LIFE);
        assert!(book.give_back(&quota(), at(1), LoanId(1), 5));
        assert_eq!(book.status(&quota(), at(1)).remaining, 5);
        book.give_back(&quota(), at(1), LoanId(1), 5);
        assert_eq!(book.status(&quota(), at(1)).remaining, 5, "nor twice");
        assert_eq!(
            book.status(&quota(), at(10)).remaining,
            5,
            "spent at expiry"
        );
    }

    /// Found in review, caught by the simulation: in blocks of ten, a report of one unit was charged as a block and the
    /// block forgotten, but its other nine could still be spent, after refill had replaced them.
    #[test]
    fn a_block_reported_in_part_stays_out_until_it_is_spent() {
        let quota = TokenBucket::at(Rate::per_second(10))
            .burst(20)
            .block(10)
            .build()
            .unwrap();
        let mut book = Book::default();
        assert_eq!(book.lend(&quota, at(0), LoanId(1), 10, LIFE), 10);
        assert!(book.report(&quota, at(0), LoanId(1), 1, at(0)));
        assert_eq!(book.lend(&quota, at(0), LoanId(1), 10, LIFE), 9);
        assert_eq!(
            book.status(&quota, at(9)).remaining,
            10,
            "nine may yet be spent"
        );
        assert!(book.report(&quota, at(9), LoanId(1), 9, at(9)));
        assert_eq!(book.loans(), []);
        assert_eq!(
            book.status(&quota, at(9)).remaining,
            10,
            "now the block is spent"
        );
    }

    #[test]
    fn the_reset_waits_for_slices_that_are_out() {
        let mut book = Book::default();
        book.lend(&quota(), at(0), LoanId(1), 4, LIFE);
        assert_eq!(
            book.status(&quota(), at(0)).reset_after,
            Nanos::from_secs(14),
            "written off after ten seconds, refilled after four more"
        );
    }

    #[test]
    fn the_book_must_outlive_every_slice_written_off() {
        let mut book = Book::default();
        book.lend(&quota(), at(0), LoanId(1), 4, LIFE);
        book.lend(&quota(), at(0), LoanId(2), 4, Nanos::from_secs(12));
        assert_eq!(book.forgettable_at(&quota()), 18_000_000_000);
    }
}
