//! Rescaling between any two quotas, however large their blocks (I-08): the debt in units is kept, rounded up to a nanosecond, up to the
//! new quota's ceiling. It is never lower.

use std::cmp::Ordering;

use proptest::prelude::*;
use tollgate_core::{Nanos, Rate, TokenBucket};
use tollgate_testkit::oracle::compare_products;

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::at;

const BEGIN: u64 = 1_700_000_000_000_000_000;

/// Debt d under blocks of b and intervals of T is d·b/T units. Cross-multiplied, rescaled · b' · T against d · b · T'.
fn keeps_the_debt_in_units(
    rescale: impl Fn(&TokenBucket, &TokenBucket, u64) -> u64,
    (old, new, debt): (TokenBucket, TokenBucket, u64),
) -> CheckResult {
    let debt = debt % (old.ceiling().as_nanos() + 1);
    let rescaled = rescale(&new, &old, BEGIN + debt) - BEGIN;
    let (from, to) = (old.interval().as_nanos(), new.interval().as_nanos());
    let exact = [debt, old.block(), to];
    let is_enough = compare_products(&[rescaled, new.block(), from], &exact) != Ordering::Less;
    let is_full = rescaled == new.ceiling().as_nanos();
    ensure!(is_enough || is_full, "{debt} became {rescaled}: forgiven");
    let less = [rescaled.saturating_sub(1), new.block(), from];
    let is_least = rescaled == 0 || compare_products(&less, &exact) == Ordering::Less;
    ensure!(is_least, "{debt} became {rescaled}: too much");
    Ok(())
}

/// Quotas of every size: powers of two in period and block, so that most can be built.
fn quotas() -> impl Strategy<Value = TokenBucket> {
    let sizes = (0_u32..60, 0_u32..63, 0_u32..63, 1_u64..1 << 20);
    sizes.prop_filter_map("cannot be built", |(period, block, units, burst)| {
        let rate = Rate::new(1 << units, Nanos::from_nanos(1 << period));
        let block = 1_u64 << block;
        let builder = TokenBucket::builder(rate).block(block);
        builder.burst(block.saturating_mul(burst)).build().ok()
    })
}

#[test]
fn i08_rescaling_keeps_the_debt_in_units_for_any_block() {
    assert_holds(&(quotas(), quotas(), any::<u64>()), |change| {
        keeps_the_debt_in_units(|new, old, tat| new.rescale(old, tat, at(BEGIN)), change)
    });
}

/// A product that saturates is too small once divided.
#[test]
fn control_a_product_that_saturates_forgives() {
    assert_caught(&(quotas(), quotas(), any::<u64>()), |change| {
        let saturating = |new: &TokenBucket, old: &TokenBucket, tat: u64| {
            let product = u128::from(tat - BEGIN)
                .saturating_mul(u128::from(new.interval().as_nanos()))
                .saturating_mul(u128::from(old.block()));
            let divisor = u128::from(old.interval().as_nanos()) * u128::from(new.block());
            let scaled = u64::try_from(product.div_ceil(divisor)).unwrap_or(u64::MAX);
            BEGIN + scaled.min(new.ceiling().as_nanos())
        };
        keeps_the_debt_in_units(saturating, change)
    });
}
