//! The scripts, assembled from the files under `lua/`, and their digests.
//!
//! Two of them: buckets alone, which is what almost every call needs and which the server sets up faster, and all
//! algorithms. Limits are arguments, never part of the text, so the server caches two scripts and no more.

use std::sync::LazyLock;

/// Which script a batch needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Token and leaky buckets, without reservations.
    Buckets,
    /// Everything.
    All,
}

/// A script's text and the digest that it is called by.
#[derive(Debug)]
pub struct Script {
    /// The text.
    pub text: &'static str,
    /// The digest, in hexadecimal.
    pub digest: String,
}

const BUCKETS: &str = concat!(
    include_str!("lua/numbers.lua"),
    include_str!("lua/division.lua"),
    include_str!("lua/begin.lua"),
    include_str!("lua/bucket.lua"),
    include_str!("lua/finish.lua"),
);

const ALL: &str = concat!(
    include_str!("lua/numbers.lua"),
    include_str!("lua/division.lua"),
    include_str!("lua/begin.lua"),
    include_str!("lua/bucket.lua"),
    include_str!("lua/window.lua"),
    include_str!("lua/counter.lua"),
    include_str!("lua/log.lua"),
    include_str!("lua/leases.lua"),
    include_str!("lua/ledger.lua"),
    include_str!("lua/finish.lua"),
);

static BUCKETS_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::of(BUCKETS));
static ALL_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::of(ALL));

impl Which {
    /// Both.
    pub const EACH: [Self; 2] = [Self::Buckets, Self::All];

    /// The script.
    #[must_use]
    pub fn script(self) -> &'static Script {
        match self {
            Self::Buckets => &BUCKETS_SCRIPT,
            Self::All => &ALL_SCRIPT,
        }
    }
}

impl Script {
    fn of(text: &'static str) -> Self {
        let digest = redis::Script::new(text).get_hash().to_owned();
        Self { text, digest }
    }
}
