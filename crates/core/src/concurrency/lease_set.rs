//! The leases that are held: bounded, in order of expiry, and the one way to change them.

use alloc::vec::Vec;

/// The name of one lease, chosen by its holder. Whoever knows it can renew and release it, so draw it at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u128);

/// One place, or several, held until released or expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub id: LeaseId,
    /// How many places it takes.
    pub weight: u64,
    /// When it ends by itself, in nanoseconds since 1970.
    pub expires: u64,
}

/// The state of a concurrency limit: the leases that are held. The default is none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LeaseSet {
    /// Sorted by expiry, so that what has expired is a prefix.
    held: Vec<Lease>,
    /// The sum of the weights.
    total: u64,
}

/// How a decision changes the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseEdit {
    /// How many of those that expire soonest have expired.
    pub(super) expired: usize,
    /// The latest expiry that a lease may have: anything later is brought back to it.
    pub(super) latest: u64,
    pub(super) change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Hold(Lease),
    Renew(LeaseId, u64),
    Release(LeaseId),
}

impl FromIterator<Lease> for LeaseSet {
    /// These leases, in any order: how a store that keeps them in a form of its own shows them to the algorithm.
    fn from_iter<I: IntoIterator<Item = Lease>>(leases: I) -> Self {
        let mut held = Self::new();
        for lease in leases {
            held.hold(lease);
        }
        held
    }
}

impl LeaseSet {
    /// No leases.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            held: Vec::new(),
            total: 0,
        }
    }

    /// The leases, those that expire soonest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Lease> + ExactSizeIterator {
        self.held.iter()
    }

    /// How many leases are stored, expired ones included until the next change.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no lease is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Carries an edit out.
    pub fn apply(&mut self, edit: LeaseEdit) {
        for lease in self.held.drain(..edit.expired.min(self.held.len())) {
            self.total = self.total.saturating_sub(lease.weight);
        }
        for lease in self
            .held
            .iter_mut()
            .rev()
            .take_while(|lease| lease.expires > edit.latest)
        {
            lease.expires = edit.latest;
        }
        match edit.change {
            Change::Nothing => {}
            Change::Hold(lease) => self.hold(lease),
            Change::Renew(id, expires) => {
                if let Some(lease) = self.take(id) {
                    self.hold(Lease { expires, ..lease });
                }
            }
            Change::Release(id) => {
                self.take(id);
            }
        }
    }

    fn hold(&mut self, lease: Lease) {
        let index = self
            .held
            .partition_point(|other| other.expires <= lease.expires);
        self.held.insert(index, lease);
        self.total = self.total.saturating_add(lease.weight);
    }

    fn take(&mut self, id: LeaseId) -> Option<Lease> {
        let index = self.held.iter().position(|lease| lease.id == id)?;
        let lease = self.held.remove(index);
        self.total = self.total.saturating_sub(lease.weight);
        Some(lease)
    }
}
