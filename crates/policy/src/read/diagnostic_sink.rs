//! Collects diagnostics.
//!
//! Must not know: what is read.

use crate::grammar::GrammarError;
use crate::source::{Diagnostic, SourceLocation};

/// The maximum number of diagnostics that are kept. A file may have a mistake in every value.
const MAX_KEPT: usize = 10_000;

/// Diagnostics, in the order in which they were found.
#[derive(Default)]
pub(crate) struct DiagnosticSink {
    diagnostics: Vec<Diagnostic>,
    dropped: usize,
}

impl DiagnosticSink {
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        if self.diagnostics.len() < MAX_KEPT {
            self.diagnostics.push(diagnostic);
        } else {
            self.dropped += 1;
        }
    }

    /// A mistake at a location, with a suggestion.
    pub(crate) fn add(
        &mut self,
        location: SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(Diagnostic::new(location, message, help));
    }

    /// Adds the error of a field's text.
    pub(crate) fn add_field_error(
        &mut self,
        location: SourceLocation,
        field: &str,
        error: GrammarError,
    ) {
        self.push(Diagnostic {
            location,
            message: format!("`{field}`: {}", error.message).into(),
            help: error.help,
        });
    }

    /// The number of diagnostics so far, to detect new ones.
    pub(crate) fn len(&self) -> usize {
        self.diagnostics.len() + self.dropped
    }

    /// The kept diagnostics in file order.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort();
        self.diagnostics.dedup();
        self.diagnostics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_are_in_file_order_and_bounded() {
        let mut sink = DiagnosticSink::default();
        for line in (1..=20_000_u32).rev() {
            let location = SourceLocation {
                line,
                column: 1,
                width: 1,
            };
            sink.add(location, "wrong", "right");
        }
        assert_eq!(sink.len(), 20_000);
        let diagnostics = sink.finish();
        assert_eq!(diagnostics.len(), MAX_KEPT);
        assert!(diagnostics.is_sorted_by_key(|diagnostic| diagnostic.location));
    }
}
