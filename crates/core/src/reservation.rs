//! ReservationLedger: charge an estimate now and settle it at the real cost, once, even if calls are repeated.
//!
//! The ledger stores each reservation by its id, so a second settle or cancel changes nothing. It does not know the algorithm: it returns
//! the correction, and the limit applies it with its `settle`. A reservation that is not settled stays charged when it expires. The
//! ledger retains it for a while after that, so that a late settle can still charge the real cost. Later its id is unknown and changes
//! nothing.
//!
//! Must not know: algorithms, clocks, keys, stores.

use alloc::collections::VecDeque;

use crate::outcome::Receipt;
use crate::time::{Nanos, Timestamp};

/// The id of one reservation, chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub u128);

/// How long reservations stay open, how long the ledger retains them after that, and how many it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationOptions {
    /// Time in which a reservation can be settled downwards or cancelled.
    pub hold: Nanos,
    /// Time for which the ledger retains an expired reservation.
    pub retention: Nanos,
    /// The most records in one ledger, open or closed.
    pub max_records: usize,
}

/// The status of an id before a reservation is made under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationStatus {
    /// The id is not in the ledger: decide, and if admitted call [`ReservationLedger::open`].
    Fresh,
    /// The id was reserved before: reply as then, and charge nothing.
    Known(Receipt),
    /// The ledger is full: no reservation can be made until a record is dropped.
    Full,
}

/// The correction of the charge when a reservation is settled or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// Settle the charge on the limit: `limit.settle(state, now, &receipt, actual)`.
    Settle {
        /// The receipt of the reserved charge.
        receipt: Receipt,
        /// The new cost.
        actual: u64,
    },
    /// No correction: the reservation was settled or cancelled before.
    AlreadyClosed,
    /// No correction: it has expired and stays charged.
    Expired,
    /// No correction: the ledger does not have this id.
    Unknown,
}

/// One reservation in a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRecord {
    /// Its id.
    pub id: ReservationId,
    /// The receipt of its charge.
    pub receipt: Receipt,
    /// Until when it can be settled downwards or cancelled.
    pub expires: Timestamp,
    /// Whether it is neither settled nor cancelled.
    pub is_open: bool,
}

/// The reservations of one key of one limit, oldest first. The default is empty.
///
/// ```
/// use tollgate_core::reservation::{Correction, ReservationId, ReservationLedger, ReservationStatus, ReservationOptions};
/// use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};
///
/// let bucket = TokenBucket::builder(Rate::per_minute(1_000)).build()?;
/// let options = ReservationOptions { hold: Nanos::MINUTE, retention: Nanos::MINUTE, max_records: 100 };
/// let (mut ledger, id, now) = (ReservationLedger::default(), ReservationId(7), Timestamp::from_secs(60));
///
/// // Reserve 800 tokens for a response that needs 300.
/// assert_eq!(ledger.status(now, &options, id), ReservationStatus::Fresh);
/// let reserved = bucket.decide(0, now, 800);
/// ledger.open(now, &options, id, reserved.receipt);
/// let Correction::Settle { receipt, actual } = ledger.settle(now, &options, id, 300) else { panic!() };
/// let settled = bucket.settle(reserved.next.unwrap(), now, &receipt, actual);
/// assert_eq!(bucket.status(settled.next.unwrap(), now).remaining, 700);
///
/// // The client's retry of the same call changes nothing.
/// assert_eq!(ledger.settle(now, &options, id, 300), Correction::AlreadyClosed);
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReservationLedger {
    records: VecDeque<ReservationRecord>,
}

impl FromIterator<ReservationRecord> for ReservationLedger {
    /// Builds a ledger from records, oldest first, each with its own id. A store that keeps the records elsewhere restores the ledger
    /// with it.
    fn from_iter<I: IntoIterator<Item = ReservationRecord>>(records: I) -> Self {
        let records = records.into_iter().collect();
        Self { records }
    }
}

