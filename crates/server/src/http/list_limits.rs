//! `GET /v1/limits`: each limit in plain words, with its counters.
//!
//! Must not know: sockets, requests.

use serde::Serialize;
use tollgate_policy::explain::LimitExplanation;
use tollgate_store::Clock;

use crate::http::http_api::HttpApi;
use crate::http::response::HttpResponse;
use crate::http::verdict_body::to_json_string;

#[derive(Serialize)]
struct LimitsBody<'a> {
    generation: u64,
    mode: Option<&'a str>,
    deny: &'a [String],
    exempt: &'a [String],
    limits: Vec<LimitBody<'a>>,
}

#[derive(Serialize)]
struct LimitBody<'a> {
    name: &'a str,
    mode: &'a str,
    applies_to: &'a str,
    per: &'a str,
    quotas: Vec<QuotaBody<'a>>,
    notes: &'a [String],
    counters: CountersBody,
}

#[derive(Serialize)]
struct QuotaBody<'a> {
    who: &'a str,
    words: &'a str,
}

#[derive(Serialize)]
struct CountersBody {
    allowed: u64,
    denied: u64,
    would_deny: u64,
    waited: u64,
    near_limit: u64,
    errors: u64,
    overflow: u64,
    spilled_over: u64,
}

impl<C: Clock> HttpApi<C> {
    pub(crate) fn list_limits(&self) -> HttpResponse {
        let explained = self.service.explanation();
        let explanation = &explained.explanation;
        HttpResponse::json(to_json_string(&LimitsBody {
            generation: explained.generation,
            mode: explanation.mode.as_deref(),
            deny: &explanation.deny,
            exempt: &explanation.exempt,
            limits: explanation
                .limits
                .iter()
                .map(|limit| self.limit_body(limit))
                .collect(),
        }))
    }

    fn limit_body<'a>(&self, limit: &'a LimitExplanation) -> LimitBody<'a> {
        let totals = self.engine().totals(&limit.name).unwrap_or_default();
        let quota = |quota: &'a tollgate_policy::explain::QuotaExplanation| QuotaBody {
            who: &quota.who,
            words: &quota.words,
        };
        LimitBody {
            name: &limit.name,
            mode: &limit.mode,
            applies_to: &limit.applies_to,
            per: &limit.per,
            quotas: limit.quotas.iter().map(quota).collect(),
            notes: &limit.notes,
            counters: CountersBody {
                allowed: totals.allowed,
                denied: totals.denied,
                would_deny: totals.would_deny,
                waited: totals.waited,
                near_limit: totals.near_limit,
                errors: totals.errors,
                overflow: totals.overflow,
                spilled_over: totals.spilled_over,
            },
        }
    }
}
