//! Which crate may depend on which: the table, and the check that holds the workspace to it.
//!
//! The table is the design; `docs/adr/0004-point-dependencies-one-way-and-enforce-it-with-a-check.md` says why. Knows names and arrows, no code.

use crate::process;
use crate::workspace::{Dependency, Kind, Package, Workspace};

/// Every integration test binary is linked anew on each change; more of them make the whole slow.
const MOST_TEST_BINARIES: usize = 6;

/// Where test helpers live. Any crate's tests may use them, no crate's code may.
const TESTKIT: &str = "testkit";

/// What a crate may depend on.
#[derive(Clone, Copy)]
enum Allowed {
    /// No dependency at all, ours or anyone's.
    Nothing,
    /// Published crates, and these folders of ours.
    Only(&'static [&'static str]),
    /// Published crates and any folder of ours.
    Anything,
}

/// One crate: its folder, the arrows that may leave it, and why these.
struct Row {
    folder: &'static str,
    allowed: Allowed,
    reason: &'static str,
}

const fn row(folder: &'static str, allowed: Allowed, reason: &'static str) -> Row {
    Row {
        folder,
        allowed,
        reason,
    }
}

use Allowed::{Anything, Nothing, Only};

/// The layers, lowest first. A new crate gets a row here before it gets a dependency.
const TABLE: &[Row] = &[
    row(
        "crates/core",
        Nothing,
        "pure arithmetic that anyone can embed and anyone can check",
    ),
    row(
        "crates/files",
        Only(&[]),
        "files that are read and replaced while a server runs, whatever they contain",
    ),
    row(
        "crates/overload",
        Only(&["crates/core"]),
        "overload control as state machines; it knows no requests, clocks or locks",
    ),
    row(
        "crates/store",
        Only(&["crates/core", "crates/files"]),
        "keeps the states of core and never sees a rule or a header",
    ),
    row(
        "crates/redis",
        Only(&["crates/core", "crates/files", "crates/store"]),
        "the store contract on another machine",
    ),
    row(
        "crates/policy",
        Only(&["crates/core", "crates/files"]),
        "a file becomes rules without knowing where state is kept",
    ),
    row(
        "crates/engine",
        Only(&["crates/core", "crates/policy", "crates/store"]),
        "rules and a store become a verdict; transports come later",
    ),
    row(
        "crates/fleet",
        Only(&[
            "crates/engine",
            "crates/policy",
            "crates/store",
            "crates/core",
        ]),
        "one quota for many nodes, whichever store they share",
    ),
    row(
        "crates/http",
        Only(&["crates/core"]),
        "words for a verdict; a header never reaches a store",
    ),
    row(
        "crates/service",
        Only(&[
            "crates/engine",
            "crates/fleet",
            "crates/http",
            "crates/overload",
            "crates/policy",
            "crates/store",
            "crates/files",
            "crates/core",
        ]),
        "what every transport needs: decisions, header fields, tickets, metrics, reloads; no socket and no Redis",
    ),
    row(
        "crates/tower",
        Only(&["crates/service"]),
        "a transport needs one crate: the service",
    ),
    row(
        "crates/client",
        Only(&[
            "crates/core",
            "crates/overload",
            "crates/store",
            "crates/http",
        ]),
        "reads header fields and paces itself, without an engine",
    ),
    row(
        "crates/envoy",
        Only(&[
            "crates/service",
            "crates/fleet",
            "crates/engine",
            "crates/http",
            "crates/policy",
            "crates/store",
            "crates/core",
        ]),
        "what Envoy asks, over the service; its files and their counting know no transport",
    ),
    row(
        "crates/server",
        Only(&[
            "crates/service",
            "crates/envoy",
            "crates/fleet",
            "crates/engine",
            "crates/http",
            "crates/tower",
            "crates/redis",
            "crates/overload",
            "crates/policy",
            "crates/store",
            "crates/files",
            "crates/core",
        ]),
        "listeners over the service; what is below it only to name what the service is made of and says",
    ),
    row(
        "crates/sim",
        Only(&[
            "crates/core",
            "crates/store",
            "crates/policy",
            "crates/engine",
            "crates/fleet",
            "crates/http",
            "crates/service",
        ]),
        "the same decisions under simulated time, without a network",
    ),
    row(
        "crates/tollgate",
        Only(&[
            "crates/core",
            "crates/files",
            "crates/store",
            "crates/engine",
            "crates/redis",
            "crates/fleet",
            "crates/http",
            "crates/service",
            "crates/tower",
            "crates/client",
        ]),
        "the facade that people add to their Cargo.toml; never the server",
    ),
    row(
        "crates/cli",
        Anything,
        "the program: it wires everything together",
    ),
    row(TESTKIT, Anything, "helpers for tests only"),
    row("bench", Anything, "measures whatever there is"),
    row("fuzz", Anything, "feeds whatever there is"),
    row(
        "xtask",
        Anything,
        "developer commands; nothing depends on it",
    ),
];

