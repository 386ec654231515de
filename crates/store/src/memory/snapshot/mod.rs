//! Saves a store's state to a file, so that a restart does not reset daily quotas.
//!
//! The file holds all state that decisions depend on: buckets, windows, counters, logs, leases, reservations, the
//! overflow sketch and the limits' usage scales. Expired states and the eviction counters are not saved. The file
//! contains the store's hash seed, so only its owner may read it. It is written to a temporary file and renamed. A
//! corrupted, truncated or foreign file is rejected with the reason. A store of another size takes all states that fit; debts of
//! others go by the rule of eviction.
//!
//! The file is a sequence of little-endian 64-bit words: magic number, version, sizes, hash seed; limits; variable
//! states; both tables; open reservations; the overflow sketch; a checksum over all of it. Version 1 had only the
//! tables, version 2 one overflow sketch for all limits, version 3 only part of each key's hash. They are still read, by stores of
//! the same size. What version 2 has in its sketch is dropped, because nobody can tell whose it is.
//!
//! Variable states are written before the tables, open reservations after them. A charge and its reservation are made
//! together but stored in different places, so they are saved at different moments. A reservation that was open at both
//! times was charged in between. So settling it after a restart refunds nothing that is not in the saved state.
//!
//! Must not know: what keys or states mean, who asks for a snapshot and when.

mod checksummed;
mod limits_and_overflow;
mod tables;
mod variable_states;

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use tollgate_core::Timestamp;
use tollgate_core::concurrency::LeaseId;
use tollgate_files::{open_regular, replace_file};

use self::checksummed::{ChecksumReader, ChecksumWriter};
use super::MemoryStore;
use super::hash::HashSeed;
use crate::clock::Clock;
use crate::invalid_size::InvalidSize;

const MAGIC: u64 = u64::from_le_bytes(*b"tollgate");
const VERSION: u64 = 4;
/// The last version without whole hashes, which only a store of the same size can read.
const TAGS_ONLY: u64 = 3;
/// The last version with one overflow sketch for all limits.
const SHARED_OVERFLOW: u64 = 2;
/// The first version, which has only the tables.
const TABLES_ONLY: u64 = 1;

