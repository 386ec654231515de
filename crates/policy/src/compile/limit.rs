//! Compiles one limit of a policy to one rule: meters with their identities, quotas and keys.
//!
//! Must not know: other limits, how requests are matched, how keys are encoded.

use tollgate_core::{Nanos, QuotaUnit};

use super::preflights::names_options;
use super::quota::{QuotaGrant, WindowGrant, compile_quota};
use super::shared_states::group_into_states;
use crate::attributes::Attribute;
use crate::model::{
    Amount, Burst, KeyPart, LimitRule, Penalty, Policy, QuotaSpec, RateSpec, WhenFull,
};
use crate::rules::{
    AlgorithmSpec, CostRule, DraftLimit, KeyBuffer, KeySpec, MAX_METERS, Meter, MeterRole,
    QuotaBuilder, Rule, VariantSelector,
};
use crate::source::{Diagnostic, Located};

/// Compiles a limit.
///
/// # Errors
/// Everything in the limit that is not supported.
pub(super) fn compile(
    policy: &Policy,
    limit: &LimitRule,
    secret: [u8; 16],
) -> Result<DraftLimit, Vec<Diagnostic>> {
    let mut collector = MeterCollector::new(limit);
    let key = full_key(limit);
    if let Some(shares) = &limit.shares {
        collector.add_shares(limit, shares, &key);
    } else if limit.levels.is_empty() {
        let variants = compile_variants(limit, &mut collector.diagnostics);
        collector.add(
            MeterRole::Main,
            "",
            None,
            &variants,
            &KeySpec::new(key.clone()),
        );
        collector.add_distinct(limit, &variants, &key);
    } else {
        collector.reject_beside_levels(limit);
        collector.add_levels(limit);
    }
    collector.add_auxiliary(limit, &key);
    let selector = build_selector(limit, &key, secret, &mut collector.diagnostics);
    if collector.meters.len() > MAX_METERS {
        collector.diagnostics.push(Diagnostic::new(
            limit.name.location,
            format!(
                "`{}` needs {} states for each request, the maximum is {MAX_METERS}",
                limit.name.value,
                collector.meters.len()
            ),
            "give its tiers and overrides the same periods, or split it into several limits",
        ));
    }
    if !collector.diagnostics.is_empty() {
        return Err(collector.diagnostics);
    }
    let rule = Rule {
        name: limit.name.value.clone(),
        meters: collector.meters.into(),
        selector,
        applies_to_all: applies_to_all(limit, &key),
        applies_to_preflights: names_options(limit),
        waits_for_claims: false,
        cost: CostRule::new(&limit.cost),
        count: limit.count.clone(),
        refund: limit.refund.as_slice().into(),
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
        keys: collector.keys,
    })
}

/// Whether the limit applies to every request and its key does not depend on the target of the request.
fn applies_to_all(limit: &LimitRule, key: &[KeyPart]) -> bool {
    let is_target = |part: &KeyPart| {
        matches!(
            part.attribute.value,
            Attribute::Host | Attribute::Path | Attribute::Route | Attribute::Method
        )
    };
    limit.matching.conditions.is_empty() && !key.iter().any(is_target)
}

/// What becomes of a limit's keys when memory is full. A client that can make up keys escapes a limit by making up another, so
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

/// All parts of the key, including those of all levels.
pub(crate) fn full_key(limit: &LimitRule) -> Vec<KeyPart> {
    let levels = limit.levels.iter().flat_map(|level| level.key.iter());
    limit.key.iter().chain(levels).cloned().collect()
}

/// The identity of the limit's state.
pub(super) fn identity(limit: &LimitRule) -> String {
    match (&limit.bucket, &limit.id) {
        (Some(bucket), _) => format!("@{}", bucket.value),
        (None, Some(id)) => format!("id:{}", id.value),
        (None, None) => limit.name.value.to_string(),
    }
}

/// The compiled quotas of a limit: its own, each tier, each override.
fn compile_variants(limit: &LimitRule, diagnostics: &mut Vec<Diagnostic>) -> Vec<QuotaGrant> {
    let tiers = limit.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let quotas = std::iter::once(&limit.quota)
        .chain(tiers.map(|(_, quota)| quota))
        .chain(limit.overrides.iter().map(|over| &over.quota));
    quotas
        .map(|quota| compile_or_report(quota, limit.overdraft, diagnostics))
        .collect()
}

