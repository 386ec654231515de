//! Explains one limit: which requests, which quotas, and notes.
//!
//! Must not know: requests.

use serde::Serialize;
use tollgate_core::Nanos;

use super::cost::{describe_cost, describe_count, describe_refund};
use super::fleet::{self, OverAdmission};
use super::matching;
use super::shares;
use super::window::{WindowExplanation, explain_window};
use crate::compile::quota::{ComputedGrant, QuotaGrant, WindowGrant, compile_quota};
use crate::compile::{full_key, when_full};
use crate::humanize::{format_duration, format_number};
use crate::model::{
    BlockSteps, GroupSelection, LimitRule, Located, Mode, Penalty, Percent, Policy, QuotaSpec,
    WhenFull,
};
use crate::rules::CostRule;
use crate::source::Diagnostic;

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitExplanation {
    /// The name in the file.
    pub name: String,
    /// Whether it is enforced.
    pub mode: String,
    /// Which requests it matches.
    pub applies_to: String,
    /// The key that it counts by.
    pub per: String,
    /// Its quotas: its own or its levels, then the common bucket and shares, tiers and overrides, the local bucket, the spillover
    /// quota and the candidate.
    pub quotas: Vec<QuotaExplanation>,
    /// By how much a fleet may exceed the limit's own quota.
    pub over_admission: OverAdmission,
    /// Round trips for each decision.
    pub round_trips: u64,
    /// Approximate bytes per key in memory, for all states of the limit.
    pub memory_bytes_per_key: u64,
    /// Approximate bytes per key in Redis.
    pub redis_bytes_per_key: u64,
    /// Notes, one sentence each.
    pub notes: Vec<String>,
    /// Notes about a fleet: over-admission, round trips, and decisions without the store.
    pub fleet: Vec<String>,
}

/// One quota and the callers that it applies to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuotaExplanation {
    /// The callers that get it.
    pub who: String,
    /// Its windows, all of which must admit. Empty: no limit.
    pub windows: Vec<WindowExplanation>,
    /// A description for people.
    pub words: String,
}

/// The maximum number of overrides that are explained one by one; a policy may have thousands.
const MAX_OVERRIDES_SHOWN: usize = 20;

pub(super) fn explain(
    policy: &Policy,
    limit: &LimitRule,
) -> Result<LimitExplanation, Vec<Diagnostic>> {
    let max_cost = CostRule::new(&limit.cost).bounds().1;
    let quota = |who: String, spec: &Located<QuotaSpec>, overdraft| {
        compile_quota(spec, overdraft).map(|grant| self::quota(who, &grant, max_cost))
    };
    let mut quotas = Vec::new();
    if limit.levels.is_empty() {
        quotas.push(quota(own_name(limit), &limit.quota, limit.overdraft)?);
    }
    if let Some(shares) = &limit.shares {
        quotas.extend(shares::explain(limit, shares, max_cost)?);
    }
    for level in &limit.levels {
        quotas.push(quota(
            format!("level {}", level.name.value),
            &level.quota,
            limit.overdraft,
        )?);
    }
    // With shares, the whole quota is what a fleet may exceed and how long a state lives.
    let mains = limit.shares.as_ref().map_or(quotas.len(), |_| 1);
    for (name, tier) in limit.tiers.iter().flat_map(|tiers| &tiers.tiers) {
        let by = limit.tiers.as_ref().map(|tiers| tiers.by.value.to_string());
        let who = format!("{} {}", by.unwrap_or_default(), name.value);
        quotas.push(quota(who, tier, limit.overdraft)?);
    }
    for over in limit.overrides.iter().take(MAX_OVERRIDES_SHOWN) {
        let who = format!("key {}", over.key.value.join(", "));
        quotas.push(quota(who, &over.quota, limit.overdraft)?);
    }
    if let Some(local) = &limit.local {
        quotas.push(quota("each process, checked first".to_owned(), local, 0)?);
    }
    if let Some(spillover) = &limit.spillover {
        let who = "spillover, charged when the limit's own quota has no room".to_owned();
        quotas.push(quota(who, spillover, limit.overdraft)?);
    }
    if let Some(candidate) = &limit.candidate {
        let who = "candidate, evaluated and never enforced".to_owned();
        quotas.push(quota(who, candidate, limit.overdraft)?);
    }
    if limit.charge_always {
        quotas.iter_mut().take(mains).for_each(mark_never_denies);
    }
    let windows: Vec<_> = quotas
        .iter()
        .take(mains)
        .flat_map(|quota| quota.windows.iter().cloned())
        .collect();
    let over_admission = fleet::over_admission(limit.consistency.value, policy.nodes, &windows);
    let round_trips = fleet::round_trips(policy, limit);
    let trips = fleet::describe_round_trips(limit, round_trips);
    let fleet = vec![
        format!("{}; {trips}", over_admission.words),
        fleet::describe_store_failure(limit, policy.nodes, &windows),
    ];
    let (memory, redis) = bytes_per_key(limit, &quotas, mains);
    Ok(LimitExplanation {
        name: limit.name.value.to_string(),
        mode: describe_mode(limit.mode.max(policy.mode), limit.enforce),
        applies_to: matching::describe_match(&limit.matching),
        per: matching::describe_key(&full_key(limit)),
        over_admission,
        round_trips,
        memory_bytes_per_key: memory,
        redis_bytes_per_key: redis,
        notes: notes(policy, limit),
        fleet,
        quotas,
    })
}

