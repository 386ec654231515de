//! Several limits and several keys in one call: all are charged or none is, exactly as core's `decide_all` says.

use std::num::NonZeroU16;

use tollgate_core::Receipt;
use tollgate_core::limit::{self, Limit, State, decide_all};
use tollgate_redis::Remembering;
use tollgate_redis::wire::{Request, Which, decode};
use tollgate_store::{Check, Key, LimitId, Note, Op, Ruled};
use tollgate_testkit::redis::{Kind, Server};

use crate::SECRET;
use crate::differential::BLANK;
use crate::trace::{self, Dice, Family};

/// Core's word for an operation that means the same alone and in a batch.
fn plain(op: Op) -> Option<limit::Op> {
    Some(match op {
        Op::Spend(cost) => limit::Op::Spend(cost),
        Op::SpendUpTo(most) => limit::Op::SpendUpTo(most),
        Op::ChargeAlways(cost) => limit::Op::ChargeAlways(cost),
        Op::Settle { receipt, actual } => limit::Op::Settle { receipt, actual },
        Op::Credit(amount) => limit::Op::Credit(amount),
        Op::Acquire { id, weight } => limit::Op::Acquire { id, weight },
        Op::Release(id) => limit::Op::Release(id),
        _ => return None,
    })
}

struct Part {
    ruled: Ruled,
    family: Family,
    span: u64,
    state: State,
    key: [u8; 2],
    receipts: Vec<Receipt>,
}

fn parts(dice: &mut Dice, seed: u8) -> Vec<Part> {
    (0..2 + dice.below(5))
        .map(|number| {
            let family = dice.one_of(&Family::EACH);
            let (limit, span): (Limit, u64) = trace::limit(dice, family);
            let id = NonZeroU16::new(u16::try_from(number).unwrap() + 1).unwrap();
            Part {
                ruled: Ruled {
                    id: LimitId(id),
                    limit,
                },
                family,
                span,
                state: State::default(),
                // Some limits share a key, as a user's minute and day do; others do not.
                key: [seed, u8::try_from(number / 2).unwrap()],
                receipts: Vec::new(),
            }
        })
        .collect()
}

#[test]
fn batches_are_all_or_nothing_as_core_says() {
    let server = Server::start(Kind::Redis);
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    for which in Which::EACH {
        let load = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(which.script().text)
            .query::<()>(&mut connection);
        load.unwrap();
    }
    let (mut admitted, mut refused, mut spared) = (0, 0, 0);
    for seed in 0..60_u8 {
        let mut dice = Dice::new(u64::from(seed) + 7);
        let mut parts = parts(&mut dice, seed);
        let mut now = trace::usual(&mut dice);
        for _ in 0..200 {
            let span = parts.iter().map(|part| part.span).min().unwrap();
            now = trace::instant(&mut dice, now, span).0;
            let ops: Vec<Op> = parts
                .iter()
                .map(|part| {
                    let most = part.ruled.limit.status(&part.state, now).limit;
                    loop {
                        let op = trace::operation(
                            &mut dice,
                            part.family,
                            most,
                            part.span,
                            &part.receipts,
                        );
                        if plain(op).is_some() {
                            return op;
                        }
                    }
                })
                .collect();
            let keys: Vec<[u8; 2]> = parts.iter().map(|part| part.key).collect();
            let ruleds: Vec<Ruled> = parts.iter().map(|part| part.ruled).collect();
            let checks: Vec<Check<'_>> = ops
                .iter()
                .zip(&keys)
                .zip(&ruleds)
                .map(|((op, key), ruled)| Check {
                    key: Key::of(key).unwrap(),
                    ruled,
                    op: *op,
                })
                .collect();
            let mut of_core: Vec<limit::Check<'_>> = parts
                .iter_mut()
                .zip(&ops)
                .map(|(part, op)| limit::Check {
                    limit: &part.ruled.limit,
                    state: &mut part.state,
                    op: plain(*op).unwrap(),
                })
                .collect();
            let (verdict, expected) = decide_all(&mut of_core, now).unwrap();

            let request = Request::new(SECRET, Remembering::default(), &checks, Some(now)).unwrap();
            let mut call = redis::cmd("EVALSHA");
            call.arg(&request.which.script().digest)
                .arg(request.keys.len());
            for bytes in request.keys.iter().chain(&request.args) {
                call.arg(bytes.as_slice());
            }
            let reply: Vec<i64> = call.query(&mut connection).unwrap();
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
                        Note::Plain
                    ),
                    "seed {seed}: {ops:?} on {ruleds:?}"
                );
                spared += u64::from(!verdict.is_admitted() && expected.outcome.is_admitted());
            }
            admitted += u64::from(verdict.is_admitted());
            refused += u64::from(!verdict.is_admitted());
            for (part, answer) in parts.iter_mut().zip(&expected) {
                if answer.receipt.cost > 0 {
                    part.receipts.push(answer.receipt);
                }
            }
        }
    }
    println!("{admitted} batches admitted, {refused} refused, {spared} charges spared");
    assert!(admitted > 100 && refused > 100 && spared > 100);
}
