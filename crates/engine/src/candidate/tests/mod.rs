//! Comparisons of a limit with its candidate.

mod brute_force;
mod charges;
mod reports;

use super::{Agreement, Divergence, MAX_TRACKED_KEYS};
use crate::Engine;
use crate::testing::{
    SeededRng, TestCaller, TestEngine, engine, engine_with, limit, per_second, places, policy,
    quota, rules,
};
use std::collections::HashMap;
use tollgate_core::{Nanos, Outcome};
use tollgate_policy::attributes::Attribute;
use tollgate_policy::model::{
    Algorithm, Cost, Count, LimitRule, Mode, Penalty, Percent, Policy, StatusClass, Tiers,
};
use tollgate_policy::rules::Rules;

/// A limit of 5 per second for each user, with a candidate.
fn with_candidate(
    candidate: tollgate_policy::model::Located<tollgate_policy::model::QuotaSpec>,
) -> LimitRule {
    LimitRule {
        candidate: Some(candidate),
        ..limit("api", per_second(5))
    }
}

fn divergence(engine: &TestEngine) -> Divergence {
    engine.divergence("api").unwrap()
}

fn totals(divergence: &Divergence) -> (u64, u64, u64) {
    (
        divergence.compared,
        divergence.would_deny,
        divergence.would_allow,
    )
}
