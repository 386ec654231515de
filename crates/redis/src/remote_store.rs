//! The [`RemoteStore`] of Redis: partitions that fail independently, and probes for them.
//!
//! The partitions of a cluster are ranges of slots, so that a lost node affects only the partitions of its own slots.
//! With several servers each is one partition. Must not know: what is decided while a partition is down.

use std::num::NonZeroU16;
use std::sync::LazyLock;

use tollgate_core::compose::BatchOutcome;
use tollgate_core::{Rate, TokenBucket};
use tollgate_store::{
    IdentifiedLimit, LimitId, Op, QuotaCheck, RemoteStore, StoreError, StoreErrorKind, StoreFuture,
    StoreKey, StoreReply,
};

use crate::key_name::{KeyHashSecret, KeyName, ledger_name};
use crate::script::ScriptKind;
use crate::store::RedisStore;
use crate::topology::{HashSlot, Topology};
use crate::wire::ScriptCall;

/// Number of slot ranges of a cluster.
const RANGES: u16 = 64;
/// How many keys are tried to find one in each range. A range without one is very unlikely.
const TRIES: u32 = 4_096;
/// A prefix that no other key has: keys of policies begin with a small number, keys of commands with a word.
const PROBE: &[u8] = b"\xffprobe";

/// The limit of probes. A probe spends, because a server that cannot write is unusable.
static PROBED: LazyLock<Option<IdentifiedLimit>> = LazyLock::new(|| {
    let bucket = TokenBucket::builder(Rate::per_second(1_000)).build().ok()?;
    Some(IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit: bucket.into(),
    })
});

/// One key in each partition.
#[derive(Debug)]
pub(crate) struct ProbeKeys {
    keys: Vec<Vec<u8>>,
}

impl ProbeKeys {
    /// Finds a key in each partition.
    pub(crate) fn find(secret: KeyHashSecret, topology: &Topology) -> Self {
        let key_in = |partition: usize| {
            let candidates = (0..TRIES).map(|n| [PROBE, &n.to_be_bytes()].concat());
            let is_in_partition = |key: &Vec<u8>| {
                let key = StoreKey::new(key).ok();
                let key_name = key.map(|key| KeyName::new(secret, &key, None));
                key_name.is_some_and(|key_name| {
                    topology.partition_of(topology.slot_of(key_name.tag())) == partition
                })
            };
            candidates
                .clone()
                .find(is_in_partition)
                .or_else(|| candidates.clone().next())
        };
        Self {
            keys: (0..topology.partition_count()).filter_map(key_in).collect(),
        }
    }
}

impl Topology {
    /// The number of partitions that fail independently.
    pub(crate) fn partition_count(&self) -> usize {
        match self {
            Self::Single(_) | Self::Sentinel(_) => 1,
            Self::Cluster(_) => usize::from(RANGES),
            Self::Shards(_) => self.pools().len().max(1),
        }
    }

    /// The partition of this slot.
    pub(crate) fn partition_of(&self, slot: HashSlot) -> usize {
        match self {
            Self::Single(_) | Self::Sentinel(_) => 0,
            Self::Cluster(_) => usize::from(slot.number() / (SLOTS / RANGES)),
            Self::Shards(_) => usize::from(slot.number()),
        }
    }
}

/// Number of slots of a cluster.
const SLOTS: u16 = 16_384;

impl RemoteStore for RedisStore {
    fn partition_count(&self) -> usize {
        self.topology().partition_count()
    }

    fn partition_of(&self, key: &StoreKey<'_>, tag: Option<&StoreKey<'_>>) -> usize {
        let topology = self.topology();
        // Nothing is hashed where there is no choice.
        if topology.partition_count() == 1 {
            return 0;
        }
        let key_name = KeyName::new(self.secret(), key, tag);
        topology.partition_of(topology.slot_of(key_name.tag()))
    }

    fn decide<'a>(
        &'a self,
        tags: &'a [Option<StoreKey<'a>>],
        checks: &'a [QuotaCheck<'a>],
        answers: &'a mut [StoreReply],
    ) -> StoreFuture<'a, BatchOutcome> {
        Box::pin(self.decide_tagged(tags, checks, answers))
    }

    fn probe(&self, partition: usize) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let unknown = || StoreError::new(StoreErrorKind::BadRequest, "no such partition");
            let key = self.probe_keys().keys.get(partition).ok_or_else(unknown)?;
            let check = QuotaCheck {
                key: StoreKey::new(key).map_err(|_too_long| unknown())?,
                limit: PROBED.as_ref().ok_or_else(unknown)?,
                op: Op::Spend(1),
            };
            let _one_of_a_thousand = self.decide(&[check], &mut [StoreReply::EMPTY]).await?;
            Ok(())
        })
    }

    fn erase<'a>(
        &'a self,
        tag: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let key_name = KeyName::new(self.secret(), &key, tag.as_ref());
            let name = key_name.name(limit.id);
            let ledger = ledger_name(&name);
            let leased_bucket = key_name.leased_bucket_name(limit.id);
            let call = ScriptCall::for_script(ScriptKind::Erase, &[name, ledger, leased_bucket]);
            self.call_for_count(key_name, &call)
                .await
                .map(|found| found > 0)
        })
    }

    fn is_connected(&self) -> bool {
        Self::is_connected(self)
    }

    fn waiting_calls(&self) -> usize {
        Self::waiting_calls(self)
    }
}
