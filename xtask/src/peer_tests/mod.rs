//! `cargo xtask test --peers`: the real server beside programs that people put around it: gateways, clients, fuzzers.
//!
//! Its tests are those in modules called `with_peers`. They are compiled with all others, but need downloads and run for
//! minutes, so `cargo xtask test` leaves them out and says how many. Must not know: what they test.

mod install;
pub(crate) mod previous_version;
mod table;

use crate::process::{capture, cargo, run};
use crate::required_programs;
use crate::steps::Step;
use crate::workspace::Workspace;

/// Part of the name of every such test, and of no other.
pub(crate) const MODULE: &str = "with_peers::";

/// The test binary that has them.
const BINARY: [&str; 5] = ["test", "--package", "tollgate-cli", "--test", "cli"];

/// Installs the peers and runs the tests beside them.
pub(crate) fn steps() -> Result<Vec<Step>, String> {
    let target = Workspace::load()?.target;
    Ok(vec![
        Step::new("needed programs", || {
            required_programs::ensure(table::REQUIRED_PROGRAMS)
        }),
        Step::new("peers", move || install::ensure(table::PEERS, &target)),
        Step::new("previous version", || {
            previous_version::ensure(&Workspace::load()?)
        }),
        Step::new("tests beside peers", || {
            let count = count()?;
            println!("{count} tests");
            run(cargo().args(BINARY).args(["--", MODULE]))
        }),
    ])
}

/// Says how many tests a run without peers leaves out, so that nobody takes them for passed.
pub(crate) fn left_out() -> Step {
    Step::new("tests left out", || {
        let count = count()?;
        println!(
            "{count} tests beside real peers were not run; `cargo xtask test --peers` runs them"
        );
        Ok(())
    })
}

fn count() -> Result<usize, String> {
    let (listed, _) = capture(cargo().args(BINARY).args(["--quiet", "--", "--list"]))?;
    match in_list(&listed) {
        0 => Err(format!("there is no test in a module `{MODULE}`")),
        count => Ok(count),
    }
}

/// How many of the tests in a list of libtest's are ours.
fn in_list(listed: &str) -> usize {
    let is_ours = |line: &&str| line.contains(MODULE) && line.ends_with(": test");
    listed.lines().filter(is_ours).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_beside_peers_are_counted() {
        let listed = "serve::it_stops: test\nwith_peers::caddy::it_asks: test\n\
                      with_peers::k6::it_counts: test\nwith_peers::k6::speed: benchmark\n\n3 tests, 1 benchmark\n";
        assert_eq!(in_list(listed), 2);
        assert_eq!(in_list(""), 0);
    }

    /// A filter by part of a name must not reach further than it should.
    #[test]
    fn this_module_is_not_called_by_the_name_of_those_tests() {
        let here = module_path!();
        assert!(!format!("{here}::").contains(MODULE), "{here}");
    }
}
