//! Where `cargo xtask test --peers` has put the programs that it brings; the table is in `xtask/src/peer_tests/table.rs`.
//!
//! Must not know: what the programs do.

use std::path::PathBuf;

use crate::peers::folder;

/// A file or folder of a peer, such as `bin/caddy` of `caddy`.
///
/// # Panics
/// It is not there. The message is the command that brings it.
#[must_use]
pub fn file(peer: &str, path: &str) -> PathBuf {
    let file = folder().join(peer).join(path);
    if !file.exists() {
        missing(peer);
    }
    file
}

/// A program of the distribution's, wherever it puts programs, or a file of its with the whole path.
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

#[expect(
    clippy::panic,
    reason = "a test without its peer must fail and say how to get it"
)]
fn missing(peer: &str) -> ! {
    panic!(
        "{peer} is not installed. The first command installs what all tests need, the second what tests in `with_peers` need:\n    \
         cargo xtask peers\n    cargo xtask test --peers"
    )
}
