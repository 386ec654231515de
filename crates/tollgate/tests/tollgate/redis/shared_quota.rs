//! Clients that share the limits of a server through a real Redis: together they take no more than it reported.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error};
use tokio::net::TcpListener;
use tollgate::client::{PaceError, PacerMiddleware, PacerSettings, SharedPacer, SharedQuotaStore};
use tollgate::redis::Redis;
use tollgate::{FixedWindow, Limiter, Nanos, Window};
use tollgate_store::StoreKey;
use tollgate_store::shared_quota::{
    LimitReport, QuotaExchange, QuotaExchangeReply, RetryBudgetChange, SharedLimit,
};

use super::{another, eventually, server};

const TAKE: QuotaExchange = QuotaExchange {
    is_take: true,
    block: Nanos::ZERO,
    retries: RetryBudgetChange::None,
    limits: Vec::new(),
};

fn limit(report: Option<LimitReport>) -> SharedLimit {
    SharedLimit {
        id: 7,
        cost: 1,
        quota: Some(100),
        window: Nanos::HOUR,
        report,
    }
}

fn report(remaining: u64, count: Option<u64>) -> QuotaExchange {
    let report = LimitReport {
        remaining,
        reset_after: Nanos::HOUR,
        count,
    };
    QuotaExchange {
        limits: vec![limit(Some(report))],
        ..QuotaExchange::default()
    }
}

fn take() -> QuotaExchange {
    QuotaExchange {
        limits: vec![limit(None)],
        ..TAKE
    }
}

async fn exchange(redis: &Redis, exchange: &QuotaExchange) -> QuotaExchangeReply {
    let key = StoreKey::new(b"api.example.com").unwrap();
    redis.shared_quotas().exchange(key, exchange).await.unwrap()
}

/// How many of so many takes are granted, in turn by two connections.
async fn granted(connections: &[Redis; 2], takes: usize) -> usize {
    let mut granted = 0;
    for redis in connections.iter().cycle().take(takes) {
        let reply = exchange(redis, &take()).await;
        granted += usize::from(reply.wait.is_zero());
        assert!(reply.wait <= Nanos::HOUR);
    }
    granted
}

#[tokio::test]
async fn together_processes_take_no_more_than_the_server_reported() {
    let (server, redis) = server().await;
    let both = [another(&server).await, redis];
    assert_eq!(granted(&both, 3).await, 3, "nothing is known yet");
    exchange(&both[0], &report(10, None)).await;
    assert_eq!(granted(&both, 30).await, 10);
    // A response whose request was the eleventh of all was sent before two others: they are not in its report.
    exchange(&both[0], &report(6, Some(11))).await;
    assert_eq!(granted(&both, 30).await, 4);
    // An older response that arrives late changes nothing.
    exchange(&both[1], &report(50, Some(5))).await;
    assert_eq!(granted(&both, 30).await, 0);
}

#[tokio::test]
async fn a_wait_and_the_retry_budget_hold_for_all_processes() {
    let (server, redis) = server().await;
    let other = another(&server).await;
    let spend = QuotaExchange {
        retries: RetryBudgetChange::Spend,
        ..QuotaExchange::default()
    };
    let mut retries = 0;
    for redis in [&redis, &other].into_iter().cycle().take(30) {
        retries += u32::from(exchange(redis, &spend).await.may_retry);
    }
    assert_eq!(retries, 10, "the reserve");
    let first_try = QuotaExchange {
        retries: RetryBudgetChange::Earn,
        ..TAKE
    };
    for _ in 0..5 {
        exchange(&redis, &first_try).await;
    }
    assert!(exchange(&other, &spend).await.may_retry, "five earn one");
    assert!(!exchange(&other, &spend).await.may_retry);

    let block = QuotaExchange {
        block: Nanos::from_secs(30),
        ..QuotaExchange::default()
    };
    exchange(&redis, &block).await;
    let wait = exchange(&other, &TAKE).await.wait;
    assert!(!wait.is_zero() && wait <= Nanos::from_secs(30), "{wait:?}");
}

