//! On which machine, when, and with which versions a run was made.
//!
//! Must not know: what was measured.

use std::process::Command;
use std::time::Duration;

use super::servers;
use crate::process;

/// One paragraph for the top of a page.
pub(super) fn description(is_quick: bool, took: Duration) -> Result<String, String> {
    let first_line = |program: &str, args: &[&str]| {
        let output = process::capture(Command::new(program).args(args));
        let text = output.map_or_else(
            |_| "of unknown version".to_owned(),
            // nginx tells its version on standard error.
            |(out, err)| if out.trim().is_empty() { err } else { out },
        );
        text.lines().next().unwrap_or_default().trim().to_owned()
    };
    let date = first_line("date", &["-u", "+%Y-%m-%d"]);
    let commit = first_line("git", &["rev-parse", "--short", "HEAD"]);
    // Without the name of its build.
    let kernel = first_line("uname", &["-r"]);
    let kernel: Vec<&str> = kernel.split('.').take(2).collect();
    let kernel = kernel.join(".");
    let rust = first_line("rustc", &["--version"]);
    let redis = first_line("redis-server", &["--version"]);
    let redis = redis.split(' ').find_map(|word| word.strip_prefix("v="));
    let nginx = first_line("nginx", &["-v"]);
    let nginx = nginx.rsplit('/').next().unwrap_or_default().to_owned();
    let cores = std::thread::available_parallelism().map_err(|error| error.to_string())?;
    let (model, memory) = (processor()?, memory()?);
    let length = if is_quick {
        " A quick run: it shows that everything works, and its numbers mean little."
    } else {
        ""
    };
    let versions = format!(
        "{rust}, redis-server {}, nginx {nginx}, Envoy 1.40, {} {}",
        redis.unwrap_or("?"),
        servers::PEER,
        servers::PEER_VERSION
    );
    let minutes = took.as_secs().div_ceil(60);
    Ok(format!(
        "Measured on {date} at commit {commit}: {cores} cores of {model}, {memory} GB, Linux {kernel}; {versions}. The run took {minutes} minutes, building included.{length}\n"
    ))
}

fn processor() -> Result<String, String> {
    let text = read("/proc/cpuinfo")?;
    let model = text.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": "));
    Ok(model
        .map_or("an unknown processor", |(_, name)| name)
        .to_owned())
}

fn memory() -> Result<u64, String> {
    let text = read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kilobytes = kilobytes.and_then(|number| number.trim().parse::<u64>().ok());
    Ok(kilobytes.unwrap_or(0) / 1_000_000)
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}
