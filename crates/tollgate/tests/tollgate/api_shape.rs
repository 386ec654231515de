//! Properties of the public types, checked by the compiler.

use tollgate::{
    Admission, ConcurrencyLimiter, Error, InvalidLimiter, Limiter, Permit, Reservation,
};

const fn is_shared<T: Send + Sync + 'static>() {}
const fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
fn is_sent<T: Send>(_: &T) {}

#[test]
fn all_types_are_send_and_sync() {
    is_shared::<Limiter>();
    is_shared::<ConcurrencyLimiter>();
    is_shared::<Permit>();
    is_shared::<Reservation>();
    is_shared::<Admission>();
    is_error::<Error>();
    is_error::<InvalidLimiter>();
    let limiter = Limiter::per_second(1).build().unwrap();
    is_sent(&limiter.until_ready("a"));
    let key = String::from("a");
    is_sent(&limiter.until_ready(&key));
}

#[tokio::test]
async fn redis_types_are_sync_and_their_futures_are_send() {
    use tollgate::redis;

    is_shared::<redis::Redis>();
    is_shared::<redis::Limiter>();
    is_shared::<redis::ConcurrencyLimiter>();
    is_shared::<redis::Permit>();
    is_shared::<redis::Reservation>();
    // No server listens there, and no call is made.
    let options =
        redis::RedisOptions::new("redis://127.0.0.1:1", redis::KeyHashSecret::new([7; 16]));
    let server = redis::Redis::connect(options).await.unwrap();
    let limiter = Limiter::per_second(1).with_redis(&server).build().unwrap();
    let gate = ConcurrencyLimiter::builder(1).lease(std::time::Duration::from_secs(1));
    let gate = gate.with_redis(&server).build().unwrap();
    let key = String::from("a");
    is_sent(&limiter.check(&key));
    is_sent(&limiter.take_up_to("a", 1));
    is_sent(&limiter.until_ready(key.clone()));
    is_sent(&limiter.reserve("a", 1));
    is_sent(&redis::check_all(&[limiter.for_key("a")]));
    is_sent(&gate.acquire("a"));
}

#[test]
fn an_error_is_small_enough_to_be_passed_around() {
    assert!(size_of::<Error>() <= 96, "{} bytes", size_of::<Error>());
}

#[test]
fn the_simple_case_needs_no_type_parameter() {
    struct Service {
        limiter: Limiter,
    }
    fn build() -> Result<Service, InvalidLimiter> {
        let limiter = Limiter::per_second(10).burst(20).build()?;
        Ok(Service { limiter })
    }
    fn handle(service: &Service) -> Result<(), Box<dyn std::error::Error>> {
        service.limiter.check("user:42")?;
        Ok(())
    }
    handle(&build().unwrap()).unwrap();
}
