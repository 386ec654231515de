//! Clients of a fleet's server that leave while they wait: the places that Redis keeps are given back.

use std::sync::Arc;

use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;
use tollgate_core::Outcome;
use tollgate_engine::{CheckMode, CheckOptions, Ticket};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_server::HttpLimits;
use tollgate_service::fleet::FleetMaintenance;
use tollgate_service::{RateLimitService, Transport};
use tollgate_store::SystemClock;
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use super::{DEADLINE, start_server};
use crate::abandoned_waits::{WaitingClients, told_wait};

const HOUR_MS: u64 = 3_600_000;
/// Fewer than over memory: each takes calls to Redis.
const CLIENTS: usize = 100;

/// The attack of 500 abandoned waits, over Redis. The wait that the next client is told on either server is at most the time
/// until the next unit, an hour; with the places of the others it would be a hundred.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_give_their_places_in_redis_back() {
    let text = "limits: [{ name: slow, key: header.x-api-key, rate: 1/h, wait: 1000h }]";
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let (one, other) = (
        start_server(&redis.url(), text).await,
        start_server(&redis.url(), text).await,
    );
    let mut background = JoinSet::new();
    let service = Arc::<RateLimitService<SystemClock>>::clone(one.app.service());
    background.spawn(Arc::new(FleetMaintenance::new(service)).run());
    let mut clients = WaitingClients::start(&one.app, CLIENTS, HttpLimits::default()).await;
    assert!(told_wait(&other.app).await > 99 * HOUR_MS);
    for _ in 0..CLIENTS {
        clients.leave(0).await;
    }
    let given_back = async {
        while told_wait(&other.app).await > HOUR_MS {
            yield_now().await;
        }
    };
    timeout(DEADLINE, given_back)
        .await
        .expect("places come back");
    // Nothing more came back than was taken: the unit of the first request is still used.
    assert!(told_wait(&one.app).await > 0);
}

/// The request of one client: its key.
struct Client(&'static str);

impl Attributes for Client {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        matches!(attribute, Attribute::Header(_)).then_some(self.0.as_bytes())
    }
}

type FleetService = Arc<RateLimitService<SystemClock>>;

/// What a request of this cost is told: the hours until its turn, rounded up, and its place.
async fn ask(
    service: &FleetService,
    client: &Client,
    cost: u64,
    mode: CheckMode,
) -> (u64, Vec<Ticket>) {
    let options = CheckOptions {
        cost: Some(cost),
        mode,
        ..CheckOptions::default()
    };
    let mut verdict = service.check(Transport::Http, client, options).await;
    let hours = match verdict.outcome() {
        Outcome::Allow => 0,
        Outcome::Wait(wait) => wait.as_secs_ceil().div_ceil(3_600),
        denied => panic!("{denied:?}"),
    };
    (hours, verdict.take_wait_ticket().into_iter().collect())
}

async fn reserve(service: &FleetService, client: &Client, cost: u64, hours: u64) -> Vec<Ticket> {
    let (told, tickets) = ask(service, client, cost, CheckMode::Charge).await;
    assert_eq!(told, hours, "{} of {}", cost, client.0);
    tickets
}

/// The client leaves.
fn leave(service: &FleetService, place: Vec<Ticket>) {
    drop(service.acquire_wait(place, None));
}

/// Waits until a request would be told this many hours.
async fn until_told(service: &FleetService, client: &Client, cost: u64, hours: u64) {
    let told = async {
        while ask(service, client, cost, CheckMode::Peek).await.0 != hours {
            yield_now().await;
        }
    };
    let told = timeout(DEADLINE, told).await;
    told.unwrap_or_else(|_| panic!("{} is never told {hours} h", client.0));
}

/// The tests of Go's `x/time/rate` on cancelled reservations, over Redis: two servers, hours for their tenths of seconds. Places in the
/// middle of a queue gave nothing back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_waits_come_back_in_redis_as_in_x_time_rate() {
    let limit = |name: &str, burst| {
        format!(
            "{{ name: {name}, match: {{ header.x-api-key: {{ glob: \"{name}-*\" }} }}, key: header.x-api-key, rate: 1/h, burst: {burst}, wait: 1000h }}"
        )
    };
    let text = format!("limits: [{}, {}]", limit("two", 2), limit("four", 4));
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let (one, other) = (
        start_server(&redis.url(), &text).await,
        start_server(&redis.url(), &text).await,
    );
    let mut background = JoinSet::new();
    for server in [&one, &other] {
        let service = Arc::clone(server.app.service());
        background.spawn(Arc::new(FleetMaintenance::new(service)).run());
    }
    let (one, other) = (one.app.service(), other.app.service());

    // TestCancelLast: all of the last place comes back.
    let last = Client("two-last");
    reserve(one, &last, 2, 0).await;
    let place = reserve(one, &last, 2, 2).await;
    leave(one, place);
    until_told(other, &last, 2, 2).await;

    // TestCancel1Token: one of two units, because one stands behind. It was asked of another server.
    let one_token = Client("two-one-token");
    reserve(one, &one_token, 2, 0).await;
    let place = reserve(one, &one_token, 2, 2).await;
    let behind = reserve(other, &one_token, 1, 3).await;
    leave(one, place);
    until_told(other, &one_token, 2, 4).await;
    drop(behind);

    // TestCancel0Tokens: as much stands behind it as it is worth. The place of the last one comes back afterwards, and no more.
    let nothing = Client("two-nothing");
    reserve(one, &nothing, 2, 0).await;
    let place = reserve(one, &nothing, 1, 1).await;
    let behind = reserve(other, &nothing, 1, 2).await;
    let end = reserve(one, &nothing, 1, 3).await;
    leave(one, place);
    leave(one, end);
    until_told(other, &nothing, 1, 3).await;
    drop(behind);

    // TestCancelMulti: the last one leaves, then the first, which gives back two of three.
    let multi = Client("four-multi");
    reserve(one, &multi, 4, 0).await;
    let first = reserve(one, &multi, 3, 3).await;
    let second = reserve(other, &multi, 1, 4).await;
    let third = reserve(other, &multi, 1, 5).await;
    leave(other, third);
    until_told(one, &multi, 1, 5).await;
    leave(one, first);
    until_told(other, &multi, 3, 5).await;
    // The queue was shortened. Until what was promised has passed, only its end comes back.
    let fourth = reserve(other, &multi, 3, 5).await;
    let behind = reserve(one, &multi, 1, 6).await;
    leave(other, fourth);
    let end = reserve(one, &multi, 1, 7).await;
    leave(one, end);
    until_told(other, &multi, 1, 7).await;
    drop((second, behind));
}
