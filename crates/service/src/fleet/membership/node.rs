//! What a node of a fleet has to offer: what is in force on it, what it has to do, what its operators say.
//!
//! Must not know: registers, beats.

use std::hash::Hasher as _;
use std::num::NonZeroU32;

use siphasher::sip::SipHasher24;
use tollgate_engine::control::{Adopted, ToPut, Wake};
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
    fn tally(&self) -> NodeTotals;

    /// So many nodes share the limits now.
    fn share_among(&self, nodes: NonZeroU32);

    /// Begins to note what operators say here, and says so whenever something is to be put.
    fn share(&self, wake: Wake);

    /// The next of what operators have said here that the register has not heard.
    fn to_put(&self) -> ToPut;

    /// The register has it.
    fn was_put(&self, put: &ToPut);

    /// The register will never take it.
    fn give_up(&self, put: &ToPut);

    /// The register has lost everything, or what was put after a version.
    fn tell_again(&self, lost_after: Option<u64>);

    /// What others have said.
    fn adopt(&self, said: &RegisterSnapshot) -> Adopted;

    /// How much waits for the register, and how much it will never hear.
    fn unheard(&self) -> (usize, u64);
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

    fn tally(&self) -> NodeTotals {
        let metrics = self.metrics();
        let sum = |which: &[RequestOutcome]| {
            let each = Transport::ALL
                .iter()
                .flat_map(|transport| which.iter().map(|one| metrics.answered(*transport, *one)));
            each.fold(0, u64::saturating_add)
        };
        NodeTotals {
            in_flight: self.saturation().waiting() as u64,
            admitted: sum(&[RequestOutcome::Allowed, RequestOutcome::Waited]),
            denied: sum(&[RequestOutcome::Denied]),
            shed: self.saturation().refused(),
        }
    }

    fn share_among(&self, nodes: NonZeroU32) {
        if let Some(fleet) = self.fleet() {
            fleet.set_nodes(nodes.get());
        }
    }

    fn share(&self, wake: Wake) {
        self.engine().control().share(wake);
    }

    fn to_put(&self) -> ToPut {
        self.engine().control().to_put()
    }

    fn was_put(&self, put: &ToPut) {
        self.engine().control().was_put(put);
    }

    fn give_up(&self, put: &ToPut) {
        self.engine().control().give_up(put);
    }

    fn tell_again(&self, lost_after: Option<u64>) {
        self.engine().control().tell_again(lost_after);
    }

    fn adopt(&self, said: &RegisterSnapshot) -> Adopted {
        self.engine().control().adopt(said)
    }

    fn unheard(&self) -> (usize, u64) {
        let control = self.engine().control();
        (control.waiting(), control.left_out())
    }
}
