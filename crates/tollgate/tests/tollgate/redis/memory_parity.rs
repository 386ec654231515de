//! The same sequence of calls returns the same results in memory and over Redis.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    Admission, Calendar, Clock as _, Error, FixedWindow, Limiter, LimiterBuilder, Limits,
    ManualClock, Nanos, Rate, SlidingLog, SystemClock, TokenBucket, UtcOffset, Window,
};

use super::server;
use crate::denied;

const MONTH: Window = Window::Calendar(Calendar::Month, UtcOffset::UTC);

fn limits() -> LimiterBuilder<Limits> {
    let bucket = TokenBucket::builder(Rate::per_day(50))
        .burst(40)
        .overdraft(10);
    Limiter::builder()
        .limit("bucket", bucket)
        .limit("log", SlidingLog::builder(60, Nanos::DAY))
        .limit("month", FixedWindow::builder(90, MONTH))
}

/// A result without times as text, and its retry time.
fn words(answer: Result<Admission, Error>) -> (String, Option<Duration>) {
    match answer {
        Ok(admission) => {
            let limits = admission.limits();
            let left: Vec<_> = limits.map(|s| (s.name, s.limit, s.remaining)).collect();
            (format!("{} for {left:?}", admission.cost()), None)
        }
        Err(Error::Denied(no)) => {
            let time = no.retry_after();
            let never = no.is_never().then(|| no.to_string());
            let (limit, cost, most) = (no.limit(), no.cost(), no.max_cost());
            let text = format!("{limit}: {cost} of {most}, {} {never:?}", no.remaining());
            (text, time)
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_sequence_of_calls_returns_the_same_in_memory_and_over_redis() {
    let (_server, redis) = server().await;
    let real = SystemClock::new();
    let start = real.now();
    // The clock in memory stands still and that of Redis does not, so retry times are slightly shorter over Redis.
    let memory = limits().clock(ManualClock::at(start)).build().unwrap();
    let remote = limits().with_redis(&redis).build().unwrap();
    let mut random = 1_u64;
    let mut denials = 0;
    for step in 0..300_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
        let (verb, cost) = ((random >> 60) % 5, (random >> 40) % 9);
        let cost = if step % 40 == 39 { 1_000 } else { cost };
        let key = format!("{}", step / 60);
        let (here, there) = match verb {
            0 => (memory.spend(&key, cost), remote.spend(&key, cost).await),
            1 => (memory.peek_n(&key, cost), remote.peek_n(&key, cost).await),
            2 => (
                memory.take_up_to(&key, cost),
                remote.take_up_to(&key, cost).await,
            ),
            3 => (memory.charge(&key, cost), remote.charge(&key, cost).await),
            _ => {
                let (here, there) = (memory.check_n(&key, cost), remote.check_n(&key, cost).await);
                assert_eq!(here.is_ok(), there.is_ok(), "step {step}");
                (memory.peek(&key), remote.peek(&key).await)
            }
        };
        let ((here, soon), (there, sooner)) = (words(here), words(there));
        assert_eq!(here, there, "step {step}: verb {verb}, cost {cost}");
        let (soon, sooner) = (soon.unwrap_or_default(), sooner.unwrap_or_default());
        denials += u32::from(!soon.is_zero());
        let slack = Duration::from(real.now().since(start)) + Duration::from_millis(1);
        assert!(
            soon.abs_diff(sooner) <= slack,
            "step {step}: {soon:?} {sooner:?}"
        );
    }
    assert!(denials > 30, "{denials} denials that say when");
}

#[tokio::test]
async fn a_denial_at_the_same_instant_is_the_same_denial() {
    let (_server, redis) = server().await;
    let month = || Limiter::builder().limit("month", FixedWindow::builder(3, MONTH));
    let clock = Arc::new(ManualClock::at(SystemClock::new().now()));
    let memory = month().clock(Arc::clone(&clock)).build().unwrap();
    let remote = month().with_redis(&redis).build().unwrap();
    memory.check_n("a", 3).unwrap();
    remote.check_n("a", 3).await.unwrap();
    let there = denied(remote.check("a").await);
    // The time until the end of the month tells when Redis decided.
    let here = denied(memory.check("a")).retry_after().unwrap();
    let later = here.saturating_sub(there.retry_after().unwrap());
    clock.advance(later.into());
    let here = denied(memory.check("a"));
    assert_eq!(here, there);
    assert_eq!(here.to_string(), there.to_string());
}
