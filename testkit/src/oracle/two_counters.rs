//! A sliding window estimated from the list of everything admitted, by rational arithmetic.

/// Everything that was admitted, in ticks since the first window began.
#[derive(Clone, Debug)]
pub struct TwoCounters {
    limit: i128,
    window: i128,
    admitted: Vec<(i128, i128)>,
}

impl TwoCounters {
    /// Nothing was admitted yet. The window is in ticks.
    #[must_use]
    pub fn new(limit: u64, window: u64) -> Self {
        Self {
            limit: i128::from(limit),
            window: i128::from(window),
            admitted: Vec::new(),
        }
    }

    /// Notes an admission.
    pub fn admit(&mut self, tick: u64, cost: u64) {
        self.admitted.push((i128::from(tick), i128::from(cost)));
    }

    /// The estimate at a tick, times the window: `prev · (W − e) + cur · W`.
    #[must_use]
    pub fn estimate_times_window(&self, tick: u64) -> i128 {
        let tick = i128::from(tick);
        let index = tick / self.window;
        let gone = tick % self.window;
        let in_window = |wanted: i128| -> i128 {
            let inside = self
                .admitted
                .iter()
                .filter(|one| one.0 / self.window == wanted);
            inside.map(|one| one.1).sum()
        };
        in_window(index - 1) * (self.window - gone) + in_window(index) * self.window
    }

    /// Whether `cost` more stays within the limit at a tick.
    #[must_use]
    pub fn fits(&self, tick: u64, cost: u64) -> bool {
        let added = i128::from(cost) * self.window;
        self.estimate_times_window(tick) + added <= self.limit * self.window
    }

    /// How many ticks until `cost` fits, by trying each.
    #[must_use]
    pub fn ticks_until(&self, tick: u64, cost: u64) -> Option<u64> {
        let horizon = u64::try_from(3 * self.window).ok()?;
        (0..=horizon).find(|wait| self.fits(tick + wait, cost))
    }
}