pub(super) fn own_name(limit: &LimitRule) -> String {
    if limit.tiers.is_some() || !limit.overrides.is_empty() {
        "everyone else".to_owned()
    } else {
        "everyone".to_owned()
    }
}

/// A limit with `charge: always` has no bound on admissions.
fn mark_never_denies(explain_quota: &mut QuotaExplanation) {
    for window in &mut explain_quota.windows {
        window.most_in_any_period = None;
    }
    let text = explain_quota
        .words
        .split("; never ")
        .next()
        .unwrap_or_default();
    explain_quota.words = format!("never denies, only charges against: {text}");
}

/// Explains a compiled quota.
pub(super) fn quota(who: String, grant: &QuotaGrant, max_cost: u64) -> QuotaExplanation {
    let window = |window: &WindowGrant| {
        let limit = window.builder.build(window.units).ok()?;
        Some(explain_window(window, &limit, max_cost))
    };
    let (windows, words) = match grant {
        QuotaGrant::Unlimited => (Vec::new(), "not limited".to_owned()),
        QuotaGrant::Windows(windows) => {
            let windows: Vec<_> = windows.iter().filter_map(window).collect();
            let words: Vec<_> = windows.iter().map(|window| window.words.as_str()).collect();
            let words = words.join("; and also ");
            (windows, words)
        }
        QuotaGrant::Computed(computed) => {
            let ends = [computed.base, computed.at_most].map(|units| WindowGrant {
                location: computed.location,
                builder: computed.builder,
                units,
                period: match computed.period {
                    crate::model::Period::Span(_) => None,
                    other => Some(other),
                },
            });
            let windows: Vec<_> = ends.iter().filter_map(window).collect();
            (windows, String::new())
        }
    };
    match grant {
        QuotaGrant::Computed(computed) => {
            let words = describe_computed(computed, &windows);
            // Bounds use the maximum that anyone gets.
            let windows = windows.into_iter().skip(1).collect();
            QuotaExplanation {
                who,
                windows,
                words,
            }
        }
        _ => QuotaExplanation {
            who,
            windows,
            words,
        },
    }
}

fn describe_computed(computed: &ComputedGrant, windows: &[WindowExplanation]) -> String {
    let [base, most] = windows else {
        return "computed".to_owned();
    };
    let per = base.period.as_deref().unwrap_or("period");
    format!(
        "{} per {per} and {} more for each of {}, up to {} per {per}: at the least {}; at the most {}",
        format_number(computed.base),
        format_number(computed.each),
        computed.times,
        format_number(computed.at_most),
        base.words,
        most.words
    )
}

fn bytes_per_key(limit: &LimitRule, quotas: &[QuotaExplanation], mains: usize) -> (u64, u64) {
    let fold = |quotas: &[QuotaExplanation]| {
        quotas.iter().flat_map(|quota| &quota.windows).fold(
            (0_u64, 0_u64),
            |(memory, redis), window| {
                (
                    memory.saturating_add(window.memory_bytes),
                    redis.saturating_add(window.redis_bytes),
                )
            },
        )
    };
    // A divided quota has a state for the common bucket and one for each share.
    let own = match &limit.shares {
        Some(shares) => 1..shares.shares.len().saturating_add(2),
        None => 0..mains,
    };
    let (mut memory, mut redis) = fold(quotas.get(own).unwrap_or_default());
    let auxiliary = [&limit.local, &limit.spillover, &limit.candidate];
    let auxiliary = auxiliary.into_iter().flatten().count();
    let (local, shared) = fold(
        quotas
            .get(quotas.len().saturating_sub(auxiliary)..)
            .unwrap_or_default(),
    );
    memory = memory.saturating_add(local);
    redis = redis.saturating_add(shared);
    let states = match limit.penalty.value {
        Penalty::None | Penalty::Count => 0,
        Penalty::Block(_) => 1,
        Penalty::Escalate(_) => 2,
    };
    (memory, redis) = (
        memory.saturating_add(32 * states),
        redis.saturating_add(133 * states),
    );
    (memory, redis)
}

