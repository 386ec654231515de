//! What the types promise, checked by the compiler.

use tollgate::{Allowed, Error, Gate, InvalidLimiter, Limiter, Permit, Reservation};

const fn is_shared<T: Send + Sync + 'static>() {}
const fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
fn is_sent<T: Send>(_: &T) {}

#[test]
fn everything_can_be_shared_and_sent() {
    is_shared::<Limiter>();
    is_shared::<Gate>();
    is_shared::<Permit>();
    is_shared::<Reservation>();
    is_shared::<Allowed>();
    is_error::<Error>();
    is_error::<InvalidLimiter>();
    let limiter = Limiter::per_second(1).build().unwrap();
    is_sent(&limiter.until_ready("a"));
    let key = String::from("a");
    is_sent(&limiter.until_ready(&key));
}

#[test]
fn an_error_is_small_enough_to_be_passed_around() {
    assert!(size_of::<Error>() <= 96, "{} bytes", size_of::<Error>());
}

#[test]
fn the_simple_case_shows_no_type_parameter() {
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
