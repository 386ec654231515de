//! Chooses an address: of two at random, by weight, the one with fewer requests in progress.
//!
//! If no address is available, all are used: an upstream with a wrong health check must not be switched off. Must not know:
//! connections, requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the balancer knows of an address.
pub(super) trait Candidate {
    /// Its share of the requests. At least 1.
    fn weight(&self) -> u32;
    /// Its requests in progress.
    fn in_flight(&self) -> u32;
}

/// A generator of random numbers that threads share without a lock (SplitMix64).
#[derive(Debug)]
pub(super) struct SharedRandom(AtomicU64);

impl SharedRandom {
    pub(super) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    fn next(&self) -> u64 {
        let mut x = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Chooses one of the candidates for which `is_available` holds, or of all if it holds for none. `avoid` is chosen only if
/// there is no other.
pub(super) fn choose<'a, T: Candidate>(
    candidates: &'a [T],
    is_available: impl Fn(&T) -> bool,
    avoid: Option<&T>,
    random: &SharedRandom,
) -> Option<&'a T> {
    if let [only] = candidates {
        return Some(only);
    }
    let is_avoided = |one: &T| avoid.is_some_and(|avoid| std::ptr::eq(avoid, one));
    let usable = |one: &&T| is_available(one) && !is_avoided(one);
    let others = |one: &&T| !is_avoided(one);
    two_choices(candidates, usable, random).or_else(|| two_choices(candidates, others, random))
}

fn two_choices<'a, T: Candidate>(
    candidates: &'a [T],
    usable: impl Fn(&&T) -> bool,
    random: &SharedRandom,
) -> Option<&'a T> {
    let total: u64 = candidates
        .iter()
        .filter(&usable)
        .map(|one| u64::from(one.weight()))
        .sum();
    let pick = || {
        let mut at = random.next().checked_rem(total)?;
        candidates.iter().filter(&usable).find(|one| {
            let weight = u64::from(one.weight());
            let is_here = at < weight;
            at = at.saturating_sub(weight);
            is_here
        })
    };
    let (first, second) = (pick()?, pick()?);
    // Compares `in_flight / weight` without a division.
    let load = |one: &T, other: &T| u64::from(one.in_flight()) * u64::from(other.weight());
    match load(second, first) < load(first, second) {
        true => Some(second),
        false => Some(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Server {
        weight: u32,
        in_flight: u32,
        is_available: bool,
        chosen: u32,
    }

    impl Candidate for Server {
        fn weight(&self) -> u32 {
            self.weight
        }
        fn in_flight(&self) -> u32 {
            self.in_flight
        }
    }

    fn servers(all: &[(u32, u32, bool)]) -> Vec<Server> {
        let server = |(weight, in_flight, is_available): &(u32, u32, bool)| Server {
            weight: *weight,
            in_flight: *in_flight,
            is_available: *is_available,
            chosen: 0,
        };
        all.iter().map(server).collect()
    }

    fn shares(all: &[(u32, u32, bool)], avoid: Option<usize>) -> Vec<u32> {
        let mut servers = servers(all);
        let random = SharedRandom::new(7);
        for _ in 0..10_000 {
            let avoid = avoid.map(|at| &servers[at]);
            let chosen = choose(&servers, |one| one.is_available, avoid, &random).unwrap();
            let at = servers
                .iter()
                .position(|one| std::ptr::eq(one, chosen))
                .unwrap();
            servers[at].chosen += 1;
        }
        servers.iter().map(|one| one.chosen).collect()
    }

    #[test]
    fn weights_are_kept_when_all_are_idle() {
        let shares = shares(&[(1, 0, true), (3, 0, true)], None);
        assert!((2_300..2_700).contains(&shares[0]), "{shares:?}");
    }

    #[test]
    fn the_busier_of_two_is_chosen_only_against_itself() {
        let shares = shares(&[(1, 9, true), (1, 1, true)], None);
        assert!(
            (2_300..2_700).contains(&shares[0]),
            "a quarter of {shares:?}"
        );
        let weighted = self::shares(&[(1, 2, true), (4, 4, true)], None);
        assert!(weighted[0] < 500, "a twenty-fifth of {weighted:?}");
    }

    #[test]
    fn unavailable_addresses_are_used_only_if_there_is_no_other() {
        assert_eq!(shares(&[(1, 0, false), (1, 99, true)], None), [0, 10_000]);
        let none = shares(&[(1, 0, false), (1, 0, false)], None);
        assert!(none.iter().all(|count| *count > 4_000), "{none:?}");
        assert_eq!(shares(&[(1, 0, false)], Some(0)), [10_000]);
    }

    #[test]
    fn a_retry_goes_to_another_address() {
        assert_eq!(shares(&[(9, 0, true), (1, 50, true)], Some(0)), [0, 10_000]);
        assert_eq!(shares(&[(9, 0, true), (1, 0, false)], Some(0)), [0, 10_000]);
    }

    #[test]
    fn there_is_nothing_to_choose_from_nothing() {
        let random = SharedRandom::new(1);
        assert!(choose::<Server>(&[], |_| true, None, &random).is_none());
    }
}
