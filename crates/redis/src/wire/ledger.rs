//! What a script saw in a ledger of reservations.
//!
//! Must not know: batches, answers.

use tollgate_core::limit::Quota;
use tollgate_core::{Nanos, Receipt, Timestamp};

use super::algorithm;
use super::observed_state::Reader;

/// What a ledger said: the same numbers as in `lua/ledger.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReservationStatus {
    Fresh,
    Known,
    Full,
    Open,
    Late,
    Closed,
    Expired,
    Unknown,
}

/// A ledger's part of the reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    pub(super) status: ReservationStatus,
    /// The charge that was reserved.
    pub(super) receipt: Receipt,
    /// When the first of the reservations is forgotten.
    pub(super) room_at: Timestamp,
}

impl Ledger {
    pub(super) fn read(reader: &mut Reader<'_>, quota: &Quota) -> Option<Self> {
        let status = match reader.int()? {
            0 => ReservationStatus::Fresh,
            1 => ReservationStatus::Known,
            2 => ReservationStatus::Full,
            3 => ReservationStatus::Open,
            4 => ReservationStatus::Late,
            5 => ReservationStatus::Closed,
            6 => ReservationStatus::Expired,
            7 => ReservationStatus::Unknown,
            _ => return None,
        };
        reader.int()?;
        let cost = reader.pair()?;
        let at = Timestamp::from_nanos(reader.pair()?);
        let mark = reader.pair()?;
        let mark = mark / algorithm::mark_nanos(quota);
        Some(Self {
            status,
            receipt: Receipt { cost, at, mark },
            room_at: Timestamp::from_nanos(reader.pair()?),
        })
    }

    /// Time until something is forgotten, never none.
    pub(super) fn room_after(&self, now: Timestamp) -> Nanos {
        self.room_at.since(now).max(Nanos::from_nanos(1))
    }
}
