//! The register of a fleet in Redis: its live nodes and the operators' entries.
//!
//! One script implements all calls, on the server's clock. All keys share one hash tag: in a cluster they are in one
//! slot, and with several servers on the one that the fleet's name selects. The name does not depend on the secret, so
//! that nodes with different secrets see each other. Must not know: what entries mean, connections.

mod heartbeat;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_store::register::{
    ENTRY_TTL, FleetName, Heartbeat, MAX_ENTRIES, MAX_NODES, MemberList, NodeId, PutMode, Register,
    RegisterCursor, RegisterFuture, RegisterPut, RegisterSnapshot, TOMBSTONE_TTL, validate_puts,
};
use tollgate_store::{StoreError, StoreErrorKind};

use self::reply::{EntryPage, RegisterReply};
use crate::pool::CallDeadline;
use crate::store::{RedisStore, StoreInner};
use crate::topology::HashSlot;
use crate::wire::ScriptCall;

/// The largest number of entries in one reply.
const PAGE: usize = 256;
/// The largest number of pages of one read: all entries, and some that are put meanwhile.
const MOST_PAGES: usize = 2 * MAX_ENTRIES / PAGE;
/// The longest lease of a node, as in the script.
const LONGEST_LIFE: Nanos = Nanos::from_secs(60);
/// The longest time that one call may take. No decision waits for it.
const DEADLINE: Duration = Duration::from_millis(500);

/// A fleet's register in Redis or Valkey, over the connections of a store.
#[derive(Clone, Debug)]
pub struct RedisRegister {
    inner: Arc<StoreInner>,
    slot: HashSlot,
    keys: Vec<Vec<u8>>,
    deadline: Duration,
}

impl RedisRegister {
    /// The register of this fleet, on the servers of this store.
    #[must_use]
    pub fn new(store: &RedisStore, fleet: &FleetName) -> Self {
        let inner = Arc::clone(store.inner());
        // A digest contains no colon, so no caller's key has this tag.
        let tag = format!("fleet:{fleet}");
        let parts = ["nodes", "lives", "mark", "said", "order", "ends", "marks"];
        let named = |part| format!("tg1:{{{tag}}}:{part}").into_bytes();
        Self {
            slot: inner.topology().slot_of_name(tag.as_bytes()),
            keys: parts.map(named).into(),
            inner,
            deadline: DEADLINE,
        }
    }

    /// Sets the deadline of each call.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    async fn call(
        &self,
        keys: Vec<Vec<u8>>,
        args: Vec<Vec<u8>>,
    ) -> Result<RegisterReply, StoreError> {
        let request = ScriptCall::for_register(keys, args);
        let mut deadline = CallDeadline::new(self.deadline);
        let topology = self.inner.topology();
        let reply = topology.call(self.slot, &request, &mut deadline).await?;
        RegisterReply::read(reply.into_value()).ok_or_else(|| {
            topology.discard_connection(self.slot);
            StoreError::new(
                StoreErrorKind::InvalidReply,
                "the reply is not a register reply",
            )
        })
    }

    async fn page(
        &self,
        from: RegisterCursor,
        is_continuation: bool,
    ) -> Result<RegisterReply, StoreError> {
        let args = vec![
            b"entries".to_vec(),
            number(from.epoch),
            number(from.version),
            number(is_continuation.into()),
            number(PAGE as u64),
        ];
        self.call(self.keys.clone(), args).await
    }

    /// Reads page by page. An entry that is put meanwhile is on a later page, because its version is higher.
    async fn all_entries(
        &self,
        since: Option<RegisterCursor>,
    ) -> Result<RegisterSnapshot, StoreError> {
        let mut from = since.unwrap_or_default();
        let mut snapshot: Option<RegisterSnapshot> = None;
        for _ in 0..MOST_PAGES {
            let page = match self.page(from, snapshot.is_some()).await? {
                RegisterReply::Entries(page) => page,
                // The register has lost everything between two pages.
                RegisterReply::EpochChanged => {
                    (from, snapshot) = (RegisterCursor::default(), None);
                    continue;
                }
                _ => return Err(unexpected_reply()),
            };
            let EntryPage {
                cursor: mark,
                is_complete: is_whole,
                lost_after,
                page_end,
                entries,
                rejected,
            } = page;
            let all = snapshot.get_or_insert_with(|| RegisterSnapshot {
                is_complete: is_whole,
                lost_after,
                ..RegisterSnapshot::default()
            });
            all.entries.extend(entries);
            all.rejected.extend(rejected);
            all.cursor = mark;
            match page_end {
                Some(version) => from = RegisterCursor { version, ..mark },
                None => return Ok(snapshot.unwrap_or_default()),
            }
        }
        let detail = "entries are put faster than they can be read";
        Err(StoreError::new(StoreErrorKind::Refused, detail))
    }
}

