//! What a script saw, as states that core can decide on.
//!
//! Buckets, windows and counters come back whole. Logs and leases may be long, so of those comes what a decision depends
//! on, and core is shown a short one that decides the same: what leaves until the cost fits as one entry, the rest as
//! another. Must not know: batches, answers.

use tollgate_core::concurrency::{Lease, LeaseId, Leases};
use tollgate_core::limit::{Quota, State};
use tollgate_core::sliding_log::{Entry, Log};
use tollgate_core::{CounterState, Nanos, Receipt, Timestamp, WindowState};

use super::bytes::joined;

/// The integers of a reply, read one after the other. Nothing is trusted: whatever does not fit is `None`.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) std::slice::Iter<'a, i64>);

impl Reader<'_> {
    pub(super) fn int(&mut self) -> Option<i64> {
        self.0.next().copied()
    }

    pub(super) fn count(&mut self) -> Option<u64> {
        u64::try_from(self.int()?).ok()
    }

    pub(super) fn pair(&mut self) -> Option<u64> {
        let (high, low) = (self.int()?, self.int()?);
        joined(high, low)
    }

    /// A pair that is an instant in whole microseconds.
    fn micros(&mut self) -> Option<u64> {
        Some(self.pair()? / 1_000)
    }
}

/// The state before a decision, and after it where core cannot tell from the state before.
#[derive(Debug)]
pub(super) struct Seen {
    /// What core decides on.
    pub(super) before: State,
    /// What core reports on if nothing was stored, if that is not the same.
    pub(super) unchanged: Option<State>,
    /// What core reports on if the edit was stored, if not what follows from the state before.
    pub(super) changed: Option<State>,
    /// Whether the lease that the operation is about is held.
    pub(super) is_held: bool,
}

impl Seen {
    pub(super) fn read(reader: &mut Reader<'_>, quota: &Quota, id: LeaseId) -> Option<Self> {
        let before = match quota {
            Quota::TokenBucket(_) | Quota::LeakyBucket(_) => State::Bucket(reader.pair()?),
            Quota::FixedWindow(_) => State::Window(WindowState {
                end: reader.pair()?,
                count: reader.pair()?,
            }),
            Quota::SlidingCounter(_) => State::Counter(CounterState {
                start: reader.pair()?,
                previous: u32::try_from(reader.int()?).ok()?,
                current: u32::try_from(reader.int()?).ok()?,
            }),
            Quota::SlidingLog(_) => return Self::read_log(reader),
            Quota::Concurrency(_) => return Self::read_leases(reader, id),
            _ => return None,
        };
        Some(Self {
            before,
            unchanged: None,
            changed: None,
            is_held: false,
        })
    }

    fn read_log(reader: &mut Reader<'_>) -> Option<Self> {
        let (used, gone) = (reader.count()?, reader.count()?);
        let (leaves, newest) = (reader.micros()?, reader.micros()?);
        let (used_after, newest_after) = (reader.count()?, reader.micros()?);
        reader.int()?;
        let rest = used.checked_sub(gone)?;
        if rest > 0 && leaves > newest {
            return None;
        }
        let log = |entries: [(u64, u64); 2]| {
            let entries = entries.into_iter().filter(|(_, blocks)| *blocks > 0);
            State::Log(Log::from_iter(
                entries.map(|(at, blocks)| Entry { at, blocks }),
            ))
        };
        Some(Self {
            before: log([(leaves, gone), (newest, rest)]),
            unchanged: None,
            changed: Some(log([(newest_after, used_after), (0, 0)])),
            is_held: false,
        })
    }

    fn read_leases(reader: &mut Reader<'_>, id: LeaseId) -> Option<Self> {
        let (found, used) = (reader.int()?, reader.count()?);
        let (held, leaves, gone) = (reader.pair()?, reader.pair()?, reader.count()?);
        reader.int()?;
        let (last, used_after) = (reader.pair()?, reader.count()?);
        let last_after = reader.pair()?;
        reader.int()?;
        let rest = used.checked_sub(gone)?;
        // The names of the others do not matter, as long as nobody is looked for under them.
        let other = LeaseId(!id.0);
        let leases = |leases: [(LeaseId, u64, u64); 2]| {
            let leases = leases.into_iter().filter(|(_, weight, _)| *weight > 0);
            State::Leases(Leases::from_iter(leases.map(|(id, weight, expires)| {
                Lease {
                    id,
                    weight,
                    expires,
                }
            })))
        };
        let nothing = (other, 0, 0);
        let is_held = found == 1;
        let before = if is_held {
            leases([(id, used, held), nothing])
        } else {
            leases([(other, gone, leaves), (other, rest, last)])
        };
        Some(Self {
            before,
            unchanged: Some(leases([(other, used, last), nothing])),
            changed: Some(leases([(other, used_after, last_after), nothing])),
            is_held,
        })
    }
}

/// What a ledger said: the same numbers as in `lua/ledger.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
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
    pub(super) standing: Standing,
    /// The charge that was reserved.
    pub(super) receipt: Receipt,
    /// When the first of the reservations is forgotten.
    pub(super) room_at: Timestamp,
}

impl Ledger {
    pub(super) fn read(reader: &mut Reader<'_>, quota: &Quota) -> Option<Self> {
        let standing = match reader.int()? {
            0 => Standing::Fresh,
            1 => Standing::Known,
            2 => Standing::Full,
            3 => Standing::Open,
            4 => Standing::Late,
            5 => Standing::Closed,
            6 => Standing::Expired,
            7 => Standing::Unknown,
            _ => return None,
        };
        reader.int()?;
        let cost = reader.pair()?;
        let at = Timestamp::from_nanos(reader.pair()?);
        let mark = reader.pair()?;
        // A log's receipts are marked in microseconds; its script keeps instants as all scripts do.
        let mark = match quota {
            Quota::SlidingLog(_) => mark / 1_000,
            _ => mark,
        };
        Some(Self {
            standing,
            receipt: Receipt { cost, at, mark },
            room_at: Timestamp::from_nanos(reader.pair()?),
        })
    }

    /// Time until something is forgotten, never none.
    pub(super) fn room_after(&self, now: Timestamp) -> Nanos {
        self.room_at.since(now).max(Nanos::from_nanos(1))
    }
}
