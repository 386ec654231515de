//! Shedding by class, with a place until the response has ended.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::Request;
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, yield_now};
use tollgate_service::ProblemType;
use tower::{ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use super::support::{TestLayer, field, get, layer, text};

const POLICY: &str = "
priorities:
  - { name: critical, match: { route: /pay } }
  - { name: default }
overload: { adaptive_concurrency: MODE }
limits: [{ name: all, rate: 1000000/s }]
";

/// A service whose requests end when the test says so.
#[derive(Clone)]
struct HeldWork {
    layer: TestLayer,
    ends: Arc<Semaphore>,
    started: Arc<Mutex<Vec<String>>>,
}

impl HeldWork {
    fn new(mode: &str) -> Self {
        Self {
            layer: layer(&POLICY.replace("MODE", mode)).0,
            ends: Arc::new(Semaphore::new(0)),
            started: Arc::default(),
        }
    }

    async fn request(self, path: &'static str) -> (u16, Option<String>, String) {
        let inner = service_fn(move |request: Request<()>| {
            let (ends, started) = (Arc::clone(&self.ends), Arc::clone(&self.started));
            async move {
                started
                    .lock()
                    .unwrap()
                    .push(request.uri().path().to_owned());
                ends.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(text("done"))
            }
        });
        let response = self.layer.layer(inner).oneshot(get(path)).await.unwrap();
        let status = response.status().as_u16();
        let retry_after = field(&response, "retry-after").map(str::to_owned);
        let body = response.collect().await.unwrap().to_bytes();
        (
            status,
            retry_after,
            String::from_utf8(body.to_vec()).unwrap(),
        )
    }

    fn started(&self) -> usize {
        self.started.lock().unwrap().len()
    }
}

/// Lets all tasks run until they wait. Timers do not fire meanwhile, because the runtime is never idle.
pub(super) async fn settle() {
    for _ in 0..500 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_above_the_limit_wait_and_the_least_important_are_shed_with_503() {
    let work = HeldWork::new("enforce");
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        tasks.spawn(work.clone().request("/search"));
    }
    settle().await;
    let limit = work.started();
    assert_eq!(limit, 32, "the first limit; as many wait");
    let (status, retry_after, body) = work.clone().request("/search").await;
    assert_eq!((status, retry_after.as_deref()), (503, Some("1")));
    let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
    let overloaded = ProblemType::Overloaded;
    assert_eq!(problem["type"], overloaded.type_uri());
    assert_eq!(problem["title"], overloaded.title());
    assert_eq!(problem["status"], overloaded.status());
    // A critical request takes the place of one that waits, and starts before all of them.
    tasks.spawn(work.clone().request("/pay"));
    settle().await;
    let (status, ..) = tasks.try_join_next().unwrap().unwrap();
    assert_eq!(status, 503);
    work.ends.add_permits(1);
    settle().await;
    assert_eq!(work.started.lock().unwrap().last().unwrap(), "/pay");
    // The queue does not hold anybody for long: after 100 ms the others are shed.
    let mut statuses = Vec::new();
    while work.started() + statuses.iter().filter(|status| **status == 503).count() < 64 {
        statuses.push(tasks.join_next().await.unwrap().unwrap().0);
    }
    assert_eq!(work.started(), limit + 1);
    // Every place comes back with the end of its response.
    work.ends.add_permits(1_000);
    while tasks.join_next().await.is_some() {}
    assert_eq!(work.clone().request("/search").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_and_off_shed_nothing() {
    for mode in ["shadow", "off"] {
        let work = HeldWork::new(mode);
        let mut tasks = JoinSet::new();
        for _ in 0..200 {
            tasks.spawn(work.clone().request("/search"));
        }
        settle().await;
        assert_eq!(work.started(), 200, "{mode}");
        work.ends.add_permits(200);
        while let Some(done) = tasks.join_next().await {
            assert_eq!(done.unwrap().0, 200);
        }
    }
}
