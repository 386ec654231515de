//! The scripts, assembled from the files under `lua/`, and their digests.
//!
//! Setting a script's functions up costs the server about as much as deciding, so there is one for each algorithm, one for
//! plain spending on buckets without any function, and one with everything for mixed batches and reservations, one that
//! lends. Limits are
//! arguments, never part of the text, so the server caches these and no more. Must not know: connections, states.

use std::sync::LazyLock;

use tollgate_core::limit::Quota;

/// Which script a batch needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Spending on token and leaky buckets.
    Spend,
    /// Token and leaky buckets.
    Buckets,
    /// Fixed windows.
    Windows,
    /// Sliding window counters.
    Counters,
    /// Sliding window logs.
    Logs,
    /// Concurrency limits.
    Leases,
    /// All algorithms, and reservations.
    All,
    /// Forgetting.
    Erase,
    /// Slices of token and leaky buckets.
    Lend,
    /// The register of a fleet, which decides nothing.
    Register,
}

/// A script's text and the digest that it is called by.
#[derive(Debug)]
pub struct Script {
    /// The text.
    pub text: &'static str,
    /// The digest, in hexadecimal.
    pub digest: String,
}

/// The files of a script that has functions, in order.
macro_rules! assembled {
    ($($part:literal),*) => {
        concat!(
            include_str!("lua/numbers.lua"),
            include_str!("lua/division.lua"),
            include_str!("lua/begin.lua"),
            $(include_str!(concat!("lua/", $part, ".lua")),)*
            include_str!("lua/finish.lua"),
        )
    };
}

static SCRIPTS: LazyLock<[Script; 9]> = LazyLock::new(|| {
    [
        include_str!("lua/spend.lua"),
        assembled!("bucket"),
        assembled!("span", "window"),
        assembled!("span", "counter"),
        assembled!("log"),
        assembled!("leases"),
        assembled!(
            "bucket", "span", "window", "counter", "log", "leases", "ledger"
        ),
        include_str!("lua/erase.lua"),
        concat!(
            include_str!("lua/numbers.lua"),
            include_str!("lua/division.lua"),
            include_str!("lua/lend.lua"),
        ),
    ]
    .map(named)
});

/// A text with its digest.
fn named(text: &'static str) -> Script {
    Script {
        text,
        digest: redis::Script::new(text).get_hash().to_owned(),
    }
}

static REGISTER: LazyLock<Script> = LazyLock::new(|| named(include_str!("lua/register.lua")));

impl Which {
    /// Every one that decides.
    pub const EACH: [Self; 7] = [
        Self::Spend,
        Self::Buckets,
        Self::Windows,
        Self::Counters,
        Self::Logs,
        Self::Leases,
        Self::All,
    ];

    /// The script that decides on this quota.
    #[must_use]
    pub(crate) fn of(quota: &Quota) -> Self {
        match quota {
            Quota::TokenBucket(_) | Quota::LeakyBucket(_) => Self::Buckets,
            Quota::FixedWindow(_) => Self::Windows,
            Quota::SlidingCounter(_) => Self::Counters,
            Quota::SlidingLog(_) => Self::Logs,
            Quota::Concurrency(_) => Self::Leases,
            _ => Self::All,
        }
    }

    /// The script that can do what both can.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Spend, Self::Buckets) | (Self::Buckets, Self::Spend) => Self::Buckets,
            _ => Self::All,
        }
    }

    /// The script.
    #[must_use]
    pub fn script(self) -> &'static Script {
        let [
            spend,
            buckets,
            windows,
            counters,
            logs,
            leases,
            all,
            erase,
            lend,
        ] = &*SCRIPTS;
        match self {
            Self::Spend => spend,
            Self::Buckets => buckets,
            Self::Windows => windows,
            Self::Counters => counters,
            Self::Logs => logs,
            Self::Leases => leases,
            Self::All => all,
            Self::Erase => erase,
            Self::Lend => lend,
            Self::Register => &REGISTER,
        }
    }
}
