//! `TG.CHECK` with its own policy, and with the engine of the HTTP API.

use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_engine::Engine;
use tollgate_policy::load;
use tollgate_policy::rules::Rules;
use tollgate_policy::source::SourceFormat;
use tollgate_server::HttpApi;
use tollgate_server::resp::{Checker, RespServer};
use tollgate_service::RateLimitService;
use tollgate_store::{ManualClock, MemoryStore};

use super::{InMemoryClient, Manual, NOW, server};

const POLICY: &str = "
limits:
  - name: logins
    match: { method: POST, route: /login }
    key: [ip]
    rate: 1/min
    burst: 2
  - name: per-user
    key: [header.x-api-key]
    rate: 10/s
    burst: 10
deny:
  - match: { ip: 203.0.113.0/24 }
";

fn by_policy(policy: &str) -> (RespServer<Manual>, Manual) {
    let (server, clock) = server();
    let policy = load(policy, "policy.yaml", SourceFormat::Yaml).unwrap();
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    let store = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
    let engine = Engine::new(rules, store).unwrap();
    (server.with_checker(Arc::new(engine)), clock)
}

/// The RESP2 reply as a list.
fn words(answer: &str) -> Vec<&str> {
    let lines = answer.split("\r\n").filter(|line| !line.is_empty());
    lines
        .filter(|line| !line.starts_with('*') && (!line.starts_with('$') || *line == "$-1"))
        .map(|line| line.trim_start_matches(':'))
        .collect()
}

fn verdict(answer: &str) -> [&str; 6] {
    let words = words(answer);
    let names: Vec<&str> = words.iter().step_by(2).copied().collect();
    let expected = [
        "allowed",
        "limit",
        "remaining",
        "retry_after_ms",
        "reset_after_ms",
        "wait_ms",
    ];
    assert_eq!(names, expected, "{answer}");
    let values: Vec<&str> = words.iter().skip(1).step_by(2).copied().collect();
    values.try_into().unwrap()
}

#[test]
fn a_policy_decides_by_the_attributes_that_are_sent() {
    let (server, clock) = by_policy(POLICY);
    let mut line = InMemoryClient::new(&server);
    let login = "TG.CHECK method POST route /login ip 192.0.2.1";
    assert_eq!(
        verdict(&line.line(login)),
        ["1", "logins", "1", "0", "60000", "0"]
    );
    assert_eq!(
        verdict(&line.line("tg.check PEEK method POST route /login ip 192.0.2.1")),
        ["1", "logins", "1", "0", "60000", "0"]
    );
    assert_eq!(
        verdict(&line.line(login)),
        ["1", "logins", "0", "0", "120000", "0"]
    );
    assert_eq!(
        verdict(&line.line(login)),
        ["0", "logins", "0", "60000", "120000", "0"]
    );
    clock.advance(Nanos::MINUTE);
    assert_eq!(verdict(&line.line(login))[0], "1");
    let other = "TG.CHECK method POST route /login ip 192.0.2.2";
    assert_eq!(
        verdict(&line.line(other))[2],
        "1",
        "another address has its own"
    );
}

/// Spellings of a path or a host escaped limits over every transport, not only behind gateways.
#[test]
fn every_spelling_of_a_path_is_limited_and_an_unreadable_one_is_refused() {
    let policy =
        "limits: [{ name: login, match: { path: /api/login, host: a.example }, rate: 1/h }]";
    let (server, _clock) = by_policy(policy);
    let mut line = InMemoryClient::new(&server);
    let first = line.line("TG.CHECK path /api/login host a.example");
    assert_eq!(verdict(&first)[..2], ["1", "login"]);
    for spelled in [
        "path /api%2Flogin host a.example",
        "path /API/login;x host A.Example.:443",
        "path //api/./login/ host a.example.",
        "path //h/api/login host a.example",
    ] {
        let answer = line.line(&format!("TG.CHECK {spelled}"));
        assert_eq!(verdict(&answer)[..2], ["0", "login"], "{spelled}");
    }
    for unreadable in [
        "path /api/login%00 host a.example",
        "path /api/login% host a.example",
        "path /api/login host a.example/",
    ] {
        let answer = line.line(&format!("TG.CHECK {unreadable}"));
        assert_eq!(verdict(&answer)[..2], ["0", "$-1"], "{unreadable}");
        assert_eq!(verdict(&answer)[3], "-1", "never");
    }
}

