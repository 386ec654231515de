//! Bringing a peer into its own folder under cargo's target folder, checked by hash, once for each version.
//!
//! Touches nothing outside that folder. Must not know: which peers there are.

use std::path::Path;
use std::process::Command;

use super::table::{Peer, Source};
use crate::process;

/// What the installed peer was asked for; another version asks for something else.
const STAMP: &str = "installed.txt";

/// Installs what is not there, or is there in another version.
pub(crate) fn ensure(peers: &[Peer], target: &Path) -> Result<(), String> {
    for peer in peers {
        let folder = target.join("peers").join(peer.name);
        if !is_installed(peer, &folder) {
            install(peer, &folder)?;
        }
        println!("{} {}: present ({})", peer.name, peer.version, peer.why);
    }
    Ok(())
}

fn is_installed(peer: &Peer, folder: &Path) -> bool {
    let stamp = std::fs::read_to_string(folder.join(STAMP));
    folder.join(peer.proof).is_file() && stamp.is_ok_and(|stamp| stamp == order(peer))
}

fn install(peer: &Peer, folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    // Of another version nothing may stay.
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(failed)?;
    }
    std::fs::create_dir_all(folder).map_err(failed)?;
    let order = order(peer);
    match &peer.source {
        Source::Wheel { .. } | Source::Python(_) => {
            let file = folder.join("requirements.txt");
            std::fs::write(&file, &order).map_err(failed)?;
            process::run(&mut pip(&file, folder))?;
        }
        Source::Node { package, lock } => {
            std::fs::write(folder.join("package.json"), package).map_err(failed)?;
            std::fs::write(folder.join("package-lock.json"), lock).map_err(failed)?;
            process::run(&mut npm(folder))?;
        }
    }
    if !folder.join(peer.proof).is_file() {
        let proof = folder.join(peer.proof);
        return Err(format!(
            "{} is missing after the installation",
            proof.display()
        ));
    }
    // Last, so that an installation that was broken off is begun again.
    std::fs::write(folder.join(STAMP), order).map_err(failed)
}

/// What is to be installed, exactly.
fn order(peer: &Peer) -> String {
    match &peer.source {
        Source::Wheel { package, hashes } => {
            let hashes = hashes.map(|hash| format!(" --hash=sha256:{hash}"));
            format!("{package}=={}{}\n", peer.version, hashes.concat())
        }
        Source::Python(lock) => (*lock).to_owned(),
        Source::Node { lock, .. } => (*lock).to_owned(),
    }
}

fn pip(requirements: &Path, folder: &Path) -> Command {
    let mut command = Command::new("python3");
    command
        .args(["-m", "pip", "install", "--quiet", "--no-deps"])
        .args(["--require-hashes", "--only-binary", ":all:", "--target"])
        .arg(folder)
        .arg("--requirement")
        .arg(requirements);
    command
}

/// Exactly what the lock says; nothing that comes with a package is run.
fn npm(folder: &Path) -> Command {
    let mut command = Command::new("npm");
    command
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(folder);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAMP: Peer = Peer {
        name: "lamp",
        version: "1.2",
        source: Source::Wheel {
            package: "lamp-bin",
            hashes: ["aa", "bb"],
        },
        proof: "bin/lamp",
        why: "lights the way",
    };

    #[test]
    fn an_order_names_the_version_and_every_hash() {
        assert_eq!(
            order(&LAMP),
            "lamp-bin==1.2 --hash=sha256:aa --hash=sha256:bb\n"
        );
    }

    #[test]
    fn what_is_present_is_not_installed_and_another_version_is() {
        let target = std::env::temp_dir().join(format!("with-peers-{}", std::process::id()));
        let folder = target.join("peers/lamp");
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        std::fs::write(folder.join("bin/lamp"), "").unwrap();
        assert!(!is_installed(&LAMP, &folder), "nobody knows which it is");
        std::fs::write(folder.join(STAMP), order(&LAMP)).unwrap();
        assert_eq!(ensure(&[LAMP], &target), Ok(()));
        let newer = Peer {
            version: "1.3",
            ..LAMP
        };
        assert!(!is_installed(&newer, &folder));
        std::fs::remove_file(folder.join("bin/lamp")).unwrap();
        assert!(!is_installed(&LAMP, &folder));
        std::fs::remove_dir_all(target).unwrap();
    }

    #[test]
    fn nothing_without_a_hash_is_accepted_and_nothing_goes_elsewhere() {
        let command = pip(Path::new("r.txt"), Path::new("target/peers/lamp"));
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        assert!(words.iter().any(|word| word == "--require-hashes"));
        let at = words.iter().position(|word| word == "--target").unwrap();
        assert_eq!(words[at + 1], "target/peers/lamp");
        let folder = Path::new("target/peers/lamp");
        assert_eq!(npm(folder).get_current_dir(), Some(folder));
    }
}
