//! One limit: one line to build it, one line to check it.

use tollgate::{Error, Limiter};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A burst of 20, then 10 per second, for each user.
    let limiter = Limiter::per_second(10).burst(20).build()?;

    let mut admitted = 0;
    let denial = loop {
        match limiter.check("user:42") {
            Ok(()) => admitted += 1,
            Err(Error::Denied(denial)) => break denial,
            Err(error) => return Err(error.into()),
        }
    };
    println!("{admitted} admitted, then: {denial}");
    assert!(admitted >= 20);

    limiter.check("user:43")?;
    println!("another user is not concerned");
    Ok(())
}
