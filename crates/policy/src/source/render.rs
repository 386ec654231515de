//! Formats diagnostics for people: the location, the message, the line with carets below, and the suggestion.
//!
//! A file may come from anyone and is printed on a terminal, so control characters and bidirectional marks are never
//! printed raw. Must not know: what fields mean.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar;

use super::diagnostic::{Diagnostic, Diagnostics};

/// The maximum columns of a line; a longer line is truncated around the carets.
const MAX_COLUMNS: usize = 100;
/// The columns before the carets of a truncated line.
const COLUMNS_BEFORE_CARET: usize = 30;
/// Tab stops.
const TAB_WIDTH: usize = 4;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const CYAN: &str = "\x1b[36m";
const RESET: &str = "\x1b[0m";

/// Formats all diagnostics of a file.
pub(super) fn render_diagnostics(diagnostics: &Diagnostics, colour: bool) -> String {
    render_all(diagnostics, "", "problem", colour)
}

/// Formats all warnings about a file.
pub(super) fn render_warnings(diagnostics: &Diagnostics, colour: bool) -> String {
    render_all(diagnostics, "warning: ", "warning", colour)
}

fn render_all(diagnostics: &Diagnostics, label: &str, noun: &str, colour: bool) -> String {
    let mut out = String::new();
    let styler = Styler { colour };
    for diagnostic in &diagnostics.list {
        out.push_str(label);
        render_diagnostic(diagnostics, diagnostic, &styler, &mut out);
    }
    if diagnostics.more > 0 {
        let plural = if diagnostics.more == 1 { "" } else { "s" };
        let file = escape_hidden(&diagnostics.file);
        push_line(
            &mut out,
            &format!("{file}: and {} more {noun}{plural}", diagnostics.more),
        );
    }
    out
}

struct Styler {
    colour: bool,
}

impl Styler {
    fn apply(&self, style: &str, text: &str) -> String {
        if self.colour {
            format!("{style}{text}{RESET}")
        } else {
            text.to_owned()
        }
    }
}

fn push_line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

