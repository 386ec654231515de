//! Panics of the membership task.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_engine::control::{RegisterChanges, SyncOutcome, WakeCallback};
use tollgate_store::register::{NodeUsage, RegisterSnapshot};
use tollgate_testkit::register::ModelRegister;

use super::{Member, TestService, advance, service};
use crate::fleet::membership::{LocalNode, NodeTotals};

/// A node whose `policy` panics a number of times.
struct PanickingNode {
    service: Arc<TestService>,
    panics_left: AtomicU64,
}

impl LocalNode for PanickingNode {
    fn policy(&self) -> u64 {
        let left = self
            .panics_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        assert!(left.is_err(), "a bug");
        LocalNode::policy(&*self.service)
    }

    fn generation(&self) -> u64 {
        LocalNode::generation(&*self.service)
    }

    fn totals(&self) -> NodeTotals {
        self.service.totals()
    }

    fn usage(&self, most: usize) -> NodeUsage {
        LocalNode::usage(&*self.service, most)
    }

    fn set_peer_usage(&self, own: &NodeUsage, peers: &[&NodeUsage], ttl: Nanos) {
        LocalNode::set_peer_usage(&*self.service, own, peers, ttl);
    }

    fn set_fleet_size(&self, nodes: NonZeroU32) {
        self.service.set_fleet_size(nodes);
    }

    fn start_sharing(&self, wake: WakeCallback) {
        self.service.start_sharing(wake);
    }

    fn pending_changes(&self) -> RegisterChanges {
        self.service.pending_changes()
    }

    fn confirm_changes(&self, put: &RegisterChanges) {
        self.service.confirm_changes(put);
    }

    fn discard_changes(&self, put: &RegisterChanges) {
        self.service.discard_changes(put);
    }

    fn resend_changes(&self, lost_after: Option<u64>) {
        self.service.resend_changes(lost_after);
    }

    fn apply_snapshot(&self, snapshot: &RegisterSnapshot) -> SyncOutcome {
        self.service.apply_snapshot(snapshot)
    }

    fn pending_counts(&self) -> (usize, u64) {
        self.service.pending_counts()
    }
}

#[tokio::test(start_paused = true)]
async fn i13_a_panic_of_the_task_is_counted_and_the_task_is_restarted() {
    let register = Arc::new(ModelRegister::default());
    let service = service();
    let panics_left = AtomicU64::new(2);
    let node = Arc::new(PanickingNode {
        service: Arc::clone(&service),
        panics_left,
    });
    let member = Member::start_as(&register, service, node, "the secret of this fleet");
    member.membership.wait_until_synced().await;
    advance(&register, Duration::from_secs(10)).await;
    assert_eq!((member.membership.panics(), member.visible_nodes()), (2, 1));
}
