//! Two versions of Tollgate on one server: this version reads the states of the previous one and writes the same bytes.
//!
//! If a state here changes, the two versions cannot read each other's states. Keep reading the old format, with a case
//! of its own, or use another prefix than `tg2`.

use redis::Connection;
use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::Limit;
use tollgate_core::reservation::ReservationId;
use tollgate_core::{
    Calendar, Concurrency, FixedWindow, LeakyBucket, Nanos, Rate, SlidingCounter, SlidingLog,
    Timestamp, TokenBucket, UtcOffset, Window,
};
use tollgate_redis::ReservationRetention;
use tollgate_redis::wire::{ScriptCall, ScriptKind, decode, decode_lease_grant};
use tollgate_store::quota_lease::LeaseRequest;
use tollgate_store::{Op, QuotaCheck, StoreKey, StoreReply};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::SECRET;
use crate::differential::{BLANK, first_limit};
use crate::quota_leases::server::want;
use crate::server_time::connection;

const START: Timestamp = Timestamp::from_secs(1_799_996_400);

/// A limit, operations a second apart, the states of its keys afterwards, and the remaining units.
struct Case {
    name: &'static str,
    limit: Limit,
    ops: Vec<Op>,
    states: &'static [&'static str],
    remaining: u64,
}

fn numbers() -> Vec<Case> {
    let rate = Rate::per_minute(10);
    let month = Window::Calendar(Calendar::Month, UtcOffset::UTC);
    vec![
        Case {
            name: "token bucket",
            limit: TokenBucket::builder(rate).build().unwrap().into(),
            ops: vec![Op::Spend(3), Op::Spend(2)],
            states: &["31373939393936343330303030303030303030"],
            remaining: 5,
        },
        Case {
            name: "leaky bucket",
            limit: LeakyBucket::queue(rate).burst(5).build().unwrap().into(),
            ops: vec![Op::Spend(1), Op::Spend(1)],
            states: &["31373939393936343132303030303030303030"],
            remaining: 4,
        },
        Case {
            name: "window of the clock",
            limit: FixedWindow::builder(10, Window::Epoch(Nanos::HOUR))
                .build()
                .unwrap()
                .into(),
            ops: vec![Op::Spend(3), Op::Spend(2)],
            states: &["66006b49d20000000000000000000000000005"],
            remaining: 5,
        },
        Case {
            name: "window from the first hit",
            limit: FixedWindow::builder(10, Window::FirstHit(Nanos::HOUR))
                .build()
                .unwrap()
                .into(),
            ops: vec![Op::Spend(3), Op::Spend(2)],
            states: &["66006b49d20000000000000000000000000005"],
            remaining: 5,
        },
        Case {
            name: "month",
            limit: FixedWindow::builder(10, month).build().unwrap().into(),
            ops: vec![Op::Spend(3)],
            states: &["66006b5fcb0000000000000000000000000003"],
            remaining: 7,
        },
    ]
}

fn collections() -> Vec<Case> {
    let rate = Rate::per_minute(10);
    let hold = |id| Op::Acquire {
        id: LeaseId(id),
        weight: 2,
    };
    let reserve = |id| Op::Reserve {
        id: ReservationId(id),
        cost: 3,
        hold: Nanos::MINUTE,
    };
    vec![
        Case {
            name: "sliding counter",
            limit: SlidingCounter::builder(10, Nanos::HOUR)
                .build()
                .unwrap()
                .into(),
            ops: vec![Op::Spend(3), Op::Spend(2)],
            states: &["63006b49c3f00000000000000000000000050000000e100000000000"],
            remaining: 5,
        },
        Case {
            name: "sliding log",
            limit: SlidingLog::builder(10, Nanos::HOUR).build().unwrap().into(),
            ops: vec![Op::Spend(3), Op::Spend(2)],
            states: &["6c000000000005006b49c3f00000000000000003006b49c3f10000000000000002"],
            remaining: 5,
        },
        Case {
            name: "leases",
            limit: Concurrency::new(10, Nanos::HOUR).unwrap().into(),
            ops: vec![hold(7), hold(8), Op::Release(LeaseId(7))],
            states: &["68000000000002006b49d201000000000000000200000000000000000000000000000008"],
            remaining: 8,
        },
        Case {
            name: "reservations",
            limit: TokenBucket::builder(rate).build().unwrap().into(),
            ops: vec![reserve(7), reserve(8), Op::CancelReserved(ReservationId(7))],
            states: &[
                "31373939393936343230303030303030303030",
                "7200000000000000000000000000000007000000000000000003006b49c3f000000000006b49c40200000000006b49c42c000000000000000000000000000000000000000008000000000000000003006b49c3f100000000006b49c41400000000006b49c42d0000000001",
            ],
            remaining: 7,
        },
    ]
}

struct ScriptHarness {
    connection: Connection,
    _server: RedisServer,
}

impl ScriptHarness {
    fn start() -> Self {
        let server = RedisServer::start(ServerProgram::Redis);
        let mut connection = connection(&server);
        for which in ScriptKind::DECIDING {
            let load = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(which.script().text)
                .take();
            load.query::<()>(&mut connection).unwrap();
        }
        Self {
            connection,
            _server: server,
        }
    }

