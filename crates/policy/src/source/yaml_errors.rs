//! Translates errors of the YAML library to diagnostics with suggestions.
//!
//! Must not know: trees, fields.

use granit_parser::ErrorKind as Kind;

use super::diagnostic::Diagnostic;
use super::line_index::LineIndex;
use super::too_deep;

const LIST_AND_FIELDS_MIXED: (&str, &str) = (
    "a list and the fields of a map are mixed",
    "begin every value of the list with `- `, indented alike",
);

/// The diagnostic of an error at this byte.
pub(super) fn syntax_error(
    kind: &Kind,
    text: &str,
    at: usize,
    lines: &LineIndex<'_>,
) -> Diagnostic {
    let at = error_offset(kind, text, at.min(text.len()));
    let location = lines.locate(at..at + 1);
    if *kind == Kind::RecursionLimitExceeded {
        return too_deep(location);
    }
    if matches!(
        kind,
        Kind::MappingValueNotAllowed | Kind::InvalidColonPlacement
    ) && let Some(begin) = over_indented(text, at)
    {
        return Diagnostic::new(
            lines.locate(begin..begin + 1),
            "this line is indented more than the field above it, which already has a value",
            "indent all fields of a map alike, by spaces",
        );
    }
    let next = text.get(at..).and_then(|rest| rest.chars().next());
    let (message, help) = message_and_help(kind, next);
    Diagnostic::new(location, message, help)
}

/// The library reports the position after a rejected tab, and after the dash of a list between fields. The diagnostic
/// points at the tab or the dash.
fn error_offset(kind: &Kind, text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    let spaces = before.trim_end_matches([' ', '\t']).len();
    match kind {
        Kind::TabNotAllowed | Kind::TabInBlockIndentation | Kind::TabInIndentation => before
            .get(spaces..)
            .and_then(|space| space.find('\t'))
            .map_or(at, |first| spaces + first),
        Kind::ExpectedBlockMappingKey if before.get(..spaces).is_some_and(is_dash) => spaces - 1,
        _ => at,
    }
}

/// Where the line of an unexpected `:` begins, if the reason is its indentation: the line above is a field with a value and is
/// indented less. YAML reads such a line as more of that value.
fn over_indented(text: &str, at: usize) -> Option<usize> {
    let before = text.get(..at)?;
    let line_start = before.rfind('\n')? + 1;
    let (above, line) = before.split_at(line_start);
    let indent = line.len() - line.trim_start_matches(' ').len();
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let above = above.lines().rev().find(is_content)?;
    // A field may stand after the dash of a list.
    let field = above.trim_start_matches([' ', '-']);
    let has_value = field.split_once(": ").is_some_and(|(_, value)| {
        let value = value.trim();
        !value.is_empty() && !value.starts_with(['#', '[', '{', '"', '\'', '|', '>'])
    });
    (has_value && indent > above.len() - field.len()).then_some(line_start + indent)
}

/// Whether a text ends with a dash at the begin of a line.
fn is_dash(text: &str) -> bool {
    text.strip_suffix('-')
        .is_some_and(|line| line.trim_end_matches(' ').ends_with('\n'))
}

/// The message and the suggestion for an error before this character.
fn message_and_help(kind: &Kind, next: Option<char>) -> (String, &'static str) {
    if let Some((message, help)) = scalar_error(kind).or_else(|| indentation_error(kind, next)) {
        return (message.to_owned(), help);
    }
    if let Some(error) = bracket_error(kind, next) {
        return error;
    }
    if let Kind::UnexpectedCharacter { character } = kind {
        let message = format!("a value cannot begin with `{}`", character.escape_debug());
        return (message, "put it in quotes");
    }
    (
        format!("this is not valid YAML: {kind}"),
        "quote texts with special characters, and indent by spaces",
    )
}

