//! One limit of a policy becomes one rule: its meters with their identities, their quotas and their keys.
//!
//! Must not know: other limits, how requests are matched, how keys are encoded.

use tollgate_core::QuotaUnit;

use super::problem::problem;
use super::quota::{QuotaGrant, WindowGrant, compile_quota};
use super::shared_states::group_into_states;
use crate::attributes::Attribute;
use crate::model::{KeyPart, LimitRule, Penalty, Policy, QuotaSpec, WhenFull};
use crate::rules::{
    AlgorithmSpec, CostRule, DraftLimit, KeyBuffer, KeySpec, MAX_METERS, Meter, MeterRole,
    QuotaBuilder, Rule, VariantSelector,
};
use crate::source::{Diagnostic, Located};

/// The rule of a limit.
///
/// # Errors
/// Everything about it that cannot be honoured.
pub(super) fn compile(
    policy: &Policy,
    limit: &LimitRule,
    secret: [u8; 16],
) -> Result<DraftLimit, Vec<Diagnostic>> {
    let mut meters = MeterCollector::new(limit);
    let key = full_key(limit);
    if limit.levels.is_empty() {
        let variants = compile_variants(limit, &mut meters.problems);
        meters.add(
            MeterRole::Main,
            "",
            None,
            &variants,
            &KeySpec::new(key.clone()),
        );
        meters.add_distinct(limit, &variants, &key);
    } else {
        meters.reject_beside_levels(limit);
        let mut key = limit.key.clone();
        for level in &limit.levels {
            key.extend(level.key.iter().cloned());
            let variants = compile_single(&level.quota, limit.overdraft, &mut meters.problems);
            let suffix = format!("/{}", level.name.value);
            let name = Some(&*level.name.value);
            meters.add(
                MeterRole::Main,
                &suffix,
                name,
                &variants,
                &KeySpec::new(key.clone()),
            );
        }
    }
    meters.add_auxiliary(limit, &key);
    let choice = build_selector(limit, &key, secret, &mut meters.problems);
    if meters.meters.len() > MAX_METERS {
        meters.problems.push(problem(
            limit.name.location,
            &format!(
                "`{}` needs {} states for each request, and {MAX_METERS} are the most",
                limit.name.value,
                meters.meters.len()
            ),
            "give its tiers and overrides the same periods, or split it into several limits",
        ));
    }
    if !meters.problems.is_empty() {
        return Err(meters.problems);
    }
    let rule = Rule {
        name: limit.name.value.clone(),
        meters: meters.meters.into(),
        selector: choice,
        applies_to_all: applies_to_all(limit, &key),
        cost: CostRule::new(&limit.cost),
        count: limit.count.clone(),
        mode: limit.mode.max(policy.mode),
        enforce: limit.enforce,
        wait: limit.wait.as_ref().map(|wait| wait.value),
        penalty: limit.penalty.value,
        charge_always: limit.charge_always,
        on_store_failure: limit.on_store_failure,
        when_full: when_full(limit),
        consistency: limit.consistency.value,
        colocate: limit.colocate.as_ref().map(|by| by.value.clone()),
        status: limit.status,
        message: limit.message.clone(),
        bucket: limit
            .bucket
            .as_ref()
            .map(|bucket| super::bucket::opaque_id(&bucket.value, secret)),
    };
    Ok(DraftLimit {
        rule,
        matching: limit.matching.clone(),
        group: limit.group.as_ref().map(|group| group.value.clone()),
        keys: meters.keys,
    })
}

/// Whether no request is left out and none is told from another by where it goes.
fn applies_to_all(limit: &LimitRule, key: &[KeyPart]) -> bool {
    let is_place = |part: &KeyPart| {
        matches!(
            part.attribute.value,
            Attribute::Host | Attribute::Path | Attribute::Route | Attribute::Method
        )
    };
    limit.matching.conditions.is_empty() && !key.iter().any(is_place)
}

/// What becomes of a limit's keys when memory is full. Whoever can make up keys escapes a limit by making up another one, so
/// the default does not refuse others to stop that client.
pub(crate) fn when_full(limit: &LimitRule) -> WhenFull {
    let key = full_key(limit);
    let is_chosen = key
        .iter()
        .any(|part| part.attribute.value.is_client_chosen());
    limit.when_full.unwrap_or(if is_chosen {
        WhenFull::Forget
    } else {
        WhenFull::Refuse
    })
}

