//! Several limits and several keys in one call: all are charged or none is, as core's `decide_all` decides.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use redis::Connection;
use tollgate_core::limit::{self, Limit, State, decide_all};
use tollgate_core::{Nanos, Outcome, QuotaStatus, Receipt, Timestamp};
use tollgate_redis::ReservationRetention;
use tollgate_redis::wire::{ScriptCall, ScriptKind, decode};
use tollgate_store::{
    IdentifiedLimit, LimitId, ManualClock, MemoryStore, Op, QuotaCheck, ReplyNote, Store as _,
    StoreKey,
};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::SECRET;
use crate::differential::BLANK;
use crate::server_time::connection;
use crate::trace::{self, Family, TestRng};

/// The operation, if `decide_all` supports it.
fn as_core_op(op: Op) -> Option<Op> {
    matches!(
        op,
        Op::Spend(_)
            | Op::SpendUpTo(_)
            | Op::ChargeAlways(_)
            | Op::Settle { .. }
            | Op::Credit(_)
            | Op::Acquire { .. }
            | Op::Release(_)
    )
    .then_some(op)
}

struct TracedLimit {
    limit: IdentifiedLimit,
    family: Family,
    span: u64,
    state: State,
    key: [u8; 2],
    receipts: Vec<Receipt>,
}

/// Some limits share a key, as a user's limits per minute and per day do. `families` are their possible algorithms.
fn traced(rng: &mut TestRng, seed: u8, families: &[Family], count: u64) -> Vec<TracedLimit> {
    (0..count)
        .map(|number| {
            let family = rng.one_of(families);
            let (limit, span): (Limit, u64) = trace::limit(rng, family);
            let id = NonZeroU16::new(u16::try_from(number).unwrap() + 1).unwrap();
            TracedLimit {
                limit: IdentifiedLimit {
                    id: LimitId(id),
                    limit,
                },
                family,
                span,
                state: State::default(),
                key: [seed, u8::try_from(number / 2).unwrap()],
                receipts: Vec::new(),
            }
        })
        .collect()
}

fn operation(
    rng: &mut TestRng,
    traced_limit: &TracedLimit,
    now: Timestamp,
    is_spending: bool,
) -> Op {
    let most = traced_limit
        .limit
        .limit
        .status(&traced_limit.state, now)
        .limit;
    if is_spending && traced_limit.family != Family::Leases {
        return Op::Spend(trace::cost(rng, most).clamp(1, most.max(1)));
    }
    loop {
        let op = trace::operation(
            rng,
            traced_limit.family,
            most,
            traced_limit.span,
            &traced_limit.receipts,
        );
        if as_core_op(op).is_some() {
            return op;
        }
    }
}

#[derive(Debug, Default)]
struct BatchTally {
    admitted: u64,
    denied: u64,
    /// Charges that one limit would have made, but another denied.
    spared: u64,
    scripts: BTreeMap<String, u64>,
}

/// Runs one batch through core and through the server.
fn compare(
    connection: &mut Connection,
    traced: &mut [TracedLimit],
    ops: &[Op],
    now: Timestamp,
    tally: &mut BatchTally,
) -> Vec<(Outcome, QuotaStatus)> {
    let keys: Vec<[u8; 2]> = traced.iter().map(|traced_limit| traced_limit.key).collect();
    let limits: Vec<IdentifiedLimit> = traced
        .iter()
        .map(|traced_limit| traced_limit.limit)
        .collect();
    let checks: Vec<QuotaCheck<'_>> = ops
        .iter()
        .zip(&keys)
        .zip(&limits)
        .map(|((op, key), limit)| QuotaCheck {
            key: StoreKey::new(key).unwrap(),
            limit,
            op: *op,
        })
        .collect();
    let mut of_core: Vec<limit::StateCheck<'_>> = traced
        .iter_mut()
        .zip(ops)
        .map(|(traced_limit, op)| limit::StateCheck {
            limit: &traced_limit.limit.limit,
            state: &mut traced_limit.state,
            op: as_core_op(*op).unwrap(),
        })
        .collect();
    let (outcome, expected) = decide_all(&mut of_core, now).unwrap();

    let request =
        ScriptCall::new(SECRET, ReservationRetention::default(), &checks, Some(now)).unwrap();
    let mut call = redis::cmd("EVALSHA");
    call.arg(&request.kind.script().digest)
        .arg(request.keys.len());
    for bytes in request.keys.iter().chain(&request.args) {
        call.arg(bytes);
    }
    let reply: Vec<i64> = call.query(connection).unwrap();
    let mut answers = vec![BLANK; checks.len()];
    let decided = decode(&checks, &reply, &mut answers).unwrap();
    assert_eq!(decided.outcome, outcome);
    for (answer, expected) in answers.iter().zip(&expected) {
        assert_eq!(
            (answer.outcome, answer.status, answer.receipt, answer.note),
            (
                expected.outcome,
                expected.status,
                expected.receipt,
                ReplyNote::Plain
            ),
            "{ops:?} on {limits:?}"
        );
        tally.spared += u64::from(!outcome.is_admitted() && expected.outcome.is_admitted());
    }
    *tally
        .scripts
        .entry(format!("{:?}", request.kind))
        .or_default() += 1;
    tally.admitted += u64::from(outcome.is_admitted());
    tally.denied += u64::from(!outcome.is_admitted());
    for (traced_limit, answer) in traced.iter_mut().zip(&expected) {
        if answer.receipt.cost > 0 {
            traced_limit.receipts.push(answer.receipt);
        }
    }
    let expected = expected.iter();
    expected.map(|one| (one.outcome, one.status)).collect()
}

