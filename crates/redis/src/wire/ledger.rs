//! The part of a reply that describes a reservation.
//!
//! Must not know: batches, how replies are decoded.

use tollgate_core::limit::Quota;
use tollgate_core::{Nanos, Receipt, Timestamp};

use super::algorithm;
use super::observed_state::ReplyReader;

/// The status of a reservation: the same numbers as in `lua/ledger.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LedgerStatus {
    Fresh,
    Known,
    Full,
    Open,
    Late,
    Closed,
    Expired,
    Unknown,
}

/// The status of a reservation, as the script found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LedgerReply {
    pub(super) status: LedgerStatus,
    /// The reserved charge.
    pub(super) receipt: Receipt,
    /// When the first reservation is forgotten.
    pub(super) room_at: Timestamp,
}

impl LedgerReply {
    pub(super) fn read(reader: &mut ReplyReader<'_>, quota: &Quota) -> Option<Self> {
        let status = match reader.int()? {
            0 => LedgerStatus::Fresh,
            1 => LedgerStatus::Known,
            2 => LedgerStatus::Full,
            3 => LedgerStatus::Open,
            4 => LedgerStatus::Late,
            5 => LedgerStatus::Closed,
            6 => LedgerStatus::Expired,
            7 => LedgerStatus::Unknown,
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

    /// Time until a reservation is forgotten, at least 1 ns.
    pub(super) fn room_after(&self, now: Timestamp) -> Nanos {
        self.room_at.since(now).max(Nanos::from_nanos(1))
    }
}
