//! The max-min fair share of a quantity: each gets what it wants, at most the share, and all together get everything.
//!
//! Must not know: clients, time.

use std::mem;

use super::from_count;

/// The share with which the sum of the smaller of share and want is `pool`. Infinite if all wants fit.
///
/// Reorders `wants`. Takes linear time on average, because each round decides half of the wants that are left.
pub(super) fn max_min_share(wants: &mut [f64], pool: f64) -> f64 {
    let (mut undecided, mut left) = (wants, pool);
    // Those that want at least the share.
    let mut above = 0.0;
    while !undecided.is_empty() {
        let middle = undecided.len() / 2;
        let others = from_count(undecided.len() - middle) + above;
        let (below, median, higher) =
            mem::take(&mut undecided).select_nth_unstable_by(middle, f64::total_cmp);
        let (least, median) = (below.iter().sum::<f64>(), *median);
        if least + median * others <= left {
            // The share is at least the median.
            left -= least + median;
            undecided = higher;
        } else {
            above = others;
            undecided = below;
        }
    }
    match above > 0.0 {
        true => (left / above).max(0.0),
        false => f64::INFINITY,
    }
}
