//! The Lua scripts, assembled from the files under `lua/`, and their digests.
//!
//! Defining a script's functions costs the server about as much as deciding. So there is one script per algorithm, one
//! without functions for plain spending on buckets, one with everything for mixed batches and reservations, and one for
//! leases. Limits are arguments, never part of the text, so the server caches only these scripts. Must not know:
//! connections, states.

use std::sync::LazyLock;

/// A script and its SHA-1 digest.
#[derive(Debug)]
pub struct Script {
    /// The text.
    pub text: &'static str,
    /// The digest, in hexadecimal.
    pub digest: String,
}

/// The files of a script with functions, in order.
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

/// Declares the scripts, one row each: description, name, text.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident => $text:expr;)*) => {
        /// The scripts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ScriptKind {
            $($(#[$doc])* $name,)*
        }

        impl ScriptKind {
            /// The script.
            #[must_use]
            pub fn script(self) -> &'static Script {
                match self {
                    $(Self::$name => {
                        static SCRIPT: LazyLock<Script> = LazyLock::new(|| with_digest($text));
                        &SCRIPT
                    })*
                }
            }
        }
    };
}

scripts! {
    /// Spending on token and leaky buckets.
    Spend => include_str!("lua/spend.lua");
    /// Token and leaky buckets.
    Buckets => assembled!("bucket");
    /// Buckets that refill in steps or do not start full.
    CustomBuckets => assembled!("bucket", "span", "custom_bucket");
    /// Fixed windows.
    Windows => assembled!("span", "window");
    /// Sliding window counters.
    Counters => assembled!("span", "counter");
    /// Sliding window logs.
    Logs => assembled!("log");
    /// Concurrency limits.
    Leases => assembled!("leases");
    /// All algorithms, and reservations.
    All => assembled!("bucket", "span", "custom_bucket", "window", "counter", "log", "leases", "ledger");
    /// Deletes states.
    Erase => include_str!("lua/erase.lua");
    /// Leases on token and leaky buckets.
    QuotaLease => concat!(
        include_str!("lua/numbers.lua"),
        include_str!("lua/division.lua"),
        include_str!("lua/quota_lease.lua"),
    );
    /// Spending on leased buckets without leases.
    SpendUnleased => include_str!("lua/spend_unleased.lua");
    /// The register of a fleet.
    Register => include_str!("lua/register.lua");
    /// Quotas that clients of one server share.
    SharedQuota => include_str!("lua/shared_quota.lua");
}

/// A script with its digest.
fn with_digest(text: &'static str) -> Script {
    Script {
        text,
        digest: redis::Script::new(text).get_hash().to_owned(),
    }
}

impl ScriptKind {
    /// All scripts that decide batches.
    pub const DECIDING: [Self; 8] = [
        Self::Spend,
        Self::Buckets,
        Self::CustomBuckets,
        Self::Windows,
        Self::Counters,
        Self::Logs,
        Self::Leases,
        Self::All,
    ];

    /// The script that can do what both can.
    pub(crate) fn covering(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Spend, Self::Buckets) | (Self::Buckets, Self::Spend) => Self::Buckets,
            _ => Self::All,
        }
    }
}
