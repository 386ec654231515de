//! A verdict in the words of HTTP: the RateLimit fields of every limit, `Retry-After`, and the problem of a refusal.
//!
//! The one place that knows which dialect is spoken. Must not know: sockets, how anything was decided.

use serde::Serialize;
use tollgate_core::limit::{Limit, Quota, State};
use tollgate_core::{Nanos, Outcome, Timestamp, Unit, Window};
use tollgate_engine::{LimitState, Reason, Standing, Verdict};
use tollgate_http::{Policy, retry_after};
use tollgate_policy::rules::{Meter, Role, Rule};

use crate::reply::{RATELIMIT, RATELIMIT_POLICY, Reply};

/// Types of problems, as draft-ietf-httpapi-ratelimit-headers-11 registers them in its section 5.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
const ABNORMAL_USAGE: &str =
    "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";

/// Adds the fields that a verdict calls for: all enforced limits as members of one list, and when to come back.
pub(crate) fn add_fields(reply: Reply, verdict: &Verdict) -> Reply {
    let (mut policies, mut limits) = (String::new(), String::new());
    for state in verdict.limits() {
        let Some((rule, meter)) = told(verdict, state) else {
            continue;
        };
        let quota = quota_in_force(meter, state);
        let window = quota.map_or(Nanos::ZERO, window);
        let unit = quota.map_or(Unit::Requests, Limit::unit);
        let name = full_name(rule, meter, state);
        // Names of limits and levels are checked when the policy is read, and are shorter than the field allows.
        let Ok(policy) = Policy::new(&name, state.status.limit, window, unit) else {
            continue;
        };
        let more_after = quota.map_or(state.status.reset_after, |quota| more_after(quota, state));
        join(&mut policies, policy.policy_field());
        join(
            &mut limits,
            &policy.limit_field(state.outcome, &state.status, more_after),
        );
    }
    let mut reply = reply;
    if !policies.is_empty() {
        reply = reply
            .with(RATELIMIT_POLICY, &policies)
            .with(RATELIMIT, &limits);
    }
    // An answer to somebody who only looks tells nobody to come back.
    match retry_after(verdict.outcome()).filter(|_| !reply.is_success()) {
        Some(seconds) => reply.retry_after(seconds),
        None => reply,
    }
}

/// What a refusal says beside the verdict itself, as RFC 9457 has it.
#[derive(Debug, Serialize)]
pub(crate) struct Refusal<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<&'a str>,
}

/// The refusal, with the policy's own message if it has one. `None` if the request is admitted.
pub(crate) fn refusal(verdict: &Verdict) -> Option<Refusal<'_>> {
    let status = verdict.status()?;
    let (r#type, title) = match verdict.reason() {
        Some(Reason::Rate | Reason::Quota | Reason::Concurrency) => {
            (QUOTA_EXCEEDED, "Quota Exceeded")
        }
        Some(Reason::Capacity) => (REDUCED_CAPACITY, "Temporary Reduced Capacity"),
        Some(Reason::Blocked) => (ABNORMAL_USAGE, "Abnormal Usage Detected"),
        _ => {
            let known = hyper::StatusCode::from_u16(status).ok();
            let title = known.and_then(|status| status.canonical_reason());
            ("about:blank", title.unwrap_or("Refused"))
        }
    };
    let mut violated_policies: Vec<&str> = Vec::new();
    for state in verdict.limits() {
        let refuses = state.standing == Standing::Enforced && !state.outcome.is_admitted();
        if let Some(rule) = verdict.rule(state).filter(|_| refuses)
            && !violated_policies.contains(&&*rule.name)
        {
            violated_policies.push(&rule.name);
        }
    }
    Some(Refusal {
        r#type,
        title,
        status,
        detail: verdict
            .message()
            .map_or_else(|| detail(verdict), str::to_owned),
        violated_policies,
    })
}

/// The word for a reason, as bodies and headers say it.
pub(crate) const fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::Rate => "rate",
        Reason::Quota => "quota",
        Reason::Concurrency => "concurrency",
        Reason::Capacity => "capacity",
        Reason::Blocked => "blocked",
        Reason::Listed => "listed",
        Reason::MissingKey => "missing_key",
        Reason::Unreadable => "unreadable",
        _ => "other",
    }
}

