//! Everything that is wrong, as it is found.
//!
//! Must not know: what is read.

use crate::grammar::GrammarError;
use crate::source::{Diagnostic, SourceLocation};

/// A file may be wrong in every one of its values; it is not worth remembering all of them.
const MAX_KEPT: usize = 10_000;

/// Problems, in the order in which they were found.
#[derive(Default)]
pub(crate) struct DiagnosticSink {
    diagnostics: Vec<Diagnostic>,
    dropped: usize,
}

impl DiagnosticSink {
    pub(crate) fn push(&mut self, problem: Diagnostic) {
        if self.diagnostics.len() < MAX_KEPT {
            self.diagnostics.push(problem);
        } else {
            self.dropped += 1;
        }
    }

    /// What is wrong at a place, and what would be right.
    pub(crate) fn add(
        &mut self,
        place: SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(Diagnostic::new(place, message, help));
    }

    /// What is wrong with the text of a field.
    pub(crate) fn add_field_error(
        &mut self,
        place: SourceLocation,
        field: &str,
        wrong: GrammarError,
    ) {
        self.push(Diagnostic {
            location: place,
            message: format!("`{field}`: {}", wrong.message).into(),
            help: wrong.help,
        });
    }

    /// How many were found, to tell whether something went wrong in between.
    pub(crate) fn len(&self) -> usize {
        self.diagnostics.len() + self.dropped
    }

    /// All of them in the order of the file.
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
    fn problems_come_in_the_order_of_the_file_and_too_many_are_only_counted() {
        let mut report = DiagnosticSink::default();
        for line in (1..=20_000_u32).rev() {
            let place = SourceLocation {
                line,
                column: 1,
                width: 1,
            };
            report.add(place, "wrong", "right");
        }
        assert_eq!(report.len(), 20_000);
        let problems = report.finish();
        assert_eq!(problems.len(), MAX_KEPT);
        assert!(problems.is_sorted_by_key(|problem| problem.location));
    }
}
