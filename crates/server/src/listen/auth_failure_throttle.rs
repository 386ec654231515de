//! Slows the answers to wrong tokens and passwords, and compares them without revealing them by time.
//!
//! Only answers to failures are slowed. Credentials are compared first, so right ones are accepted at once whatever failed
//! before, from this address or any other: docs/adr/0033. Must not know: protocols, what the credentials permit.

use std::hash::{BuildHasher as _, RandomState};
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::{InvalidQuota, Nanos, Outcome, Rate, Timestamp, TokenBucket};
use tollgate_service::{Saturation, WaitPermit};

use super::client_network::ClientNetwork;
use super::counters::{ListenerCounters, increment};

/// How long the answer to a failure is delayed.
pub(crate) const FAILURE_DELAY: Nanos = Nanos::SECOND;
/// How many failures of an address are answered at once, so that a mistyped password is not slowed, and how often one more.
const MAX_PROMPT_FAILURES: u64 = 10;
const PROMPT_FAILURE_INTERVAL: Nanos = Nanos::from_secs(6);
/// The failures of addresses are counted in this many slots. Two addresses in one slot share its count, which only slows
/// more failures. A million addresses need no more memory than one.
const ADDRESS_SLOTS: usize = 1_024;
/// Answers that are delayed at the same time. Each holds a connection.
const MAX_DELAYED: usize = 64;
/// The time between two log lines.
const LOG_INTERVAL: Nanos = Nanos::MINUTE;

/// Counts the authentication failures of one listener and says how each is answered.
#[derive(Debug)]
pub(crate) struct AuthFailureThrottle {
    listener: &'static str,
    prompt_bucket: TokenBucket,
    slots: Mutex<Box<[u64]>>,
    hasher: RandomState,
    delayed: Arc<Saturation>,
    log: Mutex<FailureLog>,
}

#[derive(Debug, Default)]
struct FailureLog {
    last_line: Option<Timestamp>,
    /// Failures since the last line.
    unlogged: u64,
}

/// How a failure is answered.
#[derive(Debug)]
pub(crate) enum FailureAnswer {
    /// At once.
    Prompt,
    /// After [`FAILURE_DELAY`]. The permit has to live until then.
    Delayed(WaitPermit),
    /// At once, because too many answers are delayed. The connection is closed, so that the next attempt needs a new one.
    Refused,
}

impl AuthFailureThrottle {
    /// Without failures. The listener's name appears in the log.
    pub(crate) fn new(listener: &'static str) -> Result<Self, InvalidQuota> {
        Ok(Self {
            listener,
            prompt_bucket: TokenBucket::builder(Rate::new(1, PROMPT_FAILURE_INTERVAL))
                .burst(MAX_PROMPT_FAILURES)
                .build()?,
            slots: Mutex::new(vec![0; ADDRESS_SLOTS].into()),
            hasher: RandomState::new(),
            delayed: Saturation::with_max_waiting(MAX_DELAYED),
            log: Mutex::default(),
        })
    }

    /// Records a failure of this client. Call it only after the credentials were compared.
    pub(crate) fn record(
        &self,
        client: IpAddr,
        now: Timestamp,
        counters: &ListenerCounters,
    ) -> FailureAnswer {
        increment(&counters.auth_failures);
        if let Some(failures) = self.count_for_log(now) {
            let listener = self.listener;
            tracing::warn!(listener, failures, "authentication failed");
        }
        if self.take_prompt_failure(client, now) {
            FailureAnswer::Prompt
        } else if self.delayed.is_full() {
            FailureAnswer::Refused
        } else {
            FailureAnswer::Delayed(self.delayed.acquire())
        }
    }

    fn take_prompt_failure(&self, client: IpAddr, now: Timestamp) -> bool {
        // The key of the hasher is random, so nobody can choose an address that shares the slot of another. The top bits of
        // the hash fit into any `usize`.
        let slot = self.hasher.hash_one(ClientNetwork::from(client)) >> 48;
        let slot = usize::try_from(slot).unwrap_or(0) % ADDRESS_SLOTS;
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = slots.get_mut(slot) else {
            return false;
        };
        let decision = self.prompt_bucket.decide(*state, now, 1);
        if let Some(next) = decision.next {
            *state = next;
        }
        !matches!(decision.outcome, Outcome::Deny { .. })
    }

