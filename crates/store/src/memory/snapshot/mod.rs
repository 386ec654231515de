//! A store's state in a file, so that a restart does not give everybody a fresh daily quota.
//!
//! Everything that decisions are made on is saved: buckets, windows and counters, logs, leases, reservations, the overflow
//! sketch, and what limits are measured by. What has expired is not, nor how often something had to be given up. The file
//! holds the store's secret, so only its owner may read it. It is written beside its place and moved there whole; one that
//! is damaged, cut short, foreign, or of another table's size is refused, with the reason. A slot keeps only part of its
//! key's hash, so its state cannot be moved to a table of another size.
//!
//! The file is a row of 64-bit words, least byte first: what it is, version, sizes, secret; limits; boxes; both tables; which
//! reservations are open; the overflow; last a checksum over all of it. Version 1 had only the tables, version 2 one overflow
//! sketch for all limits. Both are still read; what version 2 has in its sketch is dropped, because nobody can tell whose it is.
//!
//! Boxes come before the tables and what is open after them. A charge and its reservation are made together, but lie in
//! different places and so are saved at different moments. One that was open at both times was charged in between, so that
//! settling it after a restart gives nothing back that is not in the saved state.
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
const VERSION: u64 = 3;
/// The last version with one overflow sketch for all limits.
const SHARED_OVERFLOW: u64 = 2;
/// The first version, which had only the tables.
const TABLES_ONLY: u64 = 1;

/// Why a snapshot was not read, or not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file could not be read or written.
    Io(io::Error),
    /// The file is something else.
    NotASnapshot,
    /// The file is of another version of the format.
    UnknownVersion(u64),
    /// The file was saved by a store for another number of keys.
    SizeMismatch,
    /// The file ends too early.
    Truncated,
    /// The file is not as it was written.
    Corrupted,
    /// There is no store to read it into.
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
                    "version {version} of the format is not known; versions {TABLES_ONLY} to {VERSION} are"
                )
            }
            Self::SizeMismatch => f.write_str("it was saved by a store for another number of keys"),
            Self::Truncated => f.write_str("the file is cut short"),
            Self::Corrupted => f.write_str("the file is damaged"),
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
    /// Saves what is live to a file that only its owner may read, whole or not at all. Decisions go on meanwhile: each
    /// state is as it was at some moment of the call, and a reservation made or closed during it cannot be settled after a
    /// restart. Saved while nobody decides, a restored store decides exactly as this one.
    ///
    /// # Errors
    /// The file cannot be written. What was there before is still there.
    pub fn save(&self, path: &Path) -> Result<(), SnapshotError> {
        let nameless = || io::Error::from(io::ErrorKind::InvalidInput);
        let name = path.file_name().ok_or_else(nameless)?;
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        // Of its own for every call: two at once must not write into each other's file.
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        temporary.push(format!(".{}.{call}.new", std::process::id()));
        let temporary = path.with_file_name(temporary);
        // Left behind by a process of the same number that died while saving.
        fs::remove_file(&temporary).ok();
        let written = self.write_to(&temporary).and_then(|()| {
            fs::rename(&temporary, path)?;
            sync_folder(path)
        });
        if written.is_err() {
            // Nobody else knows its name. If it cannot be removed either, the first error tells more.
            fs::remove_file(&temporary).ok();
        }
        Ok(written?)
    }

    /// A store with the states of a saved one, for the same number of keys. Limits are measured as they were until they are
    /// made known again, so [`learn`](Self::learn) those whose quotas may have changed before it decides.
    ///
    /// A file of the first version of the format has neither logs nor leases, reservations or overflow in it: those start
    /// empty.
    ///
    /// # Errors
    /// There is no such file, or it is not what was saved by a store of this size.
    pub fn restore(path: &Path, keys: usize, clock: C) -> Result<Self, SnapshotError> {
        let mut memory = Self::with_clock(keys, clock).map_err(SnapshotError::InvalidSize)?;
        memory.read_from(path)?;
        Ok(memory)
    }

    /// Like [`restore`](Self::restore), but a file that cannot be used leaves the store empty; the reason says so.
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
        // What was read before the reason was found must not stay.
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
        out.put_all(self.secret.words())?;
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
        self.secret = HashSeed::from_words(input.take_all()?);
        if has_all {
            limits_and_overflow::read_limits(
                &mut input,
                &self.priorities,
                version > SHARED_OVERFLOW,
            )?;
            variable_states::read(&mut input, &self.variable_states)?;
        }
        tables::read(&mut input, &self.word_table, &self.usages)?;
        tables::read(&mut input, &self.pair_table, &self.usages)?;
        if has_all {
            variable_states::read_open(&mut input, &self.variable_states)?;
            if version > SHARED_OVERFLOW {
                limits_and_overflow::read_overflow(&mut input, &self.overflow, &self.usages)?;
            } else {
                limits_and_overflow::read_cells(&mut input, self.overflow.cells())?;
            }
        }
        input.finish()
    }

    /// How many shelves there are and how many cells the overflow has.
    fn sizes(&self) -> [u64; 2] {
        [self.variable_states.count(), self.overflow.cells()].map(to_u64)
    }
}

/// Makes the new name last through a loss of power.
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
