//! The contract of a fleet's register: the list of live nodes, and the operators' entries.
//!
//! All nodes of a fleet use one register. It counts ages and leases with its own clock, so the nodes' clocks do not
//! matter. Must not know: where it is stored, what entries mean.

mod fleet_name;
mod node_usage;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tollgate_core::Nanos;

use crate::store_error::{StoreError, StoreErrorKind};

pub use fleet_name::{FleetName, InvalidFleetName};
pub use node_usage::{MAX_USAGE_TARGETS, NodeUsage, TargetUsage};

/// The largest number of nodes. Further nodes are refused until one leaves.
pub const MAX_NODES: usize = 1_024;
/// The largest number of entries, tombstones included.
pub const MAX_ENTRIES: usize = 10_000;
/// The largest number of puts in one call.
pub const MAX_PUTS: usize = 256;
/// The longest name of an entry, in bytes.
pub const MAX_NAME_LEN: usize = 256;
/// The longest body of an entry, in bytes.
pub const MAX_BODY_LEN: usize = 16_384;
/// The longest program version in a heartbeat; longer ones are truncated.
pub const MAX_VERSION_LEN: usize = 32;
/// How long a tombstone is kept. A node that was away for longer gets all entries.
pub const TOMBSTONE_TTL: Nanos = Nanos::from_secs(600);
/// How long entries are kept while no node is alive.
pub const ENTRY_TTL: Nanos = Nanos::from_secs(30 * 86_400);

/// The future of a register call.
pub type RegisterFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A register of a fleet.
///
/// Every call ends within its own deadline. No error leaves a partial change. After an error that [may have changed
/// something](StoreError::may_have_charged), the same call may be repeated.
pub trait Register: Send + Sync {
    /// Renews a node's lease for `life` and returns the live nodes.
    fn heartbeat<'a>(&'a self, beat: &'a Heartbeat, life: Nanos) -> RegisterFuture<'a, MemberList>;

    /// Removes a node at once, without waiting for its lease to end.
    fn leave(&self, node: NodeId) -> RegisterFuture<'_, ()>;

    /// All entries put after the cursor, or all entries if the register cannot tell which those are.
    fn entries(&self, since: Option<RegisterCursor>) -> RegisterFuture<'_, RegisterSnapshot>;

    /// Applies all puts, or none if there is no room. Of several puts with the same name, the last one counts. Each
    /// node numbers its calls from 1 upwards; a call with a number that was applied before changes nothing.
    fn put<'a>(
        &'a self,
        from: NodeId,
        number: u64,
        changes: &'a [RegisterPut],
    ) -> RegisterFuture<'a, RegisterCursor>;
}

/// One run of one process: a random number drawn at its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// The state of a node, sent several times a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The sender.
    pub node: NodeId,
    /// Fingerprint of the secret that keys its digests. Nodes with different secrets count separately, each up to the
    /// whole limit.
    pub secret_fingerprint: u64,
    /// Fingerprint of its active policy.
    pub policy_fingerprint: u64,
    /// How often it has loaded a policy.
    pub generation: u64,
    /// The program's version.
    pub version: Box<str>,
    /// Its current load.
    pub load: NodeLoad,
    /// How much its targets do, if it sheds by usage.
    pub usage: NodeUsage,
    /// Proof that a holder of the fleet's secret sent it; `None` from versions that did not sign.
    pub seal: Option<HeartbeatSeal>,
}

/// The signature of a heartbeat. The load is not signed, because it changes no decision. The usage has its own code, because
/// versions that do not know it check this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatSeal {
    /// Grows with every heartbeat of a node, so that an old heartbeat cannot be sent again.
    pub sequence: u64,
    /// The message authentication code.
    pub mac: [u8; 16],
}

/// The load of a node or of a whole fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NodeLoad {
    /// Requests in flight or queued.
    pub in_flight: u64,
    /// Admitted requests per second.
    pub admitted_per_s: u64,
    /// Denied requests per second.
    pub denied_per_s: u64,
    /// Requests shed per second because of overload.
    pub shed_per_s: u64,
}

