//! The fleet usage shedder: a share of the capacity is reserved for the most important class.
//!
//! All other classes together get what remains. Critical requests may use more than the reserve; then the others get less.
//! Must not know: where usage is counted, in which unit.

/// A reserved share of a capacity.
///
/// ```
/// use tollgate_overload::ReservedShare;
///
/// let reserve = ReservedShare::from_hundredths_of_percent(2_000);
/// assert_eq!(reserve.room_for_others(100, 0), 80);
/// assert_eq!(reserve.room_for_others(100, 35), 65);
/// assert!(reserve.admits_other(100, 10, 79));
/// assert!(!reserve.admits_other(100, 10, 80));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedShare {
    hundredths: u16,
}

impl ReservedShare {
    /// The whole, in hundredths of a percent.
    const WHOLE: u64 = 10_000;

    /// A share in hundredths of a percent. More than the whole is the whole.
    #[must_use]
    pub const fn from_hundredths_of_percent(hundredths: u16) -> Self {
        let hundredths = if hundredths > 10_000 {
            10_000
        } else {
            hundredths
        };
        Self { hundredths }
    }

    /// What classes other than the most important one may use of a capacity, while critical requests use so much of it.
    #[must_use]
    pub fn room_for_others(self, capacity: u64, critical: u64) -> u64 {
        capacity.saturating_sub(self.reserve_of(capacity).max(critical))
    }

    /// Whether critical requests leave at least half of the reserve unused.
    #[must_use]
    pub fn is_idle(self, capacity: u64, critical: u64) -> bool {
        critical.saturating_mul(2) <= self.reserve_of(capacity)
    }

    /// Rounded up: a reserve is never less than its share.
    fn reserve_of(self, capacity: u64) -> u64 {
        let hundredths = u128::from(self.hundredths);
        let reserve = (u128::from(capacity) * hundredths).div_ceil(u128::from(Self::WHOLE));
        u64::try_from(reserve).unwrap_or(u64::MAX)
    }

    /// Whether one more request of another class fits.
    #[must_use]
    pub fn admits_other(self, capacity: u64, critical: u64, others: u64) -> bool {
        others < self.room_for_others(capacity, critical)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_rounded_up_and_the_edges_are_defined() {
        let reserve = ReservedShare::from_hundredths_of_percent(2_000);
        assert_eq!(reserve.room_for_others(4, 0), 3, "20 % of 4 is 1");
        assert_eq!(reserve.room_for_others(0, 0), 0);
        assert_eq!(reserve.room_for_others(10, 100), 0);
        assert_eq!(reserve.room_for_others(u64::MAX, 0), u64::MAX / 5 * 4);
        assert!(reserve.is_idle(100, 10) && !reserve.is_idle(100, 11));
        let all = ReservedShare::from_hundredths_of_percent(u16::MAX);
        assert!(!all.admits_other(1_000, 0, 0));
        let none = ReservedShare::from_hundredths_of_percent(0);
        assert!(none.admits_other(1, 0, 0) && !none.admits_other(1, 1, 0));
    }
}
