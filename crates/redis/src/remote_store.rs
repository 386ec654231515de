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

use crate::key_name::{KeyHashSecret, KeyName, leased_bucket_name, ledger_name};
use crate::script::Which;
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
        let key_in = |part: usize| {
            let candidates = (0..TRIES).map(|n| [PROBE, &n.to_be_bytes()].concat());
            let lies = |key: &Vec<u8>| {
                let key = StoreKey::new(key).ok();
                let named = key.map(|key| KeyName::new(secret, &key, None));
                named.is_some_and(|named| {
                    topology.partition_of(topology.slot_of(named.tag())) == part
                })
            };
            candidates
                .clone()
                .find(lies)
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
            Self::Shards(_) => self.links().len().max(1),
        }
    }

    /// The partition of this slot.
    pub(crate) fn partition_of(&self, place: HashSlot) -> usize {
        match self {
            Self::Single(_) | Self::Sentinel(_) => 0,
            Self::Cluster(_) => usize::from(place.number() / (SLOTS / RANGES)),
            Self::Shards(_) => usize::from(place.number()),
        }
    }
}

/// Number of slots of a cluster.
const SLOTS: u16 = 16_384;

impl RemoteStore for RedisStore {
    fn partition_count(&self) -> usize {
        self.topology().partition_count()
    }

    fn partition_of(&self, key: &StoreKey<'_>, place: Option<&StoreKey<'_>>) -> usize {
        let topology = self.topology();
        let named = KeyName::new(self.secret(), key, place);
        topology.partition_of(topology.slot_of(named.tag()))
    }

    fn decide<'a>(
        &'a self,
        places: &'a [Option<StoreKey<'a>>],
        checks: &'a [QuotaCheck<'a>],
        answers: &'a mut [StoreReply],
    ) -> StoreFuture<'a, BatchOutcome> {
        Box::pin(self.decide_tagged(places, checks, answers))
    }

    fn probe(&self, part: usize) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let unknown = || StoreError::new(StoreErrorKind::BadRequest, "no such partition");
            let key = self.probe_keys().keys.get(part).ok_or_else(unknown)?;
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
        place: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        ruled: &'a IdentifiedLimit,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let named = KeyName::new(self.secret(), &key, place.as_ref());
            let name = named.name(ruled.id);
            let (ledger, book) = (ledger_name(&name), leased_bucket_name(&name));
            let request = ScriptCall::for_script(Which::Erase, named, &[name, ledger, book]);
            self.call_for_count(named, &request)
                .await
                .map(|found| found > 0)
        })
    }

    fn is_connected(&self) -> bool {
        Self::is_connected(self)
    }
}
