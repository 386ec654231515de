//! A worker that waits for the limiter, up to a maximum.

use std::time::Duration;

use tollgate::{Error, Limiter};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // One job every 20 ms. Jitter prevents that many workers call at the same instant.
    let pace = Limiter::per_second(50)
        .burst(1)
        .jitter(Duration::from_millis(2))
        .build()?;

    for job in 1..=5 {
        let admission = pace.wait("mailer", Duration::from_secs(1))?;
        println!("job {job}, {} left", admission.tightest().remaining);
    }
    // A wait that would exceed the maximum is refused at once.
    match pace.wait("mailer", Duration::from_millis(1)) {
        Err(Error::Denied(denial)) => println!("{denial}"),
        other => println!("the machine was slow: {other:?}"),
    }
    Ok(())
}
