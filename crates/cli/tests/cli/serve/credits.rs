//! Credits through a real gateway with a slow upstream: clients that read the fields are shed less than clients that ignore them.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tollgate_client::{PaceRequest, PacerSettings, ResponseReader, SharedPacer};

use super::gateway::gateway_address;
use super::{DEADLINE, ServerProcess};
use crate::harness::{Folder, tollgate};
use crate::operators::{ask, get, started};

/// The upstream does 4 requests in 20 ms: 200 a second. The clients want 500.
const WORKERS: usize = 4;
const SERVICE: Duration = Duration::from_millis(20);
const CLIENTS: u8 = 20;
const CONNECTIONS: usize = 4;
const GAP: Duration = Duration::from_millis(160);
/// First all clients ignore the fields, until the gateway has found the capacity. After this long, clients that read the fields
/// have found their pace.
const WARM_UP: Duration = Duration::from_secs(2);
/// Then requests are counted until then.
const END: Duration = Duration::from_secs(6);

async fn serve_upstream(listener: TcpListener) {
    let workers = Arc::new(Semaphore::new(WORKERS));
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let workers = Arc::clone(&workers);
        connections.spawn(async move {
            let (reader, mut writer) = stream.into_split();
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if !line.is_empty() {
                    continue;
                }
                let _worker = workers.acquire().await.unwrap();
                let never = std::future::pending::<()>();
                let _served = timeout(SERVICE, never).await;
                let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                if writer.write_all(response).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// One connection of a client with an address of its own.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    async fn connect(gateway: SocketAddr, number: u8) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        let address = IpAddr::from([127, 0, 1, number]);
        socket.bind(SocketAddr::new(address, 0)).unwrap();
        Self {
            stream: BufReader::new(socket.connect(gateway).await.unwrap()),
        }
    }

    /// Sends a request. Returns status and fields of its response.
    async fn exchange(&mut self) -> (u16, Vec<(String, String)>) {
        let request = b"GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n";
        self.stream.write_all(request).await.unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut fields = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).await.unwrap();
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
        let length = fields.iter().find(|(name, _)| name == "content-length");
        let length = length.unwrap().1.parse().unwrap();
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.unwrap();
        (status, fields)
    }
}

