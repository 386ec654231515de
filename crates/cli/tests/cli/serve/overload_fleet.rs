//! Three gateways on one Redis: critical requests on one node take room from other classes on all, and without Redis each
//! node decides alone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
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
/// So many requests the upstream keeps while a node finds its capacity: first few, then more. The throughput is the same, because as many
/// clients as before make it.
const DEPTHS: [usize; 2] = [40, 200];
const SPARE_CLIENTS: usize = 16;
/// The requests of each client, on average, before more clients come.
const REQUESTS: usize = 12;

/// An upstream that holds requests to `/pay/held`, and answers those to other paths at once.
struct HoldingUpstream {
    state: Mutex<HeldState>,
    changed: Condvar,
}

struct HeldState {
    arrived: usize,
    /// The requests up to this number may end.
    released: usize,
    /// A request may end when so many others have arrived after it: with all of them it is held, with none it ends at once.
    depth: usize,
}

impl HoldingUpstream {
    fn start() -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = Arc::new(Self {
            state: Mutex::new(HeldState {
                arrived: 0,
                released: 0,
                depth: usize::MAX,
            }),
            changed: Condvar::new(),
        });
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

    fn set_depth(&self, depth: usize) {
        let mut state = self.state.lock().unwrap();
        state.depth = depth;
        state.release();
        self.changed.notify_all();
    }

    /// Waits until this request may end.
    fn hold(&self) {
        let mut state = self.state.lock().unwrap();
        state.arrived += 1;
        let number = state.arrived;
        state.release();
        self.changed.notify_all();
        let is_held = |state: &mut HeldState| state.released < number;
        drop(self.changed.wait_while(state, is_held));
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

impl HeldState {
    fn release(&mut self) {
        self.released = self.released.max(self.arrived.saturating_sub(self.depth));
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

    /// What this node knows about the one route.
    fn target(&self) -> Value {
        let state: Value = serde_json::from_str(&get(self.admin, "/v1/state").1).unwrap();
        state["overload"]["targets"][0].clone()
    }

    /// What all nodes do together for it, as this node sees it.
    fn fleet(&self) -> Value {
        self.target()["fleet"].clone()
    }

    fn capacity(&self) -> Option<u64> {
        self.target()["capacity"].as_u64()
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

    /// Keeps the node busy until it has found its capacity.
    fn find_capacity(&self, upstream: &HoldingUpstream) {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut clients = Vec::new();
        // On a busy machine a comparison may contradict itself, and is made again.
        for depth in DEPTHS.into_iter().cycle().take(20) {
            let count = depth + SPARE_CLIENTS;
            upstream.set_depth(depth);
            while clients.len() < count {
                let (gateway, is_over) = (self.gateway, Arc::clone(&is_over));
                clients.push(thread::spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        exchange(gateway, "/pay/held");
                    }
                }));
            }
            let enough = upstream.arrived() + REQUESTS * count;
            until("requests arrive", || upstream.arrived() >= enough);
            if self.capacity().is_some() {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        upstream.set_depth(0);
        for client in clients {
            client.join().unwrap();
        }
        assert!(self.capacity().is_some(), "{}", self.target());
    }

    fn set_switch(&self, mechanism: &str, to: &str) {
        let head = "PUT /v1/switches HTTP/1.1\r\ncontent-type: application/json\r\n";
        let body = format!(
            r#"{{"limit":"overload:{mechanism}","to":"{to}","who":"ada","why":"incident 7"}}"#
        );
        assert_eq!(ask(self.admin, head, &body).0, 200);
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
    for node in &nodes {
        node.find_capacity(&upstream);
    }
    upstream.set_depth(usize::MAX);
    let limit: u64 = nodes.iter().filter_map(FleetGateway::capacity).sum();
    let is_known_to_all = || {
        let is_known =
            |node: &FleetGateway| node.fleet()["nodes"] == 3 && node.fleet()["limit"] == limit;
        nodes.iter().all(is_known)
    };
    until("all nodes know the capacity of all", is_known_to_all);
    // The last reports may still be those of busy nodes.
    until("there is room", || two.status("/other") == "200");

    // Critical requests above the capacity of the fleet, all on the first node.
    let held = one.hold(&upstream, usize::try_from(limit).unwrap() + 1);
    until("the second node knows", || {
        two.fleet()["critical"].as_u64() > Some(limit)
    });
    let shed = two.send("/other").join().unwrap();
    assert!(shed.starts_with("HTTP/1.1 503 "), "{shed}");
    assert!(shed.contains("headers.md#overloaded"), "{shed}");
    assert_eq!(two.status("/pay"), "200", "the first class is never shed");
    let metrics = get(two.admin, "/metrics").1;
    let series = r#"tollgate_overload_fleet_requests_in_flight{upstream="upstream",route="*/",importance="critical"}"#;
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    let critical: u64 = line.unwrap().trim().parse().unwrap();
    assert!(critical > limit, "{critical}");

    // The switch of the mechanism, thrown on one node under this load, applies on another.
    one.set_switch("reserve", "shadow");
    until("the switch arrives", || two.status("/other") == "200");
    one.set_switch("reserve", "on");
    until("the switch is back", || two.status("/other") == "503");

    // Without Redis the second node decides by its own numbers, and it is idle.
    redis.kill();
    until("the reports expire", || two.fleet().is_null());
    assert_eq!(two.status("/other"), "200");
    redis.restart();
    until("the nodes report again", || two.status("/other") == "503");
    // Held requests are no evidence: the fleet can do as much as before.
    until("all nodes know the same capacity", is_known_to_all);

    upstream.set_depth(0);
    for response in held {
        assert!(response.join().unwrap().starts_with("HTTP/1.1 200 "));
    }
    until("there is room again", || two.status("/other") == "200");
    let [one, ..] = nodes;
    assert!(one.server.stop("TERM").0.success());
}
