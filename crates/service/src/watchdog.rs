//! The watchdog: it decides a synthetic request about once a second, so that health checks tell whether decisions are made.
//!
//! It runs on the runtime that serves requests and takes their path: the policy in force, the engine, and with a fleet its
//! store. A process whose threads are stuck stops making such decisions, however well it accepts connections. Must not
//! know: listeners, what a health check is answered with.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::{CheckMode, CheckOptions};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_store::Clock;

use crate::panic_guard::catch_panic;
use crate::service::RateLimitService;

/// The service is stalled if its last synthetic decision is older than this.
pub const STALLED_AFTER: Nanos = Nanos::from_secs(5);

/// How long the watchdog rests between two decisions.
const INTERVAL: Duration = Duration::from_secs(1);

/// When the last synthetic decision was made.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// In nanoseconds since 1970; zero before the first one.
    decided_at: AtomicU64,
}

/// A request that nobody sent. Every attribute has a value, so that limits with keys are decided, too.
struct SyntheticRequest;

impl Attributes for SyntheticRequest {
    /// An address that no client can have.
    fn ip(&self) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            // The rules find it by the path.
            Attribute::Route => None,
            Attribute::Path => Some(b"/tollgate-watchdog"),
            _ => Some(b"tollgate-watchdog"),
        }
    }
}

impl Watchdog {
    fn record(&self, now: Timestamp) {
        self.decided_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    fn age(&self, now: Timestamp) -> Option<Nanos> {
        match self.decided_at.load(Ordering::Relaxed) {
            0 => None,
            decided => Some(now.since(Timestamp::from_nanos(decided))),
        }
    }
}

impl<C: Clock> RateLimitService<C> {
    /// Decides synthetic requests, about one a second. Never completes; run it on the runtime that serves requests.
    pub async fn run_watchdog(self: Arc<Self>) {
        loop {
            self.decide_synthetic_request().await;
            sleep(INTERVAL).await;
        }
    }

    /// Decides one synthetic request as a peek: nothing is charged, logged or counted. A decision that panics does not count
    /// as made.
    pub async fn decide_synthetic_request(&self) {
        let peek = CheckOptions::new(CheckMode::Peek);
        let decision = self.check_uncounted(&SyntheticRequest, peek);
        if catch_panic(decision).await.is_some() {
            self.watchdog.record(self.now());
        }
    }

    /// How old the last synthetic decision is. `None` before the first one.
    #[must_use]
    pub fn decision_age(&self) -> Option<Nanos> {
        self.watchdog.age(self.now())
    }

    /// The age of the last synthetic decision, if it is older than [`STALLED_AFTER`]: then requests are not being decided.
    #[must_use]
    pub fn stalled_for(&self) -> Option<Nanos> {
        self.decision_age().filter(|age| *age > STALLED_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Secret, demo_policy};
    use std::task::{Context, Poll, Waker};
    use tollgate_store::ManualClock;

    fn service() -> (Arc<RateLimitService<Arc<ManualClock>>>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_000)));
        let policy = demo_policy().unwrap();
        let service = RateLimitService::new(&policy, 1_000, Arc::clone(&clock), Secret::random());
        (Arc::new(service.unwrap()), clock)
    }

    /// The attack: stderr was a pipe of 4 KiB that nobody read. After 16 s every thread of the runtime was stuck in a write
    /// to it, no listener answered, and `/healthz` said 200. Here a runtime that is never polled stands for stuck threads.
    #[test]
    fn a_runtime_that_decides_nothing_is_stalled_after_five_seconds_and_not_before() {
        let (service, clock) = service();
        assert_eq!(service.decision_age(), None);
        assert_eq!(service.stalled_for(), None, "it has not begun");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let mut watchdog = Box::pin(Arc::clone(&service).run_watchdog());
        let mut poll = || {
            let _entered = runtime.enter();
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(watchdog.as_mut().poll(&mut context), Poll::Pending);
        };
        poll();
        assert_eq!(service.decision_age(), Some(Nanos::ZERO));
        clock.advance(STALLED_AFTER);
        assert_eq!(service.stalled_for(), None);
        clock.advance(Nanos::from_nanos(1));
        let just_over = STALLED_AFTER.saturating_add(Nanos::from_nanos(1));
        assert_eq!(service.stalled_for(), Some(just_over));
        // The threads go on: the next decision ends it.
        runtime.block_on(tokio::time::advance(INTERVAL));
        poll();
        assert_eq!(service.stalled_for(), None);
    }

    #[tokio::test]
    async fn synthetic_decisions_charge_and_count_nothing() {
        let (service, _clock) = service();
        let before = service.engine().store().usage();
        for _ in 0..10_000 {
            service.decide_synthetic_request().await;
        }
        let after = service.engine().store().usage();
        assert_eq!(format!("{before:?}"), format!("{after:?}"));
        let totals = service.engine().generation().totals(0).unwrap();
        assert_eq!((totals.allowed, totals.denied), (0, 0));
    }
}