impl Register for RedisRegister {
    fn heartbeat<'a>(
        &'a self,
        heartbeat: &'a Heartbeat,
        life: Nanos,
    ) -> RegisterFuture<'a, MemberList> {
        let args = vec![
            b"beat".to_vec(),
            heartbeat.node.to_string().into_bytes(),
            millis(life.min(LONGEST_LIFE)),
            heartbeat::write(heartbeat).into_bytes(),
            number(MAX_NODES as u64),
            millis(ENTRY_TTL),
        ];
        Box::pin(async move {
            match self.call(self.keys.clone(), args).await? {
                RegisterReply::Members(roll) => Ok(roll),
                RegisterReply::Full => Err(tollgate_store::register::too_many_nodes()),
                _ => Err(unexpected_reply()),
            }
        })
    }

    fn leave(&self, node: NodeId) -> RegisterFuture<'_, ()> {
        let args = vec![b"leave".to_vec(), node.to_string().into_bytes()];
        Box::pin(async move {
            match self.call(self.keys.clone(), args).await? {
                RegisterReply::Left => Ok(()),
                _ => Err(unexpected_reply()),
            }
        })
    }

    fn entries(&self, since: Option<RegisterCursor>) -> RegisterFuture<'_, RegisterSnapshot> {
        Box::pin(self.all_entries(since))
    }

    fn put<'a>(
        &'a self,
        from: NodeId,
        put_number: u64,
        puts: &'a [RegisterPut],
    ) -> RegisterFuture<'a, RegisterCursor> {
        Box::pin(async move {
            validate_puts(puts)?;
            let mut args = vec![
                b"put".to_vec(),
                number(put_number),
                number(MAX_ENTRIES as u64),
                millis(ENTRY_TTL),
                millis(TOMBSTONE_TTL),
            ];
            for put in puts {
                let mode = match put.mode {
                    PutMode::Set => b"set".to_vec(),
                    PutMode::SetIfAbsent => b"absent".to_vec(),
                    PutMode::Remove => b"remove".to_vec(),
                    PutMode::Replace(version) => format!("{version:016}").into_bytes(),
                };
                let expires_in = put.expires_in.map(millis).unwrap_or_default();
                let (name, body) = (put.name.as_bytes(), &*put.body);
                args.extend([mode, expires_in, name.to_vec(), body.to_vec()]);
            }
            let mut keys = self.keys.clone();
            let last = keys.first().map(|first| {
                let tag = first.strip_suffix(b"nodes").unwrap_or(first);
                [tag, b"put:", from.to_string().as_bytes()].concat()
            });
            keys.extend(last);
            match self.call(keys, args).await? {
                RegisterReply::Cursor(mark) => Ok(mark),
                RegisterReply::Full => Err(tollgate_store::register::too_many_entries()),
                _ => Err(unexpected_reply()),
            }
        })
    }
}

fn number(n: u64) -> Vec<u8> {
    n.to_string().into_bytes()
}

/// Whole milliseconds, rounded up, at least 1.
fn millis(span: Nanos) -> Vec<u8> {
    number(span.as_nanos().div_ceil(1_000_000).max(1))
}

fn unexpected_reply() -> StoreError {
    StoreError::new(
        StoreErrorKind::InvalidReply,
        "the reply belongs to another command",
    )
}
