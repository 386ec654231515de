//! Warnings about a valid file, with locations like mistakes.
//!
//! Must not know: what is warned of.

use super::diagnostic::{Diagnostic, Diagnostics};
use super::render;

/// The warnings about a file, sorted by line; often none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warnings(Diagnostics);

impl Warnings {
    /// The warnings about a file, sorted, without duplicates, at most
    /// [`MAX_DIAGNOSTICS`](super::MAX_DIAGNOSTICS).
    #[must_use]
    pub fn new(file: &str, text: &str, list: Vec<Diagnostic>) -> Self {
        Self(Diagnostics::new(file, text, list))
    }

    /// The warnings.
    #[must_use]
    pub fn list(&self) -> &[Diagnostic] {
        &self.0.list
    }

    /// The same with file and lines, for reports to programs.
    #[must_use]
    pub const fn as_diagnostics(&self) -> &Diagnostics {
        &self.0
    }

    /// Formats all warnings for people, with or without colours; each begins with `warning: `.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        render::render_warnings(&self.0, colour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceLocation;

    #[test]
    fn a_warning_is_shown_like_a_mistake_with_a_word_in_front() {
        let location = SourceLocation {
            line: 2,
            column: 1,
            width: 3,
        };
        let warning = Diagnostic::new(location, "odd", "even");
        let shown = Warnings::new("f", "one\ntwo\n", vec![warning]).render(false);
        assert_eq!(
            shown,
            "warning: f:2:1: odd\n  2 | two\n    | ^^^\n  help: even\n"
        );
        assert_eq!(Warnings::new("f", "", Vec::new()).render(true), "");
    }

    #[test]
    fn a_hundred_warnings_are_shown_and_further_ones_are_counted() {
        let each = |line| {
            Diagnostic::without_help(
                SourceLocation {
                    line,
                    column: 1,
                    width: 1,
                },
                "x",
            )
        };
        let warnings = Warnings::new("f", "", (1..=130).map(each).collect());
        assert!(
            warnings
                .render(false)
                .ends_with("f: and 30 more warnings\n")
        );
    }
}
