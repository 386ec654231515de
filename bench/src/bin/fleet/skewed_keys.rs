//! `zipf`: how many calls a decision of a leased limit takes if a million keys are used unequally.
//!
//! Time is simulated, and the broker is core's accounting in this process, so the counts are the same on every machine.
//! Must not know: how a node finds out which keys are hot.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tollgate_core::quota_lease::LeasedBucket;
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};
use tollgate_fleet::leases::{LeaseOptions, LocalLeases, SpendOutcome};
use tollgate_store::quota_lease::{LeaseBroker, LeaseGrant, LeaseRequest};
use tollgate_store::{IdentifiedLimit, LimitId, Op, QuotaCheck, StoreFuture, StoreKey};

use crate::options::Options;
use crate::stats::Table;
use crate::{Failure, number};

const KEYS: u32 = 1_000_000;
/// Requests of one node in a second.
const PER_SECOND: u64 = 20_000;
const SECONDS: u64 = 10;
/// How often a node tends its leases.
const MAINTENANCE: u64 = PER_SECOND / 20;
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// Which keys ask for a lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeaseChoice {
    EveryKey,
    HotKeys,
}

/// The accounting of all keys, and how often it was called.
#[derive(Debug)]
struct CountingBroker {
    buckets: Mutex<(HashMap<Vec<u8>, LeasedBucket>, Timestamp, u64)>,
    bucket: TokenBucket,
}

impl LeaseBroker for CountingBroker {
    fn grant_lease<'a>(
        &'a self,
        _routing_key: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        _limit: &'a IdentifiedLimit,
        request: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant> {
        let mut all = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let (buckets, now, calls) = &mut *all;
        *calls += 1;
        let bucket = buckets.entry(key.single().unwrap_or_default().to_vec());
        let grant = bucket.or_default().handle(&self.bucket, *now, &request);
        Box::pin(std::future::ready(Ok(grant)))
    }
}

/// One table: calls per decision for each exponent.
pub(crate) fn measure(options: &Options) -> Result<Vec<Table>, Failure> {
    let head = [
        "",
        "exact",
        "leased, every key",
        "leased, hot keys",
        "decided from a lease",
    ];
    let mut table = Table::new(
        "Calls per decision, a million keys, 20,000 requests/s on a node, zipf",
        &head,
    );
    let seconds = SECONDS.min(options.seconds * 2);
    for exponent in [0.0, 0.8, 1.0, 1.2] {
        let draws = zipf_draws(exponent, PER_SECOND * seconds);
        let (every, _) = simulate(&draws, LeaseChoice::EveryKey)?;
        let (hot, from_lease) = simulate(&draws, LeaseChoice::HotKeys)?;
        table.row(vec![
            format!("s = {exponent}"),
            "1.00".to_owned(),
            format!("{every:.2}"),
            format!("{hot:.2}"),
            format!("{:.0} %", from_lease * 100.0),
        ]);
    }
    Ok(vec![table])
}

/// Calls per decision, and the share of decisions that a lease made.
fn simulate(draws: &[u32], choice: LeaseChoice) -> Result<(f64, f64), Failure> {
    let bucket = TokenBucket::builder(Rate::per_second(1_000))
        .burst(1_000)
        .build()?;
    let broker = CountingBroker {
        buckets: Mutex::new((HashMap::new(), START, 0)),
        bucket,
    };
    let limit = IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit: bucket.into(),
    };
    let leases = LocalLeases::new(LeaseOptions::default());
    let mut from_lease = 0;
    for (number, key) in (0_u64..).zip(draws) {
        let now = START.after(Nanos::from_nanos(number * 1_000_000_000 / PER_SECOND));
        broker
            .buckets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .1 = now;
        let key = key.to_be_bytes();
        let check = QuotaCheck {
            key: StoreKey::new(&key)?,
            limit: &limit,
            op: Op::Spend(1),
        };
        match leases.spend(&check, now) {
            SpendOutcome::Borrow => {
                let is_leased =
                    choice == LeaseChoice::EveryKey || leases.is_lease_worthwhile(&check, now);
                ready(async {
                    match is_leased {
                        true => leases.borrow(&broker, None, &check, || now).await,
                        false => leases.spend_at_broker(&broker, None, &check).await,
                    }
                })??;
            }
            _ => from_lease += 1,
        }
        let is_wanted = ready(leases.wait_for_demand()).is_ok();
        if is_wanted || number % MAINTENANCE == 0 {
            ready(leases.maintain(&broker, || now))?;
        }
    }
    let calls = broker
        .buckets
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .2;
    let decisions = number(draws.len() as u64);
    Ok((number(calls) / decisions, number(from_lease) / decisions))
}

/// The output of a future that does not wait.
fn ready<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err("the broker in this process was waited for".into()),
    }
}

/// Keys by their rank: the key of rank r is drawn in proportion to 1 / r^exponent.
fn zipf_draws(exponent: f64, count: u64) -> Vec<u32> {
    let mut sum = 0.0;
    let upto: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        })
        .collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from(u32::try_from(state >> 32).unwrap_or(0)) / f64::from(u32::MAX) * sum
    };
    (0..count)
        .map(|_| {
            let at = draw();
            let rank = upto.partition_point(|upto| *upto < at);
            u32::try_from(rank).unwrap_or(0).min(KEYS - 1)
        })
        .collect()
}
