//! The quotas of one limit (its own, its tiers, its overrides) brought together into states that they can share.
//!
//! Quotas share a state only if neither forgets what the other has counted: buckets under the largest of their
//! ceilings, sliding windows of one length and one ceiling, fixed windows that turn together. Whatever cannot share gets a
//! state of its own, in which the others have no part; so changing between tiers mints nothing. Must not know: names, keys.

use std::collections::HashMap;

use tollgate_core::limit::Limit;
use tollgate_core::{InvalidQuota, Nanos};

use super::quota::{ComputedGrant, QuotaGrant, WindowGrant};
use crate::model::Burst;
use crate::rules::{AlgorithmSpec, ComputedQuota, MeterGrant, QuotaBuilder, share_state};
use crate::source::SourceLocation;

/// What one variant asks of a slot.
#[derive(Clone, Debug)]
enum VariantQuota {
    Units(WindowGrant),
    Computed(ComputedGrant),
}

impl VariantQuota {
    const fn formula(&self) -> &QuotaBuilder {
        match self {
            Self::Units(granting) => &granting.builder,
            Self::Computed(computed) => &computed.builder,
        }
    }

    const fn place(&self) -> SourceLocation {
        match self {
            Self::Units(granting) => granting.location,
            Self::Computed(computed) => computed.location,
        }
    }

    /// The largest count that this quota lets a window hold.
    const fn max_count(&self) -> u64 {
        match self {
            Self::Units(granting) => granting.units.saturating_add(granting.builder.overdraft),
            Self::Computed(computed) => computed.at_most.saturating_add(computed.builder.overdraft),
        }
    }
}

/// One state, and what each variant asks of it.
#[derive(Debug)]
pub(super) struct SharedState {
    variant_quotas: Vec<Option<VariantQuota>>,
}

/// The quotas of one state, and which of them each variant gets.
pub(super) struct BuiltState {
    pub(super) quotas: Box<[Limit]>,
    pub(super) grants: Box<[MeterGrant]>,
}

/// The states that these variants need, in the order of the first variant's windows.
pub(super) fn group_into_states(variants: &[QuotaGrant]) -> Vec<SharedState> {
    let mut slots: Vec<SharedState> = Vec::new();
    for (variant, granted) in variants.iter().enumerate() {
        let asks: Vec<VariantQuota> = match granted {
            QuotaGrant::Windows(windows) => {
                windows.iter().copied().map(VariantQuota::Units).collect()
            }
            QuotaGrant::Computed(computed) => vec![VariantQuota::Computed(computed.clone())],
            QuotaGrant::Unlimited => Vec::new(),
        };
        // Windows of the same period find each other first, whatever their order in the file.
        let (mut placed, mut rest) = (Vec::new(), Vec::new());
        for ask in asks {
            let same = |slot: &SharedState| slot.shape() == Some(ask.formula().spec);
            match find_compatible(&slots, &ask, same, &placed) {
                Some(index) => {
                    placed.push(index);
                    assign(&mut slots, index, variant, ask);
                }
                None => rest.push(ask),
            }
        }
        for ask in rest {
            let index = find_compatible(&slots, &ask, |_| true, &placed).unwrap_or(slots.len());
            placed.push(index);
            assign(&mut slots, index, variant, ask);
        }
    }
    slots
}

/// The first slot that the variant does not use yet and that its quota may share.
fn find_compatible(
    slots: &[SharedState],
    ask: &VariantQuota,
    fits: impl Fn(&SharedState) -> bool,
    placed: &[usize],
) -> Option<usize> {
    slots
        .iter()
        .enumerate()
        .find(|(index, slot)| {
            !placed.contains(index) && slot.can_share(ask.formula()) && fits(slot)
        })
        .map(|(index, _)| index)
}

