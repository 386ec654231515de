//! Leases with core's accounting as the broker, and a manual clock.

mod broker_faults;
mod demand;
mod fake_broker;
mod fault_simulation;
mod hot_keys;
mod refunds;
mod replies;

use self::fake_broker::{FakeBroker, Fate, bucket_limit, check, clock};
use super::{LeaseOptions, LocalLeases, SpendOutcome};
use crate::testing::poll_once;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tollgate_core::{Nanos, Outcome, Receipt};
use tollgate_store::{
    Clock as _, IdentifiedLimit, ManualClock, Op, QuotaCheck, StoreErrorKind, StoreKey, StoreReply,
};
use tollgate_testkit::allocation;

const KEY: &[u8] = b"everyone";

struct LeaseTest {
    clock: Arc<ManualClock>,
    broker: FakeBroker,
    leases: LocalLeases,
}

impl LeaseTest {
    fn new() -> Self {
        let clock = clock();
        Self {
            broker: FakeBroker::new(Arc::clone(&clock)),
            leases: LocalLeases::new(LeaseOptions::default()),
            clock,
        }
    }

    fn other_node(&self) -> LocalLeases {
        LocalLeases::new(LeaseOptions::default())
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Nanos::from_millis(millis));
    }

    /// One request, as an engine makes it.
    fn spend(&self, check: &QuotaCheck<'_>) -> Result<SpendOutcome, StoreErrorKind> {
        self.spend_on(&self.leases, check)
    }

    fn spend_on(
        &self,
        leases: &LocalLeases,
        check: &QuotaCheck<'_>,
    ) -> Result<SpendOutcome, StoreErrorKind> {
        match leases.spend(check, self.clock.now()) {
            SpendOutcome::Borrow => {
                let borrow = leases.borrow(&self.broker, None, check, || self.clock.now());
                poll_once(borrow).unwrap().map_err(|error| error.kind())
            }
            outcome => Ok(outcome),
        }
    }

    fn is_admitted(&self, check: &QuotaCheck<'_>) -> bool {
        matches!(self.spend(check), Ok(SpendOutcome::Admitted(_)))
    }

    fn maintain(&self) {
        for _ in 0..8 {
            poll_once(self.leases.maintain(&self.broker, || self.clock.now())).unwrap();
        }
    }

    fn calls(&self) -> usize {
        self.broker.calls().len()
    }

    fn maintain_on_demand(&self) {
        if poll_once(self.leases.wait_for_demand()).is_some() {
            poll_once(self.leases.maintain(&self.broker, || self.clock.now())).unwrap();
        }
    }
}

fn reply(outcome: SpendOutcome) -> StoreReply {
    match outcome {
        SpendOutcome::Admitted(reply) | SpendOutcome::Denied(reply) => reply,
        other => panic!("{other:?}"),
    }
}
