//! The wire format: encodes checks as a script call and decodes its reply.
//!
//! Public only so that tests can send calls in bulk and with their own time. Must not know: connections.

mod algorithm;
mod bytes;
mod call_arguments;
mod frame;
mod lease_call;
mod ledger;
mod observed_state;
mod reply;
mod script_call;

pub use crate::script::{Script, ScriptKind};
pub use call_arguments::CallArguments;
pub use frame::{InvalidFrame, MAX_REPLY, ServerReply, parse_reply};
pub use lease_call::{decode_lease_grant, has_leases, leasable_bucket};
pub use reply::{BatchReply, decode};
pub use script_call::ScriptCall;

/// Operation codes: the same numbers as in `lua/begin.lua`.
pub(crate) mod code {
    pub(crate) const LOOK: u8 = 0;
    pub(crate) const NEVER: u8 = 1;
    pub(crate) const SPEND: u8 = 2;
    pub(crate) const UP_TO: u8 = 3;
    pub(crate) const ALWAYS: u8 = 4;
    pub(crate) const CREDIT: u8 = 5;
    pub(crate) const SETTLE: u8 = 6;
    pub(crate) const ACQUIRE: u8 = 7;
    pub(crate) const RENEW: u8 = 8;
    pub(crate) const RELEASE: u8 = 9;
    pub(crate) const RESERVE: u8 = 10;
    pub(crate) const SETTLE_RESERVED: u8 = 11;
    pub(crate) const CANCEL_RESERVED: u8 = 12;
    pub(crate) const UNDO: u8 = 13;
    pub(crate) const PEEK: u8 = 128;
}
