//! Three gateways on one Redis: critical requests on one node take room from other classes on all, and without Redis each
//! node decides alone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use tollgate_testkit::redis::{RedisNode, ServerProgram, until};

use super::gateway::gateway_address;
use super::{DEADLINE, PolicyFile, ServerProcess};
use crate::harness::tollgate;
use crate::operators::{ask, get, started};

const POLICY: &str = "
priorities:
  - { name: critical, match: { path: [/pay, /pay/held] } }
  - { name: default }
overload: { reserve: enforce }
limits: none
";
/// Clients that keep a node busy while its capacity is measured, above the first concurrency limit, and the requests of each.
const CLIENTS: usize = 80;
const REQUESTS: usize = 20;
/// While capacities are measured, a request ends when so many others have arrived after it.
const DEPTH: usize = 64;

/// An upstream that holds requests, and answers those to other paths at once.
#[derive(Default)]
struct HoldingUpstream {
    state: Mutex<HeldState>,
    changed: Condvar,
}

#[derive(Default)]
struct HeldState {
    arrived: usize,
    /// The requests up to this number may end.
    released: usize,
    is_measured: bool,
}

impl HoldingUpstream {
    fn start() -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = Arc::<Self>::default();
        let serving = Arc::clone(&upstream);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (serving, stream) = (Arc::clone(&serving), stream.unwrap());
                thread::spawn(move || serving.serve(stream));
            }
        });
        (upstream, address)
    }

    fn arrived(&self) -> usize {
        self.state.lock().unwrap().arrived
    }

    fn release(&self) {
        let mut state = self.state.lock().unwrap();
        state.released = state.arrived;
        self.changed.notify_all();
    }

    fn set_measured(&self) {
        self.state.lock().unwrap().is_measured = true;
    }

    /// Waits until this request may end.
    fn hold(&self) {
        let mut state = self.state.lock().unwrap();
        state.arrived += 1;
        let number = state.arrived;
        if !state.is_measured {
            state.released = state.released.max(number.saturating_sub(DEPTH));
        }
        self.changed.notify_all();
        drop(
            self.changed
                .wait_while(state, |state| state.released < number),
        );
    }

    fn serve(&self, stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut stream = stream;
        let mut is_held = false;
        while let Some(Ok(line)) = lines.next() {
            is_held |= line.starts_with("GET /pay/held");
            if !line.is_empty() {
                continue;
            }
            if std::mem::take(&mut is_held) {
                self.hold();
            }
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            if stream.write_all(response).is_err() {
                return;
            }
        }
    }
}

struct FleetGateway {
    server: ServerProcess,
    admin: SocketAddr,
    gateway: SocketAddr,
}

impl FleetGateway {
    fn start(redis: &str, upstream: SocketAddr, policy: &PolicyFile) -> Self {
        let mut command = tollgate(&["serve", "--listen=off", "--listen-gateway=127.0.0.1:0"]);
        command.args(["--listen-admin=127.0.0.1:0", "--redis-deadline=5s"]);
        command.arg(format!("--upstream=http://{upstream}"));
        command.arg("--config").arg(&policy.0);
        command.env("TOLLGATE_FLEET_SECRET", "the secret of this fleet");
        command.env("TOLLGATE_REDIS", redis);
        let (server, admin) = started(command);
        let gateway = gateway_address(&server).parse().unwrap();
        Self {
            server,
            admin,
            gateway,
        }
    }

    /// What all nodes do together for the one route, as this node sees it.
    fn fleet(&self) -> Value {
        let state: Value = serde_json::from_str(&get(self.admin, "/v1/state").1).unwrap();
        state["overload"]["targets"][0]["fleet"].clone()
    }

    fn send(&self, path: &'static str) -> JoinHandle<String> {
        let gateway = self.gateway;
        thread::spawn(move || exchange(gateway, path))
    }

