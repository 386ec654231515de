//! A cluster: every slot has a primary, and each call goes to the primary of its key's slot.
//!
//! The client library's own cluster connection is not used, because it repeats calls whose connection broke, and those
//! may have charged. Here a call goes to another node only after a node has replied that it did not run it. Must not
//! know: what is in a call.

mod cluster_slots;
mod cluster_view;
mod refresh;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_store::{StoreError, StoreErrorKind};

use self::refresh::{ClusterState, RefreshOutcome};
use crate::address::Endpoint;
use crate::call_failure::RoutingHint;
use crate::pool::{CallDeadline, CallMode, ConnectionPool, Connector};
use crate::task::{SupervisedTask, jittered};
use crate::wire::{ScriptCall, ServerReply};

/// The largest number of nodes that one call is sent to. Each node but the last has replied that it did not run it.
const MAX_HOPS: u32 = 5;
/// How often a call is repeated after `TRYAGAIN`.
const MAX_RETRIES: u32 = 3;
/// The longest pause before such a repetition.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// The nodes of the cluster, and the task that refreshes the slot map.
#[derive(Debug)]
pub(crate) struct Cluster {
    state: Arc<ClusterState>,
    _refresher: SupervisedTask,
}

impl Cluster {
    pub(super) async fn open(
        connector: Connector,
        seeds: Vec<Endpoint>,
        connections: usize,
    ) -> Result<Self, StoreError> {
        let state = Arc::new(ClusterState::new(connector, seeds, connections));
        // Without a reply the store exists anyway, and the task keeps asking.
        if state.refresh().await != RefreshOutcome::NoReply {
            for pool in state.view().pools() {
                pool.wait_for_first_attempt().await;
            }
        }
        let refreshing = Arc::clone(&state);
        let refresher = SupervisedTask::start(move || Arc::clone(&refreshing).keep_refreshing())?;
        Ok(Self {
            state,
            _refresher: refresher,
        })
    }

    pub(super) fn pools(&self) -> Vec<Arc<ConnectionPool>> {
        self.state.view().pools().to_vec()
    }

    pub(super) fn owner(&self, slot: u16) -> Option<Arc<ConnectionPool>> {
        self.state.view().owner(slot).cloned()
    }

    pub(super) async fn call(
        &self,
        slot: u16,
        request: &ScriptCall,
        deadline: &mut CallDeadline,
    ) -> Result<ServerReply, StoreError> {
        let Some(mut pool) = self.owner(slot) else {
            self.state.request_refresh();
            let detail = "no known node of the cluster owns the slot";
            return Err(StoreError::new(StoreErrorKind::Unreachable, detail));
        };
        let (mut mode, mut hops, mut retries) = (CallMode::Plain, 1, 0);
        loop {
            let failure = match pool.call(request, mode, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let next = match &failure.hint {
                RoutingHint::None => None,
                RoutingHint::FindServer => {
                    self.state.request_refresh();
                    None
                }
                RoutingHint::Moved(to) => self
                    .moved(slot, to, &pool)
                    .map(|pool| (pool, CallMode::Plain)),
                RoutingHint::Ask(to) => self.find(to, &pool).map(|pool| (pool, CallMode::Asking)),
                RoutingHint::TryAgain => {
                    retries += 1;
                    let is_late = !wait_before_retry(retries, deadline.until()).await;
                    // Start over: the keys may be together on another node by now.
                    let owner = self.owner(slot).filter(|_| !is_late);
                    hops -= 1;
                    owner.map(|pool| (pool, CallMode::Plain))
                }
            };
            let Some(next) = next.filter(|_| hops < MAX_HOPS) else {
                return Err(failure.error);
            };
            (pool, mode) = next;
            hops += 1;
        }
    }

    /// The new owner of the slot. Later calls of other requests go there too.
    fn moved(&self, slot: u16, to: &str, from: &ConnectionPool) -> Option<Arc<ConnectionPool>> {
        // If one slot has moved, others may have moved too.
        self.state.request_refresh();
        let pool = self.find(to, from)?;
        self.state.view().assign(slot, pool.endpoint());
        Some(pool)
    }

    /// The pool of a node. An unknown node is found in the background; until then there is none.
    fn find(&self, to: &str, from: &ConnectionPool) -> Option<Arc<ConnectionPool>> {
        let endpoint = Endpoint::parse_from(to, from.endpoint())?;
        let pool = self.state.view().find(&endpoint).cloned();
        if pool.is_none() {
            self.state.request_refresh();
        }
        pool
    }
}

/// Waits briefly if another attempt is allowed and there is time. Returns false otherwise.
async fn wait_before_retry(retries: u32, until: Instant) -> bool {
    let wake = Instant::now() + RETRY_PAUSE / 2 + jittered(RETRY_PAUSE / 2);
    if retries > MAX_RETRIES || wake >= until {
        return false;
    }
    tokio::time::sleep_until(wake).await;
    true
}