fn compile_single(
    quota: &Located<QuotaSpec>,
    overdraft: u64,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<QuotaGrant> {
    vec![compile_or_report(quota, overdraft, diagnostics)]
}

/// If the quota is invalid, adds its diagnostics and returns an unlimited grant.
fn compile_or_report(
    quota: &Located<QuotaSpec>,
    overdraft: u64,
    diagnostics: &mut Vec<Diagnostic>,
) -> QuotaGrant {
    compile_quota(quota, overdraft).unwrap_or_else(|errors| {
        diagnostics.extend(errors);
        QuotaGrant::Unlimited
    })
}

fn build_selector(
    limit: &LimitRule,
    key: &[KeyPart],
    secret: [u8; 16],
    diagnostics: &mut Vec<Diagnostic>,
) -> VariantSelector {
    let mut selector = VariantSelector::own_quota();
    let mut next = 1;
    if let Some(tiers) = &limit.tiers {
        let names = tiers.tiers.iter().map(|(name, _)| &*name.value);
        let quotas =
            std::iter::once(&limit.quota).chain(tiers.tiers.iter().map(|(_, quota)| quota));
        selector = selector
            .with_tiers(tiers.by.value.clone(), names)
            .with_generosity(quotas.map(|quota| generosity(&quota.value)));
        next += tiers.tiers.len();
    }
    if let Some(shares) = &limit.shares {
        let names = shares.shares.iter().map(|(name, _)| &*name.value);
        let parts = shares
            .shares
            .iter()
            .map(|(_, part)| part.value.hundredths());
        selector = selector
            .with_tiers(shares.by.value.clone(), names)
            .with_generosity(std::iter::once(0).chain(parts.map(u128::from)));
    }
    let recipe = KeySpec::new(key.to_vec());
    let mut buffer = KeyBuffer::new();
    for (over, variant) in limit.overrides.iter().zip(next..) {
        let values = &over.key.value;
        if recipe
            .write_key_of_values(values, secret, &mut buffer)
            .is_some()
        {
            selector.override_key(buffer.as_bytes(), variant);
        } else {
            diagnostics.push(override_key_error(limit, over, key));
        }
    }
    selector
}

/// How much a quota admits in the long run; only to compare quotas of one limit.
fn generosity(quota: &QuotaSpec) -> u128 {
    let per_time = |rate: &RateSpec| {
        let period = rate.period.fixed_length().as_nanos().max(1);
        (u128::from(rate.units) << 63) / u128::from(period)
    };
    match &quota.amount {
        Amount::Rates(rates) => {
            let rates = rates.iter().map(|rate| per_time(&rate.value));
            rates.min().unwrap_or(u128::MAX)
        }
        Amount::Concurrency { permits, .. } => (*permits).into(),
        Amount::Computed(computed) => per_time(&computed.at_most.value),
        Amount::Unlimited => u128::MAX,
    }
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
        return Diagnostic::new(
            over.key.location,
            format!(
                "an override of `{}` has an invalid address for `ip`",
                limit.name.value
            ),
            "write one address, such as 192.0.2.7 or 2001:db8::7",
        );
    }
    Diagnostic::new(
        over.key.location,
        format!(
            "an override of `{}` has {} values, and its key has {} parts",
            limit.name.value,
            over.key.value.len(),
            key.len()
        ),
        format!("write one value for each of: {parts}"),
    )
}