/// Served and shed requests of one connection of a client, after the warm-up. A client with a pacer reads the fields.
async fn run_client(
    gateway: SocketAddr,
    number: u8,
    pacer: Option<SharedPacer>,
    found: Arc<OnceLock<Instant>>,
) -> [u32; 2] {
    let mut client = Client::connect(gateway, number).await;
    let mut ticks = interval(GAP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut counts = [0, 0];
    let elapsed = || found.get().map_or(Duration::ZERO, Instant::elapsed);
    while elapsed() < END {
        ticks.tick().await;
        let pacer = pacer.as_ref().filter(|_| found.get().is_some());
        let permit = match pacer {
            Some(pacer) => Some(
                pacer
                    .acquire(&PaceRequest::new("shop.example"))
                    .await
                    .unwrap(),
            ),
            None => None,
        };
        let (status, fields) = client.exchange().await;
        assert!(status == 200 || status == 503, "{status} {fields:?}");
        if status == 503 {
            let waits = fields.iter().filter(|(name, _)| name == "retry-after");
            assert_eq!(waits.count(), 1, "{fields:?}");
        }
        if let (Some(permit), Some(pacer)) = (permit, pacer) {
            let mut reader = ResponseReader::new(pacer.now());
            for (name, value) in &fields {
                reader.field(name, value.as_bytes());
            }
            permit.finish(status, &reader.finish());
        }
        if elapsed() >= WARM_UP {
            counts[usize::from(status == 503)] += 1;
        }
    }
    counts
}

/// A gateway in front of an upstream of its own.
async fn start_gateway(
    upstreams: &mut JoinSet<()>,
    credits: &str,
) -> (ServerProcess, SocketAddr, SocketAddr) {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = upstream.local_addr().unwrap();
    upstreams.spawn(serve_upstream(upstream));
    let policy = format!(
        "overload: {{ adaptive_concurrency: enforce, credits: {credits} }}
limits: [{{ name: per-address, key: ip, rate: 1000/s }}]"
    );
    let folder = Folder::with(&[("credits.yaml", &policy)]);
    let mut command = tollgate(&["serve", "--listen=off", "--listen-gateway=127.0.0.1:0"]);
    command.arg("--listen-admin=127.0.0.1:0");
    command.arg(format!("--upstream=http://{address}"));
    command
        .arg("--config")
        .arg(folder.path().join("credits.yaml"));
    let (server, admin) = started(command);
    let gateway = gateway_address(&server).parse().unwrap();
    (server, gateway, admin)
}

/// Whether a gateway knows how many requests its upstream can do at a time.
async fn has_capacity(admin: SocketAddr) -> bool {
    let state = tokio::task::spawn_blocking(move || get(admin, "/v1/state").1).await;
    let state: Value = serde_json::from_str(&state.unwrap()).unwrap();
    state["overload"]["targets"][0]["capacity"].is_u64()
}

/// The served requests, and the share that was shed.
async fn run_clients(gateway: SocketAddr, admin: SocketAddr, reads_fields: bool) -> (f64, f64) {
    let mut clients = JoinSet::new();
    let found = Arc::<OnceLock<Instant>>::default();
    for number in 1..=CLIENTS {
        let pacer = reads_fields.then(|| SharedPacer::new(PacerSettings::default()));
        for _ in 0..CONNECTIONS {
            clients.spawn(run_client(
                gateway,
                number,
                pacer.clone(),
                Arc::clone(&found),
            ));
        }
    }
    let started = Instant::now();
    let mut looks = interval(Duration::from_millis(100));
    while !has_capacity(admin).await {
        assert!(started.elapsed() < DEADLINE, "no capacity was found");
        looks.tick().await;
    }
    found.set(Instant::now()).unwrap();
    let counts = clients.join_all().await;
    let sum = |index: usize| f64::from(counts.iter().map(|counts| counts[index]).sum::<u32>());
    let (served, shed) = (sum(0), sum(1));
    (served, shed / (served + shed))
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_read_their_credits_are_shed_less_than_clients_that_ignore_them() {
    let mut upstreams = JoinSet::new();
    let (server, gateway, admin) = start_gateway(&mut upstreams, "enforce").await;
    let (second, second_gateway, second_admin) = start_gateway(&mut upstreams, "off").await;
    let (third, third_gateway, third_admin) = start_gateway(&mut upstreams, "enforce").await;
    let (credits, waits, plain) = tokio::join!(
        run_clients(gateway, admin, true),
        run_clients(second_gateway, second_admin, true),
        run_clients(third_gateway, third_admin, false)
    );
    // Clients that only heed `Retry-After` are in between.
    let ((served, shed), (plain_served, plain_shed)) = (credits, plain);
    assert!(plain_shed > 0.3, "{plain_shed}");
    assert!(
        shed < plain_shed / 2.0,
        "{shed}, {waits:?} and {plain_shed}"
    );
    assert!(served > plain_served / 3.0, "{served} and {plain_served}");

    // The fields list the credits behind the limit, and the switch takes them out.
    let mut client = Client::connect(gateway, 1).await;
    let (_, fields) = client.exchange().await;
    let listed = |fields: &[(String, String)], name| {
        let value = fields.iter().find(|(field, _)| field == name);
        value.unwrap().1.clone()
    };
    let status = listed(&fields, "ratelimit");
    assert!(status.starts_with("\"per-address\""), "{status}");
    assert!(status.contains(", \"overload:credits\";r="), "{status}");
    let policies = listed(&fields, "ratelimit-policy");
    assert!(policies.contains(", \"overload:credits\";q="), "{policies}");
    let metrics = get(admin, "/metrics").1;
    assert!(
        metrics.contains("tollgate_overload_credit_clients{upstream=\"upstream\",route=\"*/\"} "),
        "{metrics}"
    );
    for (to, series) in [("shadow", "mode=\"shadow\"} 1"), ("off", "")] {
        let head = "PUT /v1/switches HTTP/1.1\r\ncontent-type: application/json\r\n";
        let body =
            format!(r#"{{"limit":"overload:credits","to":"{to}","who":"ada","why":"incident 7"}}"#);
        assert_eq!(ask(admin, head, &body).0, 200);
        let (status, fields) = client.exchange().await;
        assert_eq!(status, 200);
        assert!(!listed(&fields, "ratelimit").contains("overload"), "{to}");
        let metrics = get(admin, "/metrics").1;
        let offers = format!("tollgate_overload_credit_offers_total{{{series}");
        assert!(metrics.contains(&offers), "{metrics}");
    }
    let state = get(admin, "/v1/state").1;
    assert!(state.contains("\"credits\":null"), "{state}");
    for server in [server, second, third] {
        assert!(server.stop("TERM").0.success());
    }
}
