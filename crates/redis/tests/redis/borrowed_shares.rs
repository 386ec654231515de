//! Shares of one quota with borrowing (docs/adr/0077), as batches that the engine plans: memory and Redis decide alike, request by request.
//!
//! An owner's request spends from its share and overdraws the common bucket. If the share has no room, the request borrows: it spends from
//! the common bucket alone. Must not know: the engine, how either store decides.

use std::num::NonZeroU16;
use std::sync::Arc;

use redis::Connection;
use tollgate_core::token_bucket::TokenBucket;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Rate, Timestamp};
use tollgate_redis::ReservationRetention;
use tollgate_redis::wire::{ScriptCall, decode};
use tollgate_store::{
    IdentifiedLimit, LimitId, ManualClock, MemoryStore, Op, QuotaCheck, Store as _, StoreKey,
};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::SECRET;
use crate::batches::load_scripts;
use crate::differential::BLANK;
use crate::server_time::connection;
use crate::trace::TestRng;

/// The refill interval of the quota, in nanoseconds.
const INTERVAL: u64 = 1_000_000;

/// What a batch decided, and what is left of each bucket.
type Decided = (bool, Vec<(Outcome, QuotaStatus)>);

/// The common bucket, then the share of each owner.
fn divided_quota(burst: u64, percents: &[u64]) -> Vec<IdentifiedLimit> {
    let bucket = |interval: u64, burst: u64, overdraft: u64| {
        let builder = TokenBucket::builder(Rate::new(1, Nanos::from_nanos(interval)));
        builder.burst(burst).overdraft(overdraft).build().unwrap()
    };
    let share_burst = |percent: &u64| (burst * percent / 200).max(1);
    let guaranteed: u64 = percents.iter().map(share_burst).sum();
    let common = bucket(INTERVAL, burst - guaranteed, guaranteed);
    let shares = percents.iter().map(|percent| {
        let interval = (INTERVAL * 100).div_ceil(*percent);
        bucket(interval, share_burst(percent), 0)
    });
    let all = std::iter::once(common).chain(shares).zip(1_u16..);
    all.map(|(bucket, id)| IdentifiedLimit {
        id: LimitId(NonZeroU16::new(id).unwrap()),
        limit: bucket.into(),
    })
    .collect()
}

struct BothStores<'a> {
    memory: &'a MemoryStore<Arc<ManualClock>>,
    redis: &'a mut Connection,
    key: [u8; 1],
}

impl BothStores<'_> {
    /// Decides a batch in memory and in Redis, and returns both.
    fn decide(&mut self, batch: &[(&IdentifiedLimit, Op)]) -> [Decided; 2] {
        let checks: Vec<QuotaCheck<'_>> = batch
            .iter()
            .map(|(limit, op)| QuotaCheck {
                key: StoreKey::new(&self.key).unwrap(),
                limit,
                op: *op,
            })
            .collect();
        let mut replies = vec![BLANK; checks.len()];
        let is_admitted = self.memory.decide(&checks, &mut replies).unwrap();
        let of_memory = replies.iter().map(|reply| (reply.outcome, reply.status));
        let of_memory = (is_admitted.is_admitted(), of_memory.collect());

        let now = Some(self.memory.now());
        let call = ScriptCall::new(SECRET, ReservationRetention::default(), &checks, now).unwrap();
        let mut command = redis::cmd("EVALSHA");
        command.arg(&call.kind.script().digest).arg(call.keys.len());
        for bytes in call.keys.iter().chain(&call.args) {
            command.arg(bytes);
        }
        let reply: Vec<i64> = command.query(self.redis).unwrap();
        let mut replies = vec![BLANK; checks.len()];
        let decided = decode(&checks, &reply, &mut replies).unwrap();
        let of_redis = replies.iter().map(|reply| (reply.outcome, reply.status));
        let of_redis = (decided.outcome.is_admitted(), of_redis.collect());
        [of_memory, of_redis]
    }
}

#[derive(Debug, Default)]
struct ShareTally {
    owned: u64,
    borrowed: u64,
    denied: u64,
    in_debt: u64,
}

#[test]
fn shares_with_borrowing_are_decided_alike_by_memory_and_redis() {
    let server = RedisServer::start(ServerProgram::Redis);
    let mut connection = connection(&server);
    load_scripts(&mut connection);
    let mut tally = ShareTally::default();
    for (seed, percents) in [&[50, 30][..], &[20, 20, 20, 20], &[1, 99], &[7, 33, 50]]
        .into_iter()
        .cycle()
        .take(20)
        .zip(0_u8..)
        .map(|(percents, seed)| (seed, percents))
    {
        let mut rng = TestRng::new(u64::from(seed) + 19);
        let quota = divided_quota(10 + rng.below(90), percents);
        let (common, shares) = quota.split_first().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
        let memory = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
        for limit in &quota {
            memory.add_limit(limit);
        }
        let mut both = BothStores {
            memory: &memory,
            redis: &mut connection,
            key: [seed],
        };
        for _ in 0..400 {
            // Mostly faster than the quota refills, with pauses in which shares become idle.
            let pause = if rng.chance(2) {
                60 * INTERVAL
            } else {
                INTERVAL
            };
            clock.advance(Nanos::from_nanos(rng.below(pause)));
            // The last team has no share and borrows at once.
            let team = rng.below(shares.len() as u64 + 1);
            let share = shares.get(usize::try_from(team).unwrap());
            let cost = 1 + rng.below(2);
            if let Some(share) = share {
                let [memory, redis] =
                    both.decide(&[(common, Op::ChargeAlways(cost)), (share, Op::Spend(cost))]);
                assert_eq!(memory, redis, "an owner within its share, seed {seed}");
                if memory.0 {
                    tally.owned += 1;
                    tally.in_debt += u64::from(memory.1[0].1.remaining == 0);
                    continue;
                }
            }
            let [memory, redis] = both.decide(&[(common, Op::Spend(cost))]);
            assert_eq!(memory, redis, "a borrower, seed {seed}");
            let count = match memory.0 {
                true => &mut tally.borrowed,
                false => &mut tally.denied,
            };
            *count += 1;
        }
    }
    println!("{tally:?}");
    let ShareTally {
        owned,
        borrowed,
        denied,
        in_debt,
    } = tally;
    assert!(
        owned.min(borrowed).min(denied).min(in_debt) > 100,
        "every way was taken"
    );
}

/// The control: a borrower that overdraws the common bucket in one store only leaves another remaining there.
#[test]
fn a_charge_that_only_one_store_has_is_noticed() {
    let server = RedisServer::start(ServerProgram::Redis);
    let mut connection = connection(&server);
    load_scripts(&mut connection);
    let quota = divided_quota(40, &[50, 30]);
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let memory = MemoryStore::with_clock(1_000, clock).unwrap();
    for limit in &quota {
        memory.add_limit(limit);
    }
    let check = QuotaCheck {
        key: StoreKey::new(&[1]).unwrap(),
        limit: &quota[0],
        op: Op::ChargeAlways(1),
    };
    let charged = memory.decide(&[check], &mut [BLANK]).unwrap();
    assert!(charged.is_admitted());
    let mut both = BothStores {
        memory: &memory,
        redis: &mut connection,
        key: [1],
    };
    let [memory, redis] = both.decide(&[(&quota[0], Op::Spend(1))]);
    assert_eq!(memory.0, redis.0);
    assert_ne!(memory.1, redis.1);
}
