//! `GET /v1/limits`: each limit in plain words, with its counters.
//!
//! Must not know: sockets, requests.

use serde::Serialize;
use tollgate_policy::explain::LimitExplanation;
use tollgate_store::Clock;

use crate::http::http_api::App;
use crate::http::response::HttpResponse;
use crate::http::verdict_body::to_json_string;

#[derive(Serialize)]
struct Listing<'a> {
    generation: u64,
    mode: Option<&'a str>,
    deny: &'a [String],
    exempt: &'a [String],
    limits: Vec<Listed<'a>>,
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    mode: &'a str,
    applies_to: &'a str,
    per: &'a str,
    quotas: Vec<Quota<'a>>,
    notes: &'a [String],
    counters: Counters,
}

#[derive(Serialize)]
struct Quota<'a> {
    who: &'a str,
    words: &'a str,
}

#[derive(Serialize)]
struct Counters {
    allowed: u64,
    denied: u64,
    would_deny: u64,
    waited: u64,
    near_limit: u64,
    errors: u64,
    overflow: u64,
}

impl<C: Clock> App<C> {
    pub(crate) fn list_limits(&self) -> HttpResponse {
        let told = self.service.explanation();
        let explanation = &told.explanation;
        HttpResponse::json(to_json_string(&Listing {
            generation: told.generation,
            mode: explanation.mode.as_deref(),
            deny: &explanation.deny,
            exempt: &explanation.exempt,
            limits: explanation
                .limits
                .iter()
                .map(|limit| self.listed(limit))
                .collect(),
        }))
    }

    fn listed<'a>(&self, limit: &'a LimitExplanation) -> Listed<'a> {
        let counted = self.engine().totals(&limit.name).unwrap_or_default();
        let quota = |quota: &'a tollgate_policy::explain::QuotaExplanation| Quota {
            who: &quota.who,
            words: &quota.words,
        };
        Listed {
            name: &limit.name,
            mode: &limit.mode,
            applies_to: &limit.applies_to,
            per: &limit.per,
            quotas: limit.quotas.iter().map(quota).collect(),
            notes: &limit.notes,
            counters: Counters {
                allowed: counted.allowed,
                denied: counted.denied,
                would_deny: counted.would_deny,
                waited: counted.waited,
                near_limit: counted.near_limit,
                errors: counted.errors,
                overflow: counted.overflow,
            },
        }
    }
}
