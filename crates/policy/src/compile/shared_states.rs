//! Groups the quotas of one limit (its own, its tiers, its overrides) by the states that they can share.
//!
//! Quotas share a state only if neither loses the other's counts: buckets with one ceiling, sliding windows of one
//! length and one ceiling, fixed windows with the same begin and end. Each other quota gets its own state. So a client
//! gains no quota by changing between tiers. Must not know: names, keys.

use std::collections::HashMap;

use tollgate_core::limit::Limit;
use tollgate_core::{InvalidQuota, Nanos};

use super::quota::{ComputedGrant, QuotaGrant, WindowGrant};
use crate::model::Burst;
use crate::rules::{AlgorithmSpec, ComputedQuota, MeterGrant, QuotaBuilder, share_state};
use crate::source::SourceLocation;

/// The quota of one variant in a shared state.
#[derive(Clone, Debug)]
enum VariantQuota {
    Units(WindowGrant),
    Computed(ComputedGrant),
}

impl VariantQuota {
    const fn builder(&self) -> &QuotaBuilder {
        match self {
            Self::Units(window) => &window.builder,
            Self::Computed(computed) => &computed.builder,
        }
    }

    const fn location(&self) -> SourceLocation {
        match self {
            Self::Units(window) => window.location,
            Self::Computed(computed) => computed.location,
        }
    }

    /// The maximum count that this quota allows in a window.
    const fn max_count(&self) -> u64 {
        match self {
            Self::Units(window) => window.units.saturating_add(window.builder.overdraft),
            Self::Computed(computed) => computed.at_most.saturating_add(computed.builder.overdraft),
        }
    }
}

/// One state and the quota of each variant in it.
#[derive(Debug)]
pub(super) struct SharedState {
    variant_quotas: Vec<Option<VariantQuota>>,
}

/// The quotas of one state, and the grant of each variant.
pub(super) struct BuiltState {
    pub(super) quotas: Box<[Limit]>,
    pub(super) grants: Box<[MeterGrant]>,
}

/// Groups the variants into states, in the order of the first variant's windows.
pub(super) fn group_into_states(variants: &[QuotaGrant]) -> Vec<SharedState> {
    let mut states: Vec<SharedState> = Vec::new();
    for (variant, grant) in variants.iter().enumerate() {
        let quotas: Vec<VariantQuota> = match grant {
            QuotaGrant::Windows(windows) => {
                windows.iter().copied().map(VariantQuota::Units).collect()
            }
            QuotaGrant::Computed(computed) => vec![VariantQuota::Computed(computed.clone())],
            QuotaGrant::Unlimited => Vec::new(),
        };
        // Windows with the same period share a state first, in any order.
        let (mut used, mut unplaced) = (Vec::new(), Vec::new());
        for quota in quotas {
            let same = |state: &SharedState| state.spec() == Some(quota.builder().spec);
            match find_compatible(&states, &quota, same, &used) {
                Some(index) => {
                    used.push(index);
                    assign(&mut states, index, variant, quota);
                }
                None => unplaced.push(quota),
            }
        }
        for quota in unplaced {
            let index = find_compatible(&states, &quota, |_| true, &used).unwrap_or(states.len());
            used.push(index);
            assign(&mut states, index, variant, quota);
        }
    }
    states
}

/// The first state that the variant does not use yet and that its quota can share.
fn find_compatible(
    states: &[SharedState],
    quota: &VariantQuota,
    fits: impl Fn(&SharedState) -> bool,
    used: &[usize],
) -> Option<usize> {
    states
        .iter()
        .enumerate()
        .find(|(index, state)| {
            !used.contains(index) && state.can_share(quota.builder()) && fits(state)
        })
        .map(|(index, _)| index)
}

fn assign(states: &mut Vec<SharedState>, index: usize, variant: usize, quota: VariantQuota) {
    if index >= states.len() {
        states.push(SharedState {
            variant_quotas: Vec::new(),
        });
    }
    if let Some(state) = states.get_mut(index) {
        state.variant_quotas.resize(variant, None);
        state.variant_quotas.push(Some(quota));
    }
}

impl SharedState {
    fn builder(&self) -> Option<&QuotaBuilder> {
        self.variant_quotas
            .iter()
            .flatten()
            .next()
            .map(VariantQuota::builder)
    }

