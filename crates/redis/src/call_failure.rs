//! Classifies failed calls: maps the client's errors and the server's error codes to the store contract's kinds, with a
//! hint about routing.
//!
//! The main question is whether the call may have charged. A server that refuses to run a script has not run it. A
//! server that does not reply, or whose script failed halfway, may have charged. Must not know: batches, limits,
//! connections.

use redis::{ErrorKind as ClientKind, RedisError};
use tollgate_store::{StoreError, StoreErrorKind};

/// Error codes with which a server refuses before it runs anything.
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

/// Refusals of a script's first write, which servers before 7.0 wrap into a script error. Nothing was written before:
/// Redis checks all three only before the first write.
const WRAPPED: &[&str] = &["READONLY", "OOM", "MISCONF"];

/// Refusals that only another server at the same address ends, so the connection is replaced.
const MISPLACED: &[&str] = &["READONLY", "MASTERDOWN"];

/// What a failure says about routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RoutingHint {
    /// Nothing: another server would not help.
    None,
    /// The server is unreachable or not the right one: look for the current one.
    FindServer,
    /// Another server owns the slot permanently.
    Moved(String),
    /// Another server has this key while its slot is being migrated.
    Ask(String),
    /// The keys of the call are on two servers for the moment.
    TryAgain,
}

/// A failed call: the error for the caller, the state of the connection, and a routing hint.
#[derive(Debug)]
pub(crate) struct CallFailure {
    pub(crate) error: StoreError,
    pub(crate) is_connection_broken: bool,
    pub(crate) hint: RoutingHint,
}

impl CallFailure {
    /// A failure after which the connection can still be used.
    pub(crate) const fn new(error: StoreError, trouble: RoutingHint) -> Self {
        Self {
            error,
            is_connection_broken: false,
            hint: trouble,
        }
    }
}

/// Classifies an error of a call that was sent on a connection.
pub(crate) fn classify_error(error: &RedisError) -> CallFailure {
    let spent = |kind, detail: &'static str| CallFailure {
        error: StoreError::new(kind, detail),
        is_connection_broken: true,
        hint: RoutingHint::FindServer,
    };
    if let Some(code) = error.code() {
        return classify_code(code, error);
    }
    match error.kind() {
        ClientKind::Io if error.is_timeout() => {
            spent(StoreErrorKind::TimedOut, "the connection timed out")
        }
        ClientKind::Client => {
            let detail = "not sent, because too many replies of the server are awaited";
            CallFailure::new(
                StoreError::new(StoreErrorKind::Busy, detail),
                RoutingHint::None,
            )
        }
        ClientKind::Io => spent(StoreErrorKind::ConnectionLost, "the connection ended"),
        _ => CallFailure {
            hint: RoutingHint::None,
            ..spent(
                StoreErrorKind::InvalidReply,
                "the reply could not be parsed",
            )
        },
    }
}

fn classify_code(code: &str, error: &RedisError) -> CallFailure {
    let code = if REFUSALS.contains(&code) {
        Some(code)
    } else {
        wrapped_code(error.detail().unwrap_or_default())
    };
    let Some(code) = code else {
        let detail = "the script failed on the server";
        return CallFailure::new(
            StoreError::new(StoreErrorKind::InvalidReply, detail),
            RoutingHint::None,
        );
    };
    let to = || error.redirect_node().map(|(to, _slot)| to.to_owned());
    let trouble = match code {
        "MOVED" => to().map_or(RoutingHint::FindServer, RoutingHint::Moved),
        "ASK" => to().map_or(RoutingHint::FindServer, RoutingHint::Ask),
        "TRYAGAIN" => RoutingHint::TryAgain,
        "READONLY" | "MASTERDOWN" | "LOADING" | "CLUSTERDOWN" => RoutingHint::FindServer,
        _ => RoutingHint::None,
    };
    // Only the code is passed on: the server's message may contain hosts and keys.
    let detail = format!("error code {code}");
    CallFailure {
        error: StoreError::new(StoreErrorKind::Refused, detail),
        is_connection_broken: MISPLACED.contains(&code),
        hint: trouble,
    }
}

/// The code inside a script error such as `Error running script (call to f_1): @user_script:1: -READONLY You …`.
fn wrapped_code(detail: &str) -> Option<&'static str> {
    let (before, inside) = detail.split_once(": -")?;
    if !before.contains("running script") {
        return None;
    }
    let code = inside.split(' ').next()?;
    WRAPPED.iter().copied().find(|known| *known == code)
}

/// Whether the server does not know the script: normal after a restart, a failover or a flush.
pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_11_a_refusal_that_older_servers_wrap_is_still_a_refusal() {
        let readonly = "Error running script (call to f_12): @user_script:60: @user_script: 60: -READONLY You can't write against a read only replica.";
        assert_eq!(wrapped_code(readonly), Some("READONLY"));
        assert_eq!(
            wrapped_code("Error running script (call to f_1): -WRONGTYPE no"),
            None
        );
        assert_eq!(
            wrapped_code("Error running script (call to f_1): oops"),
            None
        );
        assert_eq!(wrapped_code("key: -READONLY of a caller's choosing"), None);
    }
}