/// All parts of a key, those of the narrowest level included.
pub(crate) fn full_key(limit: &LimitRule) -> Vec<KeyPart> {
    let levels = limit.levels.iter().flat_map(|level| level.key.iter());
    limit.key.iter().chain(levels).cloned().collect()
}

/// What the state of a limit is known by.
pub(super) fn identity(limit: &LimitRule) -> String {
    match (&limit.bucket, &limit.id) {
        (Some(bucket), _) => format!("@{}", bucket.value),
        (None, Some(id)) => format!("id:{}", id.value),
        (None, None) => limit.name.value.to_string(),
    }
}

/// What the limit grants: its own quota, each tier, each override.
fn compile_variants(limit: &LimitRule, problems: &mut Vec<Diagnostic>) -> Vec<QuotaGrant> {
    let tiers = limit.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let quotas = std::iter::once(&limit.quota)
        .chain(tiers.map(|(_, quota)| quota))
        .chain(limit.overrides.iter().map(|over| &over.quota));
    quotas
        .map(|quota| compile_or_report(quota, limit.overdraft, problems))
        .collect()
}

fn compile_single(
    quota: &Located<QuotaSpec>,
    overdraft: u64,
    problems: &mut Vec<Diagnostic>,
) -> Vec<QuotaGrant> {
    vec![compile_or_report(quota, overdraft, problems)]
}

/// A quota that cannot be honoured leaves its problems behind and is passed over.
fn compile_or_report(
    quota: &Located<QuotaSpec>,
    overdraft: u64,
    problems: &mut Vec<Diagnostic>,
) -> QuotaGrant {
    compile_quota(quota, overdraft).unwrap_or_else(|found| {
        problems.extend(found);
        QuotaGrant::Unlimited
    })
}

fn build_selector(
    limit: &LimitRule,
    key: &[KeyPart],
    secret: [u8; 16],
    problems: &mut Vec<Diagnostic>,
) -> VariantSelector {
    let mut choice = VariantSelector::own_quota();
    let mut next = 1;
    if let Some(tiers) = &limit.tiers {
        let names = tiers.tiers.iter().map(|(name, _)| &*name.value);
        choice = choice.with_tiers(tiers.by.value.clone(), names);
        next += tiers.tiers.len();
    }
    let recipe = KeySpec::new(key.to_vec());
    let mut buffer = KeyBuffer::new();
    for (over, variant) in limit.overrides.iter().zip(next..) {
        let values = &over.key.value;
        if recipe
            .write_key_of_values(values, secret, &mut buffer)
            .is_some()
        {
            choice.override_key(buffer.as_bytes(), variant);
        } else {
            problems.push(override_key_error(limit, over, key));
        }
    }
    choice
}

fn override_key_error(
    limit: &LimitRule,
    over: &crate::model::QuotaOverride,
    key: &[KeyPart],
) -> Diagnostic {
    let parts: Vec<_> = key
        .iter()
        .map(|part| part.attribute.value.to_string())
        .collect();
    let parts = parts.join(", ");
    if over.key.value.len() == key.len() {
        return problem(
            over.key.location,
            &format!(
                "an override of `{}` has a value for `ip` that is no address",
                limit.name.value
            ),
            "write one address, such as 192.0.2.7 or 2001:db8::7",
        );
    }
    problem(
        over.key.location,
        &format!(
            "an override of `{}` gives {} values, and its key has {} parts",
            limit.name.value,
            over.key.value.len(),
            key.len()
        ),
        &format!("give one value for each of: {parts}"),
    )
}

/// The meters of one limit while they are collected.
struct MeterCollector {
    identity: String,
    fixed_id: Option<u16>,
    meters: Vec<Meter>,
    keys: Vec<KeySpec>,
    problems: Vec<Diagnostic>,
}

