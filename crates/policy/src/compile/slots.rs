//! The quotas of one limit (its own, its tiers, its overrides) brought together into states that they can share.
//!
//! Quotas share a state only if neither forgets what the other has counted: buckets under the largest of their
//! ceilings, sliding windows of one length and one ceiling, fixed windows that turn together. Whatever cannot share gets a
//! state of its own, in which the others have no part; so changing between tiers mints nothing. Must not know: names, keys.

use std::collections::HashMap;

use tollgate_core::limit::Limit;
use tollgate_core::{InvalidQuota, Nanos};

use super::quota::{ComputedGrant, Granting, QuotaGrant};
use crate::model::Burst;
use crate::rules::{ComputedQuota, Formula, Grant, Shape, sharing};
use crate::source::SourceLocation;

/// What one variant asks of a slot.
#[derive(Clone, Debug)]
enum Ask {
    Units(Granting),
    Computed(ComputedGrant),
}

impl Ask {
    const fn formula(&self) -> &Formula {
        match self {
            Self::Units(granting) => &granting.formula,
            Self::Computed(computed) => &computed.formula,
        }
    }

    const fn place(&self) -> SourceLocation {
        match self {
            Self::Units(granting) => granting.place,
            Self::Computed(computed) => computed.place,
        }
    }

    /// The largest count that this quota lets a window hold.
    const fn most(&self) -> u64 {
        match self {
            Self::Units(granting) => granting.units.saturating_add(granting.formula.overdraft),
            Self::Computed(computed) => computed.at_most.saturating_add(computed.formula.overdraft),
        }
    }
}

/// One state, and what each variant asks of it.
#[derive(Debug)]
pub(super) struct Slot {
    asks: Vec<Option<Ask>>,
}

/// The quotas of one state, and which of them each variant gets.
pub(super) struct Built {
    pub(super) quotas: Box<[Limit]>,
    pub(super) grants: Box<[Grant]>,
}

/// The states that these variants need, in the order of the first variant's windows.
pub(super) fn slots(variants: &[QuotaGrant]) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    for (variant, granted) in variants.iter().enumerate() {
        let asks: Vec<Ask> = match granted {
            QuotaGrant::Windows(windows) => windows.iter().copied().map(Ask::Units).collect(),
            QuotaGrant::Computed(computed) => vec![Ask::Computed(computed.clone())],
            QuotaGrant::Unlimited => Vec::new(),
        };
        // Windows of the same period find each other first, whatever their order in the file.
        let (mut placed, mut rest) = (Vec::new(), Vec::new());
        for ask in asks {
            let same = |slot: &Slot| slot.shape() == Some(ask.formula().shape);
            match free(&slots, &ask, same, &placed) {
                Some(index) => {
                    placed.push(index);
                    put(&mut slots, index, variant, ask);
                }
                None => rest.push(ask),
            }
        }
        for ask in rest {
            let index = free(&slots, &ask, |_| true, &placed).unwrap_or(slots.len());
            placed.push(index);
            put(&mut slots, index, variant, ask);
        }
    }
    slots
}

/// The first slot that the variant does not use yet and that its quota may share.
fn free(
    slots: &[Slot],
    ask: &Ask,
    fits: impl Fn(&Slot) -> bool,
    placed: &[usize],
) -> Option<usize> {
    slots
        .iter()
        .enumerate()
        .find(|(index, slot)| !placed.contains(index) && slot.may_hold(ask.formula()) && fits(slot))
        .map(|(index, _)| index)
}

fn put(slots: &mut Vec<Slot>, index: usize, variant: usize, ask: Ask) {
    if index >= slots.len() {
        slots.push(Slot { asks: Vec::new() });
    }
    if let Some(slot) = slots.get_mut(index) {
        slot.asks.resize(variant, None);
        slot.asks.push(Some(ask));
    }
}

impl Slot {
    fn formula(&self) -> Option<&Formula> {
        self.asks.iter().flatten().next().map(Ask::formula)
    }

    fn shape(&self) -> Option<Shape> {
        self.formula().map(|formula| formula.shape)
    }

    fn may_hold(&self, formula: &Formula) -> bool {
        self.formula()
            .is_some_and(|held| held.shares_state_with(formula))
    }

    /// The quotas of this state and who gets which.
    ///
    /// # Errors
    /// Core refuses a quota, with where it stands.
    pub(super) fn build(self, variants: usize) -> Result<Built, (SourceLocation, InvalidQuota)> {
        let asks: Vec<Ask> = self.asks.iter().flatten().cloned().collect();
        let ceiling = asks.iter().map(Ask::most).max().unwrap_or(0);
        let with_ceiling = |mut formula: Formula| {
            if formula.shape.properties().has_ceiling {
                formula.ceiling = ceiling;
            }
            formula
        };
        let mut limits: Vec<Limit> = Vec::new();
        let mut known: HashMap<(Formula, u64), usize> = HashMap::new();
        let mut widest: Vec<Limit> = Vec::new();
        let mut grants = Vec::with_capacity(variants);
        for ask in self.asks {
            let Some(ask) = ask else {
                grants.push(Grant::Unlimited);
                continue;
            };
            let formula = with_ceiling(*ask.formula());
            let units = match &ask {
                Ask::Units(granting) => granting.units,
                Ask::Computed(computed) => computed.base,
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
                Ask::Units(_) => Grant::Listed(listed),
                Ask::Computed(computed) => {
                    let most = formula
                        .build(computed.at_most)
                        .map_err(|why| (computed.place, why))?;
                    widest.push(most);
                    widest.extend(widest_between(&formula, &computed));
                    Grant::Computed(Box::new(ComputedQuota {
                        formula,
                        base: computed.base,
                        each: computed.each,
                        times: computed.times,
                        at_most: computed.at_most,
                        listed,
                        widest: most,
                    }))
                }
            });
        }
        grants.resize(variants, Grant::Unlimited);
        share(&mut limits, &widest, &mut grants);
        Ok(Built {
            quotas: limits.into(),
            grants: grants.into(),
        })
    }
}

/// Gives every quota the largest ceiling of all.
fn share(limits: &mut [Limit], widest: &[Limit], grants: &mut [Grant]) {
    let all = limits.iter().chain(widest).copied();
    let Some(top) = all.reduce(|top, limit| sharing(top, &limit)) else {
        return;
    };
    for limit in limits {
        *limit = sharing(*limit, &top);
    }
    for grant in grants {
        if let Grant::Computed(computed) = grant {
            computed.widest = top;
        }
    }
}

/// A bucket whose ceiling is at least that of every quota that can be computed. The emission interval is rounded up, so
/// a number in between may reach a little further than both ends.
fn widest_between(formula: &Formula, computed: &ComputedGrant) -> Option<Limit> {
    let slowest = if computed.base > 0 {
        computed.base
    } else {
        computed.each.max(1).min(computed.at_most)
    };
    let plain = formula.build(slowest).ok()?;
    let refill = (formula.shape.properties().refill)(plain.quota())?;
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
