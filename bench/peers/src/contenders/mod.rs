//! Rate limiters behind one face, so that each study is written once.
//!
//! A contender runs a whole sequence of requests in a loop of its own: the call through the face is made once per
//! sequence, and what is inside the loop is what a user of that library would write. Must not know: studies, clocks.

mod dash_map;
mod floor;
mod governor;
mod ours;
mod pingora;
mod throttlecrab;

pub(crate) use self::ours::bucket;

use crate::keys::Requests;
use crate::measurements::Role;

/// `count` in `seconds`, and as much as `burst` at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    pub(crate) count: u32,
    pub(crate) seconds: u32,
    pub(crate) burst: u32,
}

impl Quota {
    /// Never used up, never full again: every request is admitted on a state that is alive.
    pub(crate) const GENEROUS: Self = Self {
        count: 1_000,
        seconds: 1,
        burst: u32::MAX,
    };
    /// Used up by warming up, for an hour: every request is denied.
    pub(crate) const STRICT: Self = Self {
        count: 1,
        seconds: 3_600,
        burst: 2,
    };
    /// Full again before the key comes back: every request is admitted on a state that has run out.
    pub(crate) const REFILLED: Self = Self {
        count: 1_000_000,
        seconds: 1,
        burst: 2,
    };
    /// What people configure.
    pub(crate) const ORDINARY: Self = Self {
        count: 10,
        seconds: 1,
        burst: 20,
    };

    /// Nanoseconds from one unit to the next.
    fn interval(self) -> u64 {
        u64::from(self.seconds) * 1_000_000_000 / u64::from(self.count)
    }
}

/// A limiter under measurement.
pub(crate) trait Contender: Sync {
    /// Decides on every request in order; answers how many were admitted. `alone` says that no other thread is at it.
    fn decide_all(&self, requests: &Requests, alone: bool) -> u64;

    /// Decides on one key of any length. A `String` because governor's keyed limiter can be asked by nothing else.
    #[expect(clippy::ptr_arg, reason = "governor needs the `String` itself")]
    fn decide(&self, key: &String) -> bool;
}

/// How to make a contender for so many keys.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) make: fn(Quota, usize) -> Box<dyn Contender>,
    /// Whether it keeps a state per key that can run out, so that every study means something for it.
    pub(crate) has_buckets: bool,
    /// Whether it takes keys of any length: governor's fixed-size keys do not.
    pub(crate) any_key: bool,
}

const fn entry(name: &'static str, make: fn(Quota, usize) -> Box<dyn Contender>) -> Entry {
    Entry {
        name,
        role: Role::Peer,
        make,
        has_buckets: true,
        any_key: true,
    }
}

/// Everyone, ourselves first: ratios are to the first.
pub(crate) const ENTRIES: &[Entry] = &[
    Entry {
        role: Role::Ours,
        ..entry("tollgate", |quota, keys| {
            Box::new(ours::Tollgate::new(quota, keys))
        })
    },
    Entry {
        role: Role::Ours,
        ..entry("tollgate, ask", |quota, keys| {
            Box::new(ours::TollgateBatch::new(quota, keys))
        })
    },
    entry("governor", |quota, _| {
        Box::new(governor::ByString::new(quota))
    }),
    Entry {
        any_key: false,
        ..entry("governor, [u8; 12]", |quota, _| {
            Box::new(governor::ByArray::new(quota))
        })
    },
    Entry {
        has_buckets: false,
        ..entry("pingora-limits", |quota, _| {
            Box::new(pingora::Estimating::new(quota))
        })
    },
    entry("throttlecrab", |quota, keys| {
        Box::new(throttlecrab::Locked::new(quota, keys))
    }),
    entry("DashMap by hand", |quota, _| {
        Box::new(dash_map::Buckets::new(quota))
    }),
    Entry {
        role: Role::Floor,
        has_buckets: false,
        ..entry("one locked slot", |quota, keys| {
            Box::new(floor::LockedSlot::new(quota, keys))
        })
    },
];

/// Sums up admissions.
fn count(admitted: impl Iterator<Item = bool>) -> u64 {
    admitted.map(u64::from).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(entry: &Entry, quota: Quota, times: usize) -> u64 {
        let contender = (entry.make)(quota, 10);
        contender.decide_all(&Requests::new(std::iter::repeat_n(7, times)), true)
    }

    /// A contender that does not limit, or limits everything, would be measured doing nothing.
    #[test]
    fn everyone_admits_the_burst_and_denies_what_is_beyond() {
        for entry in ENTRIES {
            assert_eq!(
                admitted(entry, Quota::GENEROUS, 1_000),
                1_000,
                "{}",
                entry.name
            );
            let few = admitted(entry, Quota::STRICT, 1_000);
            assert!((1..=3).contains(&few), "{}: {few}", entry.name);
        }
    }

    #[test]
    fn one_decision_and_a_sequence_share_their_state() {
        for entry in ENTRIES {
            let contender = (entry.make)(Quota::STRICT, 10);
            contender.decide_all(&Requests::new(std::iter::repeat_n(7, 10)), false);
            assert!(
                !contender.decide(&"user00000007".to_owned()),
                "{}",
                entry.name
            );
            assert!(
                contender.decide(&"user00000008".to_owned()),
                "{}",
                entry.name
            );
        }
    }
}