/// The command `check-layers`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    process::no_arguments("check-layers", args)?;
    check_workspace()
}

/// Checks this workspace and prints what was looked at, so that an empty check does not look like a passed one.
pub(crate) fn check_workspace() -> Result<(), String> {
    let workspace = Workspace::load()?;
    let errors = check(&workspace.packages);
    if !errors.is_empty() {
        return Err(format!("the layers are broken:\n  {}", errors.join("\n  ")));
    }
    let count = |f: fn(&Package) -> usize| workspace.packages.iter().map(f).sum::<usize>();
    println!(
        "crates: {}, dependencies between them: {}, integration test binaries: {}; all as the table allows",
        workspace.packages.len(),
        count(|package| package.dependencies.iter().filter(|d| d.is_local).count()),
        count(|package| package.test_binaries.len()),
    );
    Ok(())
}

/// Everything that is wrong with these packages, each in one sentence.
fn check(packages: &[Package]) -> Vec<String> {
    let mut errors = Vec::new();
    for package in packages {
        match TABLE.iter().find(|row| row.folder == package.folder) {
            Some(row) => errors.extend(check_package(package, row, packages)),
            None => errors.push(format!(
                "{} ({}) has no row in xtask/src/layers.rs: add one that says what it may depend on and why",
                package.name, package.folder
            )),
        }
    }
    errors.extend(check_test_binaries(packages));
    errors
}

fn check_package(package: &Package, row: &Row, packages: &[Package]) -> Vec<String> {
    package
        .dependencies
        .iter()
        .filter_map(|dependency| {
            let folder = packages
                .iter()
                .find(|known| known.name == dependency.name)
                .map(|known| known.folder.as_str());
            if is_allowed(row, dependency, folder) {
                return None;
            }
            let section = match dependency.kind {
                Kind::Normal => "[dependencies]",
                Kind::Build => "[build-dependencies]",
                Kind::Dev => "[dev-dependencies]",
            };
            Some(format!(
                "{} must not depend on {} ({section}): it may use {} ({})",
                package.name,
                dependency.name,
                spell(row.allowed),
                row.reason
            ))
        })
        .collect()
}

/// `folder` is where the dependency lives in this workspace, if it does.
fn is_allowed(row: &Row, dependency: &Dependency, folder: Option<&str>) -> bool {
    let is_dev = dependency.kind == Kind::Dev;
    let is_ours = dependency.is_local || folder.is_some();
    if is_dev && folder == Some(TESTKIT) {
        return true;
    }
    // A crate that names itself in its tests switches its own features on for them; no arrow leaves it.
    if is_dev && folder == Some(row.folder) {
        return true;
    }
    match row.allowed {
        Anything => true,
        // A published crate in tests reaches nobody who embeds this one.
        Nothing => is_dev && !is_ours,
        Only(folders) => !is_ours || folder.is_some_and(|folder| folders.contains(&folder)),
    }
}

fn check_test_binaries(packages: &[Package]) -> Option<String> {
    let binaries: Vec<String> = packages
        .iter()
        .flat_map(|package| {
            package
                .test_binaries
                .iter()
                .map(|binary| format!("{}/tests/{binary}", package.folder))
        })
        .collect();
    (binaries.len() > MOST_TEST_BINARIES).then(|| {
        format!(
            "{} integration test binaries, but at most {MOST_TEST_BINARIES} are allowed: make one a module of another ({})",
            binaries.len(),
            binaries.join(", ")
        )
    })
}