/// The live nodes of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemberList {
    /// All live nodes, the caller included, ordered by id.
    pub nodes: Vec<RegisteredNode>,
    /// Entries whose heartbeat is not authentic. They do not count as nodes.
    pub unverified: Vec<RegisteredNode>,
    /// The number of entries whose heartbeat could not be parsed. They do not count as nodes, because anything can be
    /// written there.
    pub unreadable: usize,
    /// The position of the last put.
    pub cursor: RegisterCursor,
    /// The register's clock, in the unit of its versions.
    pub clock: u64,
    /// The sum of all nodes' loads.
    pub load: NodeLoad,
}

/// A live node and the age of its last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredNode {
    /// Its last heartbeat.
    pub heartbeat: Heartbeat,
    /// The age of the heartbeat, by the register's clock.
    pub age: Nanos,
}

/// A position in a register. Cursors of one epoch are ordered by version. Another epoch means another register, or the
/// same one after it has lost everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RegisterCursor {
    /// When the register began; 0 before the first put.
    pub epoch: u64,
    /// The version of the last put entry. It only grows, unless entries are lost.
    pub version: u64,
}

/// Entries of a register.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RegisterSnapshot {
    /// The position up to which the entries are returned.
    pub cursor: RegisterCursor,
    /// Whether `entries` is complete, so that missing names do not exist.
    pub is_complete: bool,
    /// Set if the caller's cursor is of this epoch but unknown to the register: it has lost all puts after this
    /// version, for example because a lagging replica was promoted.
    pub lost_after: Option<u64>,
    /// The entries in the order in which they were put.
    pub entries: Vec<RegisterEntry>,
    /// Names whose entries are not authentic and therefore not in `entries`. What a node knows about them still holds.
    pub rejected: Vec<RejectedEntry>,
}

/// A name whose entry in the register is not authentic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedEntry {
    /// The name.
    pub name: Box<str>,
    /// Whether the fleet wrote the entry itself and has replaced it since: the node puts what it knows again.
    pub is_replayed: bool,
}

/// An entry that applies to the whole fleet, or a tombstone.
#[derive(Clone, PartialEq, Eq)]
pub struct RegisterEntry {
    /// The name.
    pub name: Box<str>,
    /// The content.
    pub body: Box<[u8]>,
    /// Whether this is a tombstone: the name was removed.
    pub is_tombstone: bool,
    /// The remaining time to live; `None` for an entry that does not expire.
    pub expires_in: Option<Nanos>,
    /// Its position in the order of puts.
    pub version: u64,
}

/// An entry to put.
#[derive(Clone, PartialEq, Eq)]
pub struct RegisterPut {
    /// The name.
    pub name: Box<str>,
    /// The content. For `PutMode::Remove` it tells who removed the entry, and why.
    pub body: Box<[u8]>,
    /// How to put it.
    pub mode: PutMode,
    /// The time to live; `None` for an entry that does not expire.
    pub expires_in: Option<Nanos>,
}

/// How a put changes a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// Sets the entry.
    Set,
    /// Sets the entry unless the name has an entry or a tombstone.
    SetIfAbsent,
    /// Removes the entry and leaves a tombstone.
    Remove,
    /// Sets the entry if the name still has the entry with this version.
    Replace(u64),
}

impl NodeLoad {
    /// The number of fields.
    pub const LEN: usize = 4;

    /// The fields in order. Later versions append fields.
    #[must_use]
    pub const fn numbers(self) -> [u64; Self::LEN] {
        [
            self.in_flight,
            self.admitted_per_s,
            self.denied_per_s,
            self.shed_per_s,
        ]
    }

    /// A load with these fields. Missing fields are zero, unknown ones are ignored.
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

    /// The sum of both.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        let pairs = self.numbers().into_iter().zip(other.numbers());
        Self::from_numbers(pairs.map(|(one, two)| one.saturating_add(two)))
    }
}

impl MemberList {
    /// A list of these nodes.
    #[must_use]
    pub fn new(
        mut nodes: Vec<RegisteredNode>,
        unreadable: usize,
        cursor: RegisterCursor,
        clock: u64,
    ) -> Self {
        nodes.sort_by_key(|seen| seen.heartbeat.node);
        let loads = nodes.iter().map(|seen| seen.heartbeat.load);
        let load = loads.fold(NodeLoad::default(), NodeLoad::saturating_add);
        Self {
            nodes,
            unverified: Vec::new(),
            unreadable,
            cursor,
            clock,
            load,
        }
    }

