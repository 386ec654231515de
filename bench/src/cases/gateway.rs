//! Requests through the gateway over loopback: forwarded to an upstream, rejected, shed, and refused by its method. Client and
//! upstream are tasks of the same thread that read and write few bytes, so their few instructions are counted too.
//!
//! The clock of decisions stands still. Must not know: how anything is forwarded.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, yield_now};
use tollgate_policy::load;
use tollgate_policy::source::SourceFormat;
use tollgate_server::TrustedProxies;
use tollgate_server::gateway::{Gateway, GatewayLimits};
use tollgate_server::listen::BufferBudget;
use tollgate_service::{RateLimitService, Secret};
use tollgate_store::ManualClock;

use super::{CaseRun, NOW};
use crate::measure::measured_section;

/// The keys of the case with many.
const MANY_KEYS: usize = 10_000;
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nserver: upstream\r\ndate: Wed, 18 Nov 2026 00:00:00 GMT\r\n\
                          content-type: application/json\r\ncache-control: no-cache\r\netag: \"6f1c-7\"\r\n\
                          content-length: 8\r\n\r\n{\"id\":7}";

/// The places of a new concurrency limit. Its queue has as many.
const PLACES: usize = 32;

/// A request that is forwarded.
pub(super) fn proxied(times: u64) -> CaseRun {
    limited(times, 1_000_000_000, 1, b"HTTP/1.1 200 ")
}

/// A request that is rejected.
pub(super) fn rejected(times: u64) -> CaseRun {
    limited(times, 1, 1, b"HTTP/1.1 429 ")
}

/// Requests that are rejected, each with another key than the one before.
pub(super) fn rejected_many_keys(times: u64) -> CaseRun {
    limited(times, 1, MANY_KEYS, b"HTTP/1.1 429 ")
}

fn request(method: &str, key: usize) -> String {
    format!(
        "{method} /items/7?page=2 HTTP/1.1\r\nhost: api.example\r\nuser-agent: client/1.0\r\n\
         accept: application/json\r\naccept-encoding: gzip\r\nx-api-key: user{key:012}\r\n\r\n"
    )
}

fn limited(times: u64, units: u64, keys: usize, status: &[u8]) -> CaseRun {
    let limits = format!(
        "limits: [{{ name: per-key, key: header.x-api-key, rate: {units}/h, burst: {units} }}]"
    );
    let runtime = runtime()?;
    let gateway = Listening::start(&runtime, &limits, "upstream: app", RESPONSE)?;
    // The first request connects to the upstream. The first one of each key is admitted in all cases.
    let requests: Vec<_> = (1..=keys).map(|key| request("GET", key)).collect();
    gateway.run(&runtime, times, &requests, status)
}

/// A request that the same listener refuses by its method, before it looks at host, path, limits and overload. The response never
/// changes.
pub(super) fn constant_refusal(times: u64) -> CaseRun {
    let runtime = runtime()?;
    let gateway = Listening::start(&runtime, "limits: none", "upstream: app", RESPONSE)?;
    gateway.run(&runtime, times, &[request("TRACE", 1)], b"HTTP/1.1 405 ")
}

/// A request that is shed, because every place and the queue are taken.
pub(super) fn shed(times: u64) -> CaseRun {
    let runtime = runtime()?;
    let policy = "limits: none\noverload: { adaptive_concurrency: enforce }";
    // The upstream never responds.
    let gateway = Listening::start(&runtime, policy, "upstream: app", b"")?;
    let (mut held, mut buffer) = (Vec::new(), vec![0; 4_096]);
    let request = request("GET", 1);
    runtime.block_on(async {
        for count in 1..=PLACES {
            let mut client = gateway.connect().await?;
            client.write_all(request.as_bytes()).await?;
            while gateway.in_flight() < count {
                yield_now().await;
            }
            held.push(client);
        }
        // They are shed at the end of their wait. The queue keeps their places, because its clock stands still.
        let mut queued = Vec::new();
        for _ in 0..PLACES {
            let mut client = gateway.connect().await?;
            client.write_all(request.as_bytes()).await?;
            queued.push(client);
        }
        for mut client in queued {
            if client.read(&mut buffer).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
            }
        }
        Ok(())
    })?;
    gateway.run(&runtime, times, &[request], b"HTTP/1.1 503 ")
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// A gateway and its upstream.
struct Listening {
    address: SocketAddr,
    service: Arc<RateLimitService<ManualClock>>,
    _tasks: JoinSet<()>,
}