/// What the server has seen.
#[derive(Default)]
struct Counts {
    admitted: AtomicU32,
    refused: AtomicU32,
}

async fn limited(State((limiter, counts)): State<(Arc<Limiter>, Arc<Counts>)>) -> Response {
    let (status, fields) = match limiter.spend("all", 1) {
        Ok(admission) => (StatusCode::OK, admission.rate_limit_fields()),
        Err(error) => {
            let denial = error.denial().unwrap();
            (StatusCode::TOO_MANY_REQUESTS, denial.rate_limit_fields())
        }
    };
    let count = if status == StatusCode::OK {
        &counts.admitted
    } else {
        &counts.refused
    };
    count.fetch_add(1, Ordering::Relaxed);
    let mut response = status.into_response();
    for (name, value) in fields.iter() {
        let value = HeaderValue::from_str(&value).unwrap();
        response.headers_mut().insert(name, value);
    }
    response
}

/// A server with a quota for a window, which it reports.
#[expect(
    clippy::disallowed_methods,
    reason = "the server of a test ends with the test's runtime"
)]
async fn api(quota: u64, window: Nanos) -> (String, Arc<Counts>) {
    let limit = FixedWindow::builder(quota, Window::FirstHit(window))
        .build()
        .unwrap();
    let limiter = Limiter::builder().limit("all", limit).build().unwrap();
    let counts = Arc::new(Counts::default());
    let state = (Arc::new(limiter), Arc::clone(&counts));
    let router = Router::new().route("/", get(limited)).with_state(state);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, router).into_future());
    (url, counts)
}

fn client(store: Arc<dyn SharedQuotaStore>) -> ClientWithMiddleware {
    let settings = PacerSettings::default().with_max_wait(Nanos::from_secs(20));
    let settings = settings.with_initial_rate(100.0).unwrap();
    let pacer = SharedPacer::with_store(settings, store);
    ClientBuilder::new(reqwest::Client::new())
        .with(PacerMiddleware::with_pacer(pacer))
        .build()
}

async fn send(client: &ClientWithMiddleware, url: &str, count: usize) {
    for _ in 0..count {
        let request = client.get(url).header("authorization", "Bearer secret");
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn two_clients_are_never_refused_and_go_on_alone_without_the_store() {
    let (server, redis) = server().await;
    let (url, counts) = api(20, Nanos::from_secs(1)).await;
    let other = another(&server).await;
    let clients = [client(redis.shared_quotas()), client(other.shared_quotas())];
    tokio::join!(send(&clients[0], &url, 25), send(&clients[1], &url, 25));
    assert_eq!(counts.refused.load(Ordering::Relaxed), 0);
    assert_eq!(counts.admitted.load(Ordering::Relaxed), 50);

    drop(server);
    eventually(async || !redis.is_connected() && !other.is_connected()).await;
    tokio::join!(send(&clients[0], &url, 5), send(&clients[1], &url, 5));
    assert_eq!(counts.admitted.load(Ordering::Relaxed), 60);
}

#[tokio::test]
async fn a_refusal_of_one_client_stops_the_other_before_it_sends() {
    let (server, redis) = server().await;
    let (url, counts) = api(1, Nanos::HOUR).await;
    let other = another(&server).await;
    send(&client(redis.shared_quotas()), &url, 1).await;
    // The second client knows nothing, asks the store, and learns that nothing is left only from the server.
    let second = client(other.shared_quotas());
    let request = second.get(&url).header("authorization", "Bearer secret");
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 429);
    // A third is stopped by the wait that the server has asked of the second.
    let third = client(other.shared_quotas());
    let request = third.get(&url).header("authorization", "Bearer secret");
    let Err(Error::Middleware(error)) = request.send().await else {
        panic!("the store knows that the quota is used up");
    };
    assert!(error.downcast_ref::<PaceError>().is_some(), "{error}");
    assert_eq!(counts.refused.load(Ordering::Relaxed), 1);
    // Other credentials have another quota, as far as the client knows.
    let request = third.get(&url).header("authorization", "Bearer other");
    assert_eq!(request.send().await.unwrap().status(), 429);
}
