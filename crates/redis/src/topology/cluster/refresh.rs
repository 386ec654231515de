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
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// More primaries than any cluster has. A reply with more is invalid.
const MOST_NODES: usize = 1_024;

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
    dial: Connector,
    seeds: Vec<Endpoint>,
    connections: usize,
    view: RwLock<Arc<ClusterView>>,
    alarm: Arc<Notify>,
    /// The node to query first, another one each time: one node may be wrong for a long time.
    next_node: AtomicUsize,
}

impl ClusterState {
    pub(super) fn new(dial: Connector, seeds: Vec<Endpoint>, connections: usize) -> Self {
        Self {
            dial,
            seeds,
            connections,
            view: RwLock::new(Arc::new(ClusterView::empty())),
            alarm: Arc::new(Notify::new()),
            next_node: AtomicUsize::new(0),
        }
    }

    pub(super) fn view(&self) -> Arc<ClusterView> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&view)
    }

    /// Requests a refresh soon.
    pub(super) fn alarm(&self) {
        self.alarm.notify_one();
    }

    pub(super) async fn keep_refreshing(self: Arc<Self>) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let waited = tokio::time::timeout(REFRESH_EVERY, self.alarm.notified()).await;
            let found = self.refresh().await;
            if found == RefreshOutcome::NoReply {
                self.alarm();
            }
            let is_calm = waited.is_err() || found == RefreshOutcome::Changed;
            pause = if is_calm {
                SHORTEST_PAUSE
            } else {
                pause.saturating_mul(2).min(LONGEST_PAUSE)
            };
            tokio::time::sleep(jittered(pause)).await;
        }
    }

    /// Queries the map and puts it in use.
    pub(super) async fn refresh(&self) -> RefreshOutcome {
        let Some(ranges) = self.ask().await else {
            return RefreshOutcome::NoReply;
        };
        let view = self.view();
        if view.matches_ranges(&ranges) {
            return RefreshOutcome::Unchanged;
        }
        let mut links: Vec<Arc<ConnectionPool>> = Vec::new();
        for range in &ranges {
            if links.iter().any(|link| *link.endpoint() == range.owner) {
                continue;
            }
            // Nodes that stay keep their connections.
            let known = view.find(&range.owner).cloned();
            let link = known.map_or_else(
                || {
                    let owner = range.owner.clone();
                    ConnectionPool::start(&self.dial, owner, self.connections, &self.alarm)
                        .map(Arc::new)
                },
                Ok,
            );
            if let Ok(link) = link {
                links.push(link);
            }
        }
        let next = Arc::new(ClusterView::new(links, &ranges));
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = next;
        RefreshOutcome::Changed
    }

    async fn ask(&self) -> Option<Vec<SlotRange>> {
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let turn = self.next_node.fetch_add(1, Ordering::Relaxed);
        let view = self.view();
        let links = view.links();
        for index in 0..links.len() {
            let index = turn.wrapping_add(index).checked_rem(links.len())?;
            let link = links.get(index)?;
            let reply = link.query(&question, self.dial.deadline()).await;
            if let Some(ranges) = reply
                .ok()
                .and_then(|reply| accepted(&reply, link.endpoint()))
            {
                return Some(ranges);
            }
        }
        for index in 0..self.seeds.len() {
            let index = turn.wrapping_add(index).checked_rem(self.seeds.len())?;
            let seed = self.seeds.get(index)?;
            let asking = async {
                let credentials = self.dial.credentials().await?;
                let mut connection = self.dial.connect(seed, credentials.as_ref()).await?;
                question.query_async::<Value>(&mut connection).await
            };
            let patience = self.dial.deadline().saturating_mul(2);
            if let Ok(Ok(reply)) = tokio::time::timeout(patience, asking).await
                && let Some(ranges) = accepted(&reply, seed)
            {
                return Some(ranges);
            }
        }
        None
    }
}

/// A usable map: a node that has not joined a cluster yet has no slots.
fn accepted(reply: &Value, by: &Endpoint) -> Option<Vec<SlotRange>> {
    cluster_slots::parse(reply, by).filter(|ranges| (1..=MOST_NODES * 16).contains(&ranges.len()))
}
