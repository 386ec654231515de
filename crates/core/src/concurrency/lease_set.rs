//! The set of leases: bounded, in order of expiry, with one way to change it.

use alloc::vec::Vec;

/// The id of one lease, chosen by its holder. Anyone who knows it can renew and release the lease, so draw it at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u128);

/// One place, or several, held until released or expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// How many places it takes.
    pub weight: u64,
    /// When it expires, in nanoseconds since 1970.
    pub expires: u64,
}

/// The state of a concurrency limit: its leases. The default is empty.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LeaseSet {
    /// Sorted by expiry, so that expired leases are a prefix.
    leases: Vec<Lease>,
    /// The sum of the weights.
    total: u64,
}

/// How a decision changes the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseEdit {
    /// The number of expired leases, from the front.
    pub(super) expired: usize,
    /// The latest expiry that a lease may have. Later ones are lowered to it.
    pub(super) latest: u64,
    pub(super) change: LeaseChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseChange {
    Nothing,
    Acquire(Lease),
    Renew(LeaseId, u64),
    Release(LeaseId),
}

impl FromIterator<Lease> for LeaseSet {
    /// Builds a set from leases in any order. A store that keeps them in its own form restores the set with it.
    fn from_iter<I: IntoIterator<Item = Lease>>(leases: I) -> Self {
        let mut set = Self::new();
        for lease in leases {
            set.insert(lease);
        }
        set
    }
}

impl LeaseSet {
    /// No leases.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            leases: Vec::new(),
            total: 0,
        }
    }

    /// The leases, those that expire soonest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Lease> + ExactSizeIterator {
        self.leases.iter()
    }

    /// The number of leases, including expired ones until the next change.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether there are no leases.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Applies an edit.
    pub fn apply(&mut self, edit: LeaseEdit) {
        for lease in self.leases.drain(..edit.expired.min(self.leases.len())) {
            self.total = self.total.saturating_sub(lease.weight);
        }
        for lease in self
            .leases
            .iter_mut()
            .rev()
            .take_while(|lease| lease.expires > edit.latest)
        {
            lease.expires = edit.latest;
        }
        match edit.change {
            LeaseChange::Nothing => {}
            LeaseChange::Acquire(lease) => self.insert(lease),
            LeaseChange::Renew(id, expires) => {
                if let Some(lease) = self.remove(id) {
                    self.insert(Lease { expires, ..lease });
                }
            }
            LeaseChange::Release(id) => {
                self.remove(id);
            }
        }
    }

    fn insert(&mut self, lease: Lease) {
        let index = self
            .leases
            .partition_point(|other| other.expires <= lease.expires);
        self.leases.insert(index, lease);
        self.total = self.total.saturating_add(lease.weight);
    }

    fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let index = self.leases.iter().position(|lease| lease.id == id)?;
        let lease = self.leases.remove(index);
        self.total = self.total.saturating_sub(lease.weight);
        Some(lease)
    }
}
