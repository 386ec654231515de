//! Sharing a capacity fairly between those who want it: nobody gets more than they want, nobody goes below the
//! minimum while there is enough, and what is left over goes by weight to whoever is not yet satisfied.
//!
//! The rule is weighted max–min fairness ("water filling"), in whole units that always add up. Used to split a
//! quota over the nodes of a fleet.
//!
//! Must not know: who the claimants are, leases, time.

use alloc::vec::Vec;

/// What one claimant wants, and how much it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Units wanted.
    pub units: u64,
    /// Its weight against the others; zero gets the minimum and no more.
    pub weight: u32,
}

/// Splits `capacity` over the demands. Each gets at least the smaller of what it wants and `minimum`, if there is
/// enough for that; then the rest is filled up by weight. The shares come in the order of the demands, never exceed
/// what was wanted, and add up to the capacity or to all that was wanted, whichever is less (apart from what only
/// claimants of weight zero still want).
///
/// ```
/// use tollgate_core::share::{Demand, allocate};
///
/// let demand = |wants| Demand { wants, weight: 1 };
/// assert_eq!(allocate(100, 0, &[demand(10), demand(80), demand(80)]), [10, 45, 45]);
/// assert_eq!(allocate(100, 20, &[Demand { wants: 50, weight: 0 }, demand(500)]), [20, 80]);
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

/// What each of `nodes` may use when nobody can ask how much the others do: an equal part, rounded down, but at
/// least one unit while there is any.
#[must_use]
pub const fn equal_share(capacity: u64, nodes: u64) -> u64 {
    let Some(part) = capacity.checked_div(nodes) else {
        return capacity;
    };
    if part == 0 && capacity > 0 { 1 } else { part }
}

/// One claimant while water is poured.
struct Vessel {
    index: usize,
    need: u64,
    weight: u32,
}

/// Adds to `shares` as much of `capacity` as is needed, by weight, and returns what is left.
fn fill(capacity: u64, needs: impl Iterator<Item = (u64, u32)>, shares: &mut [u64]) -> u64 {
    let mut vessels: Vec<Vessel> = needs
        .enumerate()
        .map(|(index, (need, weight))| Vessel {
            index,
            need,
            weight,
        })
        .filter(|vessel| vessel.need > 0 && vessel.weight > 0)
        .collect();
    // The smallest for their weight are full first: need/weight ascending, compared without dividing.
    vessels.sort_by(|a, b| {
        let left = u128::from(a.need).saturating_mul(u128::from(b.weight));
        let right = u128::from(b.need).saturating_mul(u128::from(a.weight));
        left.cmp(&right).then(a.index.cmp(&b.index))
    });
    let mut rest = capacity;
    let mut weight: u64 = vessels.iter().map(|vessel| u64::from(vessel.weight)).sum();
    for vessel in &vessels {
        // This vessel's part of what is left for it and all larger ones. Rounding down leaves the remainder to
        // those that follow, so the last one takes exactly what is left.
        let part = u128::from(rest)
            .saturating_mul(u128::from(vessel.weight))
            .checked_div(u128::from(weight))
            .unwrap_or(0);
        let given = u64::try_from(part).unwrap_or(u64::MAX).min(vessel.need);
        if let Some(share) = shares.get_mut(vessel.index) {
            *share = share.saturating_add(given);
        }
        rest = rest.saturating_sub(given);
        weight = weight.saturating_sub(u64::from(vessel.weight));
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_that_do_not_divide_are_all_given_out() {
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
    fn the_safe_share_never_rounds_a_limit_away() {
        assert_eq!(equal_share(100, 3), 33);
        assert_eq!(equal_share(2, 10), 1);
        assert_eq!(equal_share(0, 10), 0);
        assert_eq!(equal_share(7, 0), 7);
    }
}