    fn status(&self, path: &'static str) -> String {
        let response = self.send(path).join().unwrap();
        response["HTTP/1.1 ".len()..][..3].to_owned()
    }

    /// Holds so many critical requests in the upstream.
    fn hold(&self, upstream: &HoldingUpstream, count: usize) -> Vec<JoinHandle<String>> {
        let before = upstream.arrived();
        let requests = (0..count).map(|_| self.send("/pay/held")).collect();
        until("they arrive", || upstream.arrived() == before + count);
        requests
    }

    /// Keeps the node busy without a pause, so that it measures its capacity.
    fn measure(&self, upstream: &HoldingUpstream) {
        let (before, gateway) = (upstream.arrived(), self.gateway);
        let client = |_| {
            thread::spawn(move || {
                for _ in 0..REQUESTS {
                    exchange(gateway, "/pay/held");
                }
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        until("all requests arrive", || {
            upstream.arrived() == before + CLIENTS * REQUESTS || {
                // The last ones have nobody after them.
                if upstream.arrived() > before + CLIENTS * (REQUESTS - 1) {
                    upstream.release();
                }
                false
            }
        });
        upstream.release();
        for client in clients {
            client.join().unwrap();
        }
    }
}

/// Sends a request on a connection of its own.
fn exchange(gateway: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(gateway).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn critical_requests_on_one_node_take_room_on_all_and_without_redis_each_decides_alone() {
    let mut redis = RedisNode::start(ServerProgram::Redis, &[]);
    let (upstream, address) = HoldingUpstream::start();
    let policy = PolicyFile::new("overload-fleet", POLICY);
    let start = || FleetGateway::start(&redis.url(), address, &policy);
    let nodes = [start(), start(), start()];
    let [one, two, _] = &nodes;
    // Every node measures what the upstream can do at a time.
    until("all nodes report their capacity to all", || {
        for node in nodes.iter().filter(|node| node.fleet()["nodes"] != 3) {
            node.measure(&upstream);
        }
        nodes.iter().all(|node| node.fleet()["nodes"] == 3)
    });
    upstream.set_measured();
    assert_eq!(two.status("/other"), "200");

    // Critical requests above the capacity of the fleet, all on the first node.
    let limit = usize::try_from(one.fleet()["limit"].as_u64().unwrap()).unwrap();
    let held = one.hold(&upstream, limit + 1);
    until("the second node knows", || {
        two.fleet()["critical"].as_u64() > Some(limit as u64)
    });
    let shed = two.send("/other").join().unwrap();
    assert!(shed.starts_with("HTTP/1.1 503 "), "{shed}");
    assert!(shed.contains("headers.md#overloaded"), "{shed}");
    assert_eq!(two.status("/pay"), "200", "the first class is never shed");
    let metrics = get(two.admin, "/metrics").1;
    let series = r#"tollgate_overload_fleet_requests_in_flight{upstream="upstream",route="*/",importance="critical"}"#;
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    let critical: usize = line.unwrap().trim().parse().unwrap();
    assert!(critical > limit, "{critical}");

    // The switch of the mechanism, thrown on one node under this load, applies on another.
    let head = "PUT /v1/switches HTTP/1.1\r\ncontent-type: application/json\r\n";
    let body = r#"{"limit":"overload:reserve","to":"shadow","who":"ada","why":"incident 7"}"#;
    assert_eq!(ask(one.admin, head, body).0, 200);
    until("the switch arrives", || two.status("/other") == "200");

    // Without Redis the second node knows only its own numbers.
    redis.kill();
    until("the reports expire", || two.fleet().is_null());
    assert_eq!(two.status("/other"), "200");

    upstream.release();
    for response in held {
        // The gateway may have given up on the first of them while the reports expired.
        assert!(response.join().unwrap().starts_with("HTTP/1.1 "));
    }
    until("there is room again", || two.status("/other") == "200");
    let [one, ..] = nodes;
    assert!(one.server.stop("TERM").0.success());
}
