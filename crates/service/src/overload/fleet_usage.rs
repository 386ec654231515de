//! The usage of a fleet's targets: what this node reports with its heartbeat, and what its peers reported.
//!
//! Targets have no names in the register, only digests that are keyed by the fleet's secret. Must not know: registers,
//! signatures, which requests are shed.

use std::collections::HashMap;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;
use tollgate_core::{Nanos, Timestamp};
use tollgate_overload::{PeerUsage, Usage};
use tollgate_policy::model::Mode;
use tollgate_store::Clock;
use tollgate_store::register::{NodeUsage, TargetUsage};

use super::targets::OverloadTargets;
use crate::secret::Secret;
use crate::service::RateLimitService;

impl<C: Clock> RateLimitService<C> {
    /// The usage of the busiest targets, at most so many. None if the policy reserves nothing.
    pub(crate) fn overload_usage(&self, most: usize) -> NodeUsage {
        let generation = self.engine().generation();
        let reserves = generation
            .overload()
            .is_some_and(|(_, spec)| spec.reserve != Mode::Off);
        match reserves {
            true => NodeUsage::from_busiest(self.overload.usage(self.secret()), most),
            false => NodeUsage::default(),
        }
    }

    /// Takes what the peers reported, and what this node reported to them. It counts for this long.
    pub(crate) fn set_overload_peers(&self, own: &NodeUsage, peers: &[&NodeUsage], ttl: Nanos) {
        let reported = ReportedUsage::new(own, peers, self.now().after(ttl));
        self.overload.set_peers(self.secret(), &reported);
    }
}

/// What all nodes reported, by target.
#[derive(Debug)]
pub(super) struct ReportedUsage {
    targets: HashMap<u64, PeerUsage>,
}

impl ReportedUsage {
    /// Targets of peers that this node does not have are dropped later. Each peer reports a bounded number.
    pub(super) fn new(own: &NodeUsage, peers: &[&NodeUsage], expires: Timestamp) -> Self {
        let mut targets = HashMap::<u64, PeerUsage>::new();
        for reported in peers.iter().flat_map(|peer| &peer.targets) {
            let unknown = PeerUsage {
                peers: Usage::default(),
                nodes: 0,
                own_others: 0,
                expires,
            };
            let sum = targets.entry(reported.target).or_insert(unknown);
            sum.nodes = sum.nodes.saturating_add(1);
            sum.peers = sum.peers.saturating_add(Usage {
                capacity: reported.capacity.into(),
                critical: reported.critical.into(),
                others: reported.others.into(),
            });
        }
        for TargetUsage { target, others, .. } in &own.targets {
            if let Some(sum) = targets.get_mut(target) {
                sum.own_others = u64::from(*others);
            }
        }
        Self { targets }
    }
}

impl OverloadTargets {
    /// The usage of all targets whose capacity was measured.
    pub(super) fn usage(&self, secret: Secret) -> Vec<TargetUsage> {
        let mut all = Vec::new();
        self.for_each(|control, upstream, route| {
            if let Some(usage) = control.usage() {
                let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
                all.push(TargetUsage {
                    target: target_digest(secret, upstream, route),
                    capacity: count(usage.capacity),
                    critical: count(usage.critical),
                    others: count(usage.others),
                });
            }
        });
        all
    }

    /// Gives each target what the peers reported of it; nothing, if they reported nothing.
    pub(super) fn set_peers(&self, secret: Secret, reported: &ReportedUsage) {
        self.for_each(|control, upstream, route| {
            let digest = target_digest(secret, upstream, route);
            control.set_peers(reported.targets.get(&digest).copied());
        });
    }
}

/// The digest of a target's name. The length keeps the two names apart.
fn target_digest(secret: Secret, upstream: &str, route: &str) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&secret.bytes());
    hasher.write(b"overload target");
    hasher.write_u64(upstream.len() as u64);
    hasher.write(upstream.as_bytes());
    hasher.write(route.as_bytes());
    hasher.finish()
}
