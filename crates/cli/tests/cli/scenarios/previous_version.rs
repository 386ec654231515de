//! A rolling upgrade: the version before and this one share a register. Its messages were recorded from the real program of that
//! version (`testdata/fleet/register.tsv`); `crates/redis/tests/redis/versions.rs` does the same for states.
//!
//! If this fails, nodes of two versions ignore each other's switches, overrides and blocks. Keep reading the recorded form.

use std::collections::BTreeMap;

use tollgate_testkit::redis::{RedisNode, ServerProgram, until};

use super::client::Client;
use super::{LONG_DEADLINE, Server, run_exclusively};

const RECORDED: &str = include_str!("../../../../../testdata/fleet/register.tsv");
const POLICY: &str = "limits:
  - { name: api, key: header.x-api-key, rate: 10/h }
  - { name: leased, match: { path: /leased }, key: header.x-api-key, rate: 3600/h, consistency: leased }
";
const PREFIX: &str = "tg1:{fleet:default}:";

/// The Redis commands that write the recorded register.
fn recorded() -> impl Iterator<Item = Vec<&'static str>> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect())
}

/// The recorded hash of this name.
fn recorded_hash(name: &str) -> BTreeMap<String, String> {
    let key = format!("{PREFIX}{name}");
    recorded()
        .filter(|words| words[..2] == ["HSET", &key])
        .map(|words| (words[2].to_owned(), words[3].to_owned()))
        .collect()
}

fn hash(node: &RedisNode, name: &str) -> BTreeMap<String, String> {
    let text = node.ask(&["HGETALL", &format!("{PREFIX}{name}")]);
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2);
    pairs
        .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
        .collect()
}

/// The form of a message: every number, digest and code is replaced by `#`, because those differ in every run.
fn form(message: &str) -> String {
    let is_number = |word: &str| {
        let is_hexadecimal = word.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hexadecimal && word.bytes().any(|byte| byte.is_ascii_digit())
    };
    let words = message.split_inclusive(|byte: char| !byte.is_ascii_alphanumeric());
    let replaced = words.map(|word| {
        let end = word.trim_end_matches(|byte: char| !byte.is_ascii_alphanumeric());
        match is_number(end) {
            true => format!("#{}", &word[end.len()..]),
            false => word.to_owned(),
        }
    });
    replaced.collect()
}

fn start_redis() -> RedisNode {
    RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"])
}

#[test]
fn s_41_the_register_of_the_previous_version_is_in_force_here() {
    let _exclusive = run_exclusively();
    let redis = start_redis();
    for words in recorded() {
        redis.tell(&words);
    }
    // The other node is alive: until a minute from now, on the clock of Redis.
    let time = redis.ask(&["TIME"]);
    let seconds: u64 = time.lines().next().unwrap().parse().unwrap();
    let end = ((seconds + 60) * 1_000).to_string();
    let (nodes, lives) = (recorded_hash("nodes"), format!("{PREFIX}lives"));
    let other = nodes.keys().next().unwrap();
    redis.tell(&["ZADD", &lives, &end, other]);

    let server = Server::start(&redis.url(), 2, POLICY, &[LONG_DEADLINE]);
    let mut client = Client::new(server.http);
    until("the block is in force", || {
        client.check("mallory").unwrap().status != 200
    });
    let sale = client.check("alice").unwrap();
    assert_eq!(sale.body["limits"][0]["limit"], 50, "{sale:?}");
    until("both nodes count", || {
        server.metric("tollgate_fleet_nodes") > 1.0
    });
    assert!(server.metric("tollgate_fleet_messages_rejected_total") < 1.0);
}

#[test]
fn s_41_this_version_writes_the_register_as_the_previous_version_did() {
    let _exclusive = run_exclusively();
    let redis = start_redis();
    let server = Server::start(&redis.url(), 1, POLICY, &[LONG_DEADLINE]);
    until("the register is available", || {
        !hash(&redis, "nodes").is_empty()
    });
    for (target, body) in [
        (
            "/v1/blocks",
            r#"{"limit":"api","key":["mallory"],"who":"ada","why":"abuse"}"#,
        ),
        (
            "/v1/overrides",
            r#"{"limit":"api","key":["alice"],"quota":"50/h","who":"ada","why":"sale"}"#,
        ),
        (
            "/v1/switches",
            r#"{"limit":"leased","to":"shadow","who":"ada","why":"test"}"#,
        ),
        (
            "/v1/blocks",
            r#"{"address":"192.0.2.7","who":"ada","why":"abuse"}"#,
        ),
    ] {
        server.put(target, body);
    }
    let forms = |messages: BTreeMap<String, String>| -> BTreeMap<String, String> {
        let each = messages.into_iter();
        each.map(|(name, message)| (name, form(&message))).collect()
    };
    until("all messages are written", || {
        hash(&redis, "said").len() == 4
    });
    // Names contain digests of keys: equal names mean that both versions find the same key.
    assert_eq!(forms(hash(&redis, "said")), forms(recorded_hash("said")));
    let beat = |messages: BTreeMap<String, String>| form(messages.values().next().unwrap());
    assert_eq!(beat(hash(&redis, "nodes")), beat(recorded_hash("nodes")));
}

#[test]
fn control_another_field_or_another_name_is_a_different_form() {
    let known = r#"12+0{"v":1,"who":"ada","seq":17,"mac":"0fe1"}"#;
    assert_eq!(form(known), form(&known.replace("17", "4711")));
    assert_ne!(form(known), form(&known.replace("\"seq\"", "\"sequence\"")));
    assert_ne!(form(known), form(&known.replace(",\"who\":\"ada\"", "")));
}