/// Errors in a single text.
fn scalar_error(kind: &Kind) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        Kind::UnclosedQuotedScalar | Kind::DocumentIndicatorInQuotedScalar => (
            "this text has no closing quote",
            "close the quote; a quote inside a text in '…' is written twice",
        ),
        Kind::InvalidQuotedScalarIndent => (
            "a quoted text continues on a line that is not indented",
            "is a closing quote missing above? Indent the lines of a quoted text",
        ),
        Kind::InvalidTrailingSingleQuotedScalar | Kind::InvalidTrailingDoubleQuotedScalar => (
            "unexpected text after a closing quote",
            "put all of it inside the quotes; in '…' a quote is written twice, in \"…\" as \\\"",
        ),
        Kind::UnknownQuotedScalarEscape | Kind::InvalidQuotedScalarHexEscape => (
            "unknown escape in a quoted text",
            "write \\\\ for a backslash, or use '…', which has no escapes",
        ),
        Kind::MissingAnchorOrAliasName => (
            "a value that begins with `*` or `&` needs quotes",
            "write \"*\"",
        ),
        Kind::DirectiveDisallowed | Kind::InvalidDirectiveName | Kind::MissingDirectiveName => (
            "a line that begins with `%` is a YAML directive",
            "quote a text that begins with `%`",
        ),
        Kind::CommentNotSeparated => (
            "a comment needs a space before its `#`",
            "write ` #`, or quote a text that has a `#` in it",
        ),
        Kind::BomInsideDocument => (
            "unexpected byte order mark",
            "remove it; joining files often leaves one",
        ),
        Kind::UndeclaredTagHandle
        | Kind::ExpectedTagBang
        | Kind::InvalidTagTerminator
        | Kind::MissingTagUri
        | Kind::UnclosedVerbatimTag
        | Kind::InvalidTagEscape
        | Kind::InvalidGlobalTagCharacter => (
            "YAML reads a value that begins with `!` as a tag, and policies do not support tags",
            "remove it; quote a text that begins with `!`",
        ),
        _ => return None,
    })
}

/// Errors in lines and their indentation.
fn indentation_error(kind: &Kind, next: Option<char>) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        Kind::TabNotAllowed | Kind::TabInBlockIndentation | Kind::TabInIndentation => (
            "a tab is not allowed as YAML indentation",
            "indent with spaces",
        ),
        Kind::ExpectedDocumentStart => (
            "this line does not belong to the block above",
            "indent all fields of a map alike; is a bracket closed too early?",
        ),
        Kind::MappingValueNotAllowed | Kind::InvalidColonPlacement => (
            "unexpected `:`",
            "quote a text that has a `: ` in it; begin a field on its own line; close every bracket",
        ),
        Kind::SimpleKeyExpected | Kind::InvalidSimpleKey => (
            "a `:` is missing after this name",
            "write `name: value`, with a space after the colon",
        ),
        Kind::ExpectedBlockMappingKey if next == Some('-') => LIST_AND_FIELDS_MIXED,
        Kind::ExpectedBlockSequenceEntry | Kind::BlockSequenceEntryNotAllowed => {
            LIST_AND_FIELDS_MIXED
        }
        Kind::ExpectedBlockMappingKey | Kind::InvalidIndentation => (
            "this line is indented neither like the fields above it nor like part of them",
            "indent all fields of a map alike, by spaces",
        ),
        Kind::BlockEntryInFlowCollection => (
            "`-` cannot begin a list value inside brackets",
            "separate values inside brackets by commas",
        ),
        _ => return None,
    })
}

/// Errors in brackets.
fn bracket_error(kind: &Kind, next: Option<char>) -> Option<(String, &'static str)> {
    let (message, help) = match kind {
        Kind::ExpectedFlowSequenceSeparator if matches!(next, Some('{' | '}' | '[')) => (
            "inside `[…]` a bracket ends a text that is not in quotes",
            "quote it: [\"/v1/items/{id}\"]",
        ),
        Kind::ExpectedFlowMappingSeparator if matches!(next, Some('{' | '}' | '[' | ']')) => (
            "inside `{…}` a bracket ends a text that is not in quotes",
            "quote it: { route: \"/v1/items/{id}\" }",
        ),
        Kind::ExpectedFlowSequenceSeparator => (
            "expected `,` or `]`",
            "separate the values of a list by commas and close it with `]`",
        ),
        Kind::ExpectedFlowMappingSeparator => (
            "expected `,` or `}`",
            "separate the fields of a map by commas and close it with `}`",
        ),
        Kind::MisplacedFlowCollectionEnd => (
            "unmatched closing bracket",
            "remove it, or quote the text that it belongs to",
        ),
        Kind::MismatchedFlowCollectionEnd { open, close } => {
            return Some((format!("this `{open}` is closed by `{close}`"), CLOSE));
        }
        Kind::UnclosedFlowCollection { open } => return Some(unclosed(*open)),
        Kind::UnexpectedEofFlowSequence => return Some(unclosed('[')),
        Kind::UnexpectedEofFlowMapping | Kind::UnexpectedEofImplicitFlowMapping => {
            return Some(unclosed('{'));
        }
        _ => return None,
    };
    Some((message.to_owned(), help))
}

const CLOSE: &str = "close every bracket with the matching bracket";

fn unclosed(open: char) -> (String, &'static str) {
    (format!("this `{open}` is never closed"), CLOSE)
}
