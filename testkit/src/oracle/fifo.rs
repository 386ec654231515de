//! A queue as the list of those who stand in it: each leaves when what stood before it, beyond the delay, has leaked.

/// A queue that serves one unit each interval, without waiting for the first `delay` units.
#[derive(Clone, Debug)]
pub struct Fifo {
    interval: i128,
    grace: i128,
    capacity: i128,
    /// For each one who came: when its service begins and ends.
    places: Vec<(i128, i128)>,
}

impl Fifo {
    /// An empty queue for `burst` units beside the one being served.
    #[must_use]
    pub fn new(interval: u64, burst: u64, delay: u64) -> Self {
        let interval = i128::from(interval);
        Self {
            interval,
            grace: i128::from(delay) * interval,
            capacity: (i128::from(burst) + 1) * interval,
            places: Vec::new(),
        }
    }

    /// Someone comes with `cost` units: the wait it is promised, or nothing if it does not fit.
    pub fn arrive(&mut self, now: u64, cost: u64) -> Option<i128> {
        let now = i128::from(now);
        let begins = self.places.iter().map(|place| place.1).fold(now, i128::max);
        let ends = begins + i128::from(cost) * self.interval;
        if ends - now > self.capacity {
            return None;
        }
        self.places.push((begins, ends));
        Some((begins - now - self.grace).max(0))
    }

    /// The last one who came leaves the queue, as if it had never come.
    pub fn last_leaves(&mut self) {
        self.places.pop();
    }
}