/// The HTTP API compared methods without their case and Redis clients did not, so `post` was not limited.
#[test]
fn the_case_of_a_method_does_not_matter() {
    let policy = "limits: [{ name: writes, match: { method: POST }, rate: 1/h }]";
    let (server, _clock) = by_policy(policy);
    let mut line = InMemoryClient::new(&server);
    assert_eq!(verdict(&line.line("TG.CHECK method post"))[1], "writes");
    assert_eq!(verdict(&line.line("TG.CHECK method PoST"))[0], "0");
    assert_eq!(verdict(&line.line("TG.CHECK method posts"))[0], "1");
}

#[test]
fn costs_come_from_the_client_and_header_names_ignore_case() {
    let (server, _clock) = by_policy(POLICY);
    let mut line = InMemoryClient::new(&server);
    let answer = line.line("TG.CHECK COST 7 header.X-Api-Key alice");
    assert_eq!(verdict(&answer), ["1", "per-user", "3", "0", "700", "0"]);
    let answer = line.line("TG.CHECK cost 4 peek header.x-api-key alice");
    assert_eq!(verdict(&answer), ["0", "per-user", "3", "100", "700", "0"]);
    let answer = line.line("TG.CHECK PEEK COST 11 header.x-api-key alice");
    assert_eq!(verdict(&answer)[3], "-1", "never");
}

/// A client that cannot wait says so. Its denials take no turn of clients that wait.
#[test]
fn a_client_shortens_the_wait_of_its_own_calls() {
    let (server, _clock) =
        by_policy("limits: [{ name: queued, key: header.x-api-key, rate: 1/s, wait: 3s }]");
    let mut line = InMemoryClient::new(&server);
    let mut expect = |options: &str, [allowed, retry_after, wait]: [&str; 3]| {
        let answer = line.line(&format!("TG.CHECK {options} header.x-api-key alice"));
        let given = verdict(&answer);
        assert_eq!(
            [given[0], given[3], given[5]],
            [allowed, retry_after, wait],
            "{options}"
        );
    };
    expect("WAIT 0s", ["1", "0", "0"]);
    expect("WAIT 0s", ["0", "1000", "0"]);
    expect("wait 500ms COST 1", ["0", "1000", "0"]);
    expect("COST 1 WAIT 1s", ["1", "0", "1000"]);
    expect("WAIT 1h PEEK", ["1", "0", "2000"]);
    expect("", ["1", "0", "2000"]);
}

#[test]
fn resp3_replies_with_a_map_and_a_boolean() {
    let (server, _clock) = by_policy(POLICY);
    let mut line = InMemoryClient::new(&server);
    line.line("HELLO 3");
    let answer = line.line("TG.CHECK header.x-api-key bob");
    assert_eq!(
        answer,
        "%6\r\n$7\r\nallowed\r\n#t\r\n$5\r\nlimit\r\n$8\r\nper-user\r\n$9\r\nremaining\r\n:9\r\n\
         $14\r\nretry_after_ms\r\n:0\r\n$14\r\nreset_after_ms\r\n:100\r\n$7\r\nwait_ms\r\n:0\r\n"
    );
    let answer = line.line("TG.CHECK ip 203.0.113.9 header.x-api-key bob");
    assert!(
        answer.starts_with("%6\r\n$7\r\nallowed\r\n#f\r\n$5\r\nlimit\r\n_\r\n"),
        "{answer}"
    );
}