fn detail(verdict: &Verdict) -> String {
    let name = verdict.rule_name().unwrap_or("?");
    let when = match verdict.outcome() {
        Outcome::Deny { retry_after } => {
            format!("; try again after {} ms", retry_after.as_millis_ceil())
        }
        _ => String::new(),
    };
    match (verdict.reason(), verdict.outcome()) {
        (Some(Reason::Rate | Reason::Quota | Reason::Concurrency), Outcome::Never) => format!(
            "the request asks for more than the limit {name:?} ever admits at once; waiting does not help"
        ),
        (Some(Reason::Rate), _) => format!("the limit {name:?} has no room for this now{when}"),
        (Some(Reason::Quota), _) => format!("the quota {name:?} is used up{when}"),
        (Some(Reason::Concurrency), _) => {
            format!("as many requests as the limit {name:?} admits are under way{when}")
        }
        (Some(Reason::Blocked), _) => {
            format!(
                "earlier requests were beyond the limit {name:?}, which blocks for a while{when}"
            )
        }
        (Some(Reason::Capacity), _) => format!("the limiter cannot decide this now{when}"),
        (Some(Reason::Listed), _) => "the policy refuses such requests".to_owned(),
        (Some(Reason::MissingKey), _) => {
            format!("the limit {name:?} needs an attribute that the request does not have")
        }
        (Some(Reason::Unreadable), _) => "the path or the host is too long to be read".to_owned(),
        _ => format!("the request is refused{when}"),
    }
}

/// The rule and meter of a state that clients are told about: what is enforced, and of what stands beside a limit only
/// what refuses.
fn told<'a>(verdict: &'a Verdict, state: &LimitState) -> Option<(&'a Rule, &'a Meter)> {
    if state.standing != Standing::Enforced {
        return None;
    }
    if state.role() != Role::Main && state.outcome.is_admitted() {
        return None;
    }
    let rule = verdict.rule(state)?;
    Some((rule, rule.meters.get(state.meter_index())?))
}

/// The name of one meter, different from that of any other: the limit's, and the level or the number of the window.
fn full_name(rule: &Rule, meter: &Meter, state: &LimitState) -> String {
    let name = &rule.name;
    match (&meter.level, part_word(state.role()), state.meter_index()) {
        (Some(level), _, _) => format!("{name}/{level}"),
        (None, "main", 0) => name.to_string(),
        (None, "main", index) => format!("{name}#{}", index.saturating_add(1)),
        (None, part, _) => format!("{name}!{part}"),
    }
}

/// The word for the part that a meter plays.
pub(crate) const fn part_word(role: Role) -> &'static str {
    match role {
        Role::Main => "main",
        Role::Local => "local",
        Role::Block => "block",
        Role::Seen => "seen",
        Role::Candidate => "candidate",
        _ => "other",
    }
}

/// The quota that a state was decided by, where the policy lists it: tiers differ in what they admit at most.
fn quota_in_force<'a>(meter: &'a Meter, state: &LimitState) -> Option<&'a Limit> {
    let most = |limit: &Limit| limit.status(&State::default(), Timestamp::EPOCH).limit;
    meter
        .quotas
        .iter()
        .find(|limit| most(limit) == state.status.limit)
}

/// The time in which the whole quota is given; zero where there is none.
fn window(limit: &Limit) -> Nanos {
    match limit.quota() {
        Quota::TokenBucket(bucket) => bucket.refill(),
        Quota::LeakyBucket(bucket) => bucket.as_tokens().refill(),
        Quota::SlidingLog(log) => log.window(),
        Quota::SlidingCounter(counter) => counter.window(),
        Quota::FixedWindow(fixed) => match fixed.window() {
            Window::Epoch(length) | Window::FirstHit(length) => length,
            // Months have no one length.
            _ => Nanos::ZERO,
        },
        _ => Nanos::ZERO,
    }
}

/// Time until one more unit is there, where nothing is. Windows give everything back together.
fn more_after(limit: &Limit, state: &LimitState) -> Nanos {
    let Quota::TokenBucket(bucket) = limit.quota() else {
        return state.status.reset_after;
    };
    // What is owed is a duration; seen from the beginning of time it is an instant again.
    let owed = state.status.reset_after.as_nanos();
    match bucket.decide(owed, Timestamp::EPOCH, 1).outcome {
        Outcome::Deny { retry_after } => retry_after,
        Outcome::Allow | Outcome::Wait(_) | Outcome::Never => Nanos::ZERO,
    }
}

fn join(list: &mut String, member: &str) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(member);
}
