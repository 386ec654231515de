//! Who belongs to a fleet, and what its operators have said: what every register can be asked, and what it answers.
//!
//! A register is one place that all nodes of a fleet can reach. Ages and lives are counted on its clock, so the nodes' own
//! clocks do not matter. Must not know: where it is kept, what the entries say.

mod fleet_name;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tollgate_core::Nanos;

use crate::store_error::{StoreError, StoreErrorKind};

pub use fleet_name::{FleetName, InvalidFleetName};

/// The most nodes at once. Further ones are refused until one of these is gone.
pub const MAX_NODES: usize = 1_024;
/// The most entries at once, the ones that say that something is gone included.
pub const MAX_ENTRIES: usize = 10_000;
/// The most changes that are put at once.
pub const MAX_PUTS: usize = 256;
/// The longest name of an entry, in bytes.
pub const MAX_NAME_LEN: usize = 256;
/// The longest body of an entry, in bytes.
pub const MAX_BODY_LEN: usize = 16_384;
/// The longest version of a program that a beat tells; what is longer is cut.
pub const MAX_VERSION_LEN: usize = 32;
/// For how long an entry says that something is gone. Who was away for longer is told everything.
pub const TOMBSTONE_TTL: Nanos = Nanos::from_secs(600);
/// For how long entries are kept although no node is there.
pub const ENTRY_TTL: Nanos = Nanos::from_secs(30 * 86_400);

/// An answer that has to be waited for.
pub type RegisterFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A register of a fleet.
///
/// Every call ends within a deadline of its own. No error leaves anything half done; after one that says that
/// something [may have happened](StoreError::may_have_charged) the same call may be made again.
pub trait Register: Send + Sync {
    /// Says that a node is alive, for this long, and asks who else is.
    fn heartbeat<'a>(&'a self, beat: &'a Heartbeat, life: Nanos) -> RegisterFuture<'a, MemberList>;

    /// Says that a node is gone, so that nobody has to wait for its life to end.
    fn leave(&self, node: NodeId) -> RegisterFuture<'_, ()>;

    /// What was said since: all entries that were put after the mark, or every one if there is no telling which these are.
    fn entries(&self, since: Option<RegisterCursor>) -> RegisterFuture<'_, RegisterSnapshot>;

    /// Puts all of these in force or, if there is no room for them, none. Later ones of the same name win. A node numbers
    /// what it puts, upwards from 1: what it has put before is not put again, however often it is repeated.
    fn put<'a>(
        &'a self,
        from: NodeId,
        number: u64,
        changes: &'a [RegisterPut],
    ) -> RegisterFuture<'a, RegisterCursor>;
}

/// One run of one process: a number drawn at random when it began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// What a node says about itself, several times a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who says it.
    pub node: NodeId,
    /// Of the secret that keys its digests; not the secret. Nodes with different ones count apart, each to the whole limit.
    pub secret_fingerprint: u64,
    /// Of the policy that is in force on it.
    pub policy_fingerprint: u64,
    /// How often it has loaded one.
    pub generation: u64,
    /// Which version of the program it is.
    pub version: Box<str>,
    /// What it has to do.
    pub load: NodeLoad,
}

/// What a node, or a fleet, has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NodeLoad {
    /// Requests under way or held back.
    pub in_flight: u64,
    /// Requests admitted in a second.
    pub admitted_per_s: u64,
    /// Requests denied in a second.
    pub denied_per_s: u64,
    /// Requests turned away in a second because there was too much to do.
    pub shed_per_s: u64,
}

/// Who is there.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemberList {
    /// Everyone whose life has not ended, the asker included, by number.
    pub nodes: Vec<RegisteredNode>,
    /// Nodes that are there and whose beat could not be read.
    pub unreadable: usize,
    /// Up to where entries have been put.
    pub cursor: RegisterCursor,
    /// What all of them have to do.
    pub load: NodeLoad,
}

/// A node, and how long ago it was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredNode {
    /// What it said.
    pub heartbeat: Heartbeat,
    /// How long ago, by the register's clock.
    pub age: Nanos,
}

