//! The pages that operators read: server state, policy, switches, overrides, blocks and the audit log.
//!
//! Keys are shown as digests, or as the policy lets them be shown where an operator has named them. Must not know: permissions,
//! sockets.

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate_core::Timestamp;
use tollgate_engine::control::{Block, Halt, KeyIdentity, KeyOverride, Switch};
use tollgate_engine::{Agreement, Divergence};
use tollgate_policy::explain::OverloadExplanation;
use tollgate_service::state::StateFileStatus;
use tollgate_store::Clock;

use super::AdminApi;
use super::overload_state::{OverloadBody, overload_body};
use crate::http::response::HttpResponse;
use crate::http::verdict_body::to_json_string;

#[derive(Serialize)]
struct StateBody<'a> {
    version: &'static str,
    /// Whether load balancers should send requests.
    ready: bool,
    generation: u64,
    stores: Vec<MemoryStoreBody>,
    tickets: TicketsBody,
    state_file: Option<StateFileBody>,
    connections: BTreeMap<&'a str, ConnectionsBody>,
    overload: Option<OverloadBody>,
    divergences: Vec<DivergenceBody>,
}

#[derive(Serialize)]
struct MemoryStoreBody {
    name: &'static str,
    slots: u64,
    live: u64,
    live_evictions: u64,
    overflow_decisions: u64,
    table_bytes: usize,
    collection_bytes: usize,
}

#[derive(Serialize)]
struct TicketsBody {
    kept: usize,
    given_up: u64,
}

#[derive(Serialize)]
struct ConnectionsBody {
    open: u64,
    accepted: u64,
    refused: u64,
    accept_errors: u64,
    panics: u64,
}

#[derive(Serialize)]
struct DivergenceBody {
    limit: Box<str>,
    agreement: &'static str,
    threshold: String,
    compared: u64,
    would_deny: u64,
    would_allow: u64,
    unknown: u64,
    missed: u64,
    top: Vec<DivergingKeyBody>,
}

#[derive(Serialize)]
struct DivergingKeyBody {
    /// The same digest as in logs.
    key: String,
    would_deny: u64,
    would_allow: u64,
    error: u64,
}

/// The state file; null without `--state`.
#[derive(Serialize)]
struct StateFileBody {
    saves: u64,
    failed_saves: u64,
    saved_at: Option<String>,
    /// Whether the file was damaged when the process started.
    was_damaged: bool,
    /// Why the last load or save failed.
    error: Option<String>,
}

#[derive(Serialize)]
struct PolicyBody<'a> {
    /// The policy file; null for the built-in policy.
    file: Option<String>,
    generation: u64,
    /// Whether the current content of the file is in use.
    valid: bool,
    fingerprint: Option<String>,
    loaded_at: Option<String>,
    /// The errors of the file.
    problems: Option<String>,
    mode: Option<&'a str>,
    deny: &'a [String],
    exempt: &'a [String],
    /// Priority classes and what sheds them; null if nothing does.
    overload: Option<&'a OverloadExplanation>,
    limits: Vec<PolicyLimitBody<'a>>,
    /// The rules in plain words, for envoyproxy/ratelimit configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<String>>,
}

#[derive(Serialize)]
struct PolicyLimitBody<'a> {
    name: &'a str,
    mode: &'a str,
    applies_to: &'a str,
    per: &'a str,
    quotas: Vec<String>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct SwitchesBody {
    everything: SwitchBody,
    limits: BTreeMap<Box<str>, SwitchBody>,
}

#[derive(Serialize)]
struct SwitchBody {
    to: &'static str,
    /// The share of keys to enforce for; it overrides the policy.
    enforce: Option<String>,
}

#[derive(Serialize)]
struct OverridesBody {
    overrides: Vec<OverrideBody>,
}

#[derive(Serialize)]
struct OverrideBody {
    limit: Box<str>,
    key: Box<str>,
    quota: Box<str>,
    until: Option<String>,
}

#[derive(Serialize)]
struct BlocksBody {
    blocks: Vec<BlockBody>,
}

#[derive(Serialize)]
struct BlockBody {
    limit: Option<Box<str>>,
    key: Option<Box<str>>,
    address: Option<String>,
    until: Option<String>,
}

#[derive(Serialize)]
struct AuditBody {
    events: Vec<AuditEventBody>,
}

#[derive(Serialize)]
struct AuditEventBody {
    when: String,
    who: Box<str>,
    what: String,
    why: Box<str>,
}

