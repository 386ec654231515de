//! The store as an engine's fleet sees it: which of its parts may be away by themselves, and whether one is back.
//!
//! Of a cluster the parts are ranges of slots, so that a node that is gone takes its own slots along and no others; of
//! several servers each is one. Must not know: what is decided while a part is away.

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

/// Into how many ranges a cluster's slots are divided.
const RANGES: u16 = 64;
/// How many keys are tried until one is found that lies in a range. A range without one would be a wonder.
const TRIES: u32 = 4_096;
/// Nobody else's key begins like this: those of policies begin with a small number, and those of commands with a word.
const PROBE: &[u8] = b"\xffprobe";

/// A state that exists to be asked for. It is spent from, because a server that cannot write is of no use.
static PROBED: LazyLock<Option<IdentifiedLimit>> = LazyLock::new(|| {
    let bucket = TokenBucket::builder(Rate::per_second(1_000)).build().ok()?;
    Some(IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit: bucket.into(),
    })
});

/// Keys of which one lies in each part.
#[derive(Debug)]
pub(crate) struct ProbeKeys {
    keys: Vec<Vec<u8>>,
}

impl ProbeKeys {
    /// Finds a key for each part.
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
    /// How many parts there are that may be away by themselves.
    pub(crate) fn partition_count(&self) -> usize {
        match self {
            Self::Single(_) | Self::Sentinel(_) => 1,
            Self::Cluster(_) => usize::from(RANGES),
            Self::Shards(_) => self.links().len().max(1),
        }
    }

    /// Which of them has this place.
    pub(crate) fn partition_of(&self, place: HashSlot) -> usize {
        match self {
            Self::Single(_) | Self::Sentinel(_) => 0,
            Self::Cluster(_) => usize::from(place.number() / (SLOTS / RANGES)),
            Self::Shards(_) => usize::from(place.number()),
        }
    }
}

/// How many slots a cluster has.
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
            let unknown = || StoreError::new(StoreErrorKind::BadRequest, "there is no such part");
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
