//! Bounds how many wrong signatures one address can have computed.
//!
//! Limits alone do not: a request that another limit denies charges nothing to the limit of its address, so a client could send
//! wrong tokens for ever. Must not know: tokens.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip::SipHasher24;
use tollgate_core::{Nanos, Timestamp};

/// The number of buckets. Addresses share them by a keyed hash, so that nobody chooses whom to share with.
const BUCKETS: usize = 4_096;
/// One failure refills in this time.
const INTERVAL: Nanos = Nanos::from_millis(100);
/// This many failures fit into a bucket.
const BURST: u64 = 50;

/// Buckets of failures, as the times at which they are empty again.
#[derive(Debug)]
pub(super) struct FailureThrottle {
    hasher: SipHasher24,
    buckets: Box<[AtomicU64]>,
}

impl FailureThrottle {
    pub(super) fn new(secret: &[u8; 16]) -> Self {
        Self {
            hasher: SipHasher24::new_with_key(secret),
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Whether the address has failed too often.
    pub(super) fn is_full(&self, address: IpAddr, now: Timestamp) -> bool {
        let most = now.after(Nanos::from_nanos(INTERVAL.as_nanos() * (BURST - 1)));
        self.bucket(address)
            .is_some_and(|bucket| bucket.load(Ordering::Relaxed) > most.as_nanos())
    }

    /// Counts a failure.
    pub(super) fn record(&self, address: IpAddr, now: Timestamp) {
        let add = |empty: u64| {
            let from = Timestamp::from_nanos(empty.max(now.as_nanos()));
            from.after(INTERVAL).as_nanos()
        };
        if let Some(bucket) = self.bucket(address) {
            bucket.update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// The bucket of an IPv4 address or of the /64 of an IPv6 address.
    fn bucket(&self, address: IpAddr) -> Option<&AtomicU64> {
        let hash = match address.to_canonical() {
            IpAddr::V4(v4) => self.hasher.hash(&v4.octets()),
            IpAddr::V6(v6) => self.hasher.hash(v6.octets().first_chunk::<8>()?),
        };
        let index = usize::try_from(hash % BUCKETS as u64).ok()?;
        self.buckets.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_fifty_failures_and_ten_a_second() {
        let throttle = FailureThrottle::new(&[7; 16]);
        let (bad, good) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let now = Timestamp::from_secs(1_000);
        for _ in 0..BURST {
            assert!(!throttle.is_full(bad, now));
            throttle.record(bad, now);
        }
        assert!(throttle.is_full(bad, now));
        assert!(!throttle.is_full(good, now), "others are not concerned");
        let later = now.after(INTERVAL);
        assert!(!throttle.is_full(bad, later));
        throttle.record(bad, later);
        assert!(throttle.is_full(bad, later));
        assert!(!throttle.is_full(bad, now.after(Nanos::from_secs(60))));
    }

    #[test]
    fn addresses_of_one_network_share_a_bucket() {
        let throttle = FailureThrottle::new(&[7; 16]);
        let now = Timestamp::from_secs(1_000);
        for last in 0..BURST {
            let address: IpAddr = format!("2001:db8::{last:x}").parse().unwrap();
            throttle.record(address, now);
        }
        assert!(throttle.is_full("2001:db8::ffff".parse().unwrap(), now));
        assert!(!throttle.is_full("2001:db8:0:1::1".parse().unwrap(), now));
    }
}
