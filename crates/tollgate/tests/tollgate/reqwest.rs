//! The middleware for reqwest against our own layer in a real server. Real time passes only where the server asks for it.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error};
use tokio::net::TcpListener;
use tollgate::client::{
    Deadline, PaceError, PacerMiddleware, PacerSettings, SharedPacer, Timestamp,
};
use tollgate::tower::TollgateLayer;

const POLICY: &str = "
limits:
  - { name: all, rate: 20/s, burst: 3 }
";

/// Counts the requests that reach the server, limited or not.
#[derive(Clone, Default)]
struct Arrivals(Arc<AtomicU32>);

impl Arrivals {
    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server of a test ends with the test's runtime"
)]
async fn start(router: Router) -> (String, Arrivals) {
    let arrivals = Arrivals::default();
    let counter = arrivals.clone();
    let router = router.layer(tower::util::MapRequestLayer::new(
        move |request: axum::extract::Request| {
            counter.0.fetch_add(1, Ordering::Relaxed);
            request
        },
    ));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, router).into_future());
    (url, arrivals)
}

fn client(pacer: &SharedPacer) -> ClientWithMiddleware {
    let middleware = PacerMiddleware::with_pacer(pacer.clone());
    ClientBuilder::new(reqwest::Client::new())
        .with(middleware)
        .build()
}

/// A pacer that starts too fast for the server, so that it is refused at first.
fn fast() -> SharedPacer {
    let settings = PacerSettings::default();
    SharedPacer::new(settings.with_initial_rate(1_000.0).unwrap())
}

fn refusal(body: &'static str) -> Response<axum::body::Body> {
    let response = Response::builder().status(StatusCode::TOO_MANY_REQUESTS);
    let response = response.header("content-type", "application/json");
    let response = response.header("x-kept", "yes");
    response.body(body.into()).unwrap()
}

#[tokio::test]
async fn every_request_succeeds_although_the_server_limits_them() {
    let layer = TollgateLayer::builder().policy(POLICY).build().unwrap();
    let limited = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer);
    let (url, arrivals) = start(limited).await;
    let client = client(&fast());
    for _ in 0..12 {
        let response = client.get(&url).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.text().await.unwrap(), "hello");
    }
    assert!(arrivals.count() <= 16, "{} for 12", arrivals.count());

    // The control: without the middleware the server refuses.
    let plain = reqwest::Client::new();
    let mut refused = 0;
    for _ in 0..12 {
        refused += u32::from(plain.get(&url).send().await.unwrap().status() == 429);
    }
    assert!(refused > 0);
}

#[tokio::test]
async fn the_last_refusal_is_passed_on_with_its_body_fields_and_url() {
    const BODY: &str = r#"{"error":{"code":"insufficient_quota"}}"#;
    let (url, arrivals) = start(Router::new().route("/", get(async || refusal(BODY)))).await;
    let response = client(&fast()).get(&url).send().await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.url().as_str(), url);
    assert_eq!(response.headers()["x-kept"], "yes");
    assert!(response.remote_addr().is_some());
    assert_eq!(response.text().await.unwrap(), BODY);
    assert_eq!(arrivals.count(), 1, "a used-up quota is not asked again");
}

#[tokio::test]
async fn posts_and_streams_are_not_sent_twice() {
    let refuse = || async { refusal("{}") };
    let (url, arrivals) = start(Router::new().route("/", post(refuse).put(refuse))).await;
    let client = client(&fast());
    let response = client.post(&url).body("once").send().await.unwrap();
    assert_eq!((response.status().as_u16(), arrivals.count()), (429, 1));
    let stream = reqwest::Body::wrap(http_body_util::Full::<axum::body::Bytes>::from("once"));
    let response = client.put(&url).body(stream).send().await.unwrap();
    assert_eq!((response.status().as_u16(), arrivals.count()), (429, 2));
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_is_an_error_that_says_so() {
    let refuse = || async {
        let mut response = refusal("{}");
        let wait = axum::http::HeaderValue::from_static("30");
        response.headers_mut().insert("retry-after", wait);
        response
    };
    let (url, arrivals) = start(Router::new().route("/", post(refuse))).await;
    let pacer = fast();
    let client = client(&pacer);
    let with_password = url.replace("://", "://user:hunter2@");
    assert_eq!(
        client.post(&with_password).send().await.unwrap().status(),
        429
    );
    let deadline = Deadline(Timestamp::from_nanos(
        pacer.now().as_nanos() + 1_000_000_000,
    ));
    let request = client.post(&with_password).with_extension(deadline);
    let Err(Error::Middleware(error)) = request.send().await else {
        panic!("the wait is longer than the deadline");
    };
    let error = error.downcast::<PaceError>().unwrap();
    assert!(
        matches!(error, PaceError::DeadlineTooClose { .. }),
        "{error}"
    );
    assert_eq!(arrivals.count(), 1, "the second was not sent");
    let output = format!("{pacer:?} {:?} {error}", pacer.status());
    assert!(!output.contains("hunter2"), "{output}");
}
