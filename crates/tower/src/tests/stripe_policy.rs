//! The four limiters of `policies/stripe.yaml`, each at its limit: enforced, switched to shadow, switched off, and the kill
//! switch for all of them.

use std::convert::Infallible;
use std::sync::Arc;

use http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tollgate_service::{Attribution, Halt, ManualClock, Nanos, ProblemType, ShedMechanism, Switch};
use tower::{ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use super::overload::settle;
use super::support::{TestLayer, field, get, layer, text};

const POLICY: &str = include_str!("../../../../policies/stripe.yaml");
const CHARGES: &str = "/v1/charges";
const CUSTOMERS: &str = "/v1/customers";

/// A response: the status, `Retry-After` and the problem type.
type Outcome = (u16, Option<String>, Option<String>);

/// A service under the policy. Requests with the field `x-hold` end when the test says so.
#[derive(Clone)]
struct Shop {
    layer: TestLayer,
    clock: Arc<ManualClock>,
    ends: Arc<Semaphore>,
}

impl Shop {
    fn new() -> Self {
        let (layer, clock) = layer(POLICY);
        let ends = Arc::new(Semaphore::new(0));
        Self { layer, clock, ends }
    }

    async fn send(self, path: &'static str, key: String, is_held: bool) -> Outcome {
        let mut request = get(path);
        let headers = request.headers_mut();
        headers.insert("authorization", format!("Bearer {key}").parse().unwrap());
        if is_held {
            headers.insert("x-hold", "1".parse().unwrap());
        }
        let inner = service_fn(move |request: Request<()>| {
            let ends = Arc::clone(&self.ends);
            async move {
                if request.headers().contains_key("x-hold") {
                    ends.acquire().await.unwrap().forget();
                }
                Ok::<_, Infallible>(text("done"))
            }
        });
        let response = self.layer.layer(inner).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let retry_after = field(&response, "retry-after").map(str::to_owned);
        let body = response.collect().await.unwrap().to_bytes();
        let problem: Option<Value> = serde_json::from_slice(&body).ok();
        let cause = problem.map(|problem| problem["type"].as_str().unwrap().to_owned());
        (status, retry_after, cause)
    }

    async fn probe(&self, path: &'static str, key: &str) -> Outcome {
        self.clone().send(path, key.to_owned(), false).await
    }

    /// Starts requests that do not end, each with its own key unless one is given.
    async fn hold(&self, path: &'static str, count: usize, key: Option<&str>) -> JoinSet<Outcome> {
        let mut held = JoinSet::new();
        for index in 0..count {
            let key = key.map_or_else(|| format!("{path}{index}"), str::to_owned);
            held.spawn(self.clone().send(path, key, true));
        }
        settle().await;
        held
    }

    /// Lets the adaptive limit find the capacity in shadow mode: 60 requests at a time, 50 ms for each.
    async fn measure(&self) {
        self.switch("overload:adaptive_concurrency", "shadow");
        for (requests, latency) in [(60, 50); 10].into_iter().chain([(160, 133); 10]) {
            let mut held = self.hold(CHARGES, requests, None).await;
            self.clock.advance(Nanos::from_millis(latency));
            self.ends.add_permits(requests);
            while let Some(done) = held.join_next().await {
                assert_eq!(done.unwrap().0, 200, "shadow mode sheds nothing");
            }
        }
        self.switch("overload:adaptive_concurrency", "on");
        assert!(self.shed(ShedMechanism::Concurrency).1 > 0);
    }

    /// Sets a switch as operators do: `*` is the kill switch.
    fn switch(&self, name: &str, to: &str) {
        let halt = match to {
            "off" => Some(Halt::Off),
            "shadow" => Some(Halt::Shadow),
            _ => None,
        };
        let switch = Switch {
            halt,
            enforce: None,
        };
        let name = Some(name).filter(|name| *name != "*");
        let ada = Attribution {
            who: "ada",
            why: "incident 7",
        };
        let control = self.layer.rate_limit_service().control();
        control.switch(name, switch, ada).unwrap();
    }

    /// The adaptive concurrency limit, if a request has come.
    fn limit(&self) -> Option<usize> {
        let status = self.layer.rate_limit_service().overload_status()?;
        Some(status.targets.first()?.limit as usize)
    }

    /// The requests that a mechanism shed, and those that it would have shed.
    fn shed(&self, mechanism: ShedMechanism) -> (u64, u64) {
        let status = self.layer.rate_limit_service().overload_status().unwrap();
        let of = status.shed.iter().filter(|one| one.mechanism == mechanism);
        of.fold((0, 0), |sum, one| {
            (sum.0 + one.enforced, sum.1 + one.shadow)
        })
    }

    /// Probes with each position of a limiter's own switch and of the kill switch. Only enforcement refuses, and at once.
    async fn try_switches(&self, name: &str, path: &'static str, key: &str, refusal: &Outcome) {
        assert_eq!(&self.probe(path, key).await, refusal, "{name}");
        for switch in [name, "*"] {
            for to in ["shadow", "off"] {
                self.switch(switch, to);
                assert_eq!(self.probe(path, key).await.0, 200, "{switch} is {to}");
                self.switch(switch, "on");
                assert_eq!(&self.probe(path, key).await, refusal, "{switch} is on");
            }
        }
    }
}

fn refusal(cause: ProblemType, retry_after: &str) -> Outcome {
    let (status, cause) = (cause.status(), cause.type_uri().to_owned());
    (status, Some(retry_after.to_owned()), Some(cause))
}

#[tokio::test(start_paused = true)]
async fn the_request_rate_is_limited_with_429_until_it_is_switched() {
    let shop = Shop::new();
    for _ in 0..50 {
        assert_eq!(shop.probe(CHARGES, "sk_live_1").await.0, 200);
    }
    let limited = refusal(ProblemType::QuotaExceeded, "1");
    shop.try_switches("request-rate", CHARGES, "sk_live_1", &limited)
        .await;
    assert_eq!(shop.probe(CHARGES, "sk_live_2").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_are_limited_with_429_until_the_limit_is_switched() {
    let shop = Shop::new();
    let held = shop.hold(CHARGES, 20, Some("sk_live_1")).await;
    assert_eq!(held.len(), 20);
    let limited = refusal(ProblemType::QuotaExceeded, "30");
    shop.try_switches("in-flight", CHARGES, "sk_live_1", &limited)
        .await;
    assert_eq!(shop.probe(CHARGES, "sk_live_2").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn the_fleet_usage_shedder_refuses_what_is_not_critical_with_503() {
    let shop = Shop::new();
    for index in 0..8_000 {
        let key = format!("sk_live_{index}");
        assert_eq!(shop.probe(CUSTOMERS, &key).await.0, 200);
    }
    let shed = refusal(ProblemType::Overloaded, "1");
    shop.try_switches("not-critical", CUSTOMERS, "late", &shed)
        .await;
    assert_eq!(shop.probe(CHARGES, "late").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn the_reserve_of_a_process_is_kept_for_charges() {
    let shop = Shop::new();
    shop.measure().await;
    let limit = shop.limit().unwrap();
    let _held = shop.hold(CUSTOMERS, limit - limit.div_ceil(5), None).await;
    let shed = refusal(ProblemType::Overloaded, "1");
    shop.try_switches("overload:reserve", CUSTOMERS, "late", &shed)
        .await;
    assert_eq!(shop.shed(ShedMechanism::Reserve), (5, 2));
    assert_eq!(shop.probe(CHARGES, "late").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn the_worker_utilization_shedder_sheds_all_but_charges_and_each_mechanism_alone_can_go() {
    let shop = Shop::new();
    shop.measure().await;
    let limit = shop.limit().unwrap();
    let reserve = limit.div_ceil(5);
    let _customers = shop.hold(CUSTOMERS, limit - reserve, None).await;
    let mut held = shop.hold(CHARGES, reserve - 1, None).await;
    let by_utilization = refusal(ProblemType::Overloaded, "5");
    let by_reserve = refusal(ProblemType::Overloaded, "1");
    assert_eq!(shop.probe(CUSTOMERS, "late").await, by_reserve);
    for _ in 0..120 {
        shop.clock.advance(Nanos::from_millis(100));
        assert_eq!(shop.probe(CUSTOMERS, "late").await.0, 503);
    }
    assert_eq!(shop.probe(CUSTOMERS, "late").await, by_utilization);
    assert_eq!(shop.probe(CHARGES, "late").await.0, 200, "the last place");
    // One switched off alone: the other still sheds.
    for to in ["shadow", "off"] {
        shop.switch("overload:utilization", to);
        assert_eq!(shop.probe(CUSTOMERS, "late").await, by_reserve, "{to}");
        shop.switch("overload:utilization", "on");
        shop.switch("overload:reserve", to);
        assert_eq!(shop.probe(CUSTOMERS, "late").await, by_utilization, "{to}");
        shop.switch("overload:reserve", "on");
    }
    assert!(shop.shed(ShedMechanism::Utilization).1 > 0, "in shadow");
    // Without the reserve, the last place is free.
    shop.switch("overload:reserve", "off");
    shop.try_switches("overload:utilization", CUSTOMERS, "late", &by_utilization)
        .await;
    // No place is free any more: the adaptive limit lets requests wait, then sheds them, even charges.
    shop.switch("overload:utilization", "off");
    held.spawn(shop.clone().send(CHARGES, "last".to_owned(), true));
    settle().await;
    shop.try_switches(
        "overload:adaptive_concurrency",
        CHARGES,
        "late",
        &by_reserve,
    )
    .await;
    shop.ends.add_permits(limit);
    while let Some(done) = held.join_next().await {
        assert_eq!(done.unwrap().0, 200, "what was held ends well");
    }
    assert_eq!(shop.probe(CUSTOMERS, "late").await.0, 200);
}
