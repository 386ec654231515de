//! What a node of a fleet has to offer: what is in force on it, what it has to do, what its operators say.
//!
//! Must not know: registers, beats.

use std::hash::Hasher as _;
use std::num::NonZeroU32;

use siphasher::sip::SipHasher24;
use tollgate_engine::control::{RegisterChanges, SyncOutcome, WakeCallback};
use tollgate_store::Clock;
use tollgate_store::register::RegisterSnapshot;

use crate::metrics::{RequestOutcome, Transport};
use crate::service::RateLimitService;

/// A server, as its place in a fleet sees it.
pub trait LocalNode: Send + Sync {
    /// A digest of the policy in force: the same on nodes that share a secret and have the same policy.
    fn policy(&self) -> u64;

    /// How often a policy was put in force.
    fn generation(&self) -> u64;

    /// What it has done so far.
    fn totals(&self) -> NodeTotals;

    /// So many nodes share the limits now.
    fn set_fleet_size(&self, nodes: NonZeroU32);

    /// Begins to note what operators say here, and says so whenever something is to be put.
    fn start_sharing(&self, wake: WakeCallback);

    /// The next of what operators have said here that the register has not heard.
    fn pending_changes(&self) -> RegisterChanges;

    /// The register has it.
    fn confirm_changes(&self, put: &RegisterChanges);

    /// The register will never take it.
    fn discard_changes(&self, put: &RegisterChanges);

    /// The register has lost everything, or what was put after a version.
    fn resend_changes(&self, lost_after: Option<u64>);

    /// What others have said.
    fn apply_snapshot(&self, said: &RegisterSnapshot) -> SyncOutcome;

    /// How much waits for the register, and how much it will never hear.
    fn pending_counts(&self) -> (usize, u64);
}

/// What a server has done since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NodeTotals {
    /// Requests that are held back now.
    pub in_flight: u64,
    /// Requests admitted, those that had to wait included.
    pub admitted: u64,
    /// Requests denied.
    pub denied: u64,
    /// Requests turned away because there was too much to do.
    pub shed: u64,
}

impl<C: Clock + 'static> LocalNode for RateLimitService<C> {
    fn policy(&self) -> u64 {
        if let Some(reloader) = self.reloader() {
            return reloader.status().hash.short();
        }
        // The explanation says all of a policy. One that comes from no file is short.
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

    fn apply_snapshot(&self, said: &RegisterSnapshot) -> SyncOutcome {
        self.engine().control().apply_register(said)
    }

    fn pending_counts(&self) -> (usize, u64) {
        let control = self.engine().control();
        (control.pending_count(), control.dropped_count())
    }
}
