//! What operators read of the fleet: who is there, who differs, and whether what they say gets round.
//!
//! Must not know: registers, who may read.

use serde::Serialize;
use tollgate_core::Nanos;
use tollgate_fleet::{Breaker, BreakerState, Fleet};
use tollgate_store::Clock;
use tollgate_store::register::Load;

use super::Admin;
use super::state::utc;
use crate::http::response::HttpResponse;
use crate::http::verdict_body::json;
use tollgate_service::fleet::{FleetNode, FleetView, Membership, Mismatch};

/// The whole page; outside a fleet all of it is null.
#[derive(Serialize, Default)]
struct Page {
    fleet: Option<String>,
    /// Who answers.
    node: Option<String>,
    nodes: Option<Nodes>,
    mismatches: Option<Mismatches>,
    controls: Option<Controls>,
    register: Option<Register>,
    store: Option<Store>,
}

#[derive(Serialize)]
struct Nodes {
    count: u32,
    /// How the count is known: `seen`, `configured`, `unknown`.
    known: &'static str,
    /// Nodes of which nothing can be read but that they are there.
    unread: usize,
    load: LoadShown,
    list: Vec<NodeShown>,
}

#[derive(Serialize)]
struct NodeShown {
    node: String,
    this: bool,
    version: Box<str>,
    generation: u64,
    policy: String,
    age_ms: u64,
    /// What it has differently from the one that answers.
    differs: Option<&'static str>,
    load: LoadShown,
}

#[derive(Serialize)]
struct LoadShown {
    in_flight: u64,
    admitted_per_s: u64,
    denied_per_s: u64,
    shed_per_s: u64,
}

/// How many nodes differ, if that is alarming.
#[derive(Serialize)]
struct Mismatches {
    secret: usize,
    policy: usize,
}

#[derive(Serialize)]
struct Controls {
    version: u64,
    waiting: usize,
    left_out: u64,
    not_understood: usize,
}

#[derive(Serialize)]
struct Register {
    last_beat_age_ms: u64,
    failures: u64,
    trouble: Option<String>,
    panics: u64,
}

#[derive(Serialize)]
struct Store {
    degraded: bool,
    parts: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    /// Since when it is not asked; null while it is.
    away_since: Option<String>,
    openings: u64,
}

impl<C: Clock + 'static> Admin<C> {
    pub(super) fn fleet(&self) -> HttpResponse {
        let mut page = self.fleet.as_deref().map(shown).unwrap_or_default();
        page.store = self.app.service.fleet().map(|fleet| store(fleet));
        HttpResponse::json(json(&page))
    }
}

fn shown(membership: &Membership) -> Page {
    let view = membership.view();
    let FleetView {
        fellows,
        unread,
        load: all,
        mismatches: [secret, policy],
        controls_version,
        waiting,
        left_out,
        not_understood,
        beat_age,
        failures,
        trouble,
    } = view;
    let nodes = membership.nodes();
    Page {
        fleet: Some(membership.fleet().to_string()),
        node: Some(membership.id().to_string()),
        nodes: Some(Nodes {
            count: nodes.count().get(),
            known: nodes.word(),
            unread,
            load: load(all),
            list: fellows.into_iter().map(node).collect(),
        }),
        mismatches: Some(Mismatches { secret, policy }),
        controls: Some(Controls {
            version: controls_version,
            waiting,
            left_out,
            not_understood,
        }),
        register: Some(Register {
            last_beat_age_ms: millis(beat_age),
            failures,
            trouble,
            panics: membership.panics(),
        }),
        store: None,
    }
}

fn node(fellow: FleetNode) -> NodeShown {
    let FleetNode {
        beat,
        age,
        is_self,
        differs,
    } = fellow;
    NodeShown {
        node: beat.node.to_string(),
        this: is_self,
        generation: beat.generation,
        policy: format!("{:016x}", beat.policy),
        version: beat.version,
        age_ms: millis(age),
        differs: differs.map(Mismatch::word),
        load: load(beat.load),
    }
}

const fn load(load: Load) -> LoadShown {
    LoadShown {
        in_flight: load.in_flight,
        admitted_per_s: load.admitted_per_s,
        denied_per_s: load.denied_per_s,
        shed_per_s: load.shed_per_s,
    }
}

fn store(fleet: &Fleet) -> Store {
    let part = |breaker: &Breaker| Part {
        away_since: match breaker.state() {
            BreakerState::Closed => None,
            BreakerState::Open(since) => Some(utc(since)),
        },
        openings: breaker.openings(),
    };
    Store {
        degraded: fleet.is_degraded(),
        parts: fleet.breakers().iter().map(part).collect(),
    }
}

fn millis(span: Nanos) -> u64 {
    span.as_nanos() / 1_000_000
}
