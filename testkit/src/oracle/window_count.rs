//! Counting in windows with nothing but the list of what was admitted.

/// A log that counts what was admitted in the last window, exactly.
#[derive(Clone, Debug)]
pub struct ExactLog {
    limit: u64,
    window: u64,
    admitted: Vec<(u64, u64)>,
}

impl ExactLog {
    /// Nothing was admitted yet.
    #[must_use]
    pub const fn new(limit: u64, window: u64) -> Self {
        Self {
            limit,
            window,
            admitted: Vec::new(),
        }
    }

    /// What counts at `now`: everything less than a window old.
    #[must_use]
    pub fn used(&self, now: u64) -> u64 {
        let live = self.admitted.iter().filter(|one| now - one.0 < self.window);
        live.map(|one| one.1).sum()
    }

    /// Admits `cost` if it fits.
    pub fn spend(&mut self, now: u64, cost: u64) -> bool {
        let fits = self.used(now) + cost <= self.limit;
        if fits && cost > 0 {
            self.admitted.push((now, cost));
        }
        fits
    }
}

/// A window that begins with the first admission that finds none open.
#[derive(Clone, Debug)]
pub struct FirstHitCount {
    limit: u64,
    window: u64,
    admitted: Vec<(u64, u64)>,
}

impl FirstHitCount {
    /// Nothing was admitted yet.
    #[must_use]
    pub const fn new(limit: u64, window: u64) -> Self {
        Self {
            limit,
            window,
            admitted: Vec::new(),
        }
    }

    /// When the window that is open at `now` began, by replaying every admission, and what it admitted.
    fn open(&self, now: u64) -> (Option<u64>, u64) {
        let (mut began, mut count) = (None, 0);
        for (at, cost) in &self.admitted {
            if began.is_none_or(|began| *at >= began + self.window) {
                (began, count) = (Some(*at), 0);
            }
            count += cost;
        }
        match began {
            Some(began) if now < began + self.window => (Some(began), count),
            _ => (None, 0),
        }
    }

    /// Admits `cost` if it fits, else says how long until the window ends.
    ///
    /// # Errors
    /// The time until the window ends.
    pub fn spend(&mut self, now: u64, cost: u64) -> Result<(), u64> {
        let (began, count) = self.open(now);
        if count + cost > self.limit && cost > 0 {
            return Err(began.unwrap_or(now) + self.window - now);
        }
        if cost > 0 {
            self.admitted.push((now, cost));
        }
        Ok(())
    }
}

/// The most that any span of less than `window` holds, of all that was admitted.
#[must_use]
pub fn most_in_any_window(admitted: &[(u64, u64)], window: u64) -> u64 {
    let from = |first: &(u64, u64)| -> u64 {
        let inside = admitted
            .iter()
            .filter(|one| one.0 >= first.0 && one.0 - first.0 < window);
        inside.map(|one| one.1).sum()
    };
    admitted.iter().map(from).max().unwrap_or(0)
}
