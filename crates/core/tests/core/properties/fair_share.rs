//! Shares against handing out one unit after the other.
//!
//! Precisely: the shares never exceed the capacity or the demands. No unit that a claimant of positive weight demands is left over. Every
//! claimant gets at least the smaller of its demand and the minimum while the capacity suffices. No claimant gets a whole unit less than
//! its exact weighted max–min share. With equal weights the shares differ from handing out units one by one by at most one unit. With
//! unequal weights one claimant may collect the remainders of many, but no other claimant loses more than one unit by that.

use proptest::prelude::*;
use tollgate_core::fair_share::{Demand, allocate, equal_share};
use tollgate_testkit::oracle::{UnitDemand, share_unit_by_unit};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};

type Allocator = fn(u64, u64, &[Demand]) -> Vec<u64>;

/// Capacity, minimum, demands.
type Input = (u64, u64, Vec<Demand>);

fn inputs(heaviest: u32) -> impl Strategy<Value = Input> {
    let demand = (0_u64..60, 0..=heaviest).prop_map(|(units, weight)| Demand { units, weight });
    (0_u64..200, 0_u64..12, prop::collection::vec(demand, 0..9))
}

fn even_inputs() -> impl Strategy<Value = Input> {
    let demand = (0_u64..60).prop_map(|units| Demand { units, weight: 1 });
    (0_u64..200, 0_u64..12, prop::collection::vec(demand, 0..9))
}

fn the_sums_are_right(allocate: Allocator, (capacity, minimum, demands): &Input) -> CheckResult {
    let shares = allocate(*capacity, *minimum, demands);
    ensure!(shares.len() == demands.len(), "{} shares", shares.len());
    let granted: u64 = shares.iter().sum();
    ensure!(granted <= *capacity, "{granted} of {capacity} granted");
    let floors: u64 = demands
        .iter()
        .map(|demand| demand.units.min(*minimum))
        .sum();
    let mut unmet = 0;
    for (share, demand) in shares.iter().zip(demands) {
        ensure!(
            *share <= demand.units,
            "{share} for a demand of {}",
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
        granted == *capacity || unmet == 0,
        "{} left over, {unmet} unmet",
        capacity - granted
    );
    Ok(())
}

/// No claimant is a whole unit below its exact share: filling all claimants to the level at which this one has a unit more would need
/// more than the capacity.
fn no_claimant_loses_a_unit(
    allocate: Allocator,
    (capacity, minimum, demands): &Input,
) -> CheckResult {
    let shares = allocate(*capacity, *minimum, demands);
    let floors = share_unit_by_unit(*capacity, *minimum, &without_weights(demands));
    for (i, claimant) in demands.iter().enumerate() {
        if claimant.weight == 0 || shares[i] >= claimant.units {
            continue;
        }
        // Units needed to fill every claimant to the level at which this one has a unit more.
        let level = u128::from(shares[i].saturating_sub(floors[i]) + 1);
        let needed: u128 = demands
            .iter()
            .zip(&floors)
            .map(|(demand, floor)| {
                let room = u128::from(demand.units - floor) * u128::from(claimant.weight);
                (level * u128::from(demand.weight)).min(room)
            })
            .sum();
        let rest = u128::from(*capacity) - floors.iter().map(|f| u128::from(*f)).sum::<u128>();
        let is_fair = needed > rest * u128::from(claimant.weight);
        ensure!(is_fair, "{shares:?}: number {i} lost a unit");
    }
    Ok(())
}

/// The minimum round alone: no claimant has a weight.
fn without_weights(demands: &[Demand]) -> Vec<UnitDemand> {
    let none = |demand: &Demand| UnitDemand {
        wants: demand.units,
        weight: 0,
    };
    demands.iter().map(none).collect()
}

fn like_unit_by_unit(allocate: Allocator, (capacity, minimum, demands): &Input) -> CheckResult {
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

/// Reversing the demands reverses the shares, up to one unit each.
fn order_matters_little(allocate: Allocator, (capacity, minimum, demands): &Input) -> CheckResult {
    let shares = allocate(*capacity, *minimum, demands);
    let mut reversed = demands.clone();
    reversed.reverse();
    let mut back = allocate(*capacity, *minimum, &reversed);
    back.reverse();
    for (share, other) in shares.iter().zip(&back) {
        ensure!(share.abs_diff(*other) <= 1, "{shares:?} and {back:?}");
    }
    Ok(())
}

#[test]
fn i01_shares_add_up_and_honour_demands_and_minimum() {
    assert_holds(&inputs(9), |input| the_sums_are_right(allocate, &input));
}

#[test]
fn no_claimant_gets_a_whole_unit_less_than_its_exact_share() {
    assert_holds(&inputs(9), |input| {
        no_claimant_loses_a_unit(allocate, &input)
    });
}

#[test]
fn shares_of_equal_weight_are_those_of_handing_out_units_one_by_one() {
    assert_holds(&even_inputs(), |input| {
        like_unit_by_unit(allocate, &input)?;
        order_matters_little(allocate, &input)
    });
}

#[test]
fn shares_of_any_size_do_not_overflow() {
    let demand = (any::<u64>(), any::<u32>()).prop_map(|(units, weight)| Demand { units, weight });
    let inputs = (
        any::<u64>(),
        any::<u64>(),
        prop::collection::vec(demand, 0..6),
    );
    assert_holds(&inputs, |(capacity, minimum, demands)| {
        let shares = allocate(capacity, minimum, &demands);
        let granted: u128 = shares.iter().map(|share| u128::from(*share)).sum();
        ensure!(granted <= u128::from(capacity), "{granted} of {capacity}");
        Ok(())
    });
}

/// Each claimant gets its part of the whole capacity by weight, rounded up.
fn rounds_up(capacity: u64, minimum: u64, demands: &[Demand]) -> Vec<u64> {
    let weights: u64 = demands.iter().map(|demand| u64::from(demand.weight)).sum();
    let part = |demand: &Demand| {
        let part = (capacity * u64::from(demand.weight)).div_ceil(weights.max(1));
        part.max(minimum).min(demand.units)
    };
    demands.iter().map(part).collect()
}

/// Fair, but without the minimum.
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

/// One round of equal parts; what small demands leave is not granted out.
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
    assert_caught(&inputs(9), |input| the_sums_are_right(rounds_up, &input));
    assert_caught(&inputs(9), |input| {
        the_sums_are_right(ignores_the_minimum, &input)
    });
    assert_caught(&inputs(9), |input| the_sums_are_right(wasteful, &input));
    assert_caught(&inputs(9), |input| no_claimant_loses_a_unit(greedy, &input));
    assert_caught(&even_inputs(), |input| like_unit_by_unit(greedy, &input));
    assert_caught(&even_inputs(), |input| order_matters_little(greedy, &input));
}