/// How far a register has come. Marks of one epoch can be compared by their version; another epoch is another register, or the
/// same after it has lost everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RegisterCursor {
    /// When it began; 0 as long as nothing was put.
    pub epoch: u64,
    /// The version of the entry that was put last. It only grows, unless entries were lost.
    pub version: u64,
}

/// What a register has to say.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RegisterSnapshot {
    /// Up to where this is.
    pub cursor: RegisterCursor,
    /// Whether this is everything, and what is not in it is gone.
    pub is_complete: bool,
    /// Whether the mark that was asked about is one that the register has never given, although it is of its epoch: then it
    /// has lost what was put after this version, as a replica does that was promoted too early.
    pub lost_after: Option<u64>,
    /// The entries in the order in which they were put.
    pub entries: Vec<RegisterEntry>,
}

/// Something that holds for the whole fleet, or that no longer does.
#[derive(Clone, PartialEq, Eq)]
pub struct RegisterEntry {
    /// What it is about.
    pub name: Box<str>,
    /// What it says.
    pub body: Box<[u8]>,
    /// Whether it says that what had this name is gone.
    pub is_tombstone: bool,
    /// How long it will hold; without it until it is taken back.
    pub expires_in: Option<Nanos>,
    /// Its place in the order in which entries were put.
    pub version: u64,
}

/// An entry to be put.
#[derive(Clone, PartialEq, Eq)]
pub struct RegisterPut {
    /// What it is about.
    pub name: Box<str>,
    /// What it says, also of what is taken back: who did that, and why.
    pub body: Box<[u8]>,
    /// What is to become of the name.
    pub mode: PutMode,
    /// How long it will hold; without it until it is taken back.
    pub expires_in: Option<Nanos>,
}

/// What is to become of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// It says this from now on.
    Set,
    /// The same, unless it says something already, or that it is gone.
    SetIfAbsent,
    /// It is gone.
    Remove,
}

impl NodeLoad {
    /// How many numbers it has.
    pub const LEN: usize = 4;

    /// The numbers in their order, to which later versions add at the end.
    #[must_use]
    pub const fn numbers(self) -> [u64; Self::LEN] {
        [
            self.in_flight,
            self.admitted_per_s,
            self.denied_per_s,
            self.shed_per_s,
        ]
    }

    /// A load of these numbers. Those that are missing are zero, those that are not known are left out.
    #[must_use]
    pub fn from_numbers(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut numbers = numbers.into_iter();
        let mut next = || numbers.next().unwrap_or(0);
        Self {
            in_flight: next(),
            admitted_per_s: next(),
            denied_per_s: next(),
            shed_per_s: next(),
        }
    }

    /// Both together.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        let pairs = self.numbers().into_iter().zip(other.numbers());
        Self::from_numbers(pairs.map(|(one, two)| one.saturating_add(two)))
    }
}

impl MemberList {
    /// The roll of these nodes.
    #[must_use]
    pub fn new(mut nodes: Vec<RegisteredNode>, unread: usize, mark: RegisterCursor) -> Self {
        nodes.sort_by_key(|seen| seen.heartbeat.node);
        let loads = nodes.iter().map(|seen| seen.heartbeat.load);
        let load = loads.fold(NodeLoad::default(), NodeLoad::saturating_add);
        Self {
            nodes,
            unreadable: unread,
            cursor: mark,
            load,
        }
    }

    /// How many nodes are there.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len().saturating_add(self.unreadable)
    }
}

impl Heartbeat {
    /// A version as it can be told: printable, in one word, and not too long.
    #[must_use]
    pub fn sanitize_version(text: &str) -> Box<str> {
        let told: String = text
            .chars()
            .filter(char::is_ascii_graphic)
            .take(MAX_VERSION_LEN)
            .collect();
        match told.is_empty() {
            true => "unknown".into(),
            false => told.into(),
        }
    }
}

