//! `mode`, `enforce` and `candidate` that cancel each other.
//!
//! Must not know: how keys are chosen.

use super::LimitContext;
use crate::model::Mode;
use crate::read::DiagnosticSink;

pub(super) fn check(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let rule = limit.rule;
    let mode = match rule.mode {
        Mode::Enforce => return,
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    };
    if let Some(place) = limit.locations.field_location(limit.index, "enforce") {
        report.add(
            place,
            format!(
                "{}: `enforce` says for whom, and with `mode: {mode}` it is enforced for nobody",
                limit.name()
            ),
            "leave out `mode`, or leave out `enforce`",
        );
    }
    if let (Mode::Off, Some(candidate)) = (rule.mode, &rule.candidate) {
        report.add(
            candidate.location,
            format!(
                "{}: `candidate` has nothing to be compared with while `mode` is off",
                limit.name()
            ),
            "say `mode: shadow`, or leave `candidate` out",
        );
    }
}