    fn spec(&self) -> Option<AlgorithmSpec> {
        self.builder().map(|builder| builder.spec)
    }

    fn can_share(&self, builder: &QuotaBuilder) -> bool {
        self.builder()
            .is_some_and(|own| own.shares_state_with(builder))
    }

    /// Builds the quotas of this state and the grants.
    ///
    /// # Errors
    /// The error of core, with the location of the quota.
    pub(super) fn build(
        self,
        variants: usize,
    ) -> Result<BuiltState, (SourceLocation, InvalidQuota)> {
        let quotas: Vec<VariantQuota> = self.variant_quotas.iter().flatten().cloned().collect();
        let ceiling = quotas
            .iter()
            .map(VariantQuota::max_count)
            .max()
            .unwrap_or(0);
        let with_ceiling = |mut builder: QuotaBuilder| {
            if builder.spec.properties().has_ceiling {
                builder.ceiling = ceiling;
            }
            builder
        };
        let mut limits: Vec<Limit> = Vec::new();
        let mut known: HashMap<(QuotaBuilder, u64), usize> = HashMap::new();
        let mut widest: Vec<Limit> = Vec::new();
        let mut grants = Vec::with_capacity(variants);
        for quota in self.variant_quotas {
            let Some(quota) = quota else {
                grants.push(MeterGrant::Unlimited);
                continue;
            };
            let builder = with_ceiling(*quota.builder());
            let units = match &quota {
                VariantQuota::Units(window) => window.units,
                VariantQuota::Computed(computed) => computed.base,
            };
            let base_index = match known.get(&(builder, units)) {
                Some(index) => *index,
                None => {
                    let limit = builder
                        .build(units)
                        .map_err(|error| (quota.location(), error))?;
                    limits.push(limit);
                    known.insert((builder, units), limits.len() - 1);
                    limits.len() - 1
                }
            };
            grants.push(match quota {
                VariantQuota::Units(_) => MeterGrant::Index(base_index),
                VariantQuota::Computed(computed) => {
                    let most = builder
                        .build(computed.at_most)
                        .map_err(|error| (computed.location, error))?;
                    widest.push(most);
                    widest.extend(widest_between(&builder, &computed));
                    MeterGrant::Computed(Box::new(ComputedQuota {
                        builder,
                        base: computed.base,
                        each: computed.each,
                        times: computed.times,
                        at_most: computed.at_most,
                        base_index,
                        ceiling_limit: most,
                    }))
                }
            });
        }
        grants.resize(variants, MeterGrant::Unlimited);
        share_ceiling(&mut limits, &widest, &mut grants);
        Ok(BuiltState {
            quotas: limits.into(),
            grants: grants.into(),
        })
    }
}

/// Raises the ceiling of every quota to the maximum of all.
fn share_ceiling(limits: &mut [Limit], widest: &[Limit], grants: &mut [MeterGrant]) {
    let all = limits.iter().chain(widest).copied();
    let Some(top) = all.reduce(|top, limit| share_state(top, &limit)) else {
        return;
    };
    for limit in limits {
        *limit = share_state(*limit, &top);
    }
    for grant in grants {
        if let MeterGrant::Computed(computed) = grant {
            computed.ceiling_limit = top;
        }
    }
}

/// A bucket whose ceiling is at least that of every quota that can be computed. The emission interval is rounded up, so
/// a number between base and maximum may have a higher ceiling than both.
fn widest_between(builder: &QuotaBuilder, computed: &ComputedGrant) -> Option<Limit> {
    let slowest = if computed.base > 0 {
        computed.base
    } else {
        computed.each.max(1).min(computed.at_most)
    };
    let plain = builder.build(slowest).ok()?;
    let refill = (builder.spec.properties().refill)(plain.quota())?;
    let (interval, period) = refill.every.zip(builder.span())?;
    let reach = match builder.burst {
        Some(Burst::Units(_)) => return Some(plain),
        Some(Burst::Auto) => Nanos::from_secs(10),
        None => period,
    };
    let blocks = reach.as_nanos().saturating_add(computed.at_most) / interval.as_nanos().max(1);
    let mut wide = *builder;
    wide.burst = Some(Burst::Units(
        blocks.saturating_add(2).saturating_mul(builder.block),
    ));
    Some(wide.build(slowest).unwrap_or(plain))
}
