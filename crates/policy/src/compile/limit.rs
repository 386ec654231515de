//! One limit of a policy becomes one rule: its meters with their identities, their quotas and their keys.
//!
//! Must not know: other limits, how requests are matched, how keys are encoded.

use tollgate_core::QuotaUnit;

use super::problem::problem;
use super::quota::{Granting, QuotaGrant, granted};
use super::slots::slots;
use crate::attributes::Attribute;
use crate::model::{KeyPart, LimitRule, Penalty, Policy, QuotaSpec};
use crate::rules::{
    Choice, DraftLimit, Formula, KeyBuffer, MOST_METERS, Meter, Price, Recipe, Role, Rule, Shape,
};
use crate::source::{At, Diagnostic};

/// The rule of a limit.
///
/// # Errors
/// Everything about it that cannot be honoured.
pub(super) fn compile(
    policy: &Policy,
    limit: &LimitRule,
    secret: [u8; 16],
) -> Result<DraftLimit, Vec<Diagnostic>> {
    let mut meters = Meters::of(limit);
    let key = whole_key(limit);
    if limit.levels.is_empty() {
        let variants = variants(limit, &mut meters.problems);
        meters.add(Role::Main, "", None, &variants, &Recipe::of(key.clone()));
        meters.add_seen(limit, &variants, &key);
    } else {
        meters.refuse_beside_levels(limit);
        let mut key = limit.key.clone();
        for level in &limit.levels {
            key.extend(level.key.iter().cloned());
            let variants = one(&level.quota, limit.overdraft, &mut meters.problems);
            let suffix = format!("/{}", level.name.value);
            let name = Some(&*level.name.value);
            meters.add(
                Role::Main,
                &suffix,
                name,
                &variants,
                &Recipe::of(key.clone()),
            );
        }
    }
    meters.add_others(limit, &key);
    let choice = choice(limit, &key, secret, &mut meters.problems);
    if meters.out.len() > MOST_METERS {
        meters.problems.push(problem(
            limit.name.place,
            &format!(
                "`{}` needs {} states for each request, and {MOST_METERS} are the most",
                limit.name.value,
                meters.out.len()
            ),
            "give its tiers and overrides the same periods, or split it into several limits",
        ));
    }
    if !meters.problems.is_empty() {
        return Err(meters.problems);
    }
    let rule = Rule {
        name: limit.name.value.clone(),
        meters: meters.out.into(),
        choice,
        applies_to_all: applies_to_all(limit, &key),
        price: Price::of(&limit.cost),
        count: limit.count.clone(),
        mode: limit.mode.max(policy.mode),
        enforce: limit.enforce,
        wait: limit.wait.as_ref().map(|wait| wait.value),
        penalty: limit.penalty.value,
        charge_always: limit.charge_always,
        on_store_failure: limit.on_store_failure,
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

/// All parts of a key, those of the narrowest level included.
pub(crate) fn whole_key(limit: &LimitRule) -> Vec<KeyPart> {
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
fn variants(limit: &LimitRule, problems: &mut Vec<Diagnostic>) -> Vec<QuotaGrant> {
    let tiers = limit.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let quotas = std::iter::once(&limit.quota)
        .chain(tiers.map(|(_, quota)| quota))
        .chain(limit.overrides.iter().map(|over| &over.quota));
    quotas
        .map(|quota| checked(quota, limit.overdraft, problems))
        .collect()
}

fn one(quota: &At<QuotaSpec>, overdraft: u64, problems: &mut Vec<Diagnostic>) -> Vec<QuotaGrant> {
    vec![checked(quota, overdraft, problems)]
}

/// A quota that cannot be honoured leaves its problems behind and is passed over.
fn checked(quota: &At<QuotaSpec>, overdraft: u64, problems: &mut Vec<Diagnostic>) -> QuotaGrant {
    granted(quota, overdraft).unwrap_or_else(|found| {
        problems.extend(found);
        QuotaGrant::Unlimited
    })
}

fn choice(
    limit: &LimitRule,
    key: &[KeyPart],
    secret: [u8; 16],
    problems: &mut Vec<Diagnostic>,
) -> Choice {
    let mut choice = Choice::own();
    let mut next = 1;
    if let Some(tiers) = &limit.tiers {
        let names = tiers.tiers.iter().map(|(name, _)| &*name.value);
        choice = choice.with_tiers(tiers.by.value.clone(), names);
        next += tiers.tiers.len();
    }
    let recipe = Recipe::of(key.to_vec());
    let mut buffer = KeyBuffer::new();
    for (over, variant) in limit.overrides.iter().zip(next..) {
        let values = &over.key.value;
        if recipe.key_of(values, secret, &mut buffer).is_some() {
            choice.override_key(buffer.as_bytes(), variant);
        } else {
            problems.push(not_a_key(limit, over, key));
        }
    }
    choice
}

fn not_a_key(limit: &LimitRule, over: &crate::model::QuotaOverride, key: &[KeyPart]) -> Diagnostic {
    let parts: Vec<_> = key
        .iter()
        .map(|part| part.attribute.value.to_string())
        .collect();
    let parts = parts.join(", ");
    if over.key.value.len() == key.len() {
        return problem(
            over.key.place,
            &format!(
                "an override of `{}` has a value for `ip` that is no address",
                limit.name.value
            ),
            "write one address, such as 192.0.2.7 or 2001:db8::7",
        );
    }
    problem(
        over.key.place,
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
struct Meters {
    identity: String,
    number: Option<u16>,
    out: Vec<Meter>,
    keys: Vec<Recipe>,
    problems: Vec<Diagnostic>,
}

impl Meters {
    fn of(limit: &LimitRule) -> Self {
        Self {
            identity: identity(limit),
            number: limit.id.as_ref().map(|id| id.value),
            out: Vec::new(),
            keys: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// One meter for each state that these variants need.
    fn add(
        &mut self,
        role: Role,
        suffix: &str,
        level: Option<&str>,
        variants: &[QuotaGrant],
        key: &Recipe,
    ) {
        for (slot, which) in slots(variants).into_iter().zip(1..) {
            let built = match slot.build(variants.len()) {
                Ok(built) => built,
                Err((place, why)) => {
                    let message = why.to_string();
                    self.problems.push(Diagnostic {
                        place,
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
            self.out.push(Meter {
                identity: identity.into(),
                number: self.number.take(),
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
    fn add_seen(&mut self, limit: &LimitRule, variants: &[QuotaGrant], key: &[KeyPart]) {
        let Some(distinct) = &limit.distinct else {
            return;
        };
        let mut seen = Vec::with_capacity(variants.len());
        for granted in variants {
            let (formula, place) = match granted {
                QuotaGrant::Windows(windows) => match windows.as_slice() {
                    [only] => (only.formula, only.place),
                    [] => {
                        seen.push(QuotaGrant::Unlimited);
                        continue;
                    }
                    _ => {
                        self.problems.push(problem(
                            distinct.place,
                            "`distinct` counts different values in one window, and this limit has several",
                            "give each window a limit of its own",
                        ));
                        return;
                    }
                },
                QuotaGrant::Computed(computed) => (computed.formula, computed.place),
                QuotaGrant::Unlimited => {
                    seen.push(QuotaGrant::Unlimited);
                    continue;
                }
            };
            let Some(shape) = formula.shape.remembering() else {
                self.problems.push(problem(
                    distinct.place,
                    "`distinct` counts different values in a time, and `concurrency` has none",
                    "say a `rate`, such as `1000 per 10s`",
                ));
                return;
            };
            seen.push(QuotaGrant::Windows(vec![Granting {
                place,
                formula: Formula::of(shape, QuotaUnit::Requests),
                units: 1,
                period: None,
            }]));
        }
        let key = Recipe::of(key.to_vec()).for_each(distinct.value.clone());
        self.add(Role::Seen, "!seen", None, &seen, &key);
    }

    /// What stands beside the quotas: a local bucket, a candidate, blocks.
    fn add_others(&mut self, limit: &LimitRule, key: &[KeyPart]) {
        let key = Recipe::of(key.to_vec());
        if let Some(local) = &limit.local {
            let variants = one(local, 0, &mut self.problems);
            self.add(Role::Local, "!local", None, &variants, &key);
        }
        if let Some(candidate) = &limit.candidate {
            let variants = one(candidate, limit.overdraft, &mut self.problems);
            self.add(Role::Candidate, "!candidate", None, &variants, &key);
        }
        if let Penalty::Block(length) = limit.penalty.value {
            let block = QuotaGrant::Windows(vec![Granting {
                place: limit.penalty.place,
                formula: Formula::of(Shape::TokenBucket(length), QuotaUnit::Requests),
                units: 1,
                period: None,
            }]);
            self.add(Role::Block, "!block", None, &[block], &key);
        }
    }

    /// A hierarchy's quotas are its levels'; there is nothing that tiers or overrides would replace.
    fn refuse_beside_levels(&mut self, limit: &LimitRule) {
        let tiers = limit.tiers.as_ref().map(|tiers| ("tiers", tiers.by.place));
        let overrides = limit
            .overrides
            .first()
            .map(|over| ("overrides", over.key.place));
        let distinct = limit.distinct.as_ref().map(|by| ("distinct", by.place));
        for (field, place) in [tiers, overrides, distinct].into_iter().flatten() {
            self.problems.push(problem(
                place,
                &format!("`{field}` cannot stand beside `levels`: it would not be clear which level is meant"),
                "give the level that is meant a limit of its own",
            ));
        }
    }
}