/// A snapshot could not be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file could not be read or written.
    Io(io::Error),
    /// The file is not a snapshot.
    NotASnapshot,
    /// The file has an unknown version of the format.
    UnknownVersion(u64),
    /// A store for another number of keys saved the file, in a version that only a store of the same size can read.
    SizeMismatch,
    /// The file ends too early.
    Truncated,
    /// The content does not match the checksum or the format.
    Corrupted,
    /// The store to restore into cannot be made.
    InvalidSize(InvalidSize),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("snapshot: ")?;
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotASnapshot => f.write_str("the file is not a snapshot of a store"),
            Self::UnknownVersion(version) => {
                write!(
                    f,
                    "unknown version {version} of the format; known versions are {TABLES_ONLY} to {VERSION}"
                )
            }
            Self::SizeMismatch => f.write_str(
                "an earlier version saved the file for another number of keys; restore it with that number first",
            ),
            Self::Truncated => f.write_str("the file is truncated"),
            Self::Corrupted => f.write_str("the file is corrupted"),
            Self::InvalidSize(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Saves all live state to a file that only its owner may read, atomically. Decisions continue meanwhile: each
    /// state is saved as of some moment of the call. A reservation made or closed during the call cannot be settled
    /// after a restart. If no decision runs meanwhile, a restored store decides exactly as this one.
    ///
    /// # Errors
    /// The file cannot be written. The previous file is unchanged.
    pub fn save(&self, path: &Path) -> Result<(), SnapshotError> {
        Ok(replace_file(path, |out| self.save_to(out))?)
    }

    /// Writes what [`save`](Self::save) saves. Wrap a file or a socket in a buffer.
    ///
    /// # Errors
    /// `out` fails.
    pub fn save_to(&self, out: &mut impl Write) -> io::Result<()> {
        let mut out = ChecksumWriter::new(out);
        let now = self.now();
        out.put_all([MAGIC, VERSION])?;
        out.put_all(self.table_groups())?;
        out.put_all(self.sizes())?;
        out.put_all(self.hash_seed.words())?;
        limits_and_overflow::write_limits(&mut out, &self.priorities)?;
        variable_states::write(&mut out, &self.variable_states, now)?;
        tables::write(&mut out, &self.word_table, &self.priorities, now)?;
        tables::write(&mut out, &self.pair_table, &self.priorities, now)?;
        variable_states::write_open(&mut out, &self.variable_states, now)?;
        limits_and_overflow::write_overflow(&mut out, &self.overflow, now)?;
        out.finish().map(drop)
    }

    /// Restores a saved store. The saved usage scales apply until limits are added again. So call
    /// [`add_limit`](Self::add_limit) for limits whose quotas may have changed before the first decision.
    ///
    /// A store for another number of keys takes all states that fit. A state that does not fit is treated as if it was evicted.
    ///
    /// A file of version 1 has no logs, leases, reservations or overflow sketch; those start empty.
    ///
    /// # Errors
    /// There is no such file, or it is not an intact snapshot.
    pub fn restore(path: &Path, keys: usize, clock: C) -> Result<Self, SnapshotError> {
        let mut input = BufReader::new(open_regular(path)?);
        let store = Self::load_from(&mut input, keys, clock)?;
        match input.read(&mut [0])? {
            0 => Ok(store),
            _ => Err(SnapshotError::Corrupted),
        }
    }

    /// Reads what [`save_to`](Self::save_to) wrote, and not a byte more.
    ///
    /// # Errors
    /// `input` fails, or does not begin with an intact snapshot.
    pub fn load_from(input: &mut impl Read, keys: usize, clock: C) -> Result<Self, SnapshotError> {
        let mut memory = Self::with_clock(keys, clock).map_err(SnapshotError::InvalidSize)?;
        memory.read_from(input)?;
        Ok(memory)
    }

    /// Releases all leases that `is_kept` does not name, for holders that did not survive a restart.
    pub fn retain_leases(&self, is_kept: impl Fn(LeaseId) -> bool) {
        self.variable_states.retain_leases(is_kept);
    }

    fn read_from(&mut self, input: &mut impl Read) -> Result<(), SnapshotError> {
        let mut input = ChecksumReader::new(input);
        if input.take()? != MAGIC {
            return Err(SnapshotError::NotASnapshot);
        }
        let version = input.take()?;
        if !(TABLES_ONLY..=VERSION).contains(&version) {
            return Err(SnapshotError::UnknownVersion(version));
        }
        let has_all = version > TABLES_ONLY;
        let table_groups = input.take_all()?;
        let sizes = if has_all {
            input.take_all()?
        } else {
            self.sizes()
        };
        let [_, cells] = sizes;
        let header = SnapshotHeader {
            version,
            table_groups,
            is_same_size: table_groups == self.table_groups() && sizes == self.sizes(),
            now: self.now(),
        };
        if !header.is_same_size && (version <= TAGS_ONLY || cells != to_u64(self.overflow.cells()))
        {
            return Err(SnapshotError::SizeMismatch);
        }
        self.hash_seed = HashSeed::from_words(input.take_all()?);
        if has_all {
            limits_and_overflow::read_limits(
                &mut input,
                &self.priorities,
                version > SHARED_OVERFLOW,
            )?;
            variable_states::read(&mut input, &header, self)?;
        }
        tables::read(&mut input, &header, self, &self.word_table)?;
        tables::read(&mut input, &header, self, &self.pair_table)?;
        if has_all {
            variable_states::read_open(&mut input, &self.variable_states)?;
            let overflow = &self.overflow;
            if version > SHARED_OVERFLOW {
                let (usages, now) = (&self.usages, header.now);
                limits_and_overflow::read_overflow(&mut input, overflow, usages, now)?;
            } else {
                limits_and_overflow::read_cells(&mut input, overflow.cells())?;
            }
        }
        input.finish()
    }

    fn table_groups(&self) -> [u64; 2] {
        [self.word_table.groups(), self.pair_table.groups()].map(to_u64)
    }

    /// The number of shards and the number of cells of the overflow sketch.
    fn sizes(&self) -> [u64; 2] {
        [self.variable_states.count(), self.overflow.cells()].map(to_u64)
    }
}

/// What the first words of a snapshot say.
struct SnapshotHeader {
    version: u64,
    table_groups: [u64; 2],
    /// Whether the store that reads has the size of the one that wrote.
    is_same_size: bool,
    now: Timestamp,
}

impl SnapshotHeader {
    /// Whether slots are written with the whole hashes of their keys.
    const fn has_hashes(&self) -> bool {
        self.version > TAGS_ONLY
    }

    /// The groups of the saved table with states of W words.
    const fn groups(&self, words: usize) -> u64 {
        let [word_groups, pair_groups] = self.table_groups;
        if words == 1 { word_groups } else { pair_groups }
    }
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
