//! The state that survives a restart without a fleet: counters, leases, reservations, operator settings, tickets and the secret.
//!
//! [`write_state`] and [`read_state`] define the format: a magic number, the snapshots of both stores, and a JSON text with a
//! checksum. [`StateFile`] keeps the state in a file that one process uses at a time. Must not know: transports, the command line.

mod file;
#[cfg(test)]
mod tests;

pub use file::{LoadOutcome, StateFile, StateFileError, StateFileStatus};

use std::fmt;
use std::hash::Hasher as _;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use tollgate_core::Timestamp;
use tollgate_engine::control::{Attribution, OperatorState};
use tollgate_engine::{LimitIdAllocator, SavedLimitId, SavedTicket};
use tollgate_store::{Clock, MemoryStore, SnapshotError};

use crate::error::InvalidService;
use crate::secret::Secret;
use crate::service::RateLimitService;
use crate::tickets::SavedTicketSlot;

const MAGIC: &[u8; 8] = b"tollstat";
/// The format of what follows the stores.
const VERSION: u32 = 1;
/// The longest JSON text. 100,000 tickets and 20,000 operator settings have less.
const MAX_JSON_BYTES: u64 = 1 << 30;

/// What a service begins with.
#[derive(Debug)]
pub struct InitialState<C> {
    /// The states of keys.
    pub store: MemoryStore<C>,
    /// Which limit each state belongs to.
    pub limit_ids: LimitIdAllocator,
}

impl<C: Clock> InitialState<C> {
    /// No state, with room for about `keys` keys.
    ///
    /// # Errors
    /// `keys` is out of range.
    pub fn empty(keys: usize, clock: C) -> Result<Self, InvalidService> {
        let store = MemoryStore::with_clock(keys, clock).map_err(InvalidService::Size)?;
        let limit_ids = LimitIdAllocator::default();
        Ok(Self { store, limit_ids })
    }
}

/// A state that was read.
#[derive(Debug)]
pub struct RestoredState<C> {
    /// For the service.
    pub initial: InitialState<C>,
    /// The store of the throttle commands.
    pub throttle: MemoryStore<C>,
    /// For [`RateLimitService::restore`], when the service exists.
    pub process: ProcessState,
}

/// The state of a process that is not in its stores.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessState {
    version: u32,
    /// When it was saved, in nanoseconds since 1970.
    saved_at: u64,
    secret: [u8; 16],
    limit_ids: Vec<SavedLimitId>,
    operators: OperatorState,
    tickets: Vec<SavedTicketSlot>,
}

impl ProcessState {
    /// When it was saved.
    #[must_use]
    pub const fn saved_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.saved_at)
    }

    /// The secret of the process that saved it.
    #[must_use]
    pub const fn secret(&self) -> Secret {
        Secret(self.secret)
    }

    /// The operators' settings.
    #[must_use]
    pub const fn operators(&self) -> &OperatorState {
        &self.operators
    }
}

impl fmt::Debug for ProcessState {
    /// Hides secrets and keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessState")
            .field("saved_at", &self.saved_at)
            .finish_non_exhaustive()
    }
}

/// Writes the state of a service and of the throttle commands. Decisions continue meanwhile.
///
/// A ticket is written if it was open both before and after the stores were written. Then its charge is in the written state, and
/// it was not refunded there.
///
/// # Errors
/// `out` fails.
pub fn write_state<C: Clock>(
    out: &mut impl Write,
    service: &RateLimitService<C>,
    throttle: &MemoryStore<C>,
) -> io::Result<()> {
    let engine = service.engine();
    let open_before = service.tickets.open_ids();
    out.write_all(MAGIC)?;
    engine.store().save_to(out)?;
    throttle.save_to(out)?;
    let now = service.now();
    let process = ProcessState {
        version: VERSION,
        saved_at: now.as_nanos(),
        secret: service.secret().bytes(),
        // After the stores: every id that a written state may have is known by now.
        limit_ids: engine.limit_ids().save(),
        operators: engine.control().operator_state(),
        tickets: service.tickets.save(&open_before, now),
    };
    let json = serde_json::to_vec(&process).map_err(io::Error::other)?;
    out.write_all(&(json.len() as u64).to_le_bytes())?;
    out.write_all(&json)?;
    out.write_all(&checksum(&json).to_le_bytes())
}

/// Reads what [`write_state`] wrote, into stores for about `keys` keys.
///
/// # Errors
/// `input` fails, or is not an intact state.
pub fn read_state<C: Clock>(
    input: &mut impl Read,
    keys: usize,
    clock: impl Fn() -> C,
) -> Result<RestoredState<C>, SnapshotError> {
    let mut magic = [0; 8];
    input.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(SnapshotError::NotASnapshot);
    }
    let store = MemoryStore::load_from(input, keys, clock())?;
    let throttle = MemoryStore::load_from(input, keys, clock())?;
    let process = read_process_state(input)?;
    let limit_ids = LimitIdAllocator::restore(process.limit_ids.clone());
    let limit_ids = limit_ids.ok_or(SnapshotError::Corrupted)?;
    Ok(RestoredState {
        initial: InitialState { store, limit_ids },
        throttle,
        process,
    })
}

fn read_process_state(input: &mut impl Read) -> Result<ProcessState, SnapshotError> {
    let mut word = [0; 8];
    input.read_exact(&mut word)?;
    let len = u64::from_le_bytes(word);
    if len > MAX_JSON_BYTES {
        return Err(SnapshotError::Corrupted);
    }
    // It grows with what is read, not with what the length says.
    let mut json = Vec::new();
    if input.take(len).read_to_end(&mut json)? as u64 != len {
        return Err(SnapshotError::Truncated);
    }
    input.read_exact(&mut word)?;
    let is_last = input.read(&mut [0])? == 0;
    if u64::from_le_bytes(word) != checksum(&json) || !is_last {
        return Err(SnapshotError::Corrupted);
    }
    let process: ProcessState = match serde_json::from_slice(&json) {
        Ok(process) => process,
        Err(error) => return Err(SnapshotError::Io(io::Error::other(error))),
    };
    match process.version {
        VERSION => Ok(process),
        other => Err(SnapshotError::UnknownVersion(other.into())),
    }
}

/// It finds damage, not forgery: who can write the file can also compute this.
fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(b"tollgate's state");
    hasher.write(bytes);
    hasher.finish()
}

impl<C: Clock> RateLimitService<C> {
    /// Takes over operator settings and tickets of an earlier process. Call it before the first request.
    ///
    /// Leases that no ticket names are released: their holders were connections and calls of that process.
    pub fn restore(&self, process: ProcessState) {
        let ProcessState {
            operators, tickets, ..
        } = process;
        let leases: std::collections::HashSet<_> = tickets
            .iter()
            .filter_map(|slot| slot.ticket.as_ref())
            .flat_map(SavedTicket::leases)
            .collect();
        self.engine()
            .store()
            .retain_leases(|lease| leases.contains(&lease));
        let now = self.now();
        for slot in tickets {
            let restore = |saved| self.engine().restore_ticket(saved);
            self.tickets.restore(slot, now, restore);
        }
        if operators == OperatorState::default() {
            return;
        }
        let by = Attribution {
            who: "tollgate",
            why: "restored from the state file",
        };
        if let Err(error) = self.engine().control().restore(operators, by) {
            tracing::error!(%error, "operator settings of the state file refused");
        }
    }
}
