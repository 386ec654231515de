//! A sliding counter whose window length changes, and states that an earlier version of the script wrote.

use redis::Connection;
use tollgate_core::{Nanos, Outcome, SlidingCounter, Timestamp};
use tollgate_redis::ReservationRetention;
use tollgate_redis::wire::{ScriptCall, ScriptKind, decode};
use tollgate_store::{Op, QuotaCheck, StoreKey, StoreReply};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::SECRET;
use crate::differential::{BLANK, first_limit};
use crate::server_time::connection;

const START: Timestamp = Timestamp::from_secs(1_799_996_400);

struct CounterHarness {
    connection: Connection,
    _server: RedisServer,
}

impl CounterHarness {
    fn start() -> Self {
        let server = RedisServer::start(ServerProgram::Redis);
        let mut connection = connection(&server);
        let text = ScriptKind::Counters.script().text;
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).take();
        load.query::<()>(&mut connection).unwrap();
        Self {
            connection,
            _server: server,
        }
    }

    /// Decides this many seconds after the start, and returns the reply and the stored state.
    fn ask(&mut self, quota: SlidingCounter, after: u64, op: Op) -> (StoreReply, Vec<u8>) {
        let limit = first_limit(quota.into());
        let check = [QuotaCheck {
            key: StoreKey::new(b"alice").unwrap(),
            limit: &limit,
            op,
        }];
        let now = START.after(Nanos::from_secs(after));
        let request =
            ScriptCall::new(SECRET, ReservationRetention::default(), &check, Some(now)).unwrap();
        let mut call = redis::cmd("EVALSHA");
        call.arg(&request.kind.script().digest).arg(1);
        for bytes in request.keys.iter().chain(&request.args) {
            call.arg(bytes);
        }
        let reply: Vec<i64> = call.query(&mut self.connection).unwrap();
        let mut answers = [BLANK];
        let decided = decode(&check, &reply, &mut answers).unwrap();
        assert_eq!(decided.corrupt, 0);
        let stored = redis::cmd("GET").arg(request.keys.get(0).unwrap()).take();
        (answers[0], stored.query(&mut self.connection).unwrap())
    }

    fn put(&mut self, state: &[u8]) {
        let (name,): (String,) = redis::cmd("KEYS")
            .arg("*")
            .query(&mut self.connection)
            .unwrap();
        let set = redis::cmd("SET").arg(name).arg(state).take();
        set.query::<()>(&mut self.connection).unwrap();
    }
}

fn quota(limit: u64, window: Nanos) -> SlidingCounter {
    SlidingCounter::builder(limit, window).build().unwrap()
}

#[test]
fn a_new_window_length_inherits_the_estimate() {
    let mut counter = CounterHarness::start();
    let (minute, hour) = (quota(200, Nanos::MINUTE), quota(1_000, Nanos::HOUR));
    counter.ask(minute, 0, Op::Spend(80));
    counter.ask(minute, 60, Op::Spend(30));
    // 70 % into the window: 80 · 0.30 + 30 = 54.
    let (peeked, _) = counter.ask(hour, 102, Op::Peek(0));
    assert_eq!(peeked.status.remaining, 1_000 - 54);
    let (spent, _) = counter.ask(hour, 102, Op::Spend(6));
    assert_eq!(spent.status.remaining, 1_000 - 60);
    let (later, _) = counter.ask(hour, 3_599, Op::Peek(0));
    assert_eq!(later.status.remaining, 1_000 - 60, "it is the hour's now");
}

/// If a denial did not store the converted counts, they would fade as before and not as its retry time says.
#[test]
fn the_retry_time_of_a_denial_holds_after_a_change_of_length() {
    let mut counter = CounterHarness::start();
    let (hour, minute) = (quota(100, Nanos::HOUR), quota(40, Nanos::MINUTE));
    counter.ask(hour, 0, Op::Spend(40));
    let (denied, _) = counter.ask(minute, 10, Op::Spend(1));
    let Outcome::Deny { retry_after } = denied.outcome else {
        panic!("forty are not forgotten: {denied:?}");
    };
    // In the next minute one of the forty has faded after 1.5 seconds.
    let seconds = retry_after.as_nanos() / 1_000_000_000;
    assert_eq!(seconds, 51);
    let (again, _) = counter.ask(minute, 10 + seconds, Op::Peek(1));
    assert!(matches!(again.outcome, Outcome::Deny { .. }));
    let (admitted, _) = counter.ask(minute, 11 + seconds, Op::Peek(1));
    assert_eq!(admitted.outcome, Outcome::Allow);
}

/// Old and new processes alternate while a new length is rolled out.
#[test]
fn i08_alternating_window_lengths_mint_nothing() {
    let mut counter = CounterHarness::start();
    let (minute, hour) = (quota(50, Nanos::MINUTE), quota(50, Nanos::HOUR));
    let mut admitted = 0;
    for second in 0..50 {
        for quota in [minute, hour] {
            let (answer, _) = counter.ask(quota, second, Op::Spend(3));
            admitted += answer.receipt.cost;
        }
    }
    assert_eq!(admitted, 48, "sixteen times three of fifty");
}

#[test]
fn a_state_without_its_window_length_is_read_with_the_callers() {
    let mut counter = CounterHarness::start();
    let minute = quota(100, Nanos::MINUTE);
    let (_, stored) = counter.ask(minute, 0, Op::Spend(30));
    assert_eq!(
        stored.len(),
        28,
        "as much as fits the server's allocation of 48"
    );
    // The state as the first version of the script wrote it.
    counter.put(&stored[..18]);
    let (peeked, _) = counter.ask(minute, 1, Op::Peek(0));
    assert_eq!(peeked.status.remaining, 70);
    let (spent, stored) = counter.ask(minute, 1, Op::Spend(1));
    assert_eq!(spent.status.remaining, 69);
    assert_eq!(stored.len(), 28, "the next charge stores its window length");
}