impl ReservationLedger {
    /// The records, oldest first, including those past their retention time.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ReservationRecord> + ExactSizeIterator {
        self.records.iter()
    }

    /// The number of records, open or closed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The status of `id`. Call it before deciding on the charge.
    #[must_use]
    pub fn status(
        &self,
        now: Timestamp,
        options: &ReservationOptions,
        id: ReservationId,
    ) -> ReservationStatus {
        let mut retained = self
            .records
            .iter()
            .filter(|record| record.is_retained(now, options));
        if let Some(record) = retained.clone().find(|record| record.id == id) {
            return ReservationStatus::Known(record.receipt);
        }
        if options.max_records == 0
            || retained
                .nth(options.max_records.saturating_sub(1))
                .is_some()
        {
            return ReservationStatus::Full;
        }
        ReservationStatus::Fresh
    }

    /// Time until the ledger drops its oldest record, so that a full ledger has room again.
    #[must_use]
    pub fn time_until_room(&self, now: Timestamp, options: &ReservationOptions) -> Nanos {
        let dropped_at = self
            .records
            .iter()
            .map(|record| record.expires.after(options.retention));
        dropped_at.min().map_or(Nanos::ZERO, |at| at.since(now))
    }

    /// Time until the ledger has dropped all of its records, so that it is empty.
    #[must_use]
    pub fn time_until_empty(&self, now: Timestamp, options: &ReservationOptions) -> Nanos {
        let dropped_at = self
            .records
            .iter()
            .map(|record| record.expires.after(options.retention));
        dropped_at.max().map_or(Nanos::ZERO, |at| at.since(now))
    }

    /// Records a charge as reserved and drops records past their retention time. It records nothing unless [`status`](Self::status)
    /// returns [`ReservationStatus::Fresh`].
    pub fn open(
        &mut self,
        now: Timestamp,
        options: &ReservationOptions,
        id: ReservationId,
        receipt: Receipt,
    ) {
        self.records
            .retain(|record| record.is_retained(now, options));
        if self.status(now, options, id) == ReservationStatus::Fresh {
            let expires = now.after(options.hold);
            self.records.push_back(ReservationRecord {
                id,
                receipt,
                expires,
                is_open: true,
            });
        }
    }

    /// Closes a reservation at its real cost. After its expiry a lower cost refunds nothing, but a higher cost is charged.
    pub fn settle(
        &mut self,
        now: Timestamp,
        options: &ReservationOptions,
        id: ReservationId,
        actual: u64,
    ) -> Correction {
        let correction = self.correction(now, options, id, Some(actual));
        self.close_known(id, correction)
    }

    /// Closes a reservation whose work did not happen. After its expiry nothing is refunded.
    pub fn cancel(
        &mut self,
        now: Timestamp,
        options: &ReservationOptions,
        id: ReservationId,
    ) -> Correction {
        let correction = self.correction(now, options, id, None);
        self.close_known(id, correction)
    }

    /// The correction for settling at `actual`, or for cancelling if `actual` is `None`. It closes nothing, so that several limits can be
    /// decided in one batch; call [`close`](Self::close) afterwards.
    #[must_use]
    pub fn correction(
        &self,
        now: Timestamp,
        options: &ReservationOptions,
        id: ReservationId,
        actual: Option<u64>,
    ) -> Correction {
        let mut retained = self
            .records
            .iter()
            .filter(|record| record.is_retained(now, options));
        let Some(record) = retained.find(|record| record.id == id) else {
            return Correction::Unknown;
        };
        let receipt = record.receipt;
        let is_late = now >= record.expires;
        match actual {
            _ if !record.is_open => Correction::AlreadyClosed,
            None if is_late => Correction::Expired,
            None => Correction::Settle { receipt, actual: 0 },
            Some(actual) if is_late => Correction::Settle {
                receipt,
                actual: actual.max(receipt.cost),
            },
            Some(actual) => Correction::Settle { receipt, actual },
        }
    }

    /// Closes the reservation unless it is unknown. A record past its retention time stays as it is, in case the clock goes back.
    fn close_known(&mut self, id: ReservationId, correction: Correction) -> Correction {
        if correction != Correction::Unknown {
            self.close(id);
        }
        correction
    }

    /// Closes a reservation: from now on its correction is [`Correction::AlreadyClosed`].
    pub fn close(&mut self, id: ReservationId) {
        if let Some(record) = self.records.iter_mut().find(|record| record.id == id) {
            record.is_open = false;
        }
    }
}