#[test]
fn invalid_arguments_are_named() {
    let (server, _clock) = by_policy(POLICY);
    let mut line = InMemoryClient::new(&server);
    let cases = [
        ("TG.CHECK", "-ERR attributes come as pairs: "),
        ("TG.CHECK ip", "-ERR attributes come as pairs: "),
        ("TG.CHECK COST 1", "-ERR attributes come as pairs: "),
        (
            "TG.CHECK COST x ip ::1",
            "-ERR cost: 'x' is not a whole number",
        ),
        (
            "TG.CHECK COST -1 ip ::1",
            "-ERR cost: '-1' is not a whole number",
        ),
        (
            "TG.CHECK WAIT soon ip ::1",
            "-ERR wait: 'soon' is not a duration: 0s not to wait, or 500ms, 2s, 1m",
        ),
        (
            "TG.CHECK WAIT 1s WAIT 2s ip ::1",
            "-ERR attribute 'WAIT': there is no such attribute",
        ),
        (
            "TG.CHECK ip nowhere",
            "-ERR attribute 'ip': it is not an IP address",
        ),
        (
            "TG.CHECK path http://h/login",
            "-ERR attribute 'path': it must begin with a slash",
        ),
        (
            "TG.CHECK weather fine",
            "-ERR attribute 'weather': there is no such attribute; there are ip, method,",
        ),
        (
            "TG.CHECK ip ::1 ip ::1",
            "-ERR attribute 'ip': it is given twice",
        ),
        (
            "TG.CHECK header.a 1 header.A 2",
            "-ERR attribute 'header.A': it is given twice",
        ),
    ];
    for (ask, expected) in cases {
        let answer = line.line(ask);
        assert!(answer.starts_with(expected), "{ask}: {answer}");
    }
    let (without, _clock) = super::server();
    let answer = InMemoryClient::new(&without).line("TG.CHECK ip ::1");
    assert_eq!(
        answer,
        "-ERR TG.CHECK needs a policy, and this server runs without one\r\n"
    );
}

/// One engine decides for both listeners, so a key has one quota for both.
#[test]
fn the_engine_of_the_http_api_answers_too() {
    let (server, _clock) = server();
    let text = "limits: [{ name: demo, key: header.x-api-key, rate: 10/s, burst: 20 }]";
    let policy = load(text, "demo.yaml", SourceFormat::Yaml).unwrap();
    let app = HttpApi::new(&policy, 1_000, ManualClock::at(NOW)).unwrap();
    let engine: Arc<dyn Checker> = Arc::<Engine<_>>::clone(app.engine());
    let server = server.with_checker(engine);
    let mut line = InMemoryClient::new(&server);
    assert_eq!(
        verdict(&line.line("TG.CHECK COST 19 header.x-api-key alice")),
        ["1", "demo", "1", "0", "1900", "0"]
    );
    assert_eq!(
        verdict(&line.line("TG.CHECK PEEK COST 2 header.x-api-key alice")),
        ["0", "demo", "1", "100", "1900", "0"]
    );
    assert_eq!(
        verdict(&line.line("TG.CHECK header.x-api-key bob"))[2],
        "19"
    );
}

/// A lease of a Redis client can be released by its ticket on any connection and over HTTP: all listeners share tickets.
#[test]
fn leases_are_acquired_renewed_and_released_by_ticket() {
    let (server, _clock) = server();
    let text = "limits: [{ name: places, key: header.x-api-key, concurrency: 1 }]";
    let policy = load(text, "places.yaml", SourceFormat::Yaml).unwrap();
    let app = Arc::new(HttpApi::new(&policy, 1_000, ManualClock::at(NOW)).unwrap());
    let server =
        server.with_checker(Arc::<RateLimitService<_>>::clone(app.service()) as Arc<dyn Checker>);
    let mut line = InMemoryClient::new(&server);
    let answer = line.line("TG.ACQUIRE header.x-api-key alice");
    let (_, ticket) = answer.split_once("$6\r\nticket\r\n$32\r\n").unwrap();
    let ticket = ticket.trim_end().to_owned();
    assert!(
        answer.starts_with("*14\r\n$7\r\nallowed\r\n:1\r\n"),
        "{answer}"
    );
    let denied = line.line("TG.ACQUIRE header.x-api-key alice");
    assert!(
        denied.starts_with("*14\r\n$7\r\nallowed\r\n:0\r\n"),
        "{denied}"
    );
    assert!(denied.ends_with("$6\r\nticket\r\n$-1\r\n"), "{denied}");
    assert_eq!(line.line(&format!("TG.RENEW {ticket}")), ":1\r\n");
    let mut other = InMemoryClient::new(&server);
    assert_eq!(other.line(&format!("TG.RELEASE {ticket}")), ":1\r\n");
    assert_eq!(
        other.line(&format!("tg.release {ticket}")),
        ":0\r\n",
        "once"
    );
    let gone =
        format!("-ERR ticket: '{ticket}' is not open: it has expired or was never issued\r\n");
    assert_eq!(line.line(&format!("TG.RENEW {ticket}")), gone);
    let again = line.line("TG.ACQUIRE header.x-api-key alice");
    assert!(
        again.starts_with("*14\r\n$7\r\nallowed\r\n:1\r\n"),
        "{again}"
    );

    // Over HTTP.
    let (_, ticket) = again.split_once("ticket\r\n$32\r\n").unwrap();
    let body = format!("{{\"ticket\": \"{}\"}}", ticket.trim_end());
    let request = hyper::Request::post("/v1/release")
        .body(body.as_bytes())
        .unwrap();
    let address = ([127, 0, 0, 1], 1).into();
    let peer = tollgate_server::listen::Peer::new(
        Some(address),
        tollgate_server::listen::LocalEndpoint::Tcp(address),
    );
    let released = crate::harness::ready_now(app.respond(&request, &peer));
    assert_eq!(released.status(), 200);
    let answer = line.line("TG.CHECK header.x-api-key alice");
    assert_eq!(verdict(&answer)[0], "1", "the lease was free");
}

