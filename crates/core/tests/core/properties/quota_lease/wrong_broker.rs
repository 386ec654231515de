//! A second broker, written plainly, that can make one mistake.

use tollgate_core::Timestamp;
use tollgate_core::quota_lease::{LeaseReport, LeaseSpec, QuotaLeaseId};

use super::simulation::{Broker, INTERVAL};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mistake {
    None,
    /// Outstanding units are not subtracted from the capacity.
    CapacityNotShrunk,
    /// An expired lease is dropped, as if its node had spent nothing.
    ForgetsExpired,
    /// A return takes back everything that was not reported before, although reports get lost.
    ReturnForgives,
    /// The units of a report are taken as new since the last report.
    ReportsAddUp,
    /// A part of a block is charged as a block, and its other units are dropped.
    PartIsABlock,
    /// Reported units count as spent at the grant.
    ReportsCountFromTheGrant,
}

#[derive(Clone, Copy, Debug)]
struct OutstandingLease {
    id: QuotaLeaseId,
    /// Units granted, and units of them that were charged.
    units: u64,
    charged: u64,
    granted_at: u64,
    expires: u64,
}

/// Debt in nanoseconds times the block size, so that a unit is a whole number of them.
pub(super) struct WrongBroker {
    mistake: Mistake,
    burst: u64,
    block: u64,
    tat: u64,
    last: u64,
    leases: Vec<OutstandingLease>,
}

impl WrongBroker {
    pub(super) const fn new(mistake: Mistake, (burst, block): (u64, u64)) -> Self {
        Self {
            mistake,
            burst,
            block,
            tat: 0,
            last: 0,
            leases: Vec::new(),
        }
    }

    /// The debt of `units`: whole blocks, rounded up.
    const fn price(&self, units: u64) -> u64 {
        units.div_ceil(self.block) * INTERVAL
    }

    fn charge(&mut self, then: u64, units: u64) {
        self.tat = self.tat.max(then) + self.price(units);
    }

    fn charge_expired(&mut self, now: u64) {
        self.last = now;
        self.leases.sort_by_key(|lease| lease.expires);
        while let Some(lease) = self
            .leases
            .first()
            .copied()
            .filter(|lease| lease.expires <= now)
        {
            self.leases.remove(0);
            if self.mistake != Mistake::ForgetsExpired {
                self.charge(lease.expires, lease.units - lease.charged);
            }
        }
    }

    /// Blocks left.
    fn available_blocks(&self, now: u64) -> u64 {
        let outstanding: u64 = self
            .leases
            .iter()
            .map(|lease| (lease.units - lease.charged).div_ceil(self.block))
            .sum();
        let outstanding = if self.mistake == Mistake::CapacityNotShrunk {
            0
        } else {
            outstanding
        };
        let capacity = self.burst.saturating_sub(outstanding) * INTERVAL;
        capacity.saturating_sub(self.tat.saturating_sub(now)) / INTERVAL
    }
}

impl Broker for WrongBroker {
    fn decide(&mut self, now: Timestamp, cost: u64) -> bool {
        let now = now.as_nanos();
        self.charge_expired(now);
        let fits = cost.div_ceil(self.block) <= self.available_blocks(now);
        if fits && cost > 0 {
            self.charge(now, cost);
        }
        fits
    }

    fn grant(&mut self, now: Timestamp, spec: &LeaseSpec) -> u64 {
        let now = now.as_nanos();
        self.charge_expired(now);
        if let Some(lease) = self.leases.iter().find(|lease| lease.id == spec.id) {
            return lease.units;
        }
        let units = self.available_blocks(now).min(spec.max_units / self.block) * self.block;
        if units > 0 {
            self.leases.push(OutstandingLease {
                id: spec.id,
                units,
                charged: 0,
                granted_at: now,
                expires: now + spec.duration.as_nanos(),
            });
        }
        units
    }

    fn apply_report(&mut self, now: Timestamp, report: &LeaseReport) {
        let now = now.as_nanos();
        self.charge_expired(now);
        let Some(index) = self.leases.iter().position(|lease| lease.id == report.id) else {
            return;
        };
        let lease = self.leases[index];
        let spent_at = match self.mistake {
            Mistake::ReportsCountFromTheGrant => lease.granted_at,
            _ => (now - report.last_spend_age.as_nanos()).max(lease.granted_at),
        };
        let total = match self.mistake {
            Mistake::ReportsAddUp => lease.charged + report.spent,
            _ => report.spent,
        };
        let whole = match self.mistake {
            Mistake::PartIsABlock => total.div_ceil(self.block),
            // Whole blocks only, until nothing more can be spent of them.
            _ if report.is_last => total.div_ceil(self.block),
            _ => total / self.block,
        };
        let charged = (whole * self.block).min(lease.units).max(lease.charged);
        if !(report.is_last && self.mistake == Mistake::ReturnForgives) {
            self.charge(spent_at, charged - lease.charged);
        }
        self.leases[index].charged = charged;
        if report.is_last {
            self.leases[index].units = charged;
        }
        self.leases.retain(|lease| lease.units > lease.charged);
    }
}