    /// Decides this many seconds after the start. Returns also the names of the keys.
    fn ask(&mut self, limit: Limit, after: u64, op: Op) -> (StoreReply, Vec<Vec<u8>>) {
        let limit = first_limit(limit);
        let check = [QuotaCheck {
            key: StoreKey::new(b"alice").unwrap(),
            limit: &limit,
            op,
        }];
        let now = START.after(Nanos::from_secs(after));
        let request =
            ScriptCall::new(SECRET, ReservationRetention::default(), &check, Some(now)).unwrap();
        let mut call = redis::cmd("EVALSHA");
        call.arg(&request.kind.script().digest)
            .arg(request.keys.len());
        for bytes in request.keys.iter().chain(&request.args) {
            call.arg(bytes);
        }
        let reply: Vec<i64> = call.query(&mut self.connection).unwrap();
        let mut answers = [BLANK];
        let decided = decode(&check, &reply, &mut answers).unwrap();
        assert_eq!(decided.corrupt, 0, "the state is understood");
        (
            answers[0],
            request.keys.iter().map(<[u8]>::to_vec).collect(),
        )
    }

    /// The stored states in hexadecimal, ordered by name.
    fn states(&mut self) -> Vec<String> {
        let mut names: Vec<Vec<u8>> = redis::cmd("KEYS")
            .arg("*")
            .query(&mut self.connection)
            .unwrap();
        names.sort();
        names
            .iter()
            .map(|name| {
                let get = redis::cmd("GET").arg(name).take();
                let state: Vec<u8> = get.query(&mut self.connection).unwrap();
                state.iter().map(|byte| format!("{byte:02x}")).collect()
            })
            .collect()
    }

    fn forget(&mut self) {
        redis::cmd("FLUSHALL")
            .query::<()>(&mut self.connection)
            .unwrap();
    }
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    (0..hexadecimal.len() / 2)
        .map(|at| u8::from_str_radix(&hexadecimal[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

/// Leases are granted from a bucket by a script of their own.
#[test]
fn s_41_leases_of_the_previous_version_are_read_and_ours_are_equal() {
    const STATE: &str = "62000000000000000000006b49c42c00000000006b49c3f00000000000000000000000000400000000000000000000000000000000000000000000000007006b49c42d00000000006b49c3f10000000000000000000000000300000000000000000000000000000000000000000000000008";
    let mut harness = ScriptHarness::start();
    let script = ScriptKind::QuotaLease.script();
    let load = redis::cmd("SCRIPT").arg("LOAD").arg(script.text).take();
    load.query::<()>(&mut harness.connection).unwrap();
    let bucket = TokenBucket::builder(Rate::per_minute(10)).build().unwrap();
    let limit = first_limit(bucket.into());
    let key = StoreKey::new(b"alice").unwrap();
    let grant = |harness: &mut ScriptHarness, after: u64, request: &LeaseRequest<'_>| {
        let now = Some(START.after(Nanos::from_secs(after)));
        let request_call = ScriptCall::for_lease(SECRET, &key, &limit, request, now).unwrap();
        let mut call = redis::cmd("EVALSHA");
        call.arg(&script.digest).arg(request_call.keys.len());
        for bytes in request_call.keys.iter().chain(&request_call.args) {
            call.arg(bytes);
        }
        let reply: Vec<i64> = call.query(&mut harness.connection).unwrap();
        let (grant, corrupt) = decode_lease_grant(&limit.limit, request, &reply).unwrap();
        assert_eq!(corrupt, 0, "the state is understood");
        (
            grant.units,
            request_call.keys.iter().next().unwrap().to_vec(),
        )
    };
    assert_eq!(grant(&mut harness, 0, &want(7, 4)).0, 4);
    let (units, name) = grant(&mut harness, 1, &want(8, 3));
    assert_eq!(units, 3);
    assert_eq!(harness.states(), [STATE]);
    harness.forget();
    let set = redis::cmd("SET").arg(&name).arg(bytes(STATE)).take();
    set.query::<()>(&mut harness.connection).unwrap();
    // Seven of ten units are leased.
    assert_eq!(grant(&mut harness, 1, &want(9, 10)).0, 3);
}

#[test]
fn s_41_states_of_the_previous_version_are_read_and_ours_are_equal() {
    let mut harness = ScriptHarness::start();
    let mut wrong = Vec::new();
    for case in numbers().into_iter().chain(collections()) {
        harness.forget();
        let mut names = Vec::new();
        for (after, op) in (0..).zip(&case.ops) {
            names = harness.ask(case.limit, after, *op).1;
        }
        let states = harness.states();
        if states != case.states {
            wrong.push(format!("{}: {states:?}", case.name));
            continue;
        }
        // The reverse: read states that another version wrote.
        harness.forget();
        names.sort();
        for (name, state) in names.iter().zip(case.states) {
            let set = redis::cmd("SET").arg(name).arg(bytes(state)).take();
            set.query::<()>(&mut harness.connection).unwrap();
        }
        let looking = match case.ops[0] {
            Op::Acquire { id, .. } => Op::Acquire { id, weight: 0 },
            _ => Op::Spend(0),
        };
        let (answer, _) = harness.ask(case.limit, 2, looking);
        assert_eq!(answer.status.remaining, case.remaining, "{}", case.name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