fn spell(allowed: Allowed) -> String {
    match allowed {
        Nothing => "nothing at all".to_owned(),
        Only(folders) => folders.join(", "),
        Anything => "anything".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, dependencies: &[(&str, Kind, bool)]) -> Package {
        Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            dependencies: dependencies
                .iter()
                .map(|&(name, kind, is_local)| Dependency {
                    name: name.to_owned(),
                    kind,
                    is_local,
                })
                .collect(),
            test_binaries: Vec::new(),
        }
    }

    fn core(dependencies: &[(&str, Kind, bool)]) -> Package {
        package("tollgate-core", "crates/core", dependencies)
    }

    fn store(dependencies: &[(&str, Kind, bool)]) -> Package {
        package("tollgate-store", "crates/store", dependencies)
    }

    fn testkit() -> Package {
        package(
            "tollgate-testkit",
            TESTKIT,
            &[("tollgate-store", Kind::Normal, true)],
        )
    }

    fn only_error(packages: &[Package]) -> String {
        let errors = check(packages);
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors.concat()
    }

    #[test]
    fn the_designed_arrows_pass() {
        let packages = [
            core(&[
                ("proptest", Kind::Dev, false),
                ("tollgate-testkit", Kind::Dev, true),
            ]),
            store(&[
                ("tollgate-core", Kind::Normal, true),
                ("hashbrown", Kind::Normal, false),
            ]),
            testkit(),
        ];
        assert_eq!(check(&packages), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_upwards_is_caught_and_named() {
        let http = package(
            "tollgate-http",
            "crates/http",
            &[("tollgate-store", Kind::Normal, true)],
        );
        let error = only_error(&[store(&[]), http]);
        assert!(
            error.contains("tollgate-http must not depend on tollgate-store"),
            "{error}"
        );
        assert!(error.contains("it may use crates/core"), "{error}");
    }

    #[test]
    fn build_and_dev_dependencies_are_held_to_the_table_too() {
        for kind in [Kind::Build, Kind::Dev] {
            let http = package(
                "tollgate-http",
                "crates/http",
                &[("tollgate-store", kind, true)],
            );
            only_error(&[store(&[]), http]);
        }
    }

    #[test]
    fn core_takes_no_published_crate_except_in_its_tests() {
        only_error(&[core(&[("libm", Kind::Normal, false)])]);
        only_error(&[core(&[("cc", Kind::Build, false)])]);
    }

    #[test]
    fn the_testkit_stays_out_of_products() {
        let error = only_error(&[
            store(&[("tollgate-testkit", Kind::Normal, true)]),
            testkit(),
        ]);
        assert!(error.contains("tollgate-testkit"), "{error}");
    }

    #[test]
    fn a_crate_may_name_itself_in_its_tests_and_only_there() {
        let itself = |kind| store(&[("tollgate-store", kind, true)]);
        assert_eq!(check(&[itself(Kind::Dev)]), Vec::<String>::new());
        only_error(&[itself(Kind::Normal)]);
    }

    #[test]
    fn a_folder_outside_the_workspace_is_not_a_published_crate() {
        only_error(&[store(&[("somebody-elses", Kind::Normal, true)])]);
    }

    #[test]
    fn a_crate_without_a_row_is_caught_and_told_what_to_do() {
        let error = only_error(&[package("tollgate-new", "crates/new", &[])]);
        assert!(
            error.contains("tollgate-new") && error.contains("add one"),
            "{error}"
        );
    }

    #[test]
    fn six_test_binaries_pass_and_the_seventh_is_caught() {
        let with = |count: usize| {
            let mut package = core(&[]);
            package.test_binaries = (0..count).map(|n| format!("t{n}")).collect();
            [package]
        };
        assert_eq!(check(&with(6)), Vec::<String>::new());
        assert!(only_error(&with(7)).starts_with("7 integration test binaries"));
    }

    #[test]
    fn every_row_names_rows_that_exist_further_up() {
        for (index, row) in TABLE.iter().enumerate() {
            assert!(!row.reason.is_empty(), "{}", row.folder);
            let Only(folders) = row.allowed else { continue };
            for folder in folders {
                let above = TABLE
                    .iter()
                    .take(index)
                    .any(|earlier| earlier.folder == *folder);
                assert!(
                    above,
                    "{} may use {folder}, which is not a lower layer",
                    row.folder
                );
            }
        }
    }
}
