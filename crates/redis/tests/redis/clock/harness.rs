//! A server with a clock of its own, a store on it, and checks of the keys on the server.
//!
//! Must not know: which limits are tested.

use std::time::Duration;

use redis::{Connection, FromRedisValue};
use tollgate_core::{Nanos, Timestamp};
use tollgate_redis::{RedisStore, ReservationRetention};
use tollgate_store::{IdentifiedLimit, Op, StoreReply};
use tollgate_testkit::redis::{RedisServer, ServerProgram, ShimmedClock};

use crate::model::Model;
use crate::server_time::{connection, decide_one, long_timeout_store};

/// Not on a whole millisecond, so that every rounding matters. Redis tells the time in microseconds.
const START: Duration = Duration::from_micros(1_789_000_000_123_457);
const MILLISECOND: u64 = 1_000_000;
/// Valkey 9 reads the wall clock once a millisecond and counts on with the processor's tick counter, which tests cannot
/// hold (valkey-io/valkey#3193). So it notices a move late, and its clock may lead the held clock by this much.
const CACHED_FOR: Nanos = Nanos::from_millis(1);
/// How often the server is asked whether it has noticed the move: for seconds, where one millisecond is enough.
const QUESTIONS: u32 = 100_000;
const GONE: i64 = -2;
const IMMORTAL: i64 = -1;

pub(super) struct ClockHarness {
    pub(super) store: RedisStore,
    pub(super) connection: Connection,
    clock: ShimmedClock,
    kind: ServerProgram,
    now: u64,
    taken: u128,
    // Dropped last, after its users.
    _server: RedisServer,
}

impl ClockHarness {
    pub(super) async fn start(kind: ServerProgram) -> Self {
        let (server, clock) = RedisServer::start_with_clock(kind, START);
        let store = long_timeout_store(server.url()).await;
        Self {
            store,
            connection: connection(&server),
            clock,
            kind,
            now: u64::try_from(START.as_nanos()).unwrap(),
            taken: 0,
            _server: server,
        }
    }

    /// The held time.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    /// How far the server's time may be ahead of the held time.
    pub(super) fn slack(&self) -> Nanos {
        match self.kind {
            ServerProgram::Redis | ServerProgram::OldRedis => Nanos::ZERO,
            ServerProgram::Valkey | ServerProgram::NewValkey => CACHED_FOR,
        }
    }

    pub(super) fn advance(&mut self, by: Nanos) {
        self.clock.advance(Duration::from_nanos(by.as_nanos()));
        self.now += by.as_nanos();
        self.await_time(true);
    }

    pub(super) fn set_back(&mut self, by: Nanos) {
        self.clock.set_back(Duration::from_nanos(by.as_nanos()));
        self.now -= by.as_nanos();
        self.await_time(true);
    }

    /// Lets the clock run with the machine's. From here on only replies tell the time.
    pub(super) fn run(&mut self) {
        self.clock.run();
        self.await_time(false);
    }

    /// Waits until the server's time is the held time, or differs from it.
    fn await_time(&mut self, is_held: bool) {
        let held = self.now..=self.now + self.slack().as_nanos();
        for _ in 0..QUESTIONS {
            let (seconds, micros): (u64, u64) = self.command(&["TIME"]);
            if held.contains(&(seconds * 1_000_000_000 + micros * 1_000)) == is_held {
                return;
            }
        }
        panic!("{:?} did not notice that its clock moved", self.kind);
    }

    /// A number that was not used before.
    pub(super) fn number(&mut self) -> u128 {
        self.taken += 1;
        self.taken
    }

    pub(super) async fn ask(&self, key: &str, limit: &IdentifiedLimit, op: Op) -> StoreReply {
        decide_one(&self.store, key, limit, op).await.unwrap()
    }

    /// Asks the store and core, at the instant at which the store decided. Core keeps its state forever. Both must
    /// agree in every number.
    pub(super) async fn agree(
        &self,
        model: &mut Model,
        key: &str,
        limit: &IdentifiedLimit,
        op: Op,
    ) -> StoreReply {
        let answer = self.ask(key, limit, op).await;
        let at = answer.receipt.at;
        let ahead = at.since(self.now());
        assert!(at >= self.now() && ahead <= self.slack(), "{ahead:?} ahead");
        let expected = model
            .step(&limit.limit, at, op, ReservationRetention::default())
            .unwrap();
        assert_eq!(answer, expected, "{op:?} on {limit:?}");
        answer
    }

    pub(super) fn command<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        command.query(&mut self.connection).unwrap()
    }

    pub(super) fn names(&mut self) -> Vec<String> {
        self.command(&["KEYS", "*"])
    }

    /// When a key expires, or an error if it never does or already has.
    fn end_of(&mut self, name: &str) -> Result<Timestamp, String> {
        let left: i64 = self.command(&["PTTL", name]);
        if left == IMMORTAL {
            return Err(format!("{name} never expires"));
        }
        if left == GONE {
            return Err(format!("{name} is gone already"));
        }
        let end = if self.kind == ServerProgram::OldRedis {
            // It cannot return the instant, but its clock stands still.
            u64::try_from(left).unwrap() + self.now / MILLISECOND
        } else {
            self.command(&["PEXPIRETIME", name])
        };
        // The server deletes a key in the millisecond after its expiry.
        Ok(Timestamp::from_nanos((end + 1) * MILLISECOND))
    }

    /// The fault of a key whose state matters until this instant: it has no expiry, or the expiry is too early.
    pub(super) fn shortness_fault(&mut self, name: &str, until: Timestamp) -> Option<String> {
        match self.end_of(name) {
            Err(fault) => Some(fault),
            Ok(end) if end < until => Some(format!("{name} ends {:?} too early", until.since(end))),
            Ok(_) => None,
        }
    }

    /// The same, or the expiry is later than rounding explains. Only while the clock is held: Redis 7.0 counts a
    /// lifetime from when it sets the key, not from the time that it returned to the script.
    pub(super) fn lifetime_fault(&mut self, name: &str, until: Timestamp) -> Option<String> {
        let fault = self.shortness_fault(name, until);
        fault.or_else(|| {
            let spare = self.end_of(name).ok()?.since(until);
            (spare > Nanos::from_millis(2)).then(|| format!("{name} lives {spare:?} longer"))
        })
    }

    /// The fault of a key that must have expired.
    pub(super) fn survival_fault(&mut self, name: &str) -> Option<String> {
        let exists: i64 = self.command(&["EXISTS", name]);
        let left: i64 = self.command(&["PTTL", name]);
        (exists != 0 || left != GONE)
            .then(|| format!("{name} is still there and lives for {left} ms"))
    }

    /// The fault of a reply that must be that of an unused limit.
    pub(super) fn staleness_fault(
        answer: &StoreReply,
        limit: &IdentifiedLimit,
        op: Op,
    ) -> Option<String> {
        let fresh = Model::default()
            .step(
                &limit.limit,
                answer.receipt.at,
                op,
                ReservationRetention::default(),
            )
            .unwrap();
        (*answer != fresh).then(|| format!("{answer:?} instead of {fresh:?}"))
    }
}

/// The instant until which the state after this reply matters.
pub(super) fn needed_until(answer: &StoreReply) -> Timestamp {
    answer.receipt.at.after(answer.status.reset_after)
}
