//! A budget of language model tokens: reserve an estimate, settle the actual cost.

use tollgate::{Error, Limiter, Reservation};

/// Simulates the model: returns the number of used tokens, or fails.
fn ask_model(prompt: &str) -> Result<u64, String> {
    match prompt {
        "fail" => Err("the model is down".to_owned()),
        prompt => Ok(100 * u64::try_from(prompt.len()).unwrap_or(u64::MAX)),
    }
}

fn answer_prompt(
    budget: &Limiter,
    team: &str,
    prompt: &str,
) -> Result<u64, Box<dyn std::error::Error>> {
    let reserved: Reservation = budget.reserve(team, 4_000)?;
    match ask_model(prompt) {
        Ok(used) => {
            // A lower cost is refunded, a higher one is charged. After a panic the estimate would stay charged.
            reserved.settle(used)?;
            Ok(used)
        }
        Err(error) => {
            reserved.cancel()?;
            Err(error.into())
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let budget = Limiter::per_minute(10_000)
        .name("tokens")
        .overdraft(2_000)
        .build()?;
    let left = || {
        budget
            .peek("team-7")
            .map(|peeked| peeked.tightest().remaining)
    };

    for prompt in ["hello", "fail", "a longer question, with its context"] {
        match answer_prompt(&budget, "team-7", prompt) {
            Ok(used) => println!("{used} tokens used, {} left", left()?),
            Err(error) => println!("{error}, {} left", left()?),
        }
    }
    // The remaining budget has room for one more call of up to 4,000 tokens, not for two.
    let first = budget.reserve("team-7", 4_000)?;
    match budget.reserve("team-7", 4_000) {
        Err(Error::Denied(denial)) => println!("{denial}"),
        other => return Err(format!("expected a denial, and got {other:?}").into()),
    }
    first.cancel()?;
    Ok(())
}
