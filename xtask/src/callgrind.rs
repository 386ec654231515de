//! Counting instructions with valgrind's callgrind.
//!
//! Knows how to start it and how to read its total, not what is measured. Instructions and not time: the count is the
//! same on a busy machine.

use std::path::Path;
use std::process::Command;

use crate::process;

/// The function that counting is switched on in. Any function whose name contains this word counts.
const SECTION: &str = "*measured_section*";

/// Instructions per call of one case of `probe`, repeated `times`.
pub(crate) fn instructions_per_call(probe: &Path, case: &str, times: u64) -> Result<f64, String> {
    let (_, log) = process::capture(
        Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(format!("--toggle-collect={SECTION}"))
            .arg(probe)
            .args([case, &times.to_string()]),
    )?;
    per_call(&log, times).map_err(|why| format!("{case}: {why}"))
}

fn per_call(log: &str, times: u64) -> Result<f64, String> {
    let total = log
        .lines()
        .find_map(|line| {
            line.split_once("Collected :")
                .map(|(_, total)| total.trim())
        })
        .ok_or("callgrind printed no total")?;
    let total: u32 = total
        .parse()
        .map_err(|error| format!("callgrind's total `{total}` is no count: {error}"))?;
    let times = u32::try_from(times).map_err(|error| format!("too many repetitions: {error}"))?;
    // One jump a repetition is the least a loop can take. Less means that the section was never entered.
    if total < times || times == 0 {
        return Err(format!(
            "{total} instructions in {times} calls: was {SECTION} renamed or inlined?"
        ));
    }
    Ok(f64::from(total) / f64::from(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_and_divided() {
        let log = "==12== Events    : Ir\n==12== Collected : 230042\n==12==\n";
        assert_eq!(per_call(log, 10_000), Ok(23.0042));
    }

    #[test]
    fn a_section_that_never_ran_is_an_error_and_not_a_fast_decision() {
        assert!(per_call("==12== Collected : 0\n", 10_000).is_err());
        assert!(per_call("==12== Collected : 9\n", 0).is_err());
        assert!(per_call("valgrind: no such tool\n", 10_000).is_err());
        assert!(per_call("==12== Collected : many\n", 10_000).is_err());
    }
}
