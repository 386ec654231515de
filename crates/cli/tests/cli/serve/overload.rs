//! `tollgate serve --upstream` with the policy of Stripe's four limiters: shedding at ten times what the upstream does, and the
//! kill switch thrown meanwhile.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use tollgate_testkit::redis::until;

use super::gateway::gateway_address;
use super::{DEADLINE, ServerProcess};
use crate::harness::{repository, tollgate};
use crate::operators::{ask, get, started};

/// The first concurrency limit. As many requests may wait for at most 100 ms.
const LIMIT: usize = 32;

/// An upstream that holds every request until the test lets it go.
#[derive(Default)]
struct HeldRequests {
    /// The requests that have arrived, and whether they may end.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl HeldRequests {
    fn arrived(&self) -> usize {
        self.state.lock().unwrap().0
    }

    fn release(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    /// Answers the requests of one connection.
    fn serve(&self, stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut stream = stream;
        while let Some(Ok(line)) = lines.next() {
            if !line.is_empty() {
                continue;
            }
            let mut state = self.state.lock().unwrap();
            state.0 += 1;
            drop(self.changed.wait_while(state, |state| !state.1).unwrap());
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            if stream.write_all(response).is_err() {
                return;
            }
        }
    }
}

fn start_upstream() -> (Arc<HeldRequests>, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let held = Arc::<HeldRequests>::default();
    let serving = Arc::clone(&held);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (serving, stream) = (Arc::clone(&serving), stream.unwrap());
            thread::spawn(move || serving.serve(stream));
        }
    });
    (held, address)
}

/// Sends one request with a key of its own, and reads its response.
fn send(gateway: SocketAddr, path: &'static str, key: String) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut stream = TcpStream::connect(gateway).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: shop.example\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    })
}

fn send_many(gateway: SocketAddr, name: &str, count: usize) -> Vec<JoinHandle<String>> {
    let key = |index| format!("sk_live_{name}{index}");
    let one = |index| send(gateway, "/v1/customers", key(index));
    (0..count).map(one).collect()
}

fn set_switch(admin: SocketAddr, limit: &str, to: &str) {
    let head = "PUT /v1/switches HTTP/1.1\r\ncontent-type: application/json\r\n";
    let body = format!(r#"{{"limit":"{limit}","to":"{to}","who":"ada","why":"incident 7"}}"#);
    assert_eq!(ask(admin, head, &body).0, 200, "{limit}");
}

/// What `/v1/state` shows of overload control.
fn overload_state(admin: SocketAddr) -> Value {
    let state: Value = serde_json::from_str(&get(admin, "/v1/state").1).unwrap();
    state["overload"].clone()
}

#[test]
fn what_the_upstream_cannot_do_is_shed_and_the_kill_switch_lets_it_through_at_once() {
    let (held, upstream) = start_upstream();
    let mut command = tollgate(&["serve", "--listen=off", "--listen-gateway=127.0.0.1:0"]);
    command.arg("--listen-admin=127.0.0.1:0");
    command.arg(format!("--upstream=http://{upstream}"));
    command
        .arg("--config")
        .arg(repository().join("policies/stripe.yaml"));
    let (server, admin): (ServerProcess, _) = started(command);
    let gateway: SocketAddr = gateway_address(&server).parse().unwrap();

    // Ten times the limit: 32 requests run, the others are shed.
    let mut running = send_many(gateway, "first", 10 * LIMIT);
    until("all others are shed", || {
        running.iter().filter(|one| one.is_finished()).count() == 9 * LIMIT
    });
    assert_eq!(held.arrived(), LIMIT);
    let (done, rest): (Vec<_>, Vec<_>) = running.into_iter().partition(JoinHandle::is_finished);
    running = rest;
    for response in done {
        let response = response.join().unwrap();
        assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
        assert!(response.contains("\r\nretry-after: 1\r\n"), "{response}");
        assert!(response.contains("headers.md#overloaded"), "{response}");
    }
    let state = overload_state(admin);
    assert_eq!(state["modes"]["adaptive_concurrency"], "enforce");
    let target = &state["targets"][0];
    assert_eq!(
        (&target["limit"], &target["in_flight"]),
        (&32.into(), &32.into())
    );
    assert_eq!(target["route"], "*/");

    // Each switch, thrown under this load: from its response on, every request reaches the upstream.
    for (limit, to) in [
        ("*", "off"),
        ("*", "shadow"),
        ("overload:adaptive_concurrency", "off"),
    ] {
        let before = held.arrived();
        set_switch(admin, limit, to);
        running.extend(send_many(gateway, &format!("{limit}{to}"), LIMIT));
        until("all requests arrive", || held.arrived() == before + LIMIT);
        assert_eq!(overload_state(admin)["modes"]["adaptive_concurrency"], to);
        set_switch(admin, limit, "on");
        let shed = send(gateway, "/v1/customers", format!("sk_live_{limit}{to}"));
        let shed = shed.join().unwrap();
        assert!(shed.starts_with("HTTP/1.1 503 "), "{limit} is on: {shed}");
    }
    let metrics = get(admin, "/metrics").1;
    let shadow = r#"tollgate_overload_shed_requests_total{class="default",mechanism="adaptive_concurrency",mode="shadow"} 32"#;
    assert!(metrics.contains(shadow), "{metrics}");
    assert!(
        metrics
            .contains(r#"tollgate_overload_concurrency_limit{upstream="upstream",route="*/"} 32"#),
        "{metrics}"
    );

    held.release();
    for response in running {
        let response = response.join().unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    }
    let (status, _) = server.stop("TERM");
    assert!(status.success());
}
