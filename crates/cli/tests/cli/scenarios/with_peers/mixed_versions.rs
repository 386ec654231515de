//! A rolling upgrade with real programs: servers of the previous version and of this one share the quotas of one Redis.
//!
//! `cargo xtask mixed-versions --minutes N` builds the previous version and runs this for as long. `previous_version.rs` beside
//! it checks recorded messages in every test run; this shows that nothing was left out of the record.

use std::path::PathBuf;
use std::time::Duration;

use tollgate_testkit::chaos::ScenarioOutcome;
use tollgate_testkit::history::{
    Allowance, Bucket, History, Operation, RecordedReply, RecordedVerdict, Recorder, availability,
    bound, spends_exactly,
};
use tollgate_testkit::peer_programs;
use tollgate_testkit::redis::{RedisNode, ServerProgram, until};

use super::super::client::Client;
use super::super::server::{Server, ServerOverrides};
use super::super::{LONG_DEADLINE, run_exclusively};

/// How long the test runs; `xtask/src/peer_tests/previous_version.rs` has the same name.
const MINUTES: &str = "TOLLGATE_MIXED_VERSIONS_MINUTES";
/// The pause between two rounds. A round asks every server once under each limit.
const PACE: Duration = Duration::from_millis(200);
/// How often a server is replaced by one of the other version.
const REPLACEMENTS: u32 = 12;
const SERVERS: usize = 4;

const POLICY: &str = "limits:
  - { name: exact, match: { path: /exact }, key: header.x-api-key, rate: 3600/h, burst: 60 }
  - { name: leased, match: { path: /leased }, key: header.x-api-key, rate: 3600/h, burst: 60, consistency: leased }
";
const BUCKET: Bucket = Bucket {
    interval: 1_000_000_000,
    burst: 60,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Previous,
    Current,
}

/// Servers of both versions on one Redis, with a client each.
struct MixedFleet {
    redis: RedisNode,
    previous: PathBuf,
    servers: Vec<(Version, Server, Client)>,
}

impl MixedFleet {
    fn start() -> Self {
        let mut fleet = Self {
            redis: RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]),
            previous: peer_programs::file("tollgate-previous", "bin/tollgate"),
            servers: Vec::new(),
        };
        for number in 0..SERVERS {
            let version = match number % 2 {
                0 => Version::Previous,
                _ => Version::Current,
            };
            let server = fleet.start_server(version);
            fleet.servers.push(server);
        }
        fleet
    }

    fn start_server(&self, version: Version) -> (Version, Server, Client) {
        let overrides = ServerOverrides {
            program: (version == Version::Previous).then_some(&self.previous),
            ..ServerOverrides::default()
        };
        let redis = self.redis.url();
        let server =
            Server::start_with_overrides(overrides, &redis, SERVERS, POLICY, &[LONG_DEADLINE]);
        until("the server uses Redis", || {
            server.is_ready() && !server.is_degraded()
        });
        let client = Client::new(server.http);
        (version, server, client)
    }

    /// Stops the server at this place as an upgrade does, and starts one of the other version.
    fn replace(&mut self, place: usize) {
        let (version, server, _) = self.servers.remove(place);
        server.stop();
        let other = match version {
            Version::Previous => Version::Current,
            Version::Current => Version::Previous,
        };
        let started = self.start_server(other);
        self.servers.insert(place, started);
    }

    /// Asks every server once about a path.
    fn ask_all(&mut self, path: &str, recorder: &Recorder) {
        for (_, _, client) in &mut self.servers {
            let pending = recorder.invoke();
            let reply = match client.post("/v1/check", &question(path, "alice")) {
                Some(response) => response.to_recorded(),
                None => RecordedReply::only(RecordedVerdict::Lost),
            };
            recorder.complete(&pending, Operation::Spend, &[("alice", 1)], reply);
        }
    }

    /// A block that an operator puts on one server is in force on all of them.
    fn check_block(&mut self, place: usize, key: &str) {
        let block = format!(r#"{{"limit":"exact","key":["{key}"],"who":"ada","why":"abuse"}}"#);
        self.servers[place].1.put("/v1/blocks", &block);
        for (_, _, client) in &mut self.servers {
            until("the block is in force", || {
                let response = client.post("/v1/check", &question("/exact", key));
                response.is_some_and(|response| response.status != 200)
            });
        }
    }

    /// The instant in the state with this name.
    fn state(&self, name: &str) -> u64 {
        self.redis.ask(&["GET", name]).trim().parse().unwrap()
    }
}

fn question(path: &str, key: &str) -> String {
    format!(r#"{{"key": "{key}", "attributes": {{"path": "{path}"}}}}"#)
}

fn duration() -> Duration {
    let minutes = std::env::var(MINUTES).map_or(1, |minutes| minutes.parse().unwrap());
    Duration::from_mins(minutes)
}

#[test]
fn s_41_servers_of_two_versions_share_quotas_and_blocks() {
    let _exclusive = run_exclusively();
    let mut fleet = MixedFleet::start();
    let (exact, leased) = (Recorder::of_process(1), Recorder::of_process(2));

    let first = fleet.servers[0]
        .2
        .post("/v1/check", &question("/exact", "alice"));
    assert_eq!(first.unwrap().status, 200);
    let names = fleet.redis.ask(&["KEYS", "tg2:*"]);
    let name = names.lines().next().unwrap().to_owned();
    let primed = fleet.state(&name);

    let rounds = u32::try_from(duration().as_millis() / PACE.as_millis()).unwrap();
    let rounds_between = (rounds / REPLACEMENTS).max(1);
    for round in 0..rounds {
        fleet.ask_all("/exact", &exact);
        fleet.ask_all("/leased", &leased);
        if round % rounds_between == rounds_between - 1 {
            let place = usize::try_from(round / rounds_between).unwrap() % SERVERS;
            fleet.check_block(place, &format!("mallory-{round}"));
            fleet.replace(place);
        }
        std::thread::park_timeout(PACE);
    }

    for (_, server, _) in &fleet.servers {
        assert!(server.metric("tollgate_fleet_messages_rejected_total") < 1.0);
        until("all servers count", || {
            server.metric("tollgate_fleet_nodes") > SERVERS as f64 - 0.5
        });
    }
    let exact = exact.history();
    // Both versions moved the same state, by exactly one interval for each unit that either admitted.
    let admitted = spends_exactly(&exact, "alice", BUCKET, fleet.state(&name) - primed).unwrap();
    judge("S-41 mixed versions, exact", &exact);
    judge("S-41 mixed versions, leased", &leased.history());
    println!(
        "{admitted} admitted of {} exact checks",
        exact.records.len()
    );
}

/// Every request was answered with Redis, and no window has more than the quota.
fn judge(scenario: &'static str, history: &History) {
    let speed = availability(history, Duration::from_secs(10)).unwrap();
    assert!(history.records.iter().all(|record| !record.is_degraded));
    let worst = bound(history, &Allowance::of(BUCKET)).unwrap();
    println!("{scenario}: {worst:?}");
    ScenarioOutcome::of(scenario)
        .worst(&worst)
        .speed(speed)
        .lost(0)
        .tell();
}
