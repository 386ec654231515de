//! A bucket as the list of everything it admitted: no window may hold more than the burst and its length's refill.

/// Everything that was charged, in nanoseconds of refill, and when.
#[derive(Clone, Debug)]
pub struct BucketLog {
    capacity: i128,
    charges: Vec<(i128, i128)>,
}

impl BucketLog {
    /// An empty log of a bucket that is full after `interval · burst`.
    #[must_use]
    pub fn new(interval: u64, burst: u64) -> Self {
        Self::with_capacity(i128::from(interval) * i128::from(burst))
    }

    /// An empty log of a bucket of so many nanoseconds.
    #[must_use]
    pub const fn with_capacity(capacity: i128) -> Self {
        Self {
            capacity,
            charges: Vec::new(),
        }
    }

    /// Whether a charge of `price` nanoseconds at `now` leaves every window that ends here within the bound:
    /// what was charged since each earlier charge, and this, is at most the capacity and the time since.
    #[must_use]
    pub fn fits(&self, now: u64, price: i128) -> bool {
        let now = i128::from(now);
        let mut sum = price;
        let mut worst = price;
        for (at, earlier) in self.charges.iter().rev() {
            sum += earlier;
            worst = worst.max(sum - (now - at));
        }
        worst <= self.capacity
    }

    /// Notes a charge.
    pub fn charge(&mut self, now: u64, price: i128) {
        self.charges.push((i128::from(now), price));
    }

    /// Lowers an earlier charge, counted from the first, as if less had been charged then.
    pub fn give_back(&mut self, index: usize, price: i128) {
        if let Some(charge) = self.charges.get_mut(index) {
            charge.1 -= price;
        }
    }

    /// How many charges were noted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.charges.len()
    }

    /// Whether nothing was charged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// The most by which any window, from one charge to another, exceeds the capacity and its own length. At most
    /// zero if the log conforms. Charges need not have been noted in order of time.
    #[must_use]
    pub fn worst_excess(&self) -> i128 {
        self.scaled_excess(1)
    }

    /// The same, where charges and capacity are in parts of a nanosecond, so many to one.
    #[must_use]
    pub fn scaled_excess(&self, parts: i128) -> i128 {
        let mut sorted = self.charges.clone();
        sorted.sort_by_key(|charge| charge.0);
        let mut worst = i128::MIN;
        for (i, first) in sorted.iter().enumerate() {
            let mut sum = 0;
            for last in sorted.iter().skip(i) {
                sum += last.1;
                worst = worst.max(sum - (last.0 - first.0) * parts - self.capacity);
            }
        }
        worst
    }
}
