//! `GET /fleet`: the nodes of the fleet, configuration mismatches, and whether operator changes have spread.
//!
//! Must not know: registers, who may read.

use serde::Serialize;
use tollgate_core::Nanos;
use tollgate_fleet::{Breaker, BreakerState, Fleet};
use tollgate_store::Clock;
use tollgate_store::register::NodeLoad;

use super::AdminApi;
use super::state::format_utc;
use crate::http::response::HttpResponse;
use crate::http::verdict_body::to_json_string;
use tollgate_service::fleet::{FleetNode, FleetView, Membership, Mismatch, RejectionCounts};

/// The whole body. Outside a fleet all members are null.
#[derive(Serialize, Default)]
struct FleetBody {
    fleet: Option<String>,
    /// The node that answers.
    node: Option<String>,
    nodes: Option<NodesBody>,
    mismatches: Option<MismatchesBody>,
    controls: Option<ControlsBody>,
    register: Option<RegisterBody>,
    store: Option<StoreBody>,
}

#[derive(Serialize)]
struct NodesBody {
    count: u32,
    /// How the count is known: `seen`, `configured`, `unknown`.
    known: &'static str,
    /// Nodes whose register entries cannot be read.
    unread: usize,
    load: LoadBody,
    list: Vec<NodeBody>,
}

#[derive(Serialize)]
struct NodeBody {
    node: String,
    this: bool,
    version: Box<str>,
    generation: u64,
    policy: String,
    age_ms: u64,
    /// Whether its heartbeat is authentic; otherwise it does not count.
    verified: bool,
    /// The setting in which the node differs from the one that answers.
    differs: Option<&'static str>,
    load: LoadBody,
}

#[derive(Serialize)]
struct LoadBody {
    in_flight: u64,
    admitted_per_s: u64,
    denied_per_s: u64,
    shed_per_s: u64,
}

/// How many nodes differ in a setting that has to be the same.
#[derive(Serialize)]
struct MismatchesBody {
    secret: usize,
    policy: usize,
}

#[derive(Serialize)]
struct ControlsBody {
    version: u64,
    waiting: usize,
    left_out: u64,
    not_understood: usize,
}

#[derive(Serialize)]
struct RegisterBody {
    last_beat_age_ms: u64,
    failures: u64,
    trouble: Option<String>,
    panics: u64,
    not_authentic: RejectionsBody,
}

/// Messages that were ignored because they are not authentic.
#[derive(Serialize)]
struct RejectionsBody {
    /// Whether there was one within the last minute.
    alarm: bool,
    forged: u64,
    replayed: u64,
    unsigned: u64,
    /// Whether unsigned messages are accepted, which is meant for an upgrade.
    accepts_unsigned: bool,
}

#[derive(Serialize)]
struct StoreBody {
    degraded: bool,
    parts: Vec<StorePartBody>,
}

#[derive(Serialize)]
struct StorePartBody {
    /// When the breaker opened; null while it is closed.
    away_since: Option<String>,
    openings: u64,
}

impl<C: Clock + 'static> AdminApi<C> {
    pub(super) fn fleet(&self) -> HttpResponse {
        let mut page = self.fleet.as_deref().map(fleet_body).unwrap_or_default();
        page.store = self.app.service.fleet().map(|fleet| store_body(fleet));
        HttpResponse::json(to_json_string(&page))
    }
}

fn fleet_body(membership: &Membership) -> FleetBody {
    let view = membership.view();
    let FleetView {
        nodes: listed,
        unreadable_nodes: unread,
        load: all,
        mismatches: [secret, policy],
        controls_version,
        pending_changes: waiting,
        discarded_changes: left_out,
        unsupported_entries: not_understood,
        beat_age,
        failures,
        error: trouble,
    } = view;
    let nodes = membership.fleet_size();
    FleetBody {
        fleet: Some(membership.fleet().to_string()),
        node: Some(membership.id().to_string()),
        nodes: Some(NodesBody {
            count: nodes.count().get(),
            known: nodes.name(),
            unread,
            load: load_body(all),
            list: listed.into_iter().map(node_body).collect(),
        }),
        mismatches: Some(MismatchesBody { secret, policy }),
        controls: Some(ControlsBody {
            version: controls_version,
            waiting,
            left_out,
            not_understood,
        }),
        register: Some(RegisterBody {
            last_beat_age_ms: millis(beat_age),
            failures,
            trouble,
            panics: membership.panics(),
            not_authentic: rejections_body(membership),
        }),
        store: None,
    }
}

fn rejections_body(membership: &Membership) -> RejectionsBody {
    let RejectionCounts {
        totals: [forged, replayed, unsigned],
        is_alarming: alarm,
    } = membership.rejections();
    RejectionsBody {
        alarm,
        forged,
        replayed,
        unsigned,
        accepts_unsigned: membership.accepts_unsigned(),
    }
}

fn node_body(node: FleetNode) -> NodeBody {
    let FleetNode {
        beat,
        age,
        is_self,
        is_verified: verified,
        mismatch: differs,
    } = node;
    NodeBody {
        node: beat.node.to_string(),
        this: is_self,
        verified,
        generation: beat.generation,
        policy: format!("{:016x}", beat.policy_fingerprint),
        version: beat.version,
        age_ms: millis(age),
        differs: differs.map(Mismatch::name),
        load: load_body(beat.load),
    }
}

const fn load_body(load: NodeLoad) -> LoadBody {
    LoadBody {
        in_flight: load.in_flight,
        admitted_per_s: load.admitted_per_s,
        denied_per_s: load.denied_per_s,
        shed_per_s: load.shed_per_s,
    }
}

fn store_body(fleet: &Fleet) -> StoreBody {
    let part = |breaker: &Breaker| StorePartBody {
        away_since: match breaker.state() {
            BreakerState::Closed => None,
            BreakerState::Open(since) => Some(format_utc(since)),
        },
        openings: breaker.openings(),
    };
    StoreBody {
        degraded: fleet.is_degraded(),
        parts: fleet.breakers().iter().map(part).collect(),
    }
}

fn millis(span: Nanos) -> u64 {
    span.as_nanos() / 1_000_000
}
