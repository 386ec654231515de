//! The register of a fleet over Redis: who is there and what its operators have said, in one place that every node finds.
//!
//! One script does all of it, on the server's clock. Everything lies under one tag: in a cluster in one slot, of several
//! independent servers on the one that the fleet's name draws. The name is not made of the secret, so that nodes with
//! different secrets see each other. Must not know: what entries say, connections.

mod beat;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;
use tollgate_core::Nanos;
use tollgate_store::register::{
    Beat, FleetName, GONE_FOR, How, KEPT_FOR, Later, MOST_ENTRIES, MOST_NODES, Mark, NodeId,
    Register, RegisterPut, RegisterSnapshot, Roll, check_changes,
};
use tollgate_store::{ErrorKind, StoreError};

use self::reply::{Page, Reply};
use crate::store::{RedisStore, Shared};
use crate::topology::Place;
use crate::wire::ScriptCall;

/// The most entries in one reply.
const PAGE: usize = 256;
/// The most replies that one question takes: as many as there can be entries, and some that were put meanwhile.
const MOST_PAGES: usize = 2 * MOST_ENTRIES / PAGE;
/// The longest that a node can be said to live without being heard of: as in the script.
const LONGEST_LIFE: Nanos = Nanos::from_secs(60);
/// The longest that one call may take. No decision waits for it.
const DEADLINE: Duration = Duration::from_millis(500);

/// A fleet's register in Redis or Valkey, over the connections of a store.
#[derive(Clone, Debug)]
pub struct RedisRegister {
    shared: Arc<Shared>,
    place: Place,
    keys: Vec<Vec<u8>>,
    deadline: Duration,
}

impl RedisRegister {
    /// The register of this fleet, on the servers of this store.
    #[must_use]
    pub fn of(store: &RedisStore, fleet: &FleetName) -> Self {
        let shared = Arc::clone(store.shared());
        // A colon is in no digest, so no key of a caller lies under this tag.
        let tag = format!("fleet:{fleet}");
        let parts = ["nodes", "lives", "mark", "said", "order", "ends", "marks"];
        let named = |part| format!("tg1:{{{tag}}}:{part}").into_bytes();
        Self {
            place: shared.topology().place_of_name(tag.as_bytes()),
            keys: parts.map(named).into(),
            shared,
            deadline: DEADLINE,
        }
    }

    /// The same, whose calls may take this long.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    async fn call(&self, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>>) -> Result<Reply, StoreError> {
        let request = ScriptCall::of_register(keys, args);
        let until = Instant::now() + self.deadline;
        let topology = self.shared.topology();
        let reply: Value = topology.call(self.place, &request, until).await?;
        Reply::read(reply).ok_or_else(|| {
            topology.distrust(self.place, &request);
            StoreError::new(ErrorKind::Garbled, "the reply is not one of a register")
        })
    }

    async fn page(&self, from: Mark, goes_on: bool) -> Result<Reply, StoreError> {
        let args = vec![
            b"entries".to_vec(),
            number(from.epoch),
            number(from.version),
            number(goes_on.into()),
            number(PAGE as u64),
        ];
        self.call(self.keys.clone(), args).await
    }

    /// Page by page: what is put meanwhile comes on a later one, since its version is higher.
    async fn all_entries(&self, since: Option<Mark>) -> Result<RegisterSnapshot, StoreError> {
        let mut from = since.unwrap_or_default();
        let mut said: Option<RegisterSnapshot> = None;
        for _ in 0..MOST_PAGES {
            let page = match self.page(from, said.is_some()).await? {
                Reply::Said(page) => page,
                // It has lost everything between two pages.
                Reply::Other => {
                    (from, said) = (Mark::default(), None);
                    continue;
                }
                _ => return Err(misplaced()),
            };
            let Page {
                mark,
                is_whole,
                lost_after,
                has_more,
                entries,
            } = page;
            let last = entries.last().map(|entry| entry.version);
            let all = said.get_or_insert_with(|| RegisterSnapshot {
                is_whole,
                lost_after,
                ..RegisterSnapshot::default()
            });
            all.entries.extend(entries);
            all.mark = mark;
            match last.filter(|_| has_more) {
                Some(version) => from = Mark { version, ..mark },
                None => return Ok(said.unwrap_or_default()),
            }
        }
        let detail = "entries are put faster than they can be read";
        Err(StoreError::new(ErrorKind::Refused, detail))
    }
}

impl Register for RedisRegister {
    fn beat<'a>(&'a self, beat: &'a Beat, life: Nanos) -> Later<'a, Roll> {
        let args = vec![
            b"beat".to_vec(),
            beat.node.to_string().into_bytes(),
            millis(life.min(LONGEST_LIFE)),
            beat::write(beat).into_bytes(),
            number(MOST_NODES as u64),
            millis(KEPT_FOR),
        ];
        Box::pin(async move {
            match self.call(self.keys.clone(), args).await? {
                Reply::Roll(roll) => Ok(roll),
                Reply::Full => Err(tollgate_store::register::too_many_nodes()),
                _ => Err(misplaced()),
            }
        })
    }

    fn leave(&self, node: NodeId) -> Later<'_, ()> {
        let args = vec![b"leave".to_vec(), node.to_string().into_bytes()];
        Box::pin(async move {
            match self.call(self.keys.clone(), args).await? {
                Reply::Left => Ok(()),
                _ => Err(misplaced()),
            }
        })
    }

    fn entries(&self, since: Option<Mark>) -> Later<'_, RegisterSnapshot> {
        Box::pin(self.all_entries(since))
    }

    fn put<'a>(&'a self, from: NodeId, act: u64, changes: &'a [RegisterPut]) -> Later<'a, Mark> {
        Box::pin(async move {
            check_changes(changes)?;
            let mut args = vec![
                b"put".to_vec(),
                number(act),
                number(MOST_ENTRIES as u64),
                millis(KEPT_FOR),
                millis(GONE_FOR),
            ];
            for change in changes {
                let how: &[u8] = match change.how {
                    How::Set => b"set",
                    How::SetIfAbsent => b"absent",
                    How::Remove => b"remove",
                };
                let left = change.left.map(millis).unwrap_or_default();
                let (name, body) = (change.name.as_bytes(), &*change.body);
                args.extend([how.to_vec(), left, name.to_vec(), body.to_vec()]);
            }
            let mut keys = self.keys.clone();
            let last = keys.first().map(|first| {
                let tag = first.strip_suffix(b"nodes").unwrap_or(first);
                [tag, b"put:", from.to_string().as_bytes()].concat()
            });
            keys.extend(last);
            match self.call(keys, args).await? {
                Reply::Mark(mark) => Ok(mark),
                Reply::Full => Err(tollgate_store::register::too_many_entries()),
                _ => Err(misplaced()),
            }
        })
    }
}

fn number(n: u64) -> Vec<u8> {
    n.to_string().into_bytes()
}

/// Whole milliseconds, rounded up: what holds for a moment holds.
fn millis(span: Nanos) -> Vec<u8> {
    number(span.as_nanos().div_ceil(1_000_000).max(1))
}

fn misplaced() -> StoreError {
    StoreError::new(ErrorKind::Garbled, "the reply belongs to another question")
}