pub(crate) fn load_scripts(connection: &mut Connection) {
    for which in ScriptKind::DECIDING {
        let load = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(which.script().text)
            .query::<()>(connection);
        load.unwrap();
    }
}

#[test]
fn i11_batches_are_all_or_nothing_as_in_core() {
    let server = RedisServer::start(ServerProgram::Redis);
    let mut connection = connection(&server);
    load_scripts(&mut connection);
    let mut tally = BatchTally::default();
    for seed in 0..100_u8 {
        let mut rng = TestRng::new(u64::from(seed) + 7);
        let families: &[Family] = match seed % 4 {
            0 => &[Family::Token, Family::Leaky],
            1 => &[Family::EACH[usize::from(seed / 4) % Family::EACH.len()]],
            _ => &Family::EACH,
        };
        let count = 2 + rng.below(5);
        let mut traced = traced(&mut rng, seed, families, count);
        let mut now = trace::usual(&mut rng);
        for _ in 0..200 {
            let span = traced
                .iter()
                .map(|traced_limit| traced_limit.span)
                .min()
                .unwrap();
            now = trace::instant(&mut rng, now, span).0;
            let is_spending = rng.chance(60);
            let ops: Vec<Op> = traced
                .iter()
                .map(|traced_limit| operation(&mut rng, traced_limit, now, is_spending))
                .collect();
            compare(&mut connection, &mut traced, &ops, now, &mut tally);
        }
    }
    println!("{tally:?}");
    assert!(tally.admitted > 100 && tally.denied > 100 && tally.spared > 100);
    assert_eq!(
        tally.scripts.len(),
        ScriptKind::DECIDING.len(),
        "every script was called"
    );
}

/// A batch had room for 32 checks, so a request with more quotas was never decided.
#[test]
fn batches_of_64_and_128_checks_are_decided_alike_by_core_memory_and_redis() {
    let server = RedisServer::start(ServerProgram::Redis);
    let mut connection = connection(&server);
    load_scripts(&mut connection);
    let mut tally = BatchTally::default();
    for (seed, count) in [(101, 33), (102, 64), (103, 64), (104, 128)] {
        let mut rng = TestRng::new(u64::from(seed));
        let families: &[Family] = match seed % 2 {
            0 => &[Family::Token],
            _ => &[Family::Token, Family::Window],
        };
        let mut traced = traced(&mut rng, seed, families, count);
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
        let memory = MemoryStore::with_clock(10_000, Arc::clone(&clock)).unwrap();
        let limits: Vec<IdentifiedLimit> = traced.iter().map(|one| one.limit).collect();
        let keys: Vec<[u8; 2]> = traced.iter().map(|one| one.key).collect();
        for limit in &limits {
            memory.add_limit(limit);
        }
        for _ in 0..150 {
            let shortest = traced.iter().map(|one| one.span).min().unwrap();
            clock.advance(Nanos::from_nanos(rng.below(shortest.max(2))));
            let cost = rng.below(2);
            let ops = vec![Op::Spend(cost); limits.len()];
            let pairs = limits.iter().zip(&keys).zip(&ops);
            let checks: Vec<QuotaCheck<'_>> = pairs
                .map(|((limit, key), op)| QuotaCheck {
                    key: StoreKey::new(key).unwrap(),
                    limit,
                    op: *op,
                })
                .collect();
            let mut replies = vec![BLANK; checks.len()];
            let batch = memory.decide(&checks, &mut replies).unwrap();
            let is_admitted = replies.iter().all(|reply| reply.outcome.is_admitted());
            assert_eq!(batch.is_admitted(), is_admitted);
            let expected = compare(&mut connection, &mut traced, &ops, memory.now(), &mut tally);
            let decided = replies.iter().map(|reply| (reply.outcome, reply.status));
            assert_eq!(decided.collect::<Vec<_>>(), expected, "{count} checks");
        }
    }
    println!("{tally:?}");
    assert!(tally.admitted > 20 && tally.denied > 20 && tally.spared > 20);
}
