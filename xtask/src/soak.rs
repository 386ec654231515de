//! `cargo xtask soak --minutes N`: clients of all kinds on the gateway for a while; its memory must not grow, and its open files
//! must be as before.
//!
//! The soak is a test of the cli crate, which CI runs for a short time. Must not know: what the clients do.

use crate::process::{cargo, run as run_process};

/// What the test reads; `crates/cli/tests/cli/soak.rs` has the same name.
const SECONDS: &str = "TOLLGATE_SOAK_SECONDS";
const TEST: &str = "soak::the_gateway_keeps_its_memory_and_its_files";
const MAX_MINUTES: u64 = 24 * 60;

/// The command `soak`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let minutes = minutes(args)?;
    let mut command = cargo();
    command.args([
        "test",
        "--release",
        "--package",
        "tollgate-cli",
        "--test",
        "cli",
    ]);
    command.args(["--", "--exact", TEST, "--nocapture"]);
    run_process(command.env(SECONDS, (minutes * 60).to_string()))
}

fn minutes(args: &[String]) -> Result<u64, String> {
    match args {
        [flag, number] if flag == "--minutes" => match number.parse() {
            Ok(minutes @ 1..=MAX_MINUTES) => Ok(minutes),
            _ => Err(format!(
                "`soak --minutes` is a number from 1 to {MAX_MINUTES}, not `{number}`"
            )),
        },
        _ => Err("`soak` needs `--minutes N`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_a_number_of_minutes() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        assert_eq!(minutes(&words("--minutes 10")), Ok(10));
        for wrong in [
            "",
            "--minutes",
            "--minutes 0",
            "--minutes soon",
            "--hours 1",
            "--minutes 9999",
        ] {
            assert!(minutes(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