/// Collects the meters of one limit.
pub(super) struct MeterCollector {
    identity: String,
    fixed_id: Option<u16>,
    meters: Vec<Meter>,
    keys: Vec<KeySpec>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl MeterCollector {
    fn new(limit: &LimitRule) -> Self {
        Self {
            identity: identity(limit),
            fixed_id: limit.id.as_ref().map(|id| id.value),
            meters: Vec::new(),
            keys: Vec::new(),
            diagnostics: Vec::new(),
        }
    }

    /// Adds one meter for each state that these variants need.
    pub(super) fn add(
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
                Err((location, error)) => {
                    let message = error.to_string();
                    self.diagnostics.push(Diagnostic {
                        location,
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

    /// Adds one meter per level. The key of a level begins with the key of the level above.
    fn add_levels(&mut self, limit: &LimitRule) {
        let mut key = limit.key.clone();
        for level in &limit.levels {
            key.extend(level.key.iter().cloned());
            let variants = compile_single(&level.quota, limit.overdraft, &mut self.diagnostics);
            let suffix = format!("/{}", level.name.value);
            let name = Some(&*level.name.value);
            let key = KeySpec::new(key.clone());
            self.add(MeterRole::Main, &suffix, name, &variants, &key);
        }
    }

    /// Adds the states that remember distinct values. A value spends its state once; the state refills when the value
    /// no longer counts.
    fn add_distinct(&mut self, limit: &LimitRule, variants: &[QuotaGrant], key: &[KeyPart]) {
        let Some(distinct) = &limit.distinct else {
            return;
        };
        let mut distinct_grants = Vec::with_capacity(variants.len());
        for grant in variants {
            let (builder, location) = match grant {
                QuotaGrant::Windows(windows) => match windows.as_slice() {
                    [only] => (only.builder, only.location),
                    [] => {
                        distinct_grants.push(QuotaGrant::Unlimited);
                        continue;
                    }
                    _ => {
                        self.diagnostics.push(Diagnostic::new(
                            distinct.location,
                            "`distinct` supports one window, and this limit has several",
                            "use a separate limit for each window",
                        ));
                        return;
                    }
                },
                QuotaGrant::Computed(computed) => (computed.builder, computed.location),
                QuotaGrant::Unlimited => {
                    distinct_grants.push(QuotaGrant::Unlimited);
                    continue;
                }
            };
            let Some(spec) = builder.spec.distinct_value_spec() else {
                self.diagnostics.push(Diagnostic::new(
                    distinct.location,
                    "`distinct` needs a period, and `concurrency` has none",
                    "use a `rate`, such as `1000 per 10s`",
                ));
                return;
            };
            distinct_grants.push(QuotaGrant::Windows(vec![WindowGrant {
                location,
                builder: QuotaBuilder::new(spec, QuotaUnit::Requests),
                units: 1,
                period: None,
            }]));
        }
        let key = KeySpec::new(key.to_vec()).with_distinct(distinct.value.clone());
        self.add(MeterRole::Distinct, "!seen", None, &distinct_grants, &key);
    }

    /// Adds the meters of the local bucket, the candidate and blocks.
    fn add_auxiliary(&mut self, limit: &LimitRule, key: &[KeyPart]) {
        let key = KeySpec::new(key.to_vec());
        if let Some(local) = &limit.local {
            let variants = compile_single(local, 0, &mut self.diagnostics);
            self.add(MeterRole::Local, "!local", None, &variants, &key);
        }
        if let Some(spillover) = &limit.spillover {
            let variants = compile_single(spillover, limit.overdraft, &mut self.diagnostics);
            self.add(MeterRole::Spillover, "!spillover", None, &variants, &key);
        }
        if let Some(candidate) = &limit.candidate {
            let variants = compile_single(candidate, limit.overdraft, &mut self.diagnostics);
            self.add(MeterRole::Candidate, "!candidate", None, &variants, &key);
        }
        let bucket = |length: Nanos, burst: u64| {
            let mut builder =
                QuotaBuilder::new(AlgorithmSpec::TokenBucket(length), QuotaUnit::Requests);
            builder.burst = Some(Burst::Units(burst));
            QuotaGrant::Windows(vec![WindowGrant {
                location: limit.penalty.location,
                builder,
                units: 1,
                period: None,
            }])
        };
        match limit.penalty.value {
            Penalty::None | Penalty::Count => {}
            Penalty::Block(length) => {
                self.add(MeterRole::Block, "!block", None, &[bucket(length, 1)], &key);
            }
            Penalty::Escalate(steps) => {
                // One state with a quota for each length. The offences are a bucket that forgets one after another.
                let lengths = steps.lengths();
                let blocks: Vec<_> = lengths.iter().map(|length| bucket(*length, 1)).collect();
                self.add(MeterRole::Block, "!block", None, &blocks, &key);
                let offences = bucket(steps.forget, u64::try_from(lengths.len()).unwrap_or(1));
                self.add(MeterRole::Offences, "!offences", None, &[offences], &key);
            }
        }
    }

    /// A hierarchy has quotas only on its levels, so tiers and overrides have nothing to replace.
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
        for (field, location) in [tiers, overrides, distinct].into_iter().flatten() {
            self.diagnostics.push(Diagnostic::new(
                location,
                format!("`{field}` cannot be combined with `levels`"),
                "use a separate limit for the level",
            ));
        }
    }
}
