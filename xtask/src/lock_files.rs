//! Checks that the lock files of packages outside the workspace fit their dependencies on the workspace.
//!
//! A crate of the workspace that gets a dependency makes these files stale, and no build of the workspace notices it: the benchmarks
//! and the fuzz targets are built with `--locked`, so their commands would fail later. Must not know: what the packages are for.

use std::path::Path;

use crate::extra::BENCHES;
use crate::process::{self, cargo};
use crate::workspace::Workspace;

/// The package of the fuzz targets.
const FUZZ: &str = "fuzz";

/// Checks every lock file outside the workspace.
pub(crate) fn check_workspace() -> Result<(), String> {
    let root = Workspace::load()?.root;
    for package in BENCHES.iter().chain(&[FUZZ]) {
        check(&root.join(package)).map_err(|why| {
            format!("{package}/Cargo.lock: run `cargo metadata` in {package}: {why}")
        })?;
    }
    Ok(())
}

/// Resolves the dependencies of a package without changing its lock file. Builds nothing.
fn check(folder: &Path) -> Result<(), String> {
    let mut command = cargo();
    command
        .args([
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--manifest-path",
        ])
        .arg(folder.join("Cargo.toml"));
    process::capture(&mut command).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// `bench/tower` and `fuzz` could not be built for a day, because the tower layer had lost a dependency and gained one.
    #[test]
    fn a_stale_lock_file_is_found() {
        let folder = std::env::temp_dir().join(format!("tollgate-lock-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let package = |name: &str, rest: &str| {
            format!(
                "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n{rest}\n[workspace]\n"
            )
        };
        write(
            "new/Cargo.toml",
            "[package]\nname = \"new\"\nversion = \"0.0.0\"\nedition = \"2024\"\n",
        );
        write("new/src/lib.rs", "");
        write("src/lib.rs", "");
        write("Cargo.toml", &package("one", ""));
        write(
            "Cargo.lock",
            "version = 4\n\n[[package]]\nname = \"one\"\nversion = \"0.0.0\"\n",
        );
        let fits = check(&folder);
        write(
            "Cargo.toml",
            &package("one", "[dependencies]\nnew = { path = \"new\" }"),
        );
        let stale = check(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(fits, Ok(()));
        assert!(stale.is_err_and(|why| why.contains("lock file")));
    }
}
