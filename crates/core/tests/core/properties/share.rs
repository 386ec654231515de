//! Shares against handing out one unit after the other.
//!
//! Precisely: the shares never exceed the capacity nor what is wanted; nothing that anyone of positive weight wants is
//! left over; everyone gets at least the smaller of what it wants and the minimum while there is enough; nobody gets a
//! whole unit less than its exact weighted max–min share. With equal weights the shares differ from handing out units one
//! by one by at most a unit; with unequal ones the remainders of many may gather on one claimant, who then gets more, but
//! never at the price of more than one unit of anyone else.

use proptest::prelude::*;
use tollgate_core::fair_share::{Demand, allocate, equal_share};
use tollgate_testkit::oracle::{UnitDemand, share_unit_by_unit};

use super::harness::{Checked, caught, ensure, holds};

type Allocator = fn(u64, u64, &[Demand]) -> Vec<u64>;

/// Capacity, minimum, demands.
type Input = (u64, u64, Vec<Demand>);

fn inputs(heaviest: u32) -> impl Strategy<Value = Input> {
    let demand = (0_u64..60, 0..=heaviest).prop_map(|(wants, weight)| Demand {
        units: wants,
        weight,
    });
    (0_u64..200, 0_u64..12, prop::collection::vec(demand, 0..9))
}

fn even_inputs() -> impl Strategy<Value = Input> {
    let demand = (0_u64..60).prop_map(|wants| Demand {
        units: wants,
        weight: 1,
    });
    (0_u64..200, 0_u64..12, prop::collection::vec(demand, 0..9))
}

fn the_sums_are_right(allocate: Allocator, (capacity, minimum, demands): &Input) -> Checked {
    let shares = allocate(*capacity, *minimum, demands);
    ensure!(shares.len() == demands.len(), "{} shares", shares.len());
    let given: u64 = shares.iter().sum();
    ensure!(given <= *capacity, "{given} of {capacity} given");
    let floors: u64 = demands
        .iter()
        .map(|demand| demand.units.min(*minimum))
        .sum();
    let mut unmet = 0;
    for (share, demand) in shares.iter().zip(demands) {
        ensure!(
            *share <= demand.units,
            "{share} for one who wants {}",
            demand.units
        );
        let floor = demand.units.min(*minimum);
        ensure!(
            floors > *capacity || *share >= floor,
            "{share} is below the minimum"
        );
        if demand.weight > 0 {
            unmet += demand.units - share;
        }
    }
    ensure!(
        given == *capacity || unmet == 0,
        "{} left over, {unmet} unmet",
        capacity - given
    );
    Ok(())
}

/// Nobody is a whole unit below the exact share: for the water level at which all exact shares add up, found from the
/// claimant's own share, no one else may stand more than one unit of theirs above it.
fn nobody_loses_a_unit(allocate: Allocator, (capacity, minimum, demands): &Input) -> Checked {
    let shares = allocate(*capacity, *minimum, demands);
    let floors = share_unit_by_unit(*capacity, *minimum, &without_weights(demands));
    for (i, poor) in demands.iter().enumerate() {
        if poor.weight == 0 || shares[i] >= poor.units {
            continue;
        }
        // Were everyone filled to the level at which this one has a unit more, more than the rest would be needed.
        let level = u128::from(shares[i].saturating_sub(floors[i]) + 1);
        let needed: u128 = demands
            .iter()
            .zip(&floors)
            .map(|(demand, floor)| {
                let room = u128::from(demand.units - floor) * u128::from(poor.weight);
                (level * u128::from(demand.weight)).min(room)
            })
            .sum();
        let rest = u128::from(*capacity) - floors.iter().map(|f| u128::from(*f)).sum::<u128>();
        let is_fair = needed > rest * u128::from(poor.weight);
        ensure!(is_fair, "{shares:?}: number {i} lost a unit");
    }
    Ok(())
}

/// The minimum round alone: nobody has a weight.
fn without_weights(demands: &[Demand]) -> Vec<UnitDemand> {
    let none = |demand: &Demand| UnitDemand {
        wants: demand.units,
        weight: 0,
    };
    demands.iter().map(none).collect()
}

