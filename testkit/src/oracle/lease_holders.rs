//! Who holds a place, as a plain list: found by looking at every holder, every time.

/// The holders of a concurrency limit.
#[derive(Clone, Debug)]
pub struct LeaseHolders {
    limit: u64,
    lease: u64,
    /// Id, weight, and when it ends by itself.
    held: Vec<(u128, u64, u64)>,
}

impl LeaseHolders {
    /// Nobody holds anything.
    #[must_use]
    pub const fn new(limit: u64, lease: u64) -> Self {
        Self {
            limit,
            lease,
            held: Vec::new(),
        }
    }

    /// Places held at `now`.
    #[must_use]
    pub fn in_use(&self, now: u64) -> u64 {
        let live = self.held.iter().filter(|holder| holder.2 > now);
        live.map(|holder| holder.1).sum()
    }

    /// Whether this id holds something.
    #[must_use]
    pub fn holds(&self, now: u64, id: u128) -> bool {
        self.held
            .iter()
            .any(|holder| holder.0 == id && holder.2 > now)
    }

    /// Takes places, or says that they are not there. Taking again under a held id takes nothing more.
    pub fn acquire(&mut self, now: u64, id: u128, weight: u64) -> bool {
        if weight == 0 || self.holds(now, id) {
            return true;
        }
        if weight > self.limit || self.in_use(now) + weight > self.limit {
            return false;
        }
        self.held.retain(|holder| holder.0 != id);
        self.held.push((id, weight, now + self.lease));
        true
    }

    /// Extends a lease that is held.
    pub fn renew(&mut self, now: u64, id: u128) -> bool {
        let until = now + self.lease;
        let mut live = self.held.iter_mut();
        let found = live.find(|holder| holder.0 == id && holder.2 > now);
        found.map(|holder| holder.2 = until).is_some()
    }

    /// Ends a lease.
    pub fn release(&mut self, id: u128) {
        self.held.retain(|holder| holder.0 != id);
    }
}