impl<C: Clock + 'static> AdminApi<C> {
    pub(super) fn state(&self) -> HttpResponse {
        let engine = self.app.engine();
        let (given_up, kept) = self.app.service.ticket_usage();
        let mut stores = vec![("policy", engine.store())];
        stores.extend(self.resp.as_ref().map(|resp| ("throttle", resp.store())));
        let store = |(name, store): (&'static str, &tollgate_store::MemoryStore<C>)| {
            let (usage, occupancy) = (store.usage(), store.occupancy());
            MemoryStoreBody {
                name,
                slots: occupancy.slots,
                live: occupancy.live,
                live_evictions: usage.evictions,
                overflow_decisions: usage.overflow_decisions,
                table_bytes: usage.table_bytes,
                collection_bytes: usage.collection_bytes,
            }
        };
        let connections = self.listeners().into_iter().map(|(name, counters)| {
            let counted = ConnectionsBody {
                open: counters.open(),
                accepted: counters.accepted(),
                refused: counters.refused_connections(),
                accept_errors: counters.accept_errors(),
                panics: counters.panics(),
            };
            (name, counted)
        });
        HttpResponse::json(to_json_string(&StateBody {
            version: env!("CARGO_PKG_VERSION"),
            ready: self.is_ready(),
            generation: self.app.envoy.generation(),
            stores: stores.into_iter().map(store).collect(),
            tickets: TicketsBody { kept, given_up },
            state_file: self.app.metrics().state_file().map(state_file_body),
            connections: connections.collect(),
            overload: self.app.service.overload_status().map(overload_body),
            divergences: engine
                .divergences()
                .into_iter()
                .map(divergence_body)
                .collect(),
        }))
    }

    pub(super) fn policy(&self) -> HttpResponse {
        let explained = self.app.service.explanation();
        let explanation = &explained.explanation;
        let reload = self.app.envoy.reloader();
        let status = reload.as_ref().map(|reload| reload.status());
        let limits = explanation.limits.iter().map(|limit| PolicyLimitBody {
            name: &limit.name,
            mode: &limit.mode,
            applies_to: &limit.applies_to,
            per: &limit.per,
            quotas: limit
                .quotas
                .iter()
                .map(|quota| format!("{}: {}", quota.who, quota.words))
                .collect(),
            notes: &limit.notes,
        });
        HttpResponse::json(to_json_string(&PolicyBody {
            file: reload.map(|reload| reload.path().display().to_string()),
            generation: self.app.envoy.generation(),
            rules: self.app.envoy.explain_rules(),
            valid: status.as_ref().is_none_or(|status| status.valid),
            fingerprint: status.as_ref().map(|status| status.hash.to_string()),
            loaded_at: status.as_ref().map(|status| format_utc(status.loaded_at)),
            problems: status
                .as_ref()
                .and_then(|status| status.error.as_ref())
                .map(ToString::to_string),
            mode: explanation.mode.as_deref(),
            deny: &explanation.deny,
            exempt: &explanation.exempt,
            overload: explanation.overload.as_ref(),
            limits: limits.collect(),
        }))
    }

    pub(super) fn switches(&self) -> HttpResponse {
        let controls = self.app.engine().control().operator_state();
        let limits = controls.limits.into_iter();
        HttpResponse::json(to_json_string(&SwitchesBody {
            everything: switch_body(controls.everything),
            limits: limits.map(|(name, to)| (name, switch_body(to))).collect(),
        }))
    }

    pub(super) fn overrides(&self) -> HttpResponse {
        let controls = self.app.engine().control().operator_state();
        let shown = |one: KeyOverride| {
            let KeyIdentity { limit, shown, .. } = one.key;
            OverrideBody {
                limit,
                key: shown,
                quota: one.quota,
                until: one
                    .until
                    .map(|until| format_utc(Timestamp::from_nanos(until))),
            }
        };
        let overrides = controls.overrides.into_iter().map(shown).collect();
        HttpResponse::json(to_json_string(&OverridesBody { overrides }))
    }

    pub(super) fn blocks(&self) -> HttpResponse {
        let controls = self.app.engine().control().operator_state();
        let ends = |until: Option<u64>| until.map(|until| format_utc(Timestamp::from_nanos(until)));
        let shown = |one: Block| match one {
            Block::Key { key, until } => BlockBody {
                limit: Some(key.limit),
                key: Some(key.shown),
                address: None,
                until: ends(until),
            },
            Block::Address { address, until } => BlockBody {
                limit: None,
                key: None,
                address: Some(address),
                until: ends(until),
            },
        };
        let blocks = controls.blocks.into_iter().map(shown).collect();
        HttpResponse::json(to_json_string(&BlocksBody { blocks }))
    }

    pub(super) fn audit(&self) -> HttpResponse {
        let events = self.app.engine().control().events();
        let shown = |event: tollgate_engine::control::OperatorEvent| AuditEventBody {
            when: format_utc(event.at),
            what: event.change.to_string(),
            who: event.who,
            why: event.why,
        };
        let events = events.into_iter().rev().map(shown).collect();
        HttpResponse::json(to_json_string(&AuditBody { events }))
    }
}

fn divergence_body(of: Divergence) -> DivergenceBody {
    let key = |key: tollgate_engine::candidate::DivergingKey| DivergingKeyBody {
        key: key
            .digest
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        would_deny: key.would_deny,
        would_allow: key.would_allow,
        error: key.error,
    };
    DivergenceBody {
        limit: of.limit,
        agreement: match of.agreement {
            Agreement::Agrees => "agrees",
            Agreement::Diverges => "diverges",
            Agreement::Inconclusive => "too_few_to_tell",
        },
        threshold: of.threshold.to_string(),
        compared: of.compared,
        would_deny: of.would_deny,
        would_allow: of.would_allow,
        unknown: of.unknown,
        missed: of.missed,
        top: of.top_keys.into_iter().map(key).collect(),
    }
}

fn state_file_body(status: &StateFileStatus) -> StateFileBody {
    let saved_at = status.saved_at();
    StateFileBody {
        saves: status.saves(),
        failed_saves: status.failed_saves(),
        saved_at: (saved_at.as_nanos() > 0).then(|| format_utc(saved_at)),
        was_damaged: status.was_damaged(),
        error: status.error(),
    }
}

fn switch_body(switch: Switch) -> SwitchBody {
    SwitchBody {
        to: match switch.halt {
            None => "on",
            Some(Halt::Shadow) => "shadow",
            Some(Halt::Off) => "off",
        },
        enforce: switch
            .enforce
            .map(|share| tollgate_policy::model::Percent::from_hundredths(share).to_string()),
    }
}

pub(super) fn format_utc(instant: Timestamp) -> String {
    tollgate_engine::control::UtcTime(instant).to_string()
}
