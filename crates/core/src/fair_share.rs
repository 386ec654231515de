//! Splits a capacity fairly over several claimants, by weighted max–min fairness ("water filling").
//!
//! No claimant gets more than it demands. Every claimant gets the minimum while the capacity suffices. What is left goes by weight to the
//! claimants whose demand is not met. Shares are whole units that always add up. Fleets split a quota over their nodes with it.
//!
//! Must not know: who the claimants are, leases, time.

use alloc::vec::Vec;

/// The demand of one claimant, and its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Units demanded.
    pub units: u64,
    /// The weight against the other claimants. A claimant of weight zero gets the minimum and no more.
    pub weight: u32,
}

/// Splits `capacity` over the demands and returns the shares in the order of the demands.
///
/// Each claimant gets the smaller of its demand and `minimum`, if the capacity suffices for that. The remainder is split by weight. No
/// share exceeds its demand. The shares add up to the capacity or to the sum of the demands, whichever is less. Units that only claimants
/// of weight zero still demand are not assigned.
///
/// ```
/// use tollgate_core::fair_share::{Demand, allocate};
///
/// let demand = |units| Demand { units, weight: 1 };
/// assert_eq!(allocate(100, 0, &[demand(10), demand(80), demand(80)]), [10, 45, 45]);
/// assert_eq!(allocate(100, 20, &[Demand { units: 50, weight: 0 }, demand(500)]), [20, 80]);
/// ```
#[must_use]
pub fn allocate(capacity: u64, minimum: u64, demands: &[Demand]) -> Vec<u64> {
    let mut shares = alloc::vec![0; demands.len()];
    let floors = demands.iter().map(|demand| (demand.units.min(minimum), 1));
    let rest = fill(capacity, floors, &mut shares);
    let wants: Vec<_> = shares
        .iter()
        .zip(demands)
        .map(|(share, demand)| (demand.units.saturating_sub(*share), demand.weight))
        .collect();
    fill(rest, wants.into_iter(), &mut shares);
    shares
}

/// The share of each of `nodes` when they cannot coordinate: an equal part, rounded down, but at least one unit if there is any.
#[must_use]
pub const fn equal_share(capacity: u64, nodes: u64) -> u64 {
    let Some(part) = capacity.checked_div(nodes) else {
        return capacity;
    };
    if part == 0 && capacity > 0 { 1 } else { part }
}

/// One claimant whose demand is not met.
struct Claimant {
    index: usize,
    need: u64,
    weight: u32,
}

/// Adds units to `shares` by weight until the needs are met or the capacity is used. Returns the units left.
fn fill(capacity: u64, needs: impl Iterator<Item = (u64, u32)>, shares: &mut [u64]) -> u64 {
    let mut claimants: Vec<Claimant> = needs
        .enumerate()
        .map(|(index, (need, weight))| Claimant {
            index,
            need,
            weight,
        })
        .filter(|claimant| claimant.need > 0 && claimant.weight > 0)
        .collect();
    // The claimants with the smallest need for their weight are satisfied first: need/weight ascending, compared without dividing.
    claimants.sort_by(|a, b| {
        let left = u128::from(a.need).saturating_mul(u128::from(b.weight));
        let right = u128::from(b.need).saturating_mul(u128::from(a.weight));
        left.cmp(&right).then(a.index.cmp(&b.index))
    });
    let mut rest = capacity;
    let mut weight: u64 = claimants
        .iter()
        .map(|claimant| u64::from(claimant.weight))
        .sum();
    for claimant in &claimants {
        // The part of this claimant in the units left for it and all larger ones. Rounding down leaves the remainder to the claimants
        // after it, so the last one takes exactly what is left.
        let part = u128::from(rest)
            .saturating_mul(u128::from(claimant.weight))
            .checked_div(u128::from(weight))
            .unwrap_or(0);
        let granted = u64::try_from(part).unwrap_or(u64::MAX).min(claimant.need);
        if let Some(share) = shares.get_mut(claimant.index) {
            *share = share.saturating_add(granted);
        }
        rest = rest.saturating_sub(granted);
        weight = weight.saturating_sub(u64::from(claimant.weight));
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remainder_is_assigned_too() {
        let one = Demand {
            units: 100,
            weight: 1,
        };
        assert_eq!(allocate(10, 0, &[one, one, one]), [3, 3, 4]);
    }

    #[test]
    fn a_capacity_below_all_minimums_is_split_evenly() {
        let one = Demand {
            units: 100,
            weight: 1,
        };
        let heavy = Demand {
            units: 100,
            weight: 99,
        };
        assert_eq!(allocate(3, 5, &[one, heavy, one]), [1, 1, 1]);
    }

    #[test]
    fn weights_divide_what_is_left() {
        let demands = [
            Demand {
                units: 90,
                weight: 1,
            },
            Demand {
                units: 90,
                weight: 2,
            },
        ];
        assert_eq!(allocate(90, 0, &demands), [30, 60]);
    }

    #[test]
    fn an_equal_share_never_rounds_a_limit_to_zero() {
        assert_eq!(equal_share(100, 3), 33);
        assert_eq!(equal_share(2, 10), 1);
        assert_eq!(equal_share(0, 10), 0);
        assert_eq!(equal_share(7, 0), 7);
    }
}
