//! Requests through the gateway over loopback: forwarded to an upstream, and rejected. Client and upstream are tasks of the same
//! thread that read and write few bytes, so their few instructions are counted too.
//!
//! The clock of decisions stands still. Must not know: how anything is forwarded.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
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

/// A request that is forwarded.
pub(super) fn proxied(times: u64) -> CaseRun {
    run(times, 1_000_000_000, 1, b"HTTP/1.1 200 ")
}

/// A request that is rejected.
pub(super) fn rejected(times: u64) -> CaseRun {
    run(times, 1, 1, b"HTTP/1.1 429 ")
}

/// Requests that are rejected, each with another key than the one before.
pub(super) fn rejected_many_keys(times: u64) -> CaseRun {
    run(times, 1, MANY_KEYS, b"HTTP/1.1 429 ")
}

fn request(key: usize) -> String {
    format!(
        "GET /items/7?page=2 HTTP/1.1\r\nhost: api.example\r\nuser-agent: client/1.0\r\n\
         accept: application/json\r\naccept-encoding: gzip\r\nx-api-key: user{key:012}\r\n\r\n"
    )
}

fn run(times: u64, units: u64, keys: usize, status: &[u8]) -> CaseRun {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut tasks = JoinSet::new();
    let mut client = start(&runtime, &mut tasks, units)?;
    let mut buffer = vec![0; 4_096];
    let requests: Vec<_> = (1..=keys).map(request).collect();
    // The first request connects to the upstream. The first one of each key is admitted in all cases.
    for request in requests.iter().cycle().take(keys.max(4) * 2) {
        runtime.block_on(exchange(&mut client, request, &mut buffer))?;
    }
    let mut requests = requests.iter().cycle();
    if !buffer.starts_with(status) {
        return Err(format!("answered: {}", buffer.escape_ascii()).into());
    }
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

/// Starts the upstream and the gateway, and returns a connection of a client.
fn start(
    runtime: &Runtime,
    tasks: &mut JoinSet<()>,
    units: u64,
) -> Result<TcpStream, Box<dyn Error>> {
    let _entered = runtime.enter();
    runtime.block_on(async {
        let upstream = TcpListener::bind("127.0.0.1:0").await?;
        let address = upstream.local_addr()?;
        tasks.spawn(serve_upstream(upstream));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let listening = listener.local_addr()?;
        let gateway = Arc::new(gateway(address, units)?);
        let limits = GatewayLimits::default();
        tasks.spawn(async move {
            let shutdown = std::future::pending();
            gateway.run(listener.into(), limits, shutdown).await;
        });
        let client = TcpStream::connect(listening).await?;
        client.set_nodelay(true)?;
        Ok(client)
    })
}

fn gateway(upstream: SocketAddr, units: u64) -> Result<Gateway<ManualClock>, Box<dyn Error>> {
    let text = format!(
        "limits: [{{ name: per-key, key: header.x-api-key, rate: {units}/h, burst: {units} }}]\n\
         gateway: {{ upstreams: {{ app: http://{upstream} }}, routes: [{{ upstream: app }}] }}"
    );
    let policy = load(&text, "bench.yaml", SourceFormat::Yaml);
    let policy = policy.map_err(|problems| problems.to_string())?;
    let spec = policy.gateway.clone().ok_or("the policy has no gateway")?;
    let clock = ManualClock::at(NOW);
    let service = RateLimitService::new(&policy, 2 * MANY_KEYS, clock, Secret::random())?;
    let (trusted, buffers) = (TrustedProxies::default(), Arc::<BufferBudget>::default());
    Ok(Gateway::new(Arc::new(service), &spec, trusted, buffers)?)
}

async fn serve_upstream(listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        connections.spawn(async move {
            let mut buffer = vec![0; 4_096];
            // Loopback hands over a small head whole.
            while matches!(stream.read(&mut buffer).await, Ok(1..)) {
                if stream.write_all(RESPONSE).await.is_err() {
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
