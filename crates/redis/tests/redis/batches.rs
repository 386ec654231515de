//! Several limits and several keys in one call: all are charged or none is, as core's `decide_all` decides.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use redis::Connection;
use tollgate_core::limit::{self, Limit, State, decide_all};
use tollgate_core::{Receipt, Timestamp};
use tollgate_redis::ReservationRetention;
use tollgate_redis::wire::{ScriptCall, ScriptKind, decode};
use tollgate_store::{IdentifiedLimit, LimitId, Op, QuotaCheck, ReplyNote, StoreKey};
use tollgate_testkit::redis::{Kind, Server};

use crate::SECRET;
use crate::differential::BLANK;
use crate::server_time::connection;
use crate::trace::{self, Family, TestRng};

/// The operation, if `decide_all` supports it.
fn plain(op: Op) -> Option<Op> {
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
    ruled: IdentifiedLimit,
    family: Family,
    span: u64,
    state: State,
    key: [u8; 2],
    receipts: Vec<Receipt>,
}

/// Some limits share a key, as a user's limits per minute and per day do. `families` are their possible algorithms.
fn parts(dice: &mut TestRng, seed: u8, families: &[Family]) -> Vec<TracedLimit> {
    (0..2 + dice.below(5))
        .map(|number| {
            let family = dice.one_of(families);
            let (limit, span): (Limit, u64) = trace::limit(dice, family);
            let id = NonZeroU16::new(u16::try_from(number).unwrap() + 1).unwrap();
            TracedLimit {
                ruled: IdentifiedLimit {
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

fn operation(dice: &mut TestRng, part: &TracedLimit, now: Timestamp, is_spending: bool) -> Op {
    let most = part.ruled.limit.status(&part.state, now).limit;
    if is_spending && part.family != Family::Leases {
        return Op::Spend(trace::cost(dice, most).clamp(1, most.max(1)));
    }
    loop {
        let op = trace::operation(dice, part.family, most, part.span, &part.receipts);
        if plain(op).is_some() {
            return op;
        }
    }
}

#[derive(Debug, Default)]
struct BatchTally {
    admitted: u64,
    refused: u64,
    /// Charges that one limit would have made, but another denied.
    spared: u64,
    scripts: BTreeMap<String, u64>,
}

/// Runs one batch through core and through the server.
fn compare(
    connection: &mut Connection,
    parts: &mut [TracedLimit],
    ops: &[Op],
    now: Timestamp,
    tally: &mut BatchTally,
) {
    let keys: Vec<[u8; 2]> = parts.iter().map(|part| part.key).collect();
    let ruleds: Vec<IdentifiedLimit> = parts.iter().map(|part| part.ruled).collect();
    let checks: Vec<QuotaCheck<'_>> = ops
        .iter()
        .zip(&keys)
        .zip(&ruleds)
        .map(|((op, key), ruled)| QuotaCheck {
            key: StoreKey::new(key).unwrap(),
            limit: ruled,
            op: *op,
        })
        .collect();
    let mut of_core: Vec<limit::StateCheck<'_>> = parts
        .iter_mut()
        .zip(ops)
        .map(|(part, op)| limit::StateCheck {
            limit: &part.ruled.limit,
            state: &mut part.state,
            op: plain(*op).unwrap(),
        })
        .collect();
    let (verdict, expected) = decide_all(&mut of_core, now).unwrap();

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
    assert_eq!(decided.verdict, verdict);
    for (answer, expected) in answers.iter().zip(&expected) {
        assert_eq!(
            (answer.outcome, answer.status, answer.receipt, answer.note),
            (
                expected.outcome,
                expected.status,
                expected.receipt,
                ReplyNote::Plain
            ),
            "{ops:?} on {ruleds:?}"
        );
        tally.spared += u64::from(!verdict.is_admitted() && expected.outcome.is_admitted());
    }
    *tally.scripts.entry(format!("{:?}", request.kind)).or_default() += 1;
    tally.admitted += u64::from(verdict.is_admitted());
    tally.refused += u64::from(!verdict.is_admitted());
    for (part, answer) in parts.iter_mut().zip(&expected) {
        if answer.receipt.cost > 0 {
            part.receipts.push(answer.receipt);
        }
    }
}

#[test]
fn batches_are_all_or_nothing_as_core_says() {
    let server = Server::start(Kind::Redis);
    let mut connection = connection(&server);
    for which in ScriptKind::DECIDING {
        let load = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(which.script().text)
            .query::<()>(&mut connection);
        load.unwrap();
    }
    let mut tally = BatchTally::default();
    for seed in 0..100_u8 {
        let mut dice = TestRng::new(u64::from(seed) + 7);
        let families: &[Family] = match seed % 4 {
            0 => &[Family::Token, Family::Leaky],
            1 => &[Family::EACH[usize::from(seed / 4) % Family::EACH.len()]],
            _ => &Family::EACH,
        };
        let mut parts = parts(&mut dice, seed, families);
        let mut now = trace::usual(&mut dice);
        for _ in 0..200 {
            let span = parts.iter().map(|part| part.span).min().unwrap();
            now = trace::instant(&mut dice, now, span).0;
            let is_spending = dice.chance(60);
            let ops: Vec<Op> = parts
                .iter()
                .map(|part| operation(&mut dice, part, now, is_spending))
                .collect();
            compare(&mut connection, &mut parts, &ops, now, &mut tally);
        }
    }
    println!("{tally:?}");
    assert!(tally.admitted > 100 && tally.refused > 100 && tally.spared > 100);
    assert_eq!(
        tally.scripts.len(),
        ScriptKind::DECIDING.len(),
        "every script was called"
    );
}
