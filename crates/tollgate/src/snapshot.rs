//! Saves a limiter's state and restores it, so that a restart does not reset quotas.
//!
//! After the store's snapshot come the limits' names with their ids: a restored limiter finds the state of a limit by its name and
//! algorithm. Must not know: keys, what state means.

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::num::NonZeroU16;
use std::path::Path;

use tollgate_core::limit::Limit;
use tollgate_files::{open_regular, replace_file};
use tollgate_store::{Clock, LimitId, MemoryStore, SnapshotError};

use crate::builder::LimiterBuilder;
use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;
use crate::limiter::Limiter;
use crate::limits::{Limits, MAX_LIMITS};

/// The longest name that is read back.
const MAX_NAME_LEN: u64 = 1 << 16;

/// A limiter cannot be restored.
#[derive(Debug)]
#[non_exhaustive]
pub enum RestoreError {
    /// The file cannot be read, or is not an intact snapshot.
    Snapshot(SnapshotError),
    /// A setting of the limiter is not valid.
    Invalid(InvalidLimiter),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(error) => error.fmt(f),
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<SnapshotError> for RestoreError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}

impl From<InvalidLimiter> for RestoreError {
    fn from(error: InvalidLimiter) -> Self {
        Self::Invalid(error)
    }
}

/// The id of a limit in a saved table.
#[derive(Clone, Debug)]
pub(crate) struct SavedLimit {
    name: Box<str>,
    algorithm: Box<str>,
    /// How long a state matters, in nanoseconds.
    lifetime: u64,
    id: LimitId,
}

impl SavedLimit {
    fn new(name: &LimitName, id: LimitId, limit: &Limit) -> Self {
        Self {
            name: name.as_str().into(),
            algorithm: format!("{:?}", limit.algorithm_kind()).into(),
            lifetime: limit.state_lifetime().as_nanos(),
            id,
        }
    }

    /// The id, if it is the state of this limit.
    pub(crate) fn id_for(&self, name: &LimitName, limit: &Limit) -> Option<LimitId> {
        let wanted = Self::new(name, self.id, limit);
        // Counts in windows of one length cannot be read in another.
        let is_readable =
            !limit.algorithm_kind().is_tied_to_window_length() || wanted.lifetime == self.lifetime;
        let is_same = (&wanted.name, &wanted.algorithm) == (&self.name, &self.algorithm);
        (is_same && is_readable).then_some(self.id)
    }
}

/// A table that was read.
pub(crate) struct RestoredTable<C> {
    pub(crate) memory: MemoryStore<C>,
    pub(crate) limits: Vec<SavedLimit>,
    pub(crate) last_limit_id: u16,
}

impl<C: Clock> Limiter<C> {
    /// Saves the state of all keys to a file that only its owner may read, atomically. Calls continue meanwhile: each key is saved
    /// as of some moment of the call. If no call runs meanwhile, the [restored](LimiterBuilder::restore) limiter decides exactly as
    /// this one.
    ///
    /// ```
    /// use tollgate::Limiter;
    ///
    /// # let path = std::env::temp_dir().join(format!("tollgate-doc-state-{}", std::process::id()));
    /// let limiter = Limiter::per_day(3).name("sign-up").build()?;
    /// limiter.check_n("alice", 3)?;
    /// limiter.save(&path)?;
    ///
    /// // The next process:
    /// let limiter = Limiter::per_day(3).name("sign-up").restore(&path)?;
    /// assert!(limiter.check("alice").is_err());
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The file contains the secret that hashes keys, but no keys. A reservation that is open is saved as charged; the next process
    /// cannot settle it. Limiters that share a table save all of it, but each finds only its own limits again.
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
        let table = &self.shared.table;
        table.memory.save_to(out)?;
        let mut names = Vec::new();
        let limits = self.shared.active_limits();
        put(&mut names, limits.list().len() as u64);
        for limit in limits.list() {
            let saved = SavedLimit::new(&limit.name, limit.identified.id, &limit.identified.limit);
            put(&mut names, saved.id.0.get().into());
            put(&mut names, saved.lifetime);
            put_text(&mut names, &saved.algorithm);
            put_text(&mut names, &saved.name);
        }
        put(&mut names, table.last_limit_id().into());
        let sum = checksum(&names);
        put(&mut names, sum);
        out.write_all(&names)
    }
}

