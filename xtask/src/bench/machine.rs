//! On which machine, when, and with which versions a run was made.
//!
//! Must not know: what was measured.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::run_record::RunRecord;
use super::servers;
use super::studies::Results;
use crate::process;
use crate::workspace::Workspace;

/// One paragraph for the top of a page.
pub(super) fn description(
    workspace: &Workspace,
    is_quick: bool,
    results: &Results,
) -> Result<String, String> {
    let first_line = |program: &str, args: &[&str]| {
        let output = process::capture(Command::new(program).args(args));
        let text = output.map_or_else(
            |_| "of unknown version".to_owned(),
            // nginx tells its version on standard error.
            |(out, err)| if out.trim().is_empty() { err } else { out },
        );
        text.lines().next().unwrap_or_default().trim().to_owned()
    };
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
    let haproxy = first_line("haproxy", &["-v"]);
    let haproxy = haproxy
        .split([' ', '-'])
        .nth(2)
        .unwrap_or("of unknown version");
    let crates = crate_versions(&workspace.root.join("bench"))?;
    let versions = format!(
        "{rust}, redis-server {}, nginx {nginx}, HAProxy {haproxy}, Envoy 1.40, {} {}, {crates}",
        redis.unwrap_or("?"),
        servers::PEER,
        servers::PEER_VERSION
    );
    let records = results.studies.iter().map(|study| &study.record);
    let runs = runs(&records.collect::<Vec<_>>());
    let missing = match results.missing.as_slice() {
        [] => String::new(),
        names => format!(" Not measured: {}.", names.join(", ")),
    };
    Ok(format!(
        "{runs} {cores} cores of {model}, {memory} GB, Linux {kernel}; {versions}.{length}{missing}\n"
    ))
}

/// Peers and floors that are crates, and the package of `bench` that depends on them.
const CRATES: [(&str, &str); 6] = [
    ("governor", "peers"),
    ("pingora-limits", "peers"),
    ("pingora-proxy", "pingora"),
    ("tower_governor", "tower"),
    ("tonic", "servers"),
    ("hyper", "servers"),
];

/// The versions of crates that the lock files of `bench` name.
fn crate_versions(bench: &Path) -> Result<String, String> {
    let versions = CRATES.iter().map(|(name, package)| {
        let path = bench.join(package).join("Cargo.lock");
        let text = read(&path)?;
        let version = locked_version(&text, name);
        let version = version.ok_or_else(|| format!("{} has no {name}", path.display()))?;
        Ok(format!("{name} {version}"))
    });
    Ok(versions
        .collect::<Result<Vec<String>, String>>()?
        .join(", "))
}

/// The version of a crate in a lock file.
fn locked_version<'a>(lock_file: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("name = \"{name}\"\nversion = \"");
    let (_, rest) = lock_file.split_once(&start)?;
    rest.split('"').next()
}

/// When, at which commits and for how long studies ran.
fn runs(records: &[&RunRecord]) -> String {
    let listed = |field: fn(&RunRecord) -> &str| {
        let all: BTreeSet<&str> = records.iter().map(|record| field(record)).collect();
        all.into_iter().collect::<Vec<_>>().join(", ")
    };
    let (dates, commits) = (listed(|run| &run.date), listed(|run| &run.commit));
    let seconds: u64 = records.iter().map(|record| record.seconds).sum();
    let minutes = seconds.div_ceil(60);
    format!("Measured on {dates} at commit {commits} in {minutes} minutes, without building.")
}

fn processor() -> Result<String, String> {
    let text = read(Path::new("/proc/cpuinfo"))?;
    let model = text.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": "));
    Ok(model
        .map_or("an unknown processor", |(_, name)| name)
        .to_owned())
}

fn memory() -> Result<u64, String> {
    let text = read(Path::new("/proc/meminfo"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kilobytes = kilobytes.and_then(|number| number.trim().parse::<u64>().ok());
    Ok(kilobytes.unwrap_or(0) / 1_000_000)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_version_is_that_of_the_whole_name() {
        let text = "name = \"tower_governor\"\nversion = \"0.8.0\"\n\nname = \"governor\"\nversion = \"0.10.4\"\n";
        assert_eq!(locked_version(text, "governor"), Some("0.10.4"));
        assert_eq!(locked_version(text, "hyper"), None);
    }

    #[test]
    fn studies_of_several_runs_name_each_commit_once() {
        let parse = |text| RunRecord::parse(text).unwrap();
        let records = [
            parse("2026-11-18 aaaa 70"),
            parse("2026-11-17 bbbb 40"),
            parse("2026-11-18 aaaa 40"),
        ];
        assert_eq!(
            runs(&records.iter().collect::<Vec<_>>()),
            "Measured on 2026-11-17, 2026-11-18 at commit aaaa, bbbb in 3 minutes, without building."
        );
    }
}
