//! A second lender, written plainly, that can be told to make one mistake.

use tollgate_core::Timestamp;
use tollgate_core::quota_lease::{LeaseReport, LeaseSpec, QuotaLeaseId};

use super::lending_simulation::{INTERVAL, Lender};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mistake {
    None,
    /// What is out is not taken off the capacity.
    CapacityNotShrunk,
    /// A slice that expires is dropped: its holder is taken to have spent nothing.
    ForgetsExpired,
    /// A return takes everything back that was not reported before, although reports get lost.
    ReturnForgives,
    /// What a report says is taken for what is new since the last one.
    ReportsAddUp,
    /// A part of a block is charged as a block, and the rest of it forgotten.
    PartIsABlock,
    /// What is reported counts as spent when it was granted.
    ReportsCountFromTheGrant,
}

#[derive(Clone, Copy, Debug)]
struct Loan {
    id: QuotaLeaseId,
    /// Units lent, and units of them that were charged.
    units: u64,
    charged: u64,
    granted: u64,
    expires: u64,
}

/// Debt in nanoseconds times the block size, so that a unit is a whole number of them.
pub(super) struct WrongBook {
    mistake: Mistake,
    burst: u64,
    block: u64,
    tat: u64,
    last: u64,
    loans: Vec<Loan>,
}

impl WrongBook {
    pub(super) const fn new(mistake: Mistake, (burst, block): (u64, u64)) -> Self {
        Self {
            mistake,
            burst,
            block,
            tat: 0,
            last: 0,
            loans: Vec::new(),
        }
    }

    /// The debt of so many units: whole blocks, rounded up.
    const fn price(&self, units: u64) -> u64 {
        units.div_ceil(self.block) * INTERVAL
    }

    fn charge(&mut self, then: u64, units: u64) {
        self.tat = self.tat.max(then) + self.price(units);
    }

    fn write_off(&mut self, now: u64) {
        self.last = now;
        self.loans.sort_by_key(|loan| loan.expires);
        while let Some(loan) = self
            .loans
            .first()
            .copied()
            .filter(|loan| loan.expires <= now)
        {
            self.loans.remove(0);
            if self.mistake != Mistake::ForgetsExpired {
                self.charge(loan.expires, loan.units - loan.charged);
            }
        }
    }

    /// Blocks that are there.
    fn there(&self, now: u64) -> u64 {
        let out: u64 = self
            .loans
            .iter()
            .map(|loan| (loan.units - loan.charged).div_ceil(self.block))
            .sum();
        let out = if self.mistake == Mistake::CapacityNotShrunk {
            0
        } else {
            out
        };
        let capacity = self.burst.saturating_sub(out) * INTERVAL;
        capacity.saturating_sub(self.tat.saturating_sub(now)) / INTERVAL
    }
}

impl Lender for WrongBook {
    fn decide(&mut self, now: Timestamp, cost: u64) -> bool {
        let now = now.as_nanos();
        self.write_off(now);
        let fits = cost.div_ceil(self.block) <= self.there(now);
        if fits && cost > 0 {
            self.charge(now, cost);
        }
        fits
    }

    fn lend(&mut self, now: Timestamp, want: &LeaseSpec) -> u64 {
        let now = now.as_nanos();
        self.write_off(now);
        if let Some(loan) = self.loans.iter().find(|loan| loan.id == want.id) {
            return loan.units;
        }
        let units = self.there(now).min(want.max_units / self.block) * self.block;
        if units > 0 {
            self.loans.push(Loan {
                id: want.id,
                units,
                charged: 0,
                granted: now,
                expires: now + want.duration.as_nanos(),
            });
        }
        units
    }

    fn report(&mut self, now: Timestamp, report: &LeaseReport) {
        let now = now.as_nanos();
        self.write_off(now);
        let Some(index) = self.loans.iter().position(|loan| loan.id == report.id) else {
            return;
        };
        let loan = self.loans[index];
        let at = match self.mistake {
            Mistake::ReportsCountFromTheGrant => loan.granted,
            _ => (now - report.last_spend_age.as_nanos()).max(loan.granted),
        };
        let told = match self.mistake {
            Mistake::ReportsAddUp => loan.charged + report.spent,
            _ => report.spent,
        };
        let whole = match self.mistake {
            Mistake::PartIsABlock => told.div_ceil(self.block),
            // Only whole blocks, until nothing more can be spent of them.
            _ if report.is_last => told.div_ceil(self.block),
            _ => told / self.block,
        };
        let charged = (whole * self.block).min(loan.units).max(loan.charged);
        if !(report.is_last && self.mistake == Mistake::ReturnForgives) {
            self.charge(at, charged - loan.charged);
        }
        self.loans[index].charged = charged;
        if report.is_last {
            self.loans[index].units = charged;
        }
        self.loans.retain(|loan| loan.units > loan.charged);
    }
}
