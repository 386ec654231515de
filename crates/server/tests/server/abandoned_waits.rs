//! Clients that leave while they wait: their places in the queue are given back.

use std::sync::Arc;

use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::{JoinSet, yield_now};
use tollgate_core::Timestamp;
use tollgate_server::grpc::{GrpcLimits, GrpcServer};
use tollgate_server::listen::{LocalEndpoint, Peer, ShutdownTrigger};
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_store::{Clock, ManualClock};

use crate::grpc::client::{Client, Descriptor, SHOULD_RATE_LIMIT, framed, request};
use crate::harness::policy;
use crate::running_server::RunningServer;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
/// In milliseconds, as waits are told. No answer that is held back for it is sent during a test.
const HOUR: u64 = 3_600_000;
/// The attack's number of clients.
pub(crate) const CLIENTS: usize = 500;

/// Clients of one gateway that wait for the limit of one key, on connections in memory: there are more than some machines
/// have file descriptors for.
pub(crate) struct WaitingClients<C: Clock + 'static> {
    app: Arc<HttpApi<C>>,
    connections: Vec<DuplexStream>,
    served: JoinSet<()>,
    _shutdown: ShutdownTrigger,
}

impl<C: Clock + 'static> WaitingClients<C> {
    /// Asks once for the unit that is there, and then so many times that nobody else can have one. Each client asks when the one
    /// before has its place.
    pub(crate) async fn start(app: &Arc<HttpApi<C>>, clients: usize, limits: HttpLimits) -> Self {
        let (shutdown, stopping) = ShutdownTrigger::new();
        let mut all = Self {
            app: Arc::clone(app),
            connections: Vec::new(),
            served: JoinSet::new(),
            _shutdown: shutdown,
        };
        let address = ([127, 0, 0, 1], 8080).into();
        for client in 0..=clients {
            let (mut ours, theirs) = duplex(4_096);
            let peer = Peer::new(Some(address), LocalEndpoint::Tcp(address));
            let serving = Arc::clone(app).serve_connection(theirs, peer, limits, stopping.clone());
            all.served.spawn(serving);
            let head = "GET /auth/traefik HTTP/1.1\r\nhost: t\r\nx-forwarded-method: GET\r\nx-forwarded-uri: /\r\n\
                        x-forwarded-host: h\r\nx-forwarded-for: 192.0.2.1\r\nx-api-key: alice\r\n\r\n";
            ours.write_all(head.as_bytes()).await.unwrap();
            all.connections.push(ours);
            while app.saturation().waiting() < client {
                yield_now().await;
            }
            if client == 0 {
                while told_wait(app).await == 0 {
                    yield_now().await;
                }
            }
        }
        // The first one was admitted at once.
        all.connections.remove(0);
        all
    }

    /// Closes the connection of one client and waits until the server has noticed.
    pub(crate) async fn leave(&mut self, index: usize) {
        let left = self.app.saturation().waiting() - 1;
        drop(self.connections.remove(index));
        while self.app.saturation().waiting() > left {
            yield_now().await;
        }
    }
}

/// What the next client is told to wait, in milliseconds.
pub(crate) async fn told_wait<C: Clock + 'static>(app: &Arc<HttpApi<C>>) -> u64 {
    let address = ([127, 0, 0, 1], 8080).into();
    let peer = Peer::new(Some(address), LocalEndpoint::Tcp(address));
    let body = br#"{"key": "alice", "peek": true}"#.as_slice();
    let request = hyper::Request::post("/v1/check").body(body).unwrap();
    let response = app.respond(&request, &peer).await;
    let body = http_body_util::BodyExt::collect(response.into_body()).await;
    let body = body.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    body["wait_ms"].as_u64().unwrap()
}

fn app(text: &str) -> (Arc<HttpApi<Arc<ManualClock>>>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(NOW));
    let app = HttpApi::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    (Arc::new(app), clock)
}

