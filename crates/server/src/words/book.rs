//! What stays the same about each limit from answer to answer, written once for each version of the policy.
//!
//! It lives with the generation, so that a verdict is always worded by the policy that it was decided by. A page is written
//! when a quota is first spoken of: a policy may have thousands of overrides, most of whom nobody asks about. Must not
//! know: dialects, where a limit stands.

use std::sync::OnceLock;

use tollgate_core::limit::Quota;
use tollgate_core::{Nanos, Unit};
use tollgate_engine::{Generation, LimitState, Verdict};
use tollgate_http::{Policy, Scope};
use tollgate_policy::rules::{Meter, MeterRef, Role, Rule};

use super::refusal::part_word;

/// The words for every limit of one generation.
#[derive(Debug)]
pub(super) struct Book {
    rules: Box<[Box<[Chapter]>]>,
}

/// The words for one meter.
#[derive(Debug)]
struct Chapter {
    /// For each of its quotas.
    listed: Box<[Page]>,
    /// For those that are made for a request, by what they count.
    made: [Page; 3],
}

/// `None` where a name cannot be sent; names of policies that were read always can.
type Page = OnceLock<Option<Box<Policy>>>;

impl Book {
    /// The book of a generation.
    pub(super) fn of(generation: &Generation) -> Option<&Self> {
        generation.noted(|generation| Self {
            rules: generation
                .rules()
                .rules()
                .iter()
                .map(|rule| rule.meters.iter().map(Chapter::of).collect())
                .collect(),
        })
    }

    /// The words for the quota that decided.
    pub(super) fn policy(
        &self,
        verdict: &Verdict,
        state: &LimitState,
        window: Nanos,
    ) -> Option<&Policy> {
        let chapters = self.rules.get(state.rule_index())?;
        let chapter = chapters.get(state.meter_index())?;
        let page = match state.quota_index() {
            Some(index) => chapter.listed.get(index)?,
            None => {
                let [requests, bytes, others] = &chapter.made;
                match state.unit() {
                    Unit::Requests => requests,
                    Unit::Bytes => bytes,
                    _ => others,
                }
            }
        };
        let policy = page.get_or_init(|| written(verdict, state, window).map(Box::new));
        policy.as_deref()
    }
}

impl Chapter {
    fn of(meter: &Meter) -> Self {
        Self {
            listed: meter.quotas.iter().map(|_| Page::new()).collect(),
            made: Default::default(),
        }
    }
}

#[cold]
fn written(verdict: &Verdict, state: &LimitState, window: Nanos) -> Option<Policy> {
    let rule = verdict.rule(state)?;
    let meter = rule.meters.get(state.meter_index())?;
    let name = full_name(rule, meter, state);
    let limit = state.status.limit;
    let is_places = matches!(
        meter.quotas.first().map(tollgate_core::limit::Limit::quota),
        Some(Quota::Concurrency(_))
    );
    let policy = if is_places {
        Policy::concurrent(&name, limit)
    } else {
        Policy::new(&name, limit, window, state.unit())
    };
    let policy = policy.ok()?.scope(scope(verdict, rule, state));
    match &rule.bucket {
        // What limits share is one bucket to clients, whichever of them speaks.
        Some(bucket) => policy.bucket(bucket).ok(),
        None => Some(policy),
    }
}

/// The name of one meter, different from that of any other: the limit's, and the level or the number of the window.
fn full_name(rule: &Rule, meter: &Meter, state: &LimitState) -> String {
    let name = &rule.name;
    match (&meter.level, state.role(), state.meter_index()) {
        (Some(level), _, _) => format!("{name}/{level}"),
        (None, Role::Main, 0) => name.to_string(),
        (None, Role::Main, index) => format!("{name}#{}", index.saturating_add(1)),
        (None, role, _) => format!("{name}!{}", part_word(role)),
    }
}

/// Whom the limit counts together. Without a key it is everybody; with one it is each caller, for all that they do if the
/// limit applies to everything.
fn scope(verdict: &Verdict, rule: &Rule, state: &LimitState) -> Scope {
    let place = MeterRef {
        rule: state.rule_index(),
        meter: state.meter_index(),
    };
    let recipe = verdict.generation().rules().recipe(place);
    if recipe.is_none_or(|recipe| recipe.parts.is_empty()) {
        Scope::Shared
    } else if rule.applies_to_all {
        Scope::Global
    } else {
        Scope::User
    }
}
