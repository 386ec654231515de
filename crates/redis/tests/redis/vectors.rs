//! The vectors, through the scripts: what was worked out from the specification holds here as it does in core.

use std::path::Path;

use redis::Connection;
use tollgate_core::Timestamp;
use tollgate_core::limit::{self, Limit, Refused};
use tollgate_core::reservation::{ReservationId, Terms};
use tollgate_redis::Remembering;
use tollgate_redis::wire::{Request, Which, decode};
use tollgate_store::{Answer, Check, Key, Note, Op, Ruled};
use tollgate_testkit::redis::{Kind, Server};
use tollgate_testkit::vectors::{Ask, Decision, Ledger, Reserved, Subject, Suite, run};

use crate::SECRET;
use crate::differential::{BLANK, ruled};
use crate::server_time::connection;

/// A server that decides at the instants that a vector names.
struct Scripts(Connection);

fn plain(answer: Answer) -> limit::Answer {
    limit::Answer {
        outcome: answer.outcome,
        status: answer.status,
        receipt: answer.receipt,
    }
}

fn contract(op: limit::Op) -> Op {
    match op {
        limit::Op::Spend(cost) => Op::Spend(cost),
        limit::Op::SpendUpTo(most) => Op::SpendUpTo(most),
        limit::Op::ChargeAlways(cost) => Op::ChargeAlways(cost),
        limit::Op::Settle { receipt, actual } => Op::Settle { receipt, actual },
        limit::Op::Credit(amount) => Op::Credit(amount),
        limit::Op::Acquire { id, weight } => Op::Acquire { id, weight },
        limit::Op::Renew(id) => Op::Renew(id),
        limit::Op::Release(id) => Op::Release(id),
        other => panic!("the contract has no {other:?}"),
    }
}

impl Scripts {
    fn ask(
        &mut self,
        now: Timestamp,
        remembering: Remembering,
        asked: &[(&str, &Limit, Op)],
    ) -> Result<(tollgate_redis::wire::Decided, Vec<Answer>), Refused> {
        let ruleds: Vec<Ruled> = asked.iter().map(|(_, limit, _)| ruled(**limit)).collect();
        let checks: Vec<Check<'_>> = asked
            .iter()
            .zip(&ruleds)
            .map(|((key, _, op), ruled)| Check {
                key: Key::of(key.as_bytes()).unwrap(),
                ruled,
                op: *op,
            })
            .collect();
        let request = Request::new(SECRET, remembering, &checks, Some(now))
            .map_err(|_senseless| Refused::Unsupported)?;
        let mut call = redis::cmd("EVALSHA");
        call.arg(&request.which.script().digest)
            .arg(request.keys.len());
        for bytes in request.keys.iter().chain(&request.args) {
            call.arg(bytes.as_slice());
        }
        let reply: Vec<i64> = call.query(&mut self.0).unwrap();
        let mut answers = vec![BLANK; checks.len()];
        let decided = decode(&checks, &reply, &mut answers).unwrap();
        if answers
            .iter()
            .any(|answer| answer.note == Note::LeaseNotHeld)
        {
            return Err(Refused::NotHeld);
        }
        Ok((decided, answers))
    }

    fn reserved(&mut self, now: Timestamp, terms: &Terms, ask: Ask<'_>, op: Op) -> Reserved {
        let remembering = Remembering {
            memory: terms.memory,
            most: u32::try_from(terms.most).unwrap(),
        };
        let (_, answers) = self.ask(now, remembering, &[(ask.key, ask.limit, op)])?;
        let answer = answers[0];
        match answer.note {
            Note::ReservationsFull => Err(Ledger::Full),
            Note::AlreadyClosed => Err(Ledger::AlreadyClosed),
            Note::ReservationExpired => Err(Ledger::Expired),
            Note::ReservationUnknown => Err(Ledger::Unknown),
            _ => Ok(plain(answer)),
        }
    }
}

impl Subject for Scripts {
    fn decide(&mut self, now: Timestamp, asks: &[Ask<'_>]) -> Result<Decision, Refused> {
        let asked: Vec<_> = asks
            .iter()
            .map(|ask| (ask.key, ask.limit, contract(ask.op)))
            .collect();
        let (decided, answers) = self.ask(now, Remembering::default(), &asked)?;
        Ok(Decision {
            outcome: decided.verdict.outcome(),
            binding: decided.verdict.binding(),
            answers: answers.into_iter().map(plain).collect(),
        })
    }

    /// States say what they were counted under, so a look is enough: it finds another window and carries the counts over.
    fn replace(&mut self, now: Timestamp, key: &str, _old: &Limit, new: &Limit) {
        let looked = self.ask(now, Remembering::default(), &[(key, new, Op::Spend(0))]);
        // A limit that cannot be spent on has nothing to carry over.
        assert!(matches!(looked, Ok(_) | Err(Refused::Unsupported)));
    }

    fn reserve(
        &mut self,
        now: Timestamp,
        terms: &Terms,
        id: ReservationId,
        ask: Ask<'_>,
    ) -> Reserved {
        let limit::Op::Spend(cost) = ask.op else {
            panic!("only what is spent can be reserved");
        };
        let op = Op::Reserve {
            id,
            cost,
            hold: terms.hold,
        };
        self.reserved(now, terms, ask, op)
    }

    fn close(
        &mut self,
        now: Timestamp,
        terms: &Terms,
        id: ReservationId,
        ask: Ask<'_>,
        actual: Option<u64>,
    ) -> Reserved {
        let op = match actual {
            Some(actual) => Op::SettleReserved { id, actual },
            None => Op::CancelReserved(id),
        };
        self.reserved(now, terms, ask, op)
    }
}

fn passes(kind: Kind) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vectors");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    let server = Server::start(kind);
    let mut scripts = Scripts(connection(&server));
    for which in Which::EACH {
        let load = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(which.script().text)
            .query::<()>(&mut scripts.0);
        load.unwrap();
    }
    let mut cases = 0;
    for file in &files {
        let suite = Suite::load(file, 1).unwrap();
        match run(&suite, &mut scripts) {
            Ok(count) => cases += count,
            Err(mismatch) => panic!("{kind:?}: {mismatch}"),
        }
    }
    println!("{kind:?}: {cases} cases of {} files", files.len());
    assert!(cases >= 190, "{cases}");
}

#[test]
fn every_vector_passes_on_every_promised_server() {
    for kind in Kind::under_test() {
        passes(kind);
    }
}
