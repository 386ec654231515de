//! A store's state in a file, so that a restart does not give everybody a fresh daily quota.
//!
//! **Only buckets, windows and counters are saved. Logs, leases, reservations and the overflow are not:** a restart forgets
//! them. The file holds the store's secret, so only its owner may read it. It is written beside its place and moved there
//! whole; one that is damaged, cut short, foreign, or of another table's size is refused, with the reason.
//!
//! The file is a row of 64-bit words, least byte first: what it is, version, groups of both tables, secret; then for each
//! table its live slots (number, tag, state), an end mark and one bit a group; last a checksum over all of it.
//!
//! Must not know: what keys or states mean, who asks for a snapshot and when.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Timestamp;

use super::Memory;
use super::hash::{Secret, limit_of};
use super::table::Table;
use super::worth::{Worth, Worths};
use crate::clock::Clock;
use crate::error::InvalidSize;

const MAGIC: u64 = u64::from_le_bytes(*b"tollgate");
const VERSION: u64 = 1;
/// No slot has this number.
const END: u64 = u64::MAX;

/// Why a snapshot was not read, or not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file could not be read or written.
    Io(io::Error),
    /// The file is something else.
    Foreign,
    /// The file is of another version of the format.
    Version(u64),
    /// The file was saved by a store for another number of keys.
    OtherSize,
    /// The file ends too early.
    Truncated,
    /// The file is not as it was written.
    Damaged,
    /// There is no store to read it into.
    Size(InvalidSize),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("snapshot: ")?;
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Foreign => f.write_str("the file is not a snapshot of a store"),
            Self::Version(version) => {
                write!(f, "version {version} is not known; this is {VERSION}")
            }
            Self::OtherSize => f.write_str("it was saved by a store for another number of keys"),
            Self::Truncated => f.write_str("the file is cut short"),
            Self::Damaged => f.write_str("the file is damaged"),
            Self::Size(error) => error.fmt(f),
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

impl<C: Clock> Memory<C> {
    /// Saves what is live to a file that only its owner may read, whole or not at all. Decisions go on meanwhile: each
    /// state is as it was at some moment of the call. Logs, leases, reservations and the overflow are **not** saved.
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

    /// A store with the states of a saved one, for the same number of keys. Make its limits known before it decides.
    ///
    /// # Errors
    /// There is no such file, or it is not what was saved by a store of this size.
    pub fn restore(path: &Path, keys: usize, clock: C) -> Result<Self, SnapshotError> {
        let mut memory = Self::with_clock(keys, clock).map_err(SnapshotError::Size)?;
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
        let mut out = Summed::new(BufWriter::new(options.open(path)?));
        let [first, second] = self.secret.words();
        let groups = [self.words.groups(), self.pairs.groups()].map(wide);
        for word in [MAGIC, VERSION, groups[0], groups[1], first, second] {
            out.put(word)?;
        }
        let now = self.now();
        write_table(&mut out, &self.words, &self.worths, now)?;
        write_table(&mut out, &self.pairs, &self.worths, now)?;
        out.put(out.sum)?;
        let file = out
            .inner
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.sync_all()
    }

    fn read_from(&mut self, path: &Path) -> Result<(), SnapshotError> {
        let mut input = Summed::new(BufReader::new(File::open(path)?));
        if input.take()? != MAGIC {
            return Err(SnapshotError::Foreign);
        }
        let version = input.take()?;
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        let groups = [input.take()?, input.take()?];
        if groups != [self.words.groups(), self.pairs.groups()].map(wide) {
            return Err(SnapshotError::OtherSize);
        }
        self.secret = Secret::from_words([input.take()?, input.take()?]);
        read_table(&mut input, &self.words)?;
        read_table(&mut input, &self.pairs)?;
        let sum = input.sum;
        let has_more = |input: &mut BufReader<File>| input.read(&mut [0]).map(|read| read > 0);
        if input.take()? != sum || has_more(&mut input.inner)? {
            return Err(SnapshotError::Damaged);
        }
        Ok(())
    }
}

fn write_table<const W: usize>(
    out: &mut Summed<impl Write>,
    table: &Table<W>,
    worths: &Worths,
    now: Timestamp,
) -> io::Result<()> {
    for number in 0..table.slots() {
        let Some(slot) = table.slot(number).filter(|slot| slot.tag() != 0) else {
            continue;
        };
        let (tag, state) = {
            let owned = slot.take();
            (owned.tag(), owned.state())
        };
        if tag != 0 && worths.of(limit_of(tag), state, now) != Worth::Nothing {
            out.put(wide(number))?;
            out.put(tag)?;
            state.into_iter().try_for_each(|word| out.put(word))?;
        }
    }
    out.put(END)?;
    // After the slots: a key that was seen in its refuge has told its home by then.
    for group in 0..table.groups() {
        out.put(u64::from(table.has_spilled(group)))?;
    }
    Ok(())
}

/// Reads no more than the table has room for: slots come in ascending order.
fn read_table<const W: usize>(
    input: &mut Summed<impl Read>,
    table: &Table<W>,
) -> Result<(), SnapshotError> {
    let mut least = 0;
    loop {
        let number = input.take()?;
        if number == END {
            break;
        }
        let tag = input.take()?;
        let mut state = [0; W];
        for word in &mut state {
            *word = input.take()?;
        }
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let slot = table.slot(index).filter(|_| index >= least);
        let slot = slot.filter(|_| limit_of(tag) != 0);
        slot.ok_or(SnapshotError::Damaged)?.take().house(tag, state);
        least = index.saturating_add(1);
    }
    for group in 0..table.groups() {
        match input.take()? {
            0 => {}
            1 => table.spill(group),
            _ => return Err(SnapshotError::Damaged),
        }
    }
    Ok(())
}

/// Words on their way to or from a file, and the checksum of those that have passed: FNV-1a, in which one changed byte
/// always changes the sum.
struct Summed<T> {
    inner: T,
    sum: u64,
}

impl<T> Summed<T> {
    const fn new(inner: T) -> Self {
        let sum = 0xcbf2_9ce4_8422_2325;
        Self { inner, sum }
    }

    fn add(&mut self, bytes: [u8; 8]) {
        for byte in bytes {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl<T: Write> Summed<T> {
    fn put(&mut self, word: u64) -> io::Result<()> {
        self.add(word.to_le_bytes());
        self.inner.write_all(&word.to_le_bytes())
    }
}

impl<T: Read> Summed<T> {
    fn take(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.inner.read_exact(&mut bytes)?;
        self.add(bytes);
        Ok(u64::from_le_bytes(bytes))
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

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