fn like_unit_by_unit(allocate: Allocator, (capacity, minimum, demands): &Input) -> Checked {
    let shares = allocate(*capacity, *minimum, demands);
    let unit = |demand: &Demand| UnitDemand {
        wants: demand.units,
        weight: demand.weight,
    };
    let units: Vec<UnitDemand> = demands.iter().map(unit).collect();
    let by_unit = share_unit_by_unit(*capacity, *minimum, &units);
    for (share, other) in shares.iter().zip(&by_unit) {
        ensure!(
            share.abs_diff(*other) <= 1,
            "{shares:?}, by unit {by_unit:?}"
        );
    }
    Ok(())
}

/// Turning the demands round turns the shares round, up to one unit each.
fn order_matters_little(allocate: Allocator, (capacity, minimum, demands): &Input) -> Checked {
    let shares = allocate(*capacity, *minimum, demands);
    let mut turned = demands.clone();
    turned.reverse();
    let mut back = allocate(*capacity, *minimum, &turned);
    back.reverse();
    for (share, other) in shares.iter().zip(&back) {
        ensure!(share.abs_diff(*other) <= 1, "{shares:?} and {back:?}");
    }
    Ok(())
}

#[test]
fn i01_shares_add_up_and_honour_wants_and_minimum() {
    holds(&inputs(9), |input| the_sums_are_right(allocate, &input));
}

#[test]
fn nobody_gets_a_whole_unit_less_than_the_exact_share() {
    holds(&inputs(9), |input| nobody_loses_a_unit(allocate, &input));
}

#[test]
fn shares_of_equal_weight_are_those_of_handing_out_units_one_by_one() {
    holds(&even_inputs(), |input| {
        like_unit_by_unit(allocate, &input)?;
        order_matters_little(allocate, &input)
    });
}

#[test]
fn shares_of_any_size_do_not_overflow() {
    let demand = (any::<u64>(), any::<u32>()).prop_map(|(wants, weight)| Demand {
        units: wants,
        weight,
    });
    let inputs = (
        any::<u64>(),
        any::<u64>(),
        prop::collection::vec(demand, 0..6),
    );
    holds(&inputs, |(capacity, minimum, demands)| {
        let shares = allocate(capacity, minimum, &demands);
        let given: u128 = shares.iter().map(|share| u128::from(*share)).sum();
        ensure!(given <= u128::from(capacity), "{given} of {capacity}");
        Ok(())
    });
}

/// Each gets its part of the whole capacity by weight, rounded up.
fn rounds_up(capacity: u64, minimum: u64, demands: &[Demand]) -> Vec<u64> {
    let weights: u64 = demands.iter().map(|demand| u64::from(demand.weight)).sum();
    let part = |demand: &Demand| {
        let part = (capacity * u64::from(demand.weight)).div_ceil(weights.max(1));
        part.max(minimum).min(demand.units)
    };
    demands.iter().map(part).collect()
}

/// Fair, but nobody is promised anything.
fn ignores_the_minimum(capacity: u64, _: u64, demands: &[Demand]) -> Vec<u64> {
    allocate(capacity, 0, demands)
}

/// First come, first served.
fn greedy(capacity: u64, _: u64, demands: &[Demand]) -> Vec<u64> {
    let mut rest = capacity;
    let take = |demand: &Demand| {
        let share = demand.units.min(rest);
        rest -= share;
        share
    };
    demands.iter().map(take).collect()
}

/// One round of equal parts; what the small ones leave is given to nobody.
fn wasteful(capacity: u64, _: u64, demands: &[Demand]) -> Vec<u64> {
    let nodes = u64::try_from(demands.len()).unwrap();
    let part = equal_share(capacity, nodes).min(capacity / nodes.max(1));
    demands
        .iter()
        .map(|demand| demand.units.min(part))
        .collect()
}

#[test]
fn control_every_unfair_split_is_caught() {
    caught(&inputs(9), |input| the_sums_are_right(rounds_up, &input));
    caught(&inputs(9), |input| {
        the_sums_are_right(ignores_the_minimum, &input)
    });
    caught(&inputs(9), |input| the_sums_are_right(wasteful, &input));
    caught(&inputs(9), |input| nobody_loses_a_unit(greedy, &input));
    caught(&even_inputs(), |input| like_unit_by_unit(greedy, &input));
    caught(&even_inputs(), |input| order_matters_little(greedy, &input));
}
