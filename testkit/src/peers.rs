//! Programs that no distribution has in the version we promise: where they lie, and what to type if one is missing.
//!
//! Must not know: what they are for. `xtask/src/peers.rs` puts them there.

use std::path::{Path, PathBuf};

/// What installs all of them.
const COMMAND: &str = "cargo xtask peers";

/// A file of a package, by its path below the folder of peers.
///
/// # Errors
/// It is not there. The message is the command that installs it.
pub fn look_up(what: &str, file: &str) -> Result<PathBuf, String> {
    let candidate = folder().join(file);
    if candidate.is_file() {
        return Ok(candidate);
    }
    Err(format!(
        "{what} is not installed. Install it and run again:\n    {COMMAND}"
    ))
}

/// The folder that Python finds a package in, which comes as `requirement`.
///
/// # Panics
/// It is not there. The message is the command that installs it.
#[must_use]
#[expect(
    clippy::panic,
    reason = "a test without its client must fail and say how to get it"
)]
pub fn python_packages(package: &str, requirement: &str) -> PathBuf {
    match look_up(requirement, &format!("{package}/__init__.py")) {
        Ok(_) => folder(),
        Err(missing) => panic!("{missing}"),
    }
}

/// They lie in `peers` under cargo's target folder, which is where this test runs from.
pub(crate) fn folder() -> PathBuf {
    let found = std::env::current_exe().ok().and_then(|test| {
        let has_peers = |folder: &&Path| folder.join("peers").is_dir();
        // Without any, where they would belong: above the profile's folder and `deps`.
        let target = test.ancestors().find(has_peers);
        Some(target.or_else(|| test.ancestors().nth(3))?.join("peers"))
    });
    found.unwrap_or_else(|| PathBuf::from("target/peers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_fails_with_the_command_that_installs_it() {
        let error = look_up("A lamp", "lamp/bin/lamp").unwrap_err();
        assert_eq!(
            error,
            "A lamp is not installed. Install it and run again:\n    cargo xtask peers"
        );
    }
}