/// The attack: 500 clients asked through `/auth/traefik` for a limit of 1/s with a long `wait`, and closed their connections.
/// Their places stayed taken: the next client was told to wait 497 s. Now it is told the time until the next unit, in whatever
/// order the others leave. The test has hours for seconds, because answers are held back by the runtime's own clock.
#[tokio::test]
async fn five_hundred_clients_that_leave_keep_nobody_waiting() {
    for algorithm in [
        "rate: 1/h, wait: 600h",
        "rate: 1/h, burst: 600, algorithm: leaky_queue",
    ] {
        for is_fast in [true, false] {
            let text = format!("limits: [{{ name: slow, key: header.x-api-key, {algorithm} }}]");
            let (app, _clock) = app(&text);
            let mut limits = HttpLimits::default();
            limits.fast_path = is_fast;
            let mut clients = WaitingClients::start(&app, CLIENTS, limits).await;
            assert_eq!(told_wait(&app).await, 501 * HOUR, "{algorithm}");
            // The first comers leave first: until the last one leaves, others stand behind every place.
            for left in 0..CLIENTS {
                assert_eq!(
                    told_wait(&app).await,
                    501 * HOUR,
                    "{algorithm}, {left} left"
                );
                clients.leave(0).await;
            }
            assert_eq!(told_wait(&app).await, HOUR, "{algorithm}");
        }
    }
}

/// A client that stays was promised its turn, so the places before it stay taken; those behind it come back.
#[tokio::test]
async fn a_client_that_stays_keeps_its_turn() {
    let (app, _clock) =
        app("limits: [{ name: slow, key: header.x-api-key, rate: 1/h, wait: 600h }]");
    let mut clients = WaitingClients::start(&app, 10, HttpLimits::default()).await;
    // Nine leave; the fifth stays.
    for index in [0, 0, 0, 0, 5, 4, 3, 2, 1] {
        clients.leave(index).await;
    }
    assert_eq!(told_wait(&app).await, 6 * HOUR);
    clients.leave(0).await;
    assert_eq!(told_wait(&app).await, HOUR);
}

/// Envoy gives a call up after its own timeout, 20 ms by default, and resets the stream.
#[tokio::test]
async fn grpc_calls_that_are_reset_give_their_places_back() {
    let (app, _clock) =
        app("limits: [{ name: slow, key: descriptor.user, rate: 1/h, wait: 600h }]");
    let grpc = Arc::new(GrpcServer::new(Arc::clone(app.envoy())));
    let limits = GrpcLimits::default();
    let grpc =
        RunningServer::start(|listener, shutdown| grpc.run(listener, limits, shutdown)).await;
    let mut client = Client::connect(grpc.address).await;
    let message = request("d", &[Descriptor::new(&[("user", "alice")])], 0);
    assert_eq!(
        client.call(SHOULD_RATE_LIMIT, &message).await.status,
        Some(0)
    );
    let mut calls = Vec::new();
    for waiting in 1..=50 {
        let (response, mut body) = client.open(SHOULD_RATE_LIMIT).await;
        body.send_data(framed(&message).into(), true).unwrap();
        calls.push((response, body));
        while app.saturation().waiting() < waiting {
            yield_now().await;
        }
    }
    for (_, body) in &mut calls {
        body.send_reset(h2::Reason::CANCEL);
    }
    while app.saturation().waiting() > 0 {
        yield_now().await;
    }
    let (_response, mut body) = client.open(SHOULD_RATE_LIMIT).await;
    body.send_data(framed(&message).into(), true).unwrap();
    while app.saturation().waiting() == 0 {
        yield_now().await;
    }
    let waits = app.service().engine().totals("slow").unwrap().waited;
    assert_eq!(waits, 51);
    assert_eq!(
        told_rls_wait(&app).await,
        2 * HOUR,
        "one waits, the others are gone"
    );
}

/// What the next descriptor of this user would wait, in milliseconds.
async fn told_rls_wait(app: &Arc<HttpApi<Arc<ManualClock>>>) -> u64 {
    use tollgate_core::Outcome;
    use tollgate_engine::{CheckMode, CheckOptions};
    use tollgate_policy::attributes::{Attribute, Attributes};

    struct Alice;
    impl Attributes for Alice {
        fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
            matches!(attribute, Attribute::Descriptor(_)).then_some(b"alice")
        }
    }
    let peek = CheckOptions::new(CheckMode::Peek);
    match app.service().check_uncounted(&Alice, peek).await.outcome() {
        Outcome::Wait(wait) => wait.as_millis_ceil(),
        other => panic!("{other:?}"),
    }
}
