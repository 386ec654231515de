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
/// How often a call pauses because the nodes have not settled who serves it: after `TRYAGAIN`, and after every `MOVED` but
/// the first. All pauses together take one to two seconds, in which every node has sent a message to another.
const MAX_PAUSES: u32 = 10;
/// The longest first pause. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

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
        let (mut mode, mut hops, mut is_moved, mut pauses) = (CallMode::Plain, 1, false, 0);
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
                RoutingHint::Moved(to) => {
                    let mut owner = self.moved(slot, to, &pool);
                    // One `MOVED` corrects our map. A second one means that the nodes disagree: at the end of a migration
                    // each may name the other until they have exchanged messages.
                    if is_moved && owner.is_some() {
                        hops -= 1;
                        if !pause(&mut pauses, deadline.until()).await {
                            owner = None;
                        }
                    }
                    is_moved = true;
                    owner.map(|pool| (pool, CallMode::Plain))
                }
                RoutingHint::Ask(to) => self.find(to, &pool).map(|pool| (pool, CallMode::Asking)),
                RoutingHint::TryAgain => {
                    let is_late = !pause(&mut pauses, deadline.until()).await;
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

/// Pauses if another pause is allowed and leaves the next call as much time. Returns false otherwise.
async fn pause(pauses: &mut u32, until: Instant) -> bool {
    let longest = FIRST_PAUSE.saturating_mul(1 << *pauses);
    let pause = longest / 2 + jittered(longest / 2);
    let wake = Instant::now() + pause;
    if *pauses >= MAX_PAUSES || wake + pause > until {
        return false;
    }
    *pauses += 1;
    tokio::time::sleep_until(wake).await;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many pauses a call with this deadline makes, and the time that is left after the last one.
    async fn pause_until(deadline: Duration) -> (u32, Duration) {
        let (mut pauses, until) = (0, Instant::now() + deadline);
        while pause(&mut pauses, until).await {}
        (pauses, until - Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn s_18_pauses_double_and_leave_the_last_call_time_for_its_reply() {
        let (pauses, left) = pause_until(Duration::from_secs(20)).await;
        assert_eq!(pauses, MAX_PAUSES);
        assert!(left > Duration::from_secs(17), "{left:?}");
        for deadline in [5, 15, 100].map(Duration::from_millis) {
            let (pauses, left) = pause_until(deadline).await;
            assert!((1..MAX_PAUSES).contains(&pauses), "{pauses}");
            let last = FIRST_PAUSE * (1 << (pauses - 1)) / 2;
            // Timers count in milliseconds and end up to one too late.
            assert!(
                left + Duration::from_millis(1) >= last,
                "{left:?} after pauses of at least {last:?}"
            );
        }
        assert_eq!(pause_until(Duration::from_millis(1)).await.0, 0);
    }
}