impl ReservationRecord {
    /// Whether the record is within its retention time at `now`. A clock that went back extends that time by as much. That is the safe
    /// side: a retried call would charge again for a record that was dropped too early.
    fn is_retained(&self, now: Timestamp, options: &ReservationOptions) -> bool {
        now < self.expires.after(options.retention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: ReservationOptions = ReservationOptions {
        hold: Nanos::from_secs(10),
        retention: Nanos::from_secs(5),
        max_records: 2,
    };
    const RECEIPT: Receipt = Receipt {
        cost: 100,
        at: Timestamp::EPOCH,
        mark: 0,
    };
    const ID: ReservationId = ReservationId(1);

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(second)
    }

    fn reserved() -> ReservationLedger {
        let mut ledger = ReservationLedger::default();
        ledger.open(at(0), &OPTIONS, ID, RECEIPT);
        ledger
    }

    #[test]
    fn reserving_again_under_the_same_id_returns_the_first_receipt() {
        let mut ledger = reserved();
        assert_eq!(
            ledger.status(at(1), &OPTIONS, ID),
            ReservationStatus::Known(RECEIPT)
        );
        ledger.open(
            at(1),
            &OPTIONS,
            ID,
            Receipt {
                cost: 999,
                ..RECEIPT
            },
        );
        assert_eq!(ledger.len(), 1);
        assert_eq!(
            ledger.status(at(1), &OPTIONS, ID),
            ReservationStatus::Known(RECEIPT)
        );
    }

    #[test]
    fn a_cancel_after_settling_changes_nothing() {
        let mut ledger = reserved();
        let settle = Correction::Settle {
            receipt: RECEIPT,
            actual: 40,
        };
        assert_eq!(ledger.settle(at(1), &OPTIONS, ID, 40), settle);
        assert_eq!(
            ledger.cancel(at(1), &OPTIONS, ID),
            Correction::AlreadyClosed
        );
        assert_eq!(
            ledger.status(at(1), &OPTIONS, ID),
            ReservationStatus::Known(RECEIPT)
        );
    }

    #[test]
    fn an_expired_reservation_stays_charged_but_a_late_settle_charges_more() {
        assert_eq!(reserved().cancel(at(10), &OPTIONS, ID), Correction::Expired);
        let unchanged = Correction::Settle {
            receipt: RECEIPT,
            actual: 100,
        };
        assert_eq!(reserved().settle(at(10), &OPTIONS, ID, 40), unchanged);
        let more = Correction::Settle {
            receipt: RECEIPT,
            actual: 140,
        };
        assert_eq!(reserved().settle(at(14), &OPTIONS, ID, 140), more);
        assert_eq!(
            reserved().settle(at(15), &OPTIONS, ID, 140),
            Correction::Unknown
        );
    }

    #[test]
    fn a_ledger_has_room_after_its_first_record_and_is_empty_after_its_last() {
        let mut ledger = reserved();
        ledger.open(at(3), &OPTIONS, ReservationId(2), RECEIPT);
        let secs = Nanos::from_secs;
        assert_eq!(ledger.time_until_room(at(4), &OPTIONS), secs(11));
        assert_eq!(ledger.time_until_empty(at(4), &OPTIONS), secs(14));
        assert_eq!(
            ReservationLedger::default().time_until_empty(at(4), &OPTIONS),
            Nanos::ZERO
        );
    }

    /// Regression, found by comparison with the Redis script: core closed a record that it had just reported as unknown. After a step
    /// back of the clock the two disagreed.
    #[test]
    fn settling_a_dropped_reservation_does_not_close_it() {
        let mut ledger = reserved();
        assert_eq!(ledger.settle(at(15), &OPTIONS, ID, 40), Correction::Unknown);
        let settle = Correction::Settle {
            receipt: RECEIPT,
            actual: 40,
        };
        assert_eq!(ledger.settle(at(9), &OPTIONS, ID, 40), settle);
    }

    #[test]
    fn a_full_ledger_reports_full_until_a_record_is_dropped() {
        let mut ledger = reserved();
        ledger.open(at(3), &OPTIONS, ReservationId(2), RECEIPT);
        assert_eq!(
            ledger.status(at(3), &OPTIONS, ReservationId(3)),
            ReservationStatus::Full
        );
        assert_eq!(
            ledger.status(at(15), &OPTIONS, ReservationId(3)),
            ReservationStatus::Fresh
        );
        ledger.open(at(15), &OPTIONS, ReservationId(3), RECEIPT);
        assert_eq!(ledger.len(), 2);
    }
}
