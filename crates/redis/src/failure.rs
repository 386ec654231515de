//! What a failed call means: the client's errors and the server's words for them, as the store contract's kinds.
//!
//! The question that decides is whether something may have been charged. A server that says why it will not run a script
//! has not run it; one that says nothing, or that a script failed half way, may have. Must not know: batches, limits,
//! connections.

use redis::{ErrorKind as ClientKind, RedisError};
use tollgate_store::{ErrorKind, StoreError};

/// Words with which a server refuses before it runs anything.
const REFUSALS: &[&str] = &[
    "LOADING",
    "READONLY",
    "OOM",
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
    "NOAUTH",
    "NOPERM",
    "WRONGPASS",
    "DENIED",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "TRYAGAIN",
    "MOVED",
    "ASK",
    "CROSSSLOT",
    "NOSCRIPT",
];

/// Refusals that end only with another server behind the address, so the connection is made anew.
const MISPLACED: &[&str] = &["READONLY", "MASTERDOWN"];

/// A failed call: what the caller is told, and whether the connection can go on.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    pub(crate) is_connection_spent: bool,
}

/// What an error of the client means for a call that was handed to a connection.
pub(crate) fn of_call(error: &RedisError) -> Failure {
    let failure = |kind, detail: String, is_connection_spent| Failure {
        error: StoreError::new(kind, detail),
        is_connection_spent,
    };
    if let Some(code) = error.code() {
        // Only the code is passed on: the rest of a server's line may name hosts and keys.
        if REFUSALS.contains(&code) {
            let is_misplaced = MISPLACED.contains(&code);
            return failure(
                ErrorKind::Refused,
                format!("the server says {code}"),
                is_misplaced,
            );
        }
        return failure(
            ErrorKind::Garbled,
            "the script failed on the server".to_owned(),
            false,
        );
    }
    match error.kind() {
        ClientKind::Io if error.is_timeout() => failure(
            ErrorKind::TimedOut,
            "the connection timed out".to_owned(),
            true,
        ),
        ClientKind::Io => failure(ErrorKind::Lost, "the connection ended".to_owned(), true),
        _ => failure(
            ErrorKind::Garbled,
            "the reply could not be read".to_owned(),
            true,
        ),
    }
}

/// Whether the server does not know the script: normal after a restart, a failover or a flush.
pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}
