//! Fair shares computed naively: one unit after the other goes to the demand with the least units for its weight.

/// What one claimant wants, and its weight.
#[derive(Clone, Copy, Debug)]
pub struct UnitDemand {
    /// Units wanted.
    pub wants: u64,
    /// Its weight against the others.
    pub weight: u32,
}

/// Gives each demand its minimum, one unit in turn. Then gives one unit at a time to the unsatisfied demand that has the least
/// beyond its minimum for its weight.
#[must_use]
pub fn share_unit_by_unit(capacity: u64, minimum: u64, demands: &[UnitDemand]) -> Vec<u64> {
    let mut rest = capacity;
    let mut shares: Vec<u64> = demands.iter().map(|_| 0).collect();
    for _ in 0..minimum {
        for (share, demand) in shares.iter_mut().zip(demands) {
            if rest > 0 && *share < demand.wants.min(minimum) {
                *share += 1;
                rest -= 1;
            }
        }
    }
    let floors = shares.clone();
    while rest > 0 {
        let hungry = shares.iter().zip(&floors).zip(demands).enumerate();
        let next = hungry
            .filter(|(_, ((share, _), demand))| **share < demand.wants && demand.weight > 0)
            .min_by(|(_, a), (_, b)| {
                // (extra + 1) / weight, compared without dividing.
                let level = |((share, floor), _): &((&u64, &u64), &UnitDemand)| {
                    u128::from(**share - **floor + 1)
                };
                let left = level(a) * u128::from(b.1.weight);
                left.cmp(&(level(b) * u128::from(a.1.weight)))
            })
            .map(|(index, _)| index);
        let Some(share) = next.and_then(|index| shares.get_mut(index)) else {
            break;
        };
        *share += 1;
        rest -= 1;
    }
    shares
}