/// `the first denial blocks the key for 10 min, the next ones for 1 h, then 24 h; one offence is forgotten every 7 d`
fn describe_steps(steps: &BlockSteps) -> String {
    let length = |length: &Nanos| match *length {
        BlockSteps::UNTIL_LIFTED => "until an operator resets the key".to_owned(),
        length => format!("for {}", format_duration(length)),
    };
    let lengths: Vec<String> = steps.lengths().iter().map(length).collect();
    format!(
        "a denial blocks the key {}; one offence is forgotten every {}",
        lengths.join(", the next one "),
        format_duration(steps.forget)
    )
}

pub(super) fn describe_mode(mode: Mode, enforce: Percent) -> String {
    match mode {
        Mode::Off => "off: ignored".to_owned(),
        Mode::Shadow => "shadow: counted, never enforced".to_owned(),
        Mode::Enforce if enforce == Percent::ALL => "enforced".to_owned(),
        Mode::Enforce => format!("enforced for {enforce} of keys, the others are shadowed"),
    }
}

/// What becomes of a limit's keys when memory is full. A limit without a key has only one.
fn describe_when_full(limit: &LimitRule) -> Option<String> {
    if full_key(limit).is_empty() {
        return None;
    }
    let text = match when_full(limit) {
        WhenFull::Refuse => {
            "when memory is full: no key exceeds its quota, keys without room may be refused with 503"
        }
        WhenFull::Forget => {
            "when memory is full: nobody is refused, keys without room start fresh and may exceed their quota"
        }
    };
    Some(text.to_owned())
}

fn notes(policy: &Policy, limit: &LimitRule) -> Vec<String> {
    let mut notes = matching::describe_missing(&full_key(limit));
    notes.extend(describe_cost(&limit.cost));
    notes.extend(describe_count(&limit.count));
    notes.extend(describe_refund(&limit.refund));
    if let Some(distinct) = &limit.distinct {
        notes.push(format!(
            "counts distinct values of {}, not requests",
            distinct.value
        ));
    }
    if limit.charge_always {
        notes.push(format!(
            "charges above the quota go into debt, down to {}",
            format_number(limit.overdraft)
        ));
    } else if limit.overdraft > 0 {
        notes.push(format!(
            "later charges may go into debt, down to {}",
            format_number(limit.overdraft)
        ));
    }
    if let Some(wait) = &limit.wait {
        notes.push(format!(
            "a request that would be admitted within {} waits instead",
            format_duration(wait.value)
        ));
    }
    if limit.spillover.is_some() {
        notes.push(
            "a request is denied only if neither its quota nor the spillover quota has room, so at most the sum of both is admitted"
                .to_owned(),
        );
    }
    if let Some(shares) = &limit.shares {
        notes.extend(shares::notes(shares));
    }
    match limit.penalty.value {
        Penalty::None => {}
        Penalty::Count => notes.push("a denied request is charged too".to_owned()),
        Penalty::Block(length) => {
            notes.push(format!(
                "a denial blocks the key for {}",
                format_duration(length)
            ));
        }
        Penalty::Escalate(steps) => notes.push(describe_steps(&steps)),
    }
    notes.extend(describe_grouping(policy, limit));
    let more = limit.overrides.len().saturating_sub(MAX_OVERRIDES_SHOWN);
    if more > 0 {
        notes.push(format!(
            "{} more keys have quotas of their own",
            format_number(more as u64)
        ));
    }
    notes.extend(describe_when_full(limit));
    if limit.status != 429 || limit.message.is_some() {
        let message = limit
            .message
            .as_ref()
            .map_or(String::new(), |text| format!(" with the message {text:?}"));
        notes.push(format!("a denial returns {}{message}", limit.status));
    }
    notes
}

fn describe_grouping(policy: &Policy, limit: &LimitRule) -> Option<String> {
    if let Some(bucket) = &limit.bucket {
        let others = policy.limits.iter().filter(|other| {
            other
                .bucket
                .as_ref()
                .is_some_and(|theirs| theirs.value == bucket.value)
                && other.name != limit.name
        });
        let others: Vec<_> = others.map(|other| other.name.value.to_string()).collect();
        let with = if others.is_empty() {
            "no other limit".to_owned()
        } else {
            others.join(", ")
        };
        return Some(format!("shares the bucket {} with {with}", bucket.value));
    }
    let group = limit.group.as_ref()?;
    let apply = policy
        .groups
        .iter()
        .find(|known| known.name.value == group.value)
        .map(|known| known.apply);
    Some(match apply {
        Some(GroupSelection::Narrowest) => format!(
            "of the limits in group {} that match, only the one with the most conditions applies",
            group.value
        ),
        _ => format!("belongs to group {}, whose limits all apply", group.value),
    })
}