impl Listening {
    fn start(
        runtime: &Runtime,
        policy: &str,
        route: &str,
        response: &'static [u8],
    ) -> Result<Self, Box<dyn Error>> {
        let _entered = runtime.enter();
        let mut tasks = JoinSet::new();
        let (upstream, listener) = runtime.block_on(async {
            let upstream = TcpListener::bind("127.0.0.1:0").await?;
            Ok::<_, std::io::Error>((upstream, TcpListener::bind("127.0.0.1:0").await?))
        })?;
        let address = listener.local_addr()?;
        let (gateway, service) = gateway(upstream.local_addr()?, policy, route)?;
        tasks.spawn(serve_upstream(upstream, response));
        tasks.spawn(async move {
            let (limits, shutdown) = (GatewayLimits::default(), std::future::pending());
            Arc::new(gateway)
                .run(listener.into(), limits, shutdown)
                .await;
        });
        Ok(Self {
            address,
            service,
            _tasks: tasks,
        })
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        let client = TcpStream::connect(self.address).await?;
        client.set_nodelay(true)?;
        Ok(client)
    }

    /// The requests that hold a place.
    fn in_flight(&self) -> usize {
        let status = self.service.overload_status();
        let targets = status.into_iter().flat_map(|status| status.targets);
        targets.map(|target| target.in_flight as usize).sum()
    }

    /// Sends these requests one after another, again and again. From the third round on all get this status.
    fn run(&self, runtime: &Runtime, times: u64, requests: &[String], status: &[u8]) -> CaseRun {
        let mut client = runtime.block_on(self.connect())?;
        let mut buffer = vec![0; 4_096];
        for request in requests.iter().cycle().take(requests.len().max(4) * 2) {
            runtime.block_on(exchange(&mut client, request, &mut buffer))?;
        }
        if !buffer.starts_with(status) {
            return Err(format!("answered: {}", buffer.escape_ascii()).into());
        }
        let mut requests = requests.iter().cycle();
        measured_section(times, || {
            let sent = requests.next();
            sent.is_some_and(|request| {
                runtime
                    .block_on(exchange(&mut client, request, &mut buffer))
                    .is_ok()
            })
        });
        match buffer.starts_with(status) {
            true => Ok(()),
            false => Err("the last request was answered otherwise".into()),
        }
    }
}

type GatewayParts = (Gateway<ManualClock>, Arc<RateLimitService<ManualClock>>);

fn gateway(
    upstream: SocketAddr,
    policy: &str,
    route: &str,
) -> Result<GatewayParts, Box<dyn Error>> {
    let text = format!(
        "{policy}\n\
         gateway: {{ upstreams: {{ app: http://{upstream} }}, routes: [{{ {route} }}] }}"
    );
    let policy = load(&text, "bench.yaml", SourceFormat::Yaml);
    let policy = policy.map_err(|problems| problems.to_string())?;
    let spec = policy.gateway.clone().ok_or("the policy has no gateway")?;
    let clock = ManualClock::at(NOW);
    let service = RateLimitService::new(&policy, 2 * MANY_KEYS, clock, Secret::random())?;
    let service = Arc::new(service);
    let (trusted, buffers) = (TrustedProxies::default(), Arc::<BufferBudget>::default());
    let gateway = Gateway::new(Arc::clone(&service), &spec, trusted, buffers)?;
    Ok((gateway, service))
}

async fn serve_upstream(listener: TcpListener, response: &'static [u8]) {
    let mut connections = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        connections.spawn(async move {
            let mut buffer = vec![0; 4_096];
            // Loopback hands over a small head whole.
            while matches!(stream.read(&mut buffer).await, Ok(1..)) {
                if stream.write_all(response).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// One request and its response, which is one segment.
async fn exchange(
    client: &mut TcpStream,
    request: &str,
    buffer: &mut [u8],
) -> std::io::Result<usize> {
    client.write_all(request.as_bytes()).await?;
    client.read(buffer).await
}
