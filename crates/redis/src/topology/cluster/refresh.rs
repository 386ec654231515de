//! Refreshes the slot map in the background: when a node reports a moved slot, when a node seems unreachable, and
//! periodically. Must not know: calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::Value;
use tokio::sync::Notify;

use super::cluster_slots::{self, SlotRange};
use super::cluster_view::ClusterView;
use crate::address::Endpoint;
use crate::pool::{ConnectionPool, Connector};
use crate::task::jittered;

/// How often the map is refreshed without a reason.
const REFRESH_EVERY: Duration = Duration::from_secs(5);
/// The longest pause after the first refresh, and after many that found nothing new: when a fleet loses a node, all of
/// its stores query the other nodes.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// More primaries than any cluster has. A reply with more is invalid.
const MAX_NODES: usize = 1_024;

/// The result of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefreshOutcome {
    /// No node replied.
    NoReply,
    /// The map has not changed.
    Unchanged,
    /// A new map is in use.
    Changed,
}

/// The state that calls and the refresh task share.
#[derive(Debug)]
pub(super) struct ClusterState {
    connector: Connector,
    seeds: Vec<Endpoint>,
    connections: usize,
    view: RwLock<Arc<ClusterView>>,
    refresh_signal: Arc<Notify>,
    /// The node to query first, another one each time: one node may be wrong for a long time.
    next_node: AtomicUsize,
}

impl ClusterState {
    pub(super) fn new(connector: Connector, seeds: Vec<Endpoint>, connections: usize) -> Self {
        Self {
            connector,
            seeds,
            connections,
            view: RwLock::new(Arc::new(ClusterView::empty())),
            refresh_signal: Arc::new(Notify::new()),
            next_node: AtomicUsize::new(0),
        }
    }

    pub(super) fn view(&self) -> Arc<ClusterView> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&view)
    }

    /// Requests a refresh soon.
    pub(super) fn request_refresh(&self) {
        self.refresh_signal.notify_one();
    }

    pub(super) async fn keep_refreshing(self: Arc<Self>) {
        let mut pause = MIN_PAUSE;
        loop {
            let waited = tokio::time::timeout(REFRESH_EVERY, self.refresh_signal.notified()).await;
            let outcome = self.refresh().await;
            if outcome == RefreshOutcome::NoReply {
                self.request_refresh();
            }
            let is_settled = waited.is_err() || outcome == RefreshOutcome::Changed;
            pause = if is_settled {
                MIN_PAUSE
            } else {
                pause.saturating_mul(2).min(MAX_PAUSE)
            };
            tokio::time::sleep(jittered(pause)).await;
        }
    }

    /// Queries the map and puts it in use.
    pub(super) async fn refresh(&self) -> RefreshOutcome {
        let Some(ranges) = self.query_ranges().await else {
            return RefreshOutcome::NoReply;
        };
        let view = self.view();
        if view.matches_ranges(&ranges) {
            return RefreshOutcome::Unchanged;
        }
        let mut pools: Vec<Arc<ConnectionPool>> = Vec::new();
        for range in &ranges {
            if pools.iter().any(|pool| *pool.endpoint() == range.owner) {
                continue;
            }
            // Nodes that stay keep their connections.
            let known = view.find(&range.owner).cloned();
            let pool = known.map_or_else(
                || {
                    let owner = range.owner.clone();
                    ConnectionPool::start(
                        &self.connector,
                        owner,
                        self.connections,
                        &self.refresh_signal,
                    )
                    .map(Arc::new)
                },
                Ok,
            );
            if let Ok(pool) = pool {
                pools.push(pool);
            }
        }
        let next = Arc::new(ClusterView::new(pools, &ranges));
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = next;
        RefreshOutcome::Changed
    }

    async fn query_ranges(&self) -> Option<Vec<SlotRange>> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let first = self.next_node.fetch_add(1, Ordering::Relaxed);
        let view = self.view();
        let pools = view.pools();
        for index in 0..pools.len() {
            let index = first.wrapping_add(index).checked_rem(pools.len())?;
            let pool = pools.get(index)?;
            let reply = pool.query(&command, self.connector.deadline()).await;
            if let Some(ranges) = reply
                .ok()
                .and_then(|reply| parse_usable(&reply, pool.endpoint()))
            {
                return Some(ranges);
            }
        }
        for index in 0..self.seeds.len() {
            let index = first.wrapping_add(index).checked_rem(self.seeds.len())?;
            let seed = self.seeds.get(index)?;
            let querying = async {
                let credentials = self.connector.credentials().await?;
                let connection = self.connector.connect(seed, credentials.as_ref()).await?;
                connection.query(&command).await
            };
            let timeout = self.connector.deadline().saturating_mul(2);
            if let Ok(Ok(reply)) = tokio::time::timeout(timeout, querying).await
                && let Some(ranges) = parse_usable(&reply, seed)
            {
                return Some(ranges);
            }
        }
        None
    }
}

/// A usable map: a node that has not joined a cluster yet has no slots.
fn parse_usable(reply: &Value, by: &Endpoint) -> Option<Vec<SlotRange>> {
    cluster_slots::parse(reply, by).filter(|ranges| (1..=MAX_NODES * 16).contains(&ranges.len()))
}
