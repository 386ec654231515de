//! Overload control on the page of the server's state.
//!
//! Must not know: permissions, sockets, how load is measured.

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate_policy::model::Mode;
use tollgate_service::{OverloadStatus, OverloadTargetStatus, ShedMechanism};

/// Overload control; null if the policy switches nothing on.
#[derive(Serialize)]
pub(super) struct OverloadBody {
    /// The modes in force: those of the policy, weakened by switches.
    modes: BTreeMap<&'static str, &'static str>,
    /// Processor time in percent of what the process may use; null if it cannot be measured.
    cpu_percent: Option<f64>,
    targets: Vec<OverloadTargetBody>,
}

#[derive(Serialize)]
struct OverloadTargetBody {
    upstream: Box<str>,
    route: Box<str>,
    limit: u32,
    /// What the upstream can do at a time, by which `reserve` and `utilization` shed; null before it was found.
    capacity: Option<u32>,
    in_flight: u32,
    queued: usize,
    /// The signal of `utilization` that is closest to saturation, which is 100.
    utilization_percent: f64,
    /// The same target on all nodes of the fleet; null without a fleet, or without its store.
    fleet: Option<FleetUsageBody>,
    /// The credits of its clients; null while credits are off.
    credits: Option<CreditBody>,
    /// Of each class, the percentage that `utilization` sheds.
    shed_percent: BTreeMap<Box<str>, u8>,
}

#[derive(Serialize)]
struct CreditBody {
    clients: usize,
    issued_per_second: f64,
    capacity_per_second: f64,
}

#[derive(Serialize)]
struct FleetUsageBody {
    nodes: usize,
    limit: u64,
    critical: u64,
    others: u64,
}

pub(super) fn overload_body(status: OverloadStatus) -> OverloadBody {
    let mode = |mechanism: ShedMechanism| {
        let mode = match status.overload.mode(mechanism) {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Off => "off",
        };
        (mechanism.name(), mode)
    };
    let target = |target: OverloadTargetStatus| OverloadTargetBody {
        upstream: target.upstream,
        route: target.route,
        limit: target.limit,
        capacity: target.capacity,
        in_flight: target.in_flight,
        queued: target.queued,
        utilization_percent: percent(target.utilization),
        fleet: target.fleet.map(|fleet| FleetUsageBody {
            nodes: fleet.nodes,
            limit: fleet.limit,
            critical: fleet.critical,
            others: fleet.others,
        }),
        credits: target.credits.map(|credits| CreditBody {
            clients: credits.clients,
            issued_per_second: credits.issued_per_second.round(),
            capacity_per_second: credits.capacity_per_second.round(),
        }),
        shed_percent: target.shed_percent.into_iter().collect(),
    };
    OverloadBody {
        modes: ShedMechanism::ALL.into_iter().map(mode).collect(),
        cpu_percent: status.cpu.map(percent),
        targets: status.targets.into_iter().map(target).collect(),
    }
}

/// A share in percent, to one digit.
fn percent(share: f64) -> f64 {
    (share * 1_000.0).round() / 10.0
}