impl<L: Into<Limits>, C: Clock> LimiterBuilder<L, C> {
    /// Like [`build`](Self::build), with the state that [`Limiter::save`] saved. A limit finds its state by its name and algorithm,
    /// whatever its numbers are now; any other limit starts empty. So does a sliding counter with another window length. The number of
    /// keys may differ: what does not fit is treated as if it was evicted. With [`share_table_with`](Self::share_table_with) nothing
    /// is read: the other limiter's table has its state already.
    ///
    /// # Errors
    /// There is no such file, it is not an intact snapshot, or a setting is not valid.
    pub fn restore(self, path: &Path) -> Result<Limiter<C>, RestoreError> {
        let file = open_regular(path).map_err(SnapshotError::Io)?;
        let mut input = BufReader::new(file);
        let limiter = self.load_from(&mut input)?;
        match input.read(&mut [0]).map_err(SnapshotError::Io)? {
            0 => Ok(limiter),
            _ => Err(SnapshotError::Corrupted.into()),
        }
    }

    /// Reads what [`Limiter::save_to`] wrote, and not a byte more.
    ///
    /// # Errors
    /// `input` fails or does not begin with an intact snapshot, or a setting is not valid.
    pub fn load_from(self, input: &mut impl Read) -> Result<Limiter<C>, RestoreError> {
        self.build_with(|keys, clock| {
            let memory = MemoryStore::load_from(input, keys, clock)?;
            let (limits, last_limit_id) = read_limits(input)?;
            Ok(RestoredTable {
                memory,
                limits,
                last_limit_id,
            })
        })
    }
}

fn read_limits(input: &mut impl Read) -> Result<(Vec<SavedLimit>, u16), SnapshotError> {
    let mut bytes = Vec::new();
    let count = take(input, &mut bytes)?;
    if count > MAX_LIMITS as u64 {
        return Err(SnapshotError::Corrupted);
    }
    let mut limits = Vec::new();
    for _ in 0..count {
        let id = u16::try_from(take(input, &mut bytes)?).ok();
        let id = id.and_then(NonZeroU16::new).map(LimitId);
        limits.push(SavedLimit {
            id: id.ok_or(SnapshotError::Corrupted)?,
            lifetime: take(input, &mut bytes)?,
            algorithm: take_text(input, &mut bytes)?,
            name: take_text(input, &mut bytes)?,
        });
    }
    let last = u16::try_from(take(input, &mut bytes)?).ok();
    let sum = checksum(&bytes);
    if take(input, &mut bytes)? != sum {
        return Err(SnapshotError::Corrupted);
    }
    Ok((limits, last.ok_or(SnapshotError::Corrupted)?))
}

fn put(out: &mut Vec<u8>, word: u64) {
    out.extend(word.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend(text.as_bytes());
}

/// Reads a word, and adds it to what the checksum is made of.
fn take(input: &mut impl Read, bytes: &mut Vec<u8>) -> Result<u64, SnapshotError> {
    let mut word = [0; 8];
    input.read_exact(&mut word)?;
    bytes.extend(word);
    Ok(u64::from_le_bytes(word))
}

fn take_text(input: &mut impl Read, bytes: &mut Vec<u8>) -> Result<Box<str>, SnapshotError> {
    let len = take(input, bytes)?;
    if len > MAX_NAME_LEN {
        return Err(SnapshotError::Corrupted);
    }
    let mut text = Vec::new();
    if input.take(len).read_to_end(&mut text)? as u64 != len {
        return Err(SnapshotError::Truncated);
    }
    bytes.extend(&text);
    match String::from_utf8(text) {
        Ok(text) => Ok(text.into()),
        Err(_not_text) => Err(SnapshotError::Corrupted),
    }
}

/// FNV-1a, as the store's snapshot has it.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