/// A ticket command takes effect before the next command, even in the same packet.
#[test]
fn a_released_lease_is_free_for_the_next_command_of_the_same_packet() {
    let (server, _clock) = server();
    let text = "limits: [{ name: places, key: header.x-api-key, concurrency: 1 }]";
    let policy = load(text, "places.yaml", SourceFormat::Yaml).unwrap();
    let app = Arc::new(HttpApi::new(&policy, 1_000, ManualClock::at(NOW)).unwrap());
    let server =
        server.with_checker(Arc::<RateLimitService<_>>::clone(app.service()) as Arc<dyn Checker>);
    let mut line = InMemoryClient::new(&server);
    let answer = line.line("TG.ACQUIRE header.x-api-key alice");
    let (_, ticket) = answer.split_once("$6\r\nticket\r\n$32\r\n").unwrap();
    let ticket = ticket.trim_end();
    let packet = format!(
        "TG.CHECK header.x-api-key bob\r\nTG.RELEASE {ticket}\r\nTG.CHECK header.x-api-key alice\r\n\
         TG.RELEASE {ticket}\r\nTG.RELEASE x\r\nPING\r\n"
    );
    let answers = String::from_utf8(line.send(packet.as_bytes())).unwrap();
    let (bob, rest) = answers.split_once("wait_ms\r\n:0\r\n").unwrap();
    assert!(bob.starts_with("*12\r\n$7\r\nallowed\r\n:1\r\n"), "{bob}");
    let alice = rest.strip_prefix(":1\r\n").unwrap();
    assert!(
        alice.starts_with("*12\r\n$7\r\nallowed\r\n:1\r\n"),
        "the place was free: {alice}"
    );
    let last = "wait_ms\r\n:0\r\n:0\r\n-ERR ticket: 'x' is not 32 hexadecimal digits\r\n+PONG\r\n";
    assert!(alice.ends_with(last), "{alice}");
}

#[test]
fn invalid_ticket_commands_are_named() {
    let (server, _clock) = server();
    let unknown = "0".repeat(32);
    let release = format!("TG.RELEASE {unknown}");
    let not_open = format!("-ERR ticket: '{unknown}' is not open");
    let mut line = InMemoryClient::new(&server);
    for (command, expected) in [
        (
            "TG.RELEASE",
            "-ERR wrong number of arguments for 'tg.release' command",
        ),
        (
            "TG.RENEW a b",
            "-ERR wrong number of arguments for 'tg.renew' command",
        ),
        (
            "TG.RELEASE xyz",
            "-ERR ticket: 'xyz' is not 32 hexadecimal digits",
        ),
        (&release, &not_open),
        (
            "TG.ACQUIRE PEEK ip ::1",
            "-ERR a peek cannot hold a lease; use TG.CHECK",
        ),
        (
            "TG.ACQUIRE ip",
            "-ERR attributes come as pairs: TG.ACQUIRE [COST n]",
        ),
        ("TG.ACQUIRE ip ::1", "-ERR TG.ACQUIRE needs a policy"),
    ] {
        let answer = line.line(command);
        assert!(answer.starts_with(expected), "{command}: {answer}");
    }
}