fn render_diagnostic(
    diagnostics: &Diagnostics,
    diagnostic: &Diagnostic,
    styler: &Styler,
    out: &mut String,
) {
    let location = diagnostic.location;
    let mut position = escape_hidden(&diagnostics.file);
    // A diagnostic without a location is about the whole file.
    if location.line > 0 {
        position = format!("{position}:{}:{}", location.line, location.column);
    }
    position.push(':');
    let message = escape_hidden(&diagnostic.message);
    push_line(out, &format!("{} {message}", styler.apply(BOLD, &position)));
    if let Some(text) = diagnostics.line(location.line) {
        let number = location.line.to_string();
        let margin = " ".repeat(number.len());
        let excerpt = Excerpt::new(
            text,
            to_usize(location.column).saturating_sub(1),
            to_usize(location.width),
        );
        push_line(out, &format!("  {number} | {}", excerpt.text));
        let carets = styler.apply(RED, &"^".repeat(excerpt.width));
        let space = " ".repeat(excerpt.before);
        push_line(out, &format!("  {margin} | {space}{carets}"));
    }
    if let Some(help) = &diagnostic.help {
        push_line(
            out,
            &format!("  {} {}", styler.apply(CYAN, "help:"), escape_hidden(help)),
        );
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A printed line, and the position of its carets, in terminal columns.
#[derive(Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    before: usize,
    width: usize,
}

impl Excerpt {
    /// Prints a line with carets below these characters.
    fn new(text: &str, first: usize, count: usize) -> Self {
        let mut column = 0;
        let mut cells = Vec::new();
        for character in text.chars() {
            let cell = cell(character, column);
            column += cell.1;
            cells.push(cell);
        }
        let columns = |from: usize, to: usize| -> usize {
            let some = cells.iter().skip(from).take(to.saturating_sub(from));
            some.map(|(_, width)| width).sum()
        };
        let before = columns(0, first) + first.saturating_sub(cells.len());
        let width = columns(first, first.saturating_add(count)).max(1);
        if column <= MAX_COLUMNS {
            let text = cells.into_iter().map(|(text, _)| text).collect();
            return Self {
                text,
                before,
                width,
            };
        }
        truncate_around_caret(&cells, column, before, width)
    }
}

/// Truncates a long line, with `…` on the truncated sides.
fn truncate_around_caret(
    cells: &[(String, usize)],
    all: usize,
    before: usize,
    width: usize,
) -> Excerpt {
    let from = before
        .saturating_sub(COLUMNS_BEFORE_CARET)
        .min(all.saturating_sub(MAX_COLUMNS));
    let to = from + MAX_COLUMNS;
    let mut text = String::new();
    let mut column = 0;
    // A wide character across the left edge is omitted, which moves the next ones to the left.
    let mut start = None;
    if from > 0 {
        text.push('…');
    }
    for (cell, wide) in cells {
        let end = column + wide;
        if column >= from && end <= to {
            start.get_or_insert(column);
            text.push_str(cell);
        }
        column = end;
    }
    if all > to {
        text.push('…');
    }
    let start = start.unwrap_or(from);
    let ellipsis = usize::from(from > 0);
    let before = before.saturating_sub(start);
    Excerpt {
        text,
        before: before + ellipsis,
        width: width.min((MAX_COLUMNS + 1).saturating_sub(before)).max(1),
    }
}

/// What is printed for one character at this column, and its width in columns.
fn cell(character: char, column: usize) -> (String, usize) {
    if character == '\t' {
        let width = TAB_WIDTH - column % TAB_WIDTH;
        return (" ".repeat(width), width);
    }
    if is_hidden(character) {
        return ('\u{fffd}'.to_string(), 1);
    }
    (character.to_string(), character.width().unwrap_or(1))
}

/// Whether a character would control the terminal or be invisible.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Escapes hidden characters.
fn escape_hidden(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) {
            let _infallible = write!(out, "{}", character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::super::node::SourceLocation;
    use super::{Diagnostic, Diagnostics, Excerpt, MAX_COLUMNS};

    fn render(text: &str, line: u32, column: u32, width: u32) -> String {
        let location = SourceLocation {
            line,
            column,
            width,
        };
        let list = vec![Diagnostic::new(location, "wrong", "right")];
        Diagnostics::new("p.yaml", text, list).to_string()
    }

    #[test]
    fn the_carets_are_below_the_value() {
        assert_eq!(
            render("a: 1\nrate: 10/q # x\n", 2, 7, 4),
            "p.yaml:2:7: wrong\n  2 | rate: 10/q # x\n    |       ^^^^\n  help: right\n"
        );
    }

    #[test]
    fn the_margin_is_as_wide_as_the_number() {
        let text = format!("{}last\n", "\n".repeat(11));
        assert_eq!(
            render(&text, 12, 1, 4),
            "p.yaml:12:1: wrong\n  12 | last\n     | ^^^^\n  help: right\n"
        );
    }

    #[test]
    fn tabs_and_wide_characters_do_not_move_the_caret() {
        let excerpt = render("\tx: 日本\n", 1, 5, 2);
        assert_eq!(
            excerpt,
            "p.yaml:1:5: wrong\n  1 |     x: 日本\n    |        ^^^^\n  help: right\n"
        );
    }

    #[test]
    fn the_caret_can_be_at_the_end_of_a_line() {
        assert_eq!(
            render("[1", 1, 3, 1),
            "p.yaml:1:3: wrong\n  1 | [1\n    |   ^\n  help: right\n"
        );
        assert!(render("[1\n", 2, 1, 1).contains("  2 |\n    | ^\n"));
    }

    #[test]
    fn a_byte_order_mark_and_line_ends_are_not_shown() {
        assert!(render("\u{feff}ab\r\n", 1, 1, 2).contains("  1 | ab\n    | ^^\n"));
    }

    #[test]
    fn a_diagnostic_without_a_location_names_only_the_file() {
        assert_eq!(render("a\n", 0, 0, 0), "p.yaml: wrong\n  help: right\n");
    }

    /// The text above the carets, by terminal columns.
    fn above_carets(excerpt: &Excerpt) -> String {
        let mut column = 0;
        let mut text_above = String::new();
        for character in excerpt.text.chars() {
            if column >= excerpt.before && column < excerpt.before + excerpt.width {
                text_above.push(character);
            }
            column += character.to_string().width();
        }
        text_above
    }

    #[test]
    fn a_long_line_is_truncated_around_the_carets() {
        for filler in ["x", "日", "é"] {
            for (left, right) in [
                (0, 300),
                (20, 300),
                (300, 0),
                (300, 10),
                (301, 300),
                (60, 60),
            ] {
                let text = format!("{}WORD{}", filler.repeat(left), filler.repeat(right));
                let excerpt = Excerpt::new(&text, left, 4);
                assert_eq!(
                    above_carets(&excerpt),
                    "WORD",
                    "{filler} {left} {right}: {excerpt:?}"
                );
                assert!(excerpt.text.width() <= MAX_COLUMNS + 2, "{excerpt:?}");
                assert_eq!(excerpt.text.contains('…'), text.width() > MAX_COLUMNS);
            }
        }
        let whole = Excerpt::new(&"x".repeat(500), 0, 500);
        assert!(whole.width <= MAX_COLUMNS + 1, "{whole:?}");
        // Negative control: a caret that is off by one is detected.
        let mut off = Excerpt::new("aWORDb", 1, 4);
        off.before += 1;
        assert_eq!(above_carets(&off), "ORDb");
    }

    #[test]
    fn control_characters_of_a_file_never_reach_the_terminal() {
        let location = SourceLocation {
            line: 1,
            column: 1,
            width: 1,
        };
        let evil = "\x1b[2Ja\u{202e}b\r\u{9b}";
        let list = vec![Diagnostic::new(location, format!("`{evil}\n`"), evil)];
        let rendered = Diagnostics::new(evil, &format!("{evil}\n"), list).to_string();
        assert!(
            !rendered.contains(['\x1b', '\u{202e}', '\r', '\u{9b}']),
            "{rendered:?}"
        );
        assert_eq!(rendered.lines().count(), 4, "{rendered:?}");
    }

    #[test]
    fn colours_are_optional() {
        let list = vec![Diagnostic::new(SourceLocation::START, "wrong", "right")];
        let diagnostics = Diagnostics::new("f", "x\n", list);
        assert!(!diagnostics.render(false).contains('\x1b'));
        let coloured = diagnostics.render(true);
        assert!(coloured.contains("\x1b[1;31m^\x1b[0m"), "{coloured:?}");
        let mut plain = coloured;
        for code in [super::BOLD, super::RED, super::CYAN, super::RESET] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, diagnostics.to_string());
    }
}
