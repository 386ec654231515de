//! Checks that `mode`, `enforce` and `candidate` do not cancel each other.
//!
//! Must not know: how keys are sampled.

use super::LimitContext;
use crate::model::Mode;
use crate::read::DiagnosticSink;

pub(super) fn check(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let rule = limit.rule;
    let mode = match rule.mode {
        Mode::Enforce => return,
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    };
    if let Some(location) = limit.locations.field_location(limit.index, "enforce") {
        sink.add(
            location,
            format!(
                "{}: `enforce` has no effect with `mode: {mode}`",
                limit.name()
            ),
            "leave out `mode`, or leave out `enforce`",
        );
    }
    if let (Mode::Off, Some(candidate)) = (rule.mode, &rule.candidate) {
        sink.add(
            candidate.location,
            format!(
                "{}: `candidate` has no effect with `mode: off`",
                limit.name()
            ),
            "use `mode: shadow`, or leave `candidate` out",
        );
    }
}
