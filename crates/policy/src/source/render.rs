//! Problems as people read them: the place, the message, the line with a caret below it, and what would be right.
//!
//! A file may come from anyone, and what it says ends up on somebody's terminal: control characters and marks that turn
//! the direction of writing are never printed as they are. Must not know: what fields mean.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar;

use super::diagnostic::{Diagnostic, Diagnostics};

/// So many columns of a line are shown; a longer line is cut around the caret.
const MAX_COLUMNS: usize = 100;
/// So many columns are shown before the caret of a line that is cut.
const COLUMNS_BEFORE_CARET: usize = 30;
/// Tabs go to the next multiple of this.
const TAB_WIDTH: usize = 4;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const CYAN: &str = "\x1b[36m";
const RESET: &str = "\x1b[0m";

/// All problems of a file.
pub(super) fn render_diagnostics(problems: &Diagnostics, colour: bool) -> String {
    let mut out = String::new();
    let paint = Styler { colour };
    for problem in &problems.list {
        render_diagnostic(problems, problem, &paint, &mut out);
    }
    if problems.more > 0 {
        let plural = if problems.more == 1 { "" } else { "s" };
        let file = escape_hidden(&problems.file);
        push_line(
            &mut out,
            &format!("{file}: and {} more problem{plural}", problems.more),
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
    problems: &Diagnostics,
    problem: &Diagnostic,
    paint: &Styler,
    out: &mut String,
) {
    let place = problem.location;
    let mut location = escape_hidden(&problems.file);
    // What stands nowhere, such as a default, is wrong with the file as a whole.
    if place.line > 0 {
        location = format!("{location}:{}:{}", place.line, place.column);
    }
    location.push(':');
    let message = escape_hidden(&problem.message);
    push_line(out, &format!("{} {message}", paint.apply(BOLD, &location)));
    if let Some(text) = problems.line(place.line) {
        let number = place.line.to_string();
        let margin = " ".repeat(number.len());
        let shown = Excerpt::new(
            text,
            to_usize(place.column).saturating_sub(1),
            to_usize(place.width),
        );
        push_line(out, &format!("  {number} | {}", shown.text));
        let carets = paint.apply(RED, &"^".repeat(shown.width));
        let space = " ".repeat(shown.before);
        push_line(out, &format!("  {margin} | {space}{carets}"));
    }
    if let Some(help) = &problem.help {
        push_line(
            out,
            &format!("  {} {}", paint.apply(CYAN, "help:"), escape_hidden(help)),
        );
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A line as it is printed, and where its carets go, in columns of a terminal.
#[derive(Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    before: usize,
    width: usize,
}

impl Excerpt {
    /// Shows a line of which these characters are meant.
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

/// As much of a long line as fits, with `…` where something is left out.
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
    // A wide character that lies across the left edge is left out, and what follows moves to the left by its rest.
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

/// What is printed for one character at this column, and how many columns that takes.
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

/// Whether a character would act on a terminal or its reader instead of being seen.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text of which every character can be seen.
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
        let place = SourceLocation {
            line,
            column,
            width,
        };
        let list = vec![Diagnostic::new(place, "wrong", "right")];
        Diagnostics::new("p.yaml", text, list).to_string()
    }

    #[test]
    fn the_caret_stands_below_what_is_meant() {
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
        let shown = render("\tx: 日本\n", 1, 5, 2);
        assert_eq!(
            shown,
            "p.yaml:1:5: wrong\n  1 |     x: 日本\n    |        ^^^^\n  help: right\n"
        );
    }

    #[test]
    fn the_end_of_a_line_can_be_meant() {
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
    fn what_stands_nowhere_is_told_of_the_file() {
        assert_eq!(render("a\n", 0, 0, 0), "p.yaml: wrong\n  help: right\n");
    }

    /// What the carets stand below, by columns of a terminal.
    fn above_carets(shown: &Excerpt) -> String {
        let mut column = 0;
        let mut found = String::new();
        for character in shown.text.chars() {
            if column >= shown.before && column < shown.before + shown.width {
                found.push(character);
            }
            column += character.to_string().width();
        }
        found
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret_which_stays_below_the_same_word() {
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
                let shown = Excerpt::new(&text, left, 4);
                assert_eq!(
                    above_carets(&shown),
                    "WORD",
                    "{filler} {left} {right}: {shown:?}"
                );
                assert!(shown.text.width() <= MAX_COLUMNS + 2, "{shown:?}");
                assert_eq!(shown.text.contains('…'), text.width() > MAX_COLUMNS);
            }
        }
        let whole = Excerpt::new(&"x".repeat(500), 0, 500);
        assert!(whole.width <= MAX_COLUMNS + 1, "{whole:?}");
        // Negative control: a caret that is off by one is seen.
        let mut off = Excerpt::new("aWORDb", 1, 4);
        off.before += 1;
        assert_eq!(above_carets(&off), "ORDb");
    }

    #[test]
    fn nothing_that_a_file_says_reaches_the_terminal_as_a_command() {
        let place = SourceLocation {
            line: 1,
            column: 1,
            width: 1,
        };
        let evil = "\x1b[2Ja\u{202e}b\r\u{9b}";
        let list = vec![Diagnostic::new(place, format!("`{evil}\n`"), evil)];
        let said = Diagnostics::new(evil, &format!("{evil}\n"), list).to_string();
        assert!(
            !said.contains(['\x1b', '\u{202e}', '\r', '\u{9b}']),
            "{said:?}"
        );
        assert_eq!(said.lines().count(), 4, "{said:?}");
    }

    #[test]
    fn colours_only_where_they_are_asked_for() {
        let list = vec![Diagnostic::new(SourceLocation::START, "wrong", "right")];
        let problems = Diagnostics::new("f", "x\n", list);
        assert!(!problems.render(false).contains('\x1b'));
        let coloured = problems.render(true);
        assert!(coloured.contains("\x1b[1;31m^\x1b[0m"), "{coloured:?}");
        let mut plain = coloured;
        for code in [super::BOLD, super::RED, super::CYAN, super::RESET] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, problems.to_string());
    }
}