    /// The number of live nodes.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.nodes.len()
    }
}

impl Heartbeat {
    /// A version for a heartbeat: printable ASCII without spaces, of bounded length.
    #[must_use]
    pub fn sanitize_version(text: &str) -> Box<str> {
        let sanitized: String = text
            .chars()
            .filter(char::is_ascii_graphic)
            .take(MAX_VERSION_LEN)
            .collect();
        match sanitized.is_empty() {
            true => "unknown".into(),
            false => sanitized.into(),
        }
    }
}

/// Validates the puts of one call.
///
/// # Errors
///
/// One put or their number exceeds a bound; the error names it.
pub fn validate_puts(changes: &[RegisterPut]) -> Result<(), StoreError> {
    let bad = |detail: String| Err(StoreError::new(StoreErrorKind::BadRequest, detail));
    if changes.len() > MAX_PUTS {
        let given = changes.len();
        return bad(format!(
            "too many puts in one call: {given}, the maximum is {MAX_PUTS}"
        ));
    }
    for change in changes {
        if change.name.is_empty() || change.name.len() > MAX_NAME_LEN {
            return bad(format!(
                "entry name: it must have 1 to {MAX_NAME_LEN} bytes"
            ));
        }
        if change.body.len() > MAX_BODY_LEN {
            return bad(format!(
                "entry body: it must have at most {MAX_BODY_LEN} bytes"
            ));
        }
    }
    Ok(())
}

/// The error when the fleet has [`MAX_NODES`] nodes.
#[must_use]
pub fn too_many_nodes() -> StoreError {
    let detail = format!("the fleet has reached its maximum of {MAX_NODES} nodes");
    StoreError::new(StoreErrorKind::Refused, detail)
}

/// The error when the fleet has [`MAX_ENTRIES`] entries.
#[must_use]
pub fn too_many_entries() -> StoreError {
    let detail = format!(
        "the fleet has reached its maximum of {MAX_ENTRIES} switches, overrides and blocks; remove some first"
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

/// Without the body, which may contain addresses.
impl fmt::Debug for RegisterEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisterEntry")
            .field("name", &self.name)
            .field("is_gone", &self.is_tombstone)
            .field("left", &self.expires_in)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Without the body, which may contain addresses.
impl fmt::Debug for RegisterPut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisterPut")
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
    fn loads_add_up_and_versions_may_have_more_or_fewer_fields() {
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
    fn puts_beyond_a_bound_are_refused_and_the_bound_is_named() {
        let put = |name: usize, body: usize| RegisterPut {
            name: "n".repeat(name).into(),
            body: vec![b'b'; body].into(),
            mode: PutMode::Set,
            expires_in: None,
        };
        let message = |puts: &[RegisterPut]| match validate_puts(puts) {
            Ok(()) => String::new(),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::BadRequest);
                error.to_string()
            }
        };
        assert_eq!(
            message(&vec![put(MAX_NAME_LEN, MAX_BODY_LEN); MAX_PUTS]),
            ""
        );
        assert!(message(&vec![put(1, 0); MAX_PUTS + 1]).contains("call: 257"));
        assert!(message(&[put(MAX_NAME_LEN + 1, 0)]).contains("1 to 256 bytes"));
        assert!(message(&[put(0, 0)]).contains("1 to 256 bytes"));
        assert!(message(&[put(1, MAX_BODY_LEN + 1)]).contains("16384 bytes"));
    }

    #[test]
    fn a_version_is_one_word_of_bounded_length() {
        assert_eq!(&*Heartbeat::sanitize_version("0.6.1+abc"), "0.6.1+abc");
        assert_eq!(&*Heartbeat::sanitize_version("1 2\n3é"), "123");
        assert_eq!(&*Heartbeat::sanitize_version(" "), "unknown");
        assert_eq!(
            Heartbeat::sanitize_version(&"9".repeat(99)).len(),
            MAX_VERSION_LEN
        );
    }
}
