//! Runs one case for the instruction counter: `probe CASE TIMES`, or `probe --list` for the names.
//!
//! Started under callgrind by `cargo xtask bench instructions`. Prints nothing of its own while it measures.

use std::process::ExitCode;

use tollgate_bench::cases::CASES;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("probe: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), String> {
    match args {
        [flag] if flag == "--list" => {
            CASES.iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
        [name, times] => {
            let times = times
                .parse()
                .map_err(|error| format!("`{times}` is no count: {error}"))?;
            let (_, case) = CASES
                .iter()
                .find(|(known, _)| known == name)
                .ok_or_else(|| format!("there is no case `{name}`"))?;
            case(times).map_err(|error| error.to_string())
        }
        _ => Err("usage: probe CASE TIMES | probe --list".to_owned()),
    }
}
