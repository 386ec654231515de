//! What the membership task needs from the local node: its policy, its totals, and its operators' changes.
//!
//! Must not know: registers, heartbeats.

use std::hash::Hasher as _;
use std::num::NonZeroU32;

use siphasher::sip::SipHasher24;
use tollgate_core::Nanos;
use tollgate_engine::control::{RegisterChanges, SyncOutcome, WakeCallback};
use tollgate_store::Clock;
use tollgate_store::register::{NodeUsage, RegisterSnapshot};

use crate::metrics::{RequestOutcome, Transport};
use crate::service::RateLimitService;

/// The local node, as the membership task sees it.
pub trait LocalNode: Send + Sync {
    /// A digest of the current policy: the same on nodes that share a secret and a policy.
    fn policy(&self) -> u64;

    /// The generation of the current policy.
    fn generation(&self) -> u64;

    /// The node's request totals.
    fn totals(&self) -> NodeTotals;

    /// How much its targets do: at most so many of them.
    fn usage(&self, most: usize) -> NodeUsage;

    /// Takes what its peers reported, and what it reported to them. It counts for this long.
    fn set_peer_usage(&self, own: &NodeUsage, peers: &[&NodeUsage], ttl: Nanos);

    /// Sets the number of nodes that share the limits.
    fn set_fleet_size(&self, nodes: NonZeroU32);

    /// Starts recording operators' changes for the register. `wake` is called whenever a change is pending.
    fn start_sharing(&self, wake: WakeCallback);

    /// The next batch of operators' changes to push.
    fn pending_changes(&self) -> RegisterChanges;

    /// The register has stored the batch.
    fn confirm_changes(&self, put: &RegisterChanges);

    /// The register has rejected the batch for good.
    fn discard_changes(&self, put: &RegisterChanges);

    /// Makes changes pending again that the register lost: all, or those after a version.
    fn resend_changes(&self, lost_after: Option<u64>);

    /// Applies the changes of other nodes.
    fn apply_snapshot(&self, snapshot: &RegisterSnapshot) -> SyncOutcome;

    /// The number of pending changes, and of changes that were discarded for good.
    fn pending_counts(&self) -> (usize, u64);
}

/// Request totals of a server since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NodeTotals {
    /// Requests that wait now.
    pub in_flight: u64,
    /// Requests admitted, including those that waited.
    pub admitted: u64,
    /// Requests denied.
    pub denied: u64,
    /// Requests refused because the wait queue was full.
    pub shed: u64,
}

impl<C: Clock + 'static> LocalNode for RateLimitService<C> {
    fn policy(&self) -> u64 {
        if let Some(reloader) = self.reloader() {
            return reloader.status().hash.short();
        }
        // The explanation covers the whole policy. A policy that is not from a file is short.
        let mut hasher = SipHasher24::new_with_key(&self.secret().bytes());
        hasher.write(format!("{:?}", self.explanation().explanation).as_bytes());
        hasher.finish()
    }

    fn generation(&self) -> u64 {
        self.engine().generation().number()
    }

    fn totals(&self) -> NodeTotals {
        let metrics = self.metrics();
        let sum = |which: &[RequestOutcome]| {
            let each = Transport::ALL.iter().flat_map(|transport| {
                which
                    .iter()
                    .map(|one| metrics.outcome_count(*transport, *one))
            });
            each.fold(0, u64::saturating_add)
        };
        NodeTotals {
            in_flight: self.saturation().waiting() as u64,
            admitted: sum(&[RequestOutcome::Allowed, RequestOutcome::Waited]),
            denied: sum(&[RequestOutcome::Denied]),
            shed: self.saturation().refused(),
        }
    }

    fn usage(&self, most: usize) -> NodeUsage {
        self.overload_usage(most)
    }

    fn set_peer_usage(&self, own: &NodeUsage, peers: &[&NodeUsage], ttl: Nanos) {
        self.set_overload_peers(own, peers, ttl);
    }

    fn set_fleet_size(&self, nodes: NonZeroU32) {
        if let Some(fleet) = self.fleet() {
            fleet.set_nodes(nodes.get());
        }
    }

    fn start_sharing(&self, wake: WakeCallback) {
        self.engine().control().start_sharing(wake);
    }

    fn pending_changes(&self) -> RegisterChanges {
        self.engine().control().next_changes()
    }

    fn confirm_changes(&self, put: &RegisterChanges) {
        self.engine().control().mark_published(put);
    }

    fn discard_changes(&self, put: &RegisterChanges) {
        self.engine().control().discard_changes(put);
    }

    fn resend_changes(&self, lost_after: Option<u64>) {
        self.engine().control().republish(lost_after);
    }

    fn apply_snapshot(&self, snapshot: &RegisterSnapshot) -> SyncOutcome {
        self.engine().control().apply_register(snapshot)
    }

    fn pending_counts(&self) -> (usize, u64) {
        let control = self.engine().control();
        (control.pending_count(), control.dropped_count())
    }
}
