//! What the work behind a node can do at a time, and what it does now: the part of a heartbeat that load shedding needs.
//!
//! Must not know: how work is measured, which requests are shed.

/// The most targets of one heartbeat.
pub const MAX_USAGE_TARGETS: usize = 16;
/// The most targets of all heartbeats of a fleet together. In a large fleet each node sends fewer.
const MAX_FLEET_TARGETS: usize = 1_024;

/// The usage of a node's targets. Nodes that shed nothing by usage send none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NodeUsage {
    /// The busiest targets, at most [`MAX_USAGE_TARGETS`].
    pub targets: Vec<TargetUsage>,
    /// Proof that a holder of the fleet's secret sent it, because it changes decisions. It also covers the heartbeat's
    /// sequence number.
    pub mac: Option<[u8; 16]>,
}

/// The usage of one target: an upstream and a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TargetUsage {
    /// A digest of its name: the same on nodes that share a secret.
    pub target: u64,
    /// The requests that it can do at a time.
    pub capacity: u32,
    /// The requests of the most important class in flight.
    pub critical: u32,
    /// The requests of all other classes in flight.
    pub others: u32,
}

impl NodeUsage {
    /// The number of targets that one of so many nodes may send.
    #[must_use]
    pub fn max_targets(nodes: usize) -> usize {
        let share = MAX_FLEET_TARGETS.checked_div(nodes).unwrap_or(usize::MAX);
        share.clamp(1, MAX_USAGE_TARGETS)
    }

    /// The usage of the busiest of these targets.
    #[must_use]
    pub fn from_busiest(mut targets: Vec<TargetUsage>, most: usize) -> Self {
        let in_flight = |usage: &TargetUsage| u64::from(usage.critical) + u64::from(usage.others);
        targets.sort_by_key(|usage| (u64::MAX - in_flight(usage), usage.target));
        targets.truncate(most.min(MAX_USAGE_TARGETS));
        Self { targets, mac: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_has_the_busiest_targets_and_a_fleet_a_bounded_number() {
        let usage = |target, others| TargetUsage {
            target,
            others,
            ..TargetUsage::default()
        };
        let targets: Vec<_> = (0..40).map(|n| usage(u64::from(n), n)).collect();
        let sent = NodeUsage::from_busiest(targets.clone(), usize::MAX);
        assert_eq!(sent.targets.len(), MAX_USAGE_TARGETS);
        assert_eq!(sent.targets[0], usage(39, 39));
        assert_eq!(NodeUsage::from_busiest(targets, 1).targets, [usage(39, 39)]);
        for (nodes, most) in [
            (0, 16),
            (1, 16),
            (64, 16),
            (100, 10),
            (1_024, 1),
            (9_999, 1),
        ] {
            assert_eq!(NodeUsage::max_targets(nodes), most, "{nodes}");
        }
    }
}
