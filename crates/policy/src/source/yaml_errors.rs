//! The YAML library's errors in plain words, with what would be right.
//!
//! Must not know: trees, fields.

use granit_parser::ErrorKind as Kind;

use super::diagnostic::Diagnostic;
use super::line_index::LineIndex;
use super::too_deep;

const LIST_AND_FIELDS_MIXED: (&str, &str) = (
    "a list and fields of a map cannot stand side by side",
    "begin every value of the list with `- `, indented alike",
);

/// What is wrong at this byte.
pub(super) fn syntax_error(
    kind: &Kind,
    text: &str,
    at: usize,
    lines: &LineIndex<'_>,
) -> Diagnostic {
    let at = error_offset(kind, text, at.min(text.len()));
    let place = lines.locate(at..at + 1);
    if *kind == Kind::RecursionLimitExceeded {
        return too_deep(place);
    }
    let next = text.get(at..).and_then(|rest| rest.chars().next());
    let (message, help) = message_and_help(kind, next);
    Diagnostic::new(place, message, help)
}

/// The library points behind a tab that it refuses, and behind the dash of a list between fields; the tab or dash
/// itself is what the reader should see.
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

/// Whether a text ends with a dash that begins its line.
fn is_dash(text: &str) -> bool {
    text.strip_suffix('-')
        .is_some_and(|line| line.trim_end_matches(' ').ends_with('\n'))
}

/// The message and the help for an error before this character.
fn message_and_help(kind: &Kind, next: Option<char>) -> (String, &'static str) {
    if let Some((message, help)) = scalar_error(kind).or_else(|| indentation_error(kind, next)) {
        return (message.to_owned(), help);
    }
    if let Some(said) = bracket_error(kind, next) {
        return said;
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

/// What can be wrong with a single text.
fn scalar_error(kind: &Kind) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        Kind::UnclosedQuotedScalar | Kind::DocumentIndicatorInQuotedScalar => (
            "this text has no closing quote",
            "close the quote; a quote inside a text in '…' is written twice",
        ),
        Kind::InvalidQuotedScalarIndent => (
            "a text in quotes goes on here, on a line that is not indented",
            "is a closing quote missing above? A text that goes on is indented",
        ),
        Kind::InvalidTrailingSingleQuotedScalar | Kind::InvalidTrailingDoubleQuotedScalar => (
            "something follows a text in quotes",
            "put all of it inside the quotes; in '…' a quote is written twice, in \"…\" as \\\"",
        ),
        Kind::UnknownQuotedScalarEscape | Kind::InvalidQuotedScalarHexEscape => (
            "this text has an escape that YAML does not know",
            "write \\\\ for a backslash, or use '…', in which nothing is escaped",
        ),
        Kind::MissingAnchorOrAliasName => (
            "a value that begins with `*` or `&` needs quotes",
            "write \"*\"",
        ),
        Kind::DirectiveDisallowed | Kind::InvalidDirectiveName | Kind::MissingDirectiveName => (
            "a line that begins with `%` is an instruction to YAML",
            "quote a text that begins with `%`",
        ),
        Kind::CommentNotSeparated => (
            "a comment needs a space before its `#`",
            "write ` #`, or quote a text that has a `#` in it",
        ),
        Kind::BomInsideDocument => (
            "an invisible byte order mark stands here",
            "remove it; files that were joined often have one",
        ),
        Kind::UndeclaredTagHandle
        | Kind::ExpectedTagBang
        | Kind::InvalidTagTerminator
        | Kind::MissingTagUri
        | Kind::UnclosedVerbatimTag
        | Kind::InvalidTagEscape
        | Kind::InvalidGlobalTagCharacter => (
            "YAML reads a value that begins with `!` as a tag, and a policy has none",
            "remove it; quote a text that begins with `!`",
        ),
        _ => return None,
    })
}

/// What can be wrong with lines and their indentation.
fn indentation_error(kind: &Kind, next: Option<char>) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        Kind::TabNotAllowed | Kind::TabInBlockIndentation | Kind::TabInIndentation => {
            ("a tab stands where YAML wants spaces", "indent with spaces")
        }
        Kind::ExpectedDocumentStart => (
            "this does not belong to what stands above it",
            "indent all fields of a map alike; is a bracket closed too early?",
        ),
        Kind::MappingValueNotAllowed | Kind::InvalidColonPlacement => (
            "a `:` cannot stand here",
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
            "`-` begins a value of a list, and inside brackets it cannot",
            "separate values inside brackets by commas",
        ),
        _ => return None,
    })
}

/// What can be wrong with brackets.
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
            "a `,` or `]` should stand here",
            "separate the values of a list by commas and close it with `]`",
        ),
        Kind::ExpectedFlowMappingSeparator => (
            "a `,` or `}` should stand here",
            "separate the fields of a map by commas and close it with `}`",
        ),
        Kind::MisplacedFlowCollectionEnd => (
            "this bracket closes nothing",
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

const CLOSE: &str = "close every bracket with its own kind";

fn unclosed(open: char) -> (String, &'static str) {
    (format!("this `{open}` is never closed"), CLOSE)
}