fn assign(slots: &mut Vec<SharedState>, index: usize, variant: usize, ask: VariantQuota) {
    if index >= slots.len() {
        slots.push(SharedState {
            variant_quotas: Vec::new(),
        });
    }
    if let Some(slot) = slots.get_mut(index) {
        slot.variant_quotas.resize(variant, None);
        slot.variant_quotas.push(Some(ask));
    }
}

impl SharedState {
    fn formula(&self) -> Option<&QuotaBuilder> {
        self.variant_quotas
            .iter()
            .flatten()
            .next()
            .map(VariantQuota::formula)
    }

    fn shape(&self) -> Option<AlgorithmSpec> {
        self.formula().map(|formula| formula.spec)
    }

    fn can_share(&self, formula: &QuotaBuilder) -> bool {
        self.formula()
            .is_some_and(|held| held.shares_state_with(formula))
    }

    /// The quotas of this state and who gets which.
    ///
    /// # Errors
    /// Core refuses a quota, with where it stands.
    pub(super) fn build(
        self,
        variants: usize,
    ) -> Result<BuiltState, (SourceLocation, InvalidQuota)> {
        let asks: Vec<VariantQuota> = self.variant_quotas.iter().flatten().cloned().collect();
        let ceiling = asks.iter().map(VariantQuota::max_count).max().unwrap_or(0);
        let with_ceiling = |mut formula: QuotaBuilder| {
            if formula.spec.properties().has_ceiling {
                formula.ceiling = ceiling;
            }
            formula
        };
        let mut limits: Vec<Limit> = Vec::new();
        let mut known: HashMap<(QuotaBuilder, u64), usize> = HashMap::new();
        let mut widest: Vec<Limit> = Vec::new();
        let mut grants = Vec::with_capacity(variants);
        for ask in self.variant_quotas {
            let Some(ask) = ask else {
                grants.push(MeterGrant::Unlimited);
                continue;
            };
            let formula = with_ceiling(*ask.formula());
            let units = match &ask {
                VariantQuota::Units(granting) => granting.units,
                VariantQuota::Computed(computed) => computed.base,
            };
            let listed = match known.get(&(formula, units)) {
                Some(index) => *index,
                None => {
                    let limit = formula.build(units).map_err(|why| (ask.place(), why))?;
                    limits.push(limit);
                    known.insert((formula, units), limits.len() - 1);
                    limits.len() - 1
                }
            };
            grants.push(match ask {
                VariantQuota::Units(_) => MeterGrant::Index(listed),
                VariantQuota::Computed(computed) => {
                    let most = formula
                        .build(computed.at_most)
                        .map_err(|why| (computed.location, why))?;
                    widest.push(most);
                    widest.extend(widest_between(&formula, &computed));
                    MeterGrant::Computed(Box::new(ComputedQuota {
                        builder: formula,
                        base: computed.base,
                        each: computed.each,
                        times: computed.times,
                        at_most: computed.at_most,
                        base_index: listed,
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

/// Gives every quota the largest ceiling of all.
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
/// a number in between may reach a little further than both ends.
fn widest_between(formula: &QuotaBuilder, computed: &ComputedGrant) -> Option<Limit> {
    let slowest = if computed.base > 0 {
        computed.base
    } else {
        computed.each.max(1).min(computed.at_most)
    };
    let plain = formula.build(slowest).ok()?;
    let refill = (formula.spec.properties().refill)(plain.quota())?;
    let (interval, period) = refill.every.zip(formula.span())?;
    let reach = match formula.burst {
        Some(Burst::Units(_)) => return Some(plain),
        Some(Burst::Auto) => Nanos::from_secs(10),
        None => period,
    };
    let blocks = reach.as_nanos().saturating_add(computed.at_most) / interval.as_nanos().max(1);
    let mut wide = *formula;
    wide.burst = Some(Burst::Units(
        blocks.saturating_add(2).saturating_mul(formula.block),
    ));
    Some(wide.build(slowest).unwrap_or(plain))
}
