//! Where `cargo xtask test --peers` has put the programs that it brings; the table is in `xtask/src/beside/table.rs`.
//!
//! Must not know: what the programs do.

use std::path::{Path, PathBuf};

/// A file or folder of a peer, such as `bin/caddy` of `caddy`.
///
/// # Panics
/// It is not there. The message is the command that brings it.
#[must_use]
pub fn file(peer: &str, path: &str) -> PathBuf {
    let found = folder().map(|folder| folder.join(peer).join(path));
    match found {
        Some(file) if file.exists() => file,
        _ => missing(peer),
    }
}

/// A program of the distribution's, wherever it puts programs.
///
/// # Panics
/// It is not there. The message is the command that brings it.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where distributions put servers is not on everybody's path.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut candidates = folders.map(|folder| folder.join(name));
    candidates
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| missing(name))
}

/// Under cargo's target folder, which is where this test runs from.
fn folder() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let peers = |folder: &Path| folder.join("peers");
    test.ancestors().map(peers).find(|folder| folder.is_dir())
}

#[expect(
    clippy::panic,
    reason = "a test without its peer must fail and say how to get it"
)]
fn missing(peer: &str) -> ! {
    panic!(
        "{peer} is not installed. This installs it and runs the tests that need it:\n    \
         cargo xtask test --peers"
    )
}
