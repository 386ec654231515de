//! One limit for many processes, with the state in Redis or Valkey.
//!
//! Run `cargo run --example redis --features redis -- redis://127.0.0.1:6379` in two terminals: together they get ten.

use std::error::Error;
use std::time::Duration;

use tollgate::redis::{KeyHashSecret, Redis, RedisOptions};
use tollgate::{ConcurrencyLimiter, Limiter, Rate};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let Some(address) = address.or_else(|| std::env::var("REDIS_URL").ok()) else {
        println!("This example needs a server. Start one and say where it is:");
        println!("  redis-server --port 6379 --save ''");
        println!("  cargo run --example redis --features redis -- redis://127.0.0.1:6379");
        return Ok(());
    };

    // In production draw the secret at random once and use the same in every process. It hashes the Redis keys.
    let mut options = RedisOptions::new(address, KeyHashSecret::new(*b"only an example!"));
    // A decision takes a fraction of a millisecond. The deadline bounds the wait for a slow server.
    options.deadline = Duration::from_millis(250);
    let redis = Redis::connect(options).await?;
    if !redis.is_connected() {
        // Does not print the address, which may contain a password.
        return Err(
            "no server answers at this address: is `redis-server` running, and is the port right?"
                .into(),
        );
    }

    // Built as in memory, plus `with_redis`. Other processes find the same state by the name of the limit.
    let limiter = Limiter::builder()
        .limit("example-per-minute", Rate::per_minute(10))
        .limit("example-per-day", Rate::per_day(10_000))
        .with_redis(&redis)
        .build()?;
    for call in 1..=12 {
        match limiter.check("user:42").await {
            Ok(()) => println!("call {call}: go ahead"),
            Err(tollgate::Error::Denied(denial)) => println!("call {call}: {denial}"),
            // Not a denial. The program decides whether to continue without the limiter.
            Err(error) if error.may_have_charged() => println!("call {call}: perhaps: {error}"),
            Err(error) => println!("call {call}: not decided: {error}"),
        }
    }

    // Redis stores the reservation: after a crash another process could settle it by key and id.
    let tokens = Limiter::per_minute(10_000).name("example-tokens");
    let tokens = tokens.with_redis(&redis).build()?;
    let reserved = tokens.reserve("team-7", 1_000).await?;
    let (id, closing) = (reserved.id(), reserved.settle(400).await?);
    println!("reservation {:032x}: {closing:?}", id.0);
    println!("again: {:?}", tokens.settle("team-7", id, 400).await?);

    let gate = ConcurrencyLimiter::builder(2)
        .lease(Duration::from_secs(30))
        .with_redis(&redis);
    let gate = gate.build()?;
    let permit = gate.acquire("report").await?;
    println!(
        "inside, with room for {} more",
        gate.available_permits("report").await?
    );
    permit.release().await?;
    Ok(())
}