/// Whether these can be put at once.
///
/// # Errors
/// One of them, or all together, is beyond a bound, and the error says which.
pub fn validate_puts(changes: &[RegisterPut]) -> Result<(), StoreError> {
    let bad = |detail: String| Err(StoreError::new(StoreErrorKind::BadRequest, detail));
    if changes.len() > MAX_PUTS {
        let given = changes.len();
        return bad(format!(
            "{given} changes at once, and {MAX_PUTS} is the most"
        ));
    }
    for change in changes {
        if change.name.is_empty() || change.name.len() > MAX_NAME_LEN {
            return bad(format!(
                "the name of an entry has 1 to {MAX_NAME_LEN} bytes"
            ));
        }
        if change.body.len() > MAX_BODY_LEN {
            return bad(format!(
                "the body of an entry has at most {MAX_BODY_LEN} bytes"
            ));
        }
    }
    Ok(())
}

/// The fleet has as many nodes as it may.
#[must_use]
pub fn too_many_nodes() -> StoreError {
    let detail = format!("the fleet has {MAX_NODES} nodes, which is the most");
    StoreError::new(StoreErrorKind::Refused, detail)
}

/// The fleet has as many entries as it may.
#[must_use]
pub fn too_many_entries() -> StoreError {
    let detail = format!(
        "the fleet has {MAX_ENTRIES} switches, overrides and blocks, which is the most; take some back first"
    );
    StoreError::new(StoreErrorKind::Refused, detail)
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Without the body: it may name addresses.
impl fmt::Debug for RegisterEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .field("is_gone", &self.is_tombstone)
            .field("left", &self.expires_in)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Without the body: it may name addresses.
impl fmt::Debug for RegisterPut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change")
            .field("name", &self.name)
            .field("how", &self.mode)
            .field("left", &self.expires_in)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_add_up_and_later_versions_may_know_more_or_less_of_them() {
        let known = NodeLoad::from_numbers([1, 2, 3, u64::MAX]);
        assert_eq!(
            known.saturating_add(known),
            NodeLoad::from_numbers([2, 4, 6, u64::MAX])
        );
        assert_eq!(
            NodeLoad::from_numbers([1, 2]),
            NodeLoad::from_numbers([1, 2, 0, 0]),
            "of the version before"
        );
        assert_eq!(
            NodeLoad::from_numbers([1, 2, 3, 4, 5]),
            NodeLoad::from_numbers([1, 2, 3, 4]),
            "of the next"
        );
        assert_eq!(NodeLoad::from_numbers(known.numbers()), known);
    }

    #[test]
    fn what_is_beyond_a_bound_is_named() {
        let change = |name: usize, body: usize| RegisterPut {
            name: "n".repeat(name).into(),
            body: vec![b'b'; body].into(),
            mode: PutMode::Set,
            expires_in: None,
        };
        let told = |changes: &[RegisterPut]| match validate_puts(changes) {
            Ok(()) => String::new(),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::BadRequest);
                error.to_string()
            }
        };
        assert_eq!(
            told(&vec![change(MAX_NAME_LEN, MAX_BODY_LEN); MAX_PUTS]),
            ""
        );
        assert!(told(&vec![change(1, 0); MAX_PUTS + 1]).contains("257 changes"));
        assert!(told(&[change(MAX_NAME_LEN + 1, 0)]).contains("1 to 256 bytes"));
        assert!(told(&[change(0, 0)]).contains("1 to 256 bytes"));
        assert!(told(&[change(1, MAX_BODY_LEN + 1)]).contains("16384 bytes"));
    }

    #[test]
    fn a_version_is_one_word_that_is_not_too_long() {
        assert_eq!(&*Heartbeat::sanitize_version("0.6.1+abc"), "0.6.1+abc");
        assert_eq!(&*Heartbeat::sanitize_version("1 2\n3é"), "123");
        assert_eq!(&*Heartbeat::sanitize_version(" "), "unknown");
        assert_eq!(
            Heartbeat::sanitize_version(&"9".repeat(99)).len(),
            MAX_VERSION_LEN
        );
    }
}
