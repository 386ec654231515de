//! Saves a store's state to a file, so that a restart does not reset daily quotas.
//!
//! The file holds all state that decisions depend on: buckets, windows, counters, logs, leases, reservations, the
//! overflow sketch and the limits' usage scales. Expired states and the eviction counters are not saved. The file
//! contains the store's hash seed, so only its owner may read it. It is written to a temporary file and renamed. A
//! corrupted, truncated or foreign file is rejected with the reason. So is the file of a store of another size: a slot
//! keeps only part of its key's hash, so its state cannot be moved to a table of another size.
//!
//! The file is a sequence of little-endian 64-bit words: magic number, version, sizes, hash seed; limits; variable
//! states; both tables; open reservations; the overflow sketch; a checksum over all of it. Version 1 had only the
//! tables and is still read.
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
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use self::checksummed::{ChecksumReader, ChecksumWriter};
use super::MemoryStore;
use super::hash::HashSeed;
use crate::clock::Clock;
use crate::invalid_size::InvalidSize;

const MAGIC: u64 = u64::from_le_bytes(*b"tollgate");
const VERSION: u64 = 2;
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
    /// A store for another number of keys saved the file.
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
            Self::SizeMismatch => f.write_str("a store for another number of keys saved the file"),
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
        let nameless = || io::Error::from(io::ErrorKind::InvalidInput);
        let name = path.file_name().ok_or_else(nameless)?;
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        // One name per call, so that concurrent calls do not write to the same file.
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        temporary.push(format!(".{}.{call}.new", std::process::id()));
        let temporary = path.with_file_name(temporary);
        // A process with the same id may have died while saving.
        fs::remove_file(&temporary).ok();
        let written = self.write_to(&temporary).and_then(|()| {
            fs::rename(&temporary, path)?;
            sync_folder(path)
        });
        if written.is_err() {
            // Best effort: the first error is the one to report.
            fs::remove_file(&temporary).ok();
        }
        Ok(written?)
    }

    /// Restores a saved store, for the same number of keys. The saved usage scales apply until limits are added again.
    /// So call [`add_limit`](Self::add_limit) for limits whose quotas may have changed before the first decision.
    ///
    /// A file of version 1 has no logs, leases, reservations or overflow sketch; those start empty.
    ///
    /// # Errors
    /// There is no such file, or a store of this size has not written it.
    pub fn restore(path: &Path, keys: usize, clock: C) -> Result<Self, SnapshotError> {
        let mut memory = Self::with_clock(keys, clock).map_err(SnapshotError::InvalidSize)?;
        memory.read_from(path)?;
        Ok(memory)
    }

    /// Like [`restore`](Self::restore), but starts empty if the file cannot be used, and returns the reason.
    ///
    /// # Errors
    /// As [`with_clock`](Self::with_clock).
    pub fn restore_or_empty(
        path: &Path,
        keys: usize,
        clock: C,
    ) -> Result<(Self, Option<SnapshotError>), InvalidSize> {
        let mut memory = Self::with_clock(keys, clock)?;
        let Err(reason) = memory.read_from(path) else {
            return Ok((memory, None));
        };
        // Discard what was read before the error.
        Ok((Self::with_clock(keys, memory.clock)?, Some(reason)))
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut out = ChecksumWriter::new(BufWriter::new(options.open(path)?));
        let now = self.now();
        out.put_all([MAGIC, VERSION])?;
        out.put_all([self.word_table.groups(), self.pair_table.groups()].map(to_u64))?;
        out.put_all(self.sizes())?;
        out.put_all(self.hash_seed.words())?;
        limits_and_overflow::write_limits(&mut out, &self.priorities)?;
        variable_states::write(&mut out, &self.variable_states, now)?;
        tables::write(&mut out, &self.word_table, &self.priorities, now)?;
        tables::write(&mut out, &self.pair_table, &self.priorities, now)?;
        variable_states::write_open(&mut out, &self.variable_states, now)?;
        limits_and_overflow::write_overflow(&mut out, &self.overflow, now)?;
        let file = out
            .finish()?
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.sync_all()
    }

    fn read_from(&mut self, path: &Path) -> Result<(), SnapshotError> {
        let mut input = ChecksumReader::new(BufReader::new(File::open(path)?));
        if input.take()? != MAGIC {
            return Err(SnapshotError::NotASnapshot);
        }
        let version = input.take()?;
        if !(TABLES_ONLY..=VERSION).contains(&version) {
            return Err(SnapshotError::UnknownVersion(version));
        }
        let has_all = version > TABLES_ONLY;
        if input.take_all()? != [self.word_table.groups(), self.pair_table.groups()].map(to_u64)
            || has_all && input.take_all()? != self.sizes()
        {
            return Err(SnapshotError::SizeMismatch);
        }
        self.hash_seed = HashSeed::from_words(input.take_all()?);
        if has_all {
            limits_and_overflow::read_limits(&mut input, &self.priorities)?;
            variable_states::read(&mut input, &self.variable_states)?;
        }
        tables::read(&mut input, &self.word_table)?;
        tables::read(&mut input, &self.pair_table)?;
        if has_all {
            variable_states::read_open(&mut input, &self.variable_states)?;
            limits_and_overflow::read_overflow(&mut input, &self.overflow)?;
        }
        input.finish()
    }

    /// The number of shards and the number of cells of the overflow sketch.
    fn sizes(&self) -> [u64; 2] {
        [self.variable_states.count(), self.overflow.cells()].map(to_u64)
    }
}

/// Makes the rename durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    #[cfg(unix)]
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
