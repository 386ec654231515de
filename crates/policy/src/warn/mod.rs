//! Warnings about a valid policy: what loads and works, but probably not as its author thinks.
//!
//! Each file finds one kind. A warning never makes a policy invalid. Must not know: how files are written or read.

mod client_chosen;

use crate::model::Policy;
use crate::read::DiagnosticSink;
use crate::source::Diagnostic;

/// The warnings about a policy without mistakes, in file order.
pub(crate) fn find_warnings(policy: &Policy) -> Vec<Diagnostic> {
    let mut sink = DiagnosticSink::default();
    client_chosen::warn(policy, &mut sink);
    sink.finish()
}
