//! S-26 and S-27: wall clocks that jump, and servers with different times. Decisions use only the clock of Redis.

use std::time::Duration;

use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::faults::Proxy;
use tollgate_testkit::history::{Allowance, Recorder, bound, denials, spends_exactly};
use tollgate_testkit::redis::{RedisNode, RedisServer as Redis, ServerProgram, ShimmedClock};

use super::client::Client;
use super::load::ask;
use super::server::ServerOverrides;
use super::{
    LIMIT, LONG_DEADLINE, Load, POLICY, Server, TestFleet, addresses, bucket, run_exclusively,
};

/// Three servers whose clocks differ by five seconds and by a day.
#[test]
fn s_27_servers_with_different_clocks_share_one_quota() {
    let _exclusive = run_exclusively();
    let node = RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]);
    let proxy = Proxy::seeded(node.address(), seed(27));
    let clock = |ahead: i64| {
        let mut clock = ShimmedClock::held_at(Duration::ZERO).unwrap();
        let by = Duration::from_secs(ahead.unsigned_abs());
        if ahead < 0 {
            clock.set_back(by);
        } else {
            clock.advance(by);
        }
        clock.run();
        clock
    };
    let clocks = [clock(5), clock(-5), clock(86_400)];
    let start = |clock| {
        let nature = ServerOverrides {
            clock: Some(clock),
            ..ServerOverrides::default()
        };
        Server::start_with_overrides(nature, &proxy.url(), 3, POLICY, &[LONG_DEADLINE])
    };
    let servers: Vec<Server> = clocks.iter().map(start).collect();
    let fleet = TestFleet {
        node,
        proxy,
        servers,
    };
    let primed = fleet.prime("alice");
    let load = Load::start(&addresses(&fleet.servers), 2, &["alice"]);
    load.wait_for_answers(LIMIT + 60);
    let history = load.end();
    spends_exactly(&history, "alice", bucket(), fleet.state() - primed).unwrap();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    denials(&history, bucket(), 1).unwrap();
    ScenarioOutcome::of("S-27 clocks that differ")
        .worst(&worst)
        .lost(0)
        .tell();
}

/// The clock of Redis jumps an hour ahead, a day back, and to 1970.
#[test]
fn s_26_when_the_clock_of_redis_jumps_at_most_one_burst_is_gained() {
    let _exclusive = run_exclusively();
    let _unused = seed(26);
    let now = std::process::Command::new("date")
        .arg("+%s")
        .output()
        .unwrap();
    let now: u64 = String::from_utf8(now.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let (redis, mut clock) =
        Redis::start_with_clock(ServerProgram::Redis, Duration::from_secs(now));
    let servers: Vec<Server> = (0..2)
        .map(|_| Server::start(&redis.url(), 2, POLICY, &[LONG_DEADLINE]))
        .collect();
    let recorder = Recorder::of_process(1);
    let mut clients: Vec<Client> = servers
        .iter()
        .map(|server| Client::new(server.http))
        .collect();
    let mut spend = |count: u64| {
        let before = recorder.history().admitted("alice");
        for number in 0..count {
            let client = usize::try_from(number % 2).unwrap();
            ask(&mut clients[client], "alice", &recorder);
        }
        recorder.history().admitted("alice") - before
    };
    assert_eq!(spend(LIMIT + 10), LIMIT, "the clock stands still");
    clock.set_back(Duration::from_hours(24));
    assert_eq!(spend(20), 0, "a jump back gains nothing");
    clock.set_back(Duration::from_secs(now - 86_400));
    assert_eq!(spend(20), 0, "not even one to 1970");
    clock.advance(Duration::from_secs(now) + Duration::from_hours(48));
    // Cached denials still hold, because the clock of the servers did not jump.
    let minted = spend(LIMIT + 10);
    assert!(minted <= LIMIT, "{minted}");
    let worst = bound(&recorder.history(), &Allowance::of(bucket()).jumps_ahead(1)).unwrap();
    ScenarioOutcome::of("S-26 the clock of Redis jumps")
        .worst(&worst)
        .tell();
}