impl MeterCollector {
    fn new(limit: &LimitRule) -> Self {
        Self {
            identity: identity(limit),
            fixed_id: limit.id.as_ref().map(|id| id.value),
            meters: Vec::new(),
            keys: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// One meter for each state that these variants need.
    fn add(
        &mut self,
        role: MeterRole,
        suffix: &str,
        level: Option<&str>,
        variants: &[QuotaGrant],
        key: &KeySpec,
    ) {
        for (slot, which) in group_into_states(variants).into_iter().zip(1..) {
            let built = match slot.build(variants.len()) {
                Ok(built) => built,
                Err((place, why)) => {
                    let message = why.to_string();
                    self.problems.push(Diagnostic {
                        location: place,
                        message: message.into(),
                        help: None,
                    });
                    continue;
                }
            };
            let identity = match which {
                1 => format!("{}{suffix}", self.identity),
                _ => format!("{}{suffix}#{which}", self.identity),
            };
            self.meters.push(Meter {
                identity: identity.into(),
                fixed_id: self.fixed_id.take(),
                role,
                level: level.map(Box::from),
                quotas: built.quotas,
                grants: built.grants,
            });
            self.keys.push(key.clone());
        }
    }

    /// The states that remember which values were seen, where the limit counts different values: each is spent once for
    /// as long as the value counts.
    fn add_distinct(&mut self, limit: &LimitRule, variants: &[QuotaGrant], key: &[KeyPart]) {
        let Some(distinct) = &limit.distinct else {
            return;
        };
        let mut seen = Vec::with_capacity(variants.len());
        for granted in variants {
            let (formula, place) = match granted {
                QuotaGrant::Windows(windows) => match windows.as_slice() {
                    [only] => (only.builder, only.location),
                    [] => {
                        seen.push(QuotaGrant::Unlimited);
                        continue;
                    }
                    _ => {
                        self.problems.push(problem(
                            distinct.location,
                            "`distinct` counts different values in one window, and this limit has several",
                            "give each window a limit of its own",
                        ));
                        return;
                    }
                },
                QuotaGrant::Computed(computed) => (computed.builder, computed.location),
                QuotaGrant::Unlimited => {
                    seen.push(QuotaGrant::Unlimited);
                    continue;
                }
            };
            let Some(shape) = formula.spec.distinct_value_spec() else {
                self.problems.push(problem(
                    distinct.location,
                    "`distinct` counts different values in a time, and `concurrency` has none",
                    "say a `rate`, such as `1000 per 10s`",
                ));
                return;
            };
            seen.push(QuotaGrant::Windows(vec![WindowGrant {
                location: place,
                builder: QuotaBuilder::new(shape, QuotaUnit::Requests),
                units: 1,
                period: None,
            }]));
        }
        let key = KeySpec::new(key.to_vec()).with_distinct(distinct.value.clone());
        self.add(MeterRole::Distinct, "!seen", None, &seen, &key);
    }

    /// What stands beside the quotas: a local bucket, a candidate, blocks.
    fn add_auxiliary(&mut self, limit: &LimitRule, key: &[KeyPart]) {
        let key = KeySpec::new(key.to_vec());
        if let Some(local) = &limit.local {
            let variants = compile_single(local, 0, &mut self.problems);
            self.add(MeterRole::Local, "!local", None, &variants, &key);
        }
        if let Some(candidate) = &limit.candidate {
            let variants = compile_single(candidate, limit.overdraft, &mut self.problems);
            self.add(MeterRole::Candidate, "!candidate", None, &variants, &key);
        }
        if let Penalty::Block(length) = limit.penalty.value {
            let block = QuotaGrant::Windows(vec![WindowGrant {
                location: limit.penalty.location,
                builder: QuotaBuilder::new(AlgorithmSpec::TokenBucket(length), QuotaUnit::Requests),
                units: 1,
                period: None,
            }]);
            self.add(MeterRole::Block, "!block", None, &[block], &key);
        }
    }

    /// A hierarchy's quotas are its levels'; there is nothing that tiers or overrides would replace.
    fn reject_beside_levels(&mut self, limit: &LimitRule) {
        let tiers = limit
            .tiers
            .as_ref()
            .map(|tiers| ("tiers", tiers.by.location));
        let overrides = limit
            .overrides
            .first()
            .map(|over| ("overrides", over.key.location));
        let distinct = limit.distinct.as_ref().map(|by| ("distinct", by.location));
        for (field, place) in [tiers, overrides, distinct].into_iter().flatten() {
            self.problems.push(problem(
                place,
                &format!("`{field}` cannot stand beside `levels`: it would not be clear which level is meant"),
                "give the level that is meant a limit of its own",
            ));
        }
    }
}