    /// The failures since the last line, if it is time for another.
    fn count_for_log(&self, now: Timestamp) -> Option<u64> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.unlogged = log.unlogged.saturating_add(1);
        let is_recent = |last: Timestamp| now.since(last) < LOG_INTERVAL;
        if log.last_line.is_some_and(is_recent) {
            return None;
        }
        log.last_line = Some(now);
        Some(std::mem::take(&mut log.unlogged))
    }
}

/// Whether the credentials that a client sent are the expected ones. The time depends only on what the client sent: neither on
/// the first difference nor on the length of the expected ones.
pub(crate) fn is_same_secret(expected: &[u8], sent: &[u8]) -> bool {
    let differ = |sum: u8, (one, other): (&u8, &u8)| black_box(sum | (one ^ other));
    let differences = expected.iter().cycle().zip(sent).fold(0, differ);
    (black_box(differences) == 0) & (expected.len() == sent.len())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn throttle() -> AuthFailureThrottle {
        AuthFailureThrottle::new("test").unwrap()
    }

    #[test]
    fn a_mistyped_password_is_answered_at_once_and_guessing_is_slowed() {
        let (throttle, counters) = (throttle(), ListenerCounters::default());
        for _ in 0..10 {
            let answer = throttle.record(CLIENT, NOW, &counters);
            assert!(matches!(answer, FailureAnswer::Prompt), "{answer:?}");
        }
        let answer = throttle.record(CLIENT, NOW, &counters);
        assert!(matches!(answer, FailureAnswer::Delayed(_)), "{answer:?}");
        let later = NOW.after(PROMPT_FAILURE_INTERVAL);
        let answer = throttle.record(CLIENT, later, &counters);
        assert!(matches!(answer, FailureAnswer::Prompt), "{answer:?}");
    }

    #[test]
    fn delayed_answers_are_bounded_and_their_places_come_back() {
        let (throttle, counters) = (throttle(), ListenerCounters::default());
        let mut held = Vec::new();
        loop {
            match throttle.record(CLIENT, NOW, &counters) {
                FailureAnswer::Prompt => {}
                FailureAnswer::Delayed(permit) => held.push(permit),
                FailureAnswer::Refused => break,
            }
        }
        assert_eq!(held.len(), MAX_DELAYED);
        held.pop();
        let answer = throttle.record(CLIENT, NOW, &counters);
        assert!(matches!(answer, FailureAnswer::Delayed(_)), "{answer:?}");
    }

    /// An attacker with 100,000 addresses, and one who owns an IPv6 network and sends each guess from another address of it.
    #[test]
    fn many_addresses_get_no_more_prompt_answers_than_the_table_has_room_for() {
        let (throttle, counters) = (throttle(), ListenerCounters::default());
        let is_prompt = |client| {
            matches!(
                throttle.record(client, NOW, &counters),
                FailureAnswer::Prompt
            )
        };
        let network = 0x2001_0db8_0000_0000_0000_0000_0000_0000_u128;
        let rotated = (0..1_000).map(|host| IpAddr::V6(Ipv6Addr::from_bits(network | host)));
        assert_eq!(rotated.filter(|client| is_prompt(*client)).count(), 10);
        let many = (0..100_000).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
        let prompt = many.filter(|client| is_prompt(*client)).count();
        assert!(prompt < ADDRESS_SLOTS * 10, "{prompt}");
        let before = throttle.slots.lock().unwrap().len();
        assert_eq!(before, ADDRESS_SLOTS);
        assert_eq!(counters.auth_failures(), 101_000);
    }

    #[test]
    fn a_flood_of_failures_is_logged_once_a_minute_with_its_size() {
        let throttle = throttle();
        assert_eq!(throttle.count_for_log(NOW), Some(1));
        for _ in 0..1_000 {
            assert_eq!(throttle.count_for_log(NOW), None);
        }
        let later = NOW.after(LOG_INTERVAL);
        assert_eq!(throttle.count_for_log(later), Some(1_001));
    }

    #[test]
    fn secrets_are_equal_only_as_a_whole() {
        for (sent, is_same) in [
            ("secret", true),
            ("secreT", false),
            ("Secret", false),
            ("secre", false),
            ("secrets", false),
            ("secretsecret", false),
            ("", false),
        ] {
            assert_eq!(
                is_same_secret(b"secret", sent.as_bytes()),
                is_same,
                "{sent}"
            );
        }
    }
}
