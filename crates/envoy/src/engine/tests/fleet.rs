//! Envoy's files over an unavailable store.

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_core::compose::BatchOutcome;
use tollgate_engine::LimitIdAllocator;
use tollgate_fleet::Fleet;
use tollgate_store::{
    IdentifiedLimit, ManualClock, MemoryStore, QuotaCheck, StoreError, StoreErrorKind, StoreKey,
    StoreReply,
};
use tollgate_store::{RemoteStore, StoreFuture};

use crate::config::{self, Descriptor, DescriptorEntry, RlsCode, RlsRequest};
use crate::engine::EnvoyEngine;

/// A store that never answers.
#[derive(Debug)]
struct UnreachableStore;

fn unreachable<'a, T: Send + 'a>() -> StoreFuture<'a, T> {
    let gone = StoreError::new(StoreErrorKind::Unreachable, "gone");
    Box::pin(std::future::ready(Err(gone)))
}

impl RemoteStore for UnreachableStore {
    fn partition_count(&self) -> usize {
        1
    }

    fn partition_of(&self, _: &StoreKey<'_>, _: Option<&StoreKey<'_>>) -> usize {
        0
    }

    fn decide<'a>(
        &'a self,
        _: &'a [Option<StoreKey<'a>>],
        _: &'a [QuotaCheck<'a>],
        _: &'a mut [StoreReply],
    ) -> StoreFuture<'a, BatchOutcome> {
        unreachable()
    }

    fn probe(&self, _: usize) -> StoreFuture<'_, ()> {
        unreachable()
    }

    fn erase<'a>(
        &'a self,
        _: Option<StoreKey<'a>>,
        _: StoreKey<'a>,
        _: &'a IdentifiedLimit,
    ) -> StoreFuture<'a, bool> {
        unreachable()
    }

    fn is_connected(&self) -> bool {
        false
    }
}

/// How many of `asked` requests one of `nodes` nodes admits under a limit of `requests` per hour, without the shared store.
async fn admitted(requests: u32, nodes: u32, asked: usize) -> usize {
    let text = format!(
        "domain: edge
descriptors:
  - key: user
    rate_limit: {{ unit: hour, requests_per_unit: {requests} }}
"
    );
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let store = MemoryStore::with_clock(1_000, clock).unwrap();
    let fleet = Fleet::new(Arc::new(UnreachableStore), store.now());
    fleet.set_nodes(nodes);
    let policy = config::load(&[("edge.yaml", &text)]).unwrap();
    let engine = EnvoyEngine::new(policy, [7; 16], store, &LimitIdAllocator::default()).unwrap();
    let entries = [DescriptorEntry::new("user", "alice")];
    let descriptors = [Descriptor::new(&entries)];
    let request = RlsRequest::new("edge", &descriptors);
    let mut admitted = 0;
    for _ in 0..asked {
        let verdict = engine.decide_shared(&fleet, &request, |verdict| verdict.reply.overall);
        admitted += usize::from(verdict.await.unwrap() == RlsCode::Ok);
    }
    admitted
}

/// Found in review: a counter's last unit is one too many, so a share of one unit admitted no request.
#[tokio::test]
async fn a_share_of_envoys_limit_admits_what_it_says_and_at_least_one() {
    assert_eq!(admitted(100, 1, 1_000).await, 50);
    assert_eq!(admitted(100, 5, 1_000).await, 10);
    assert_eq!(admitted(10, 6, 1_000).await, 1);
    assert_eq!(admitted(1, 50, 1_000).await, 1);
    assert_eq!(
        admitted(0, 1, 1_000).await,
        0,
        "the share of a limit of zero is zero"
    );
}
