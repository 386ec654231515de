//! Parses commands: arrays of bulk strings and inline lines, in place, one at a time.
//!
//! Nothing is copied: a command is a list of spans in its input buffer. Only a quoted inline argument is rewritten in place.
//! Every length is checked before more input is awaited, so a client can make the server buffer at most [`MAX_COMMAND_LEN`]
//! bytes and their headers. Must not know: sockets, what commands mean.

use std::fmt;
use std::ops::Range;

/// The most arguments of one command, including its name.
pub const MAX_ARGUMENTS: usize = 64;
/// The longest argument, in bytes.
pub const MAX_ARGUMENT_LEN: usize = 64 * 1_024;
/// The longest inline command, in bytes.
pub const MAX_INLINE_LEN: usize = 16 * 1_024;
/// The most bytes of all arguments of a command together.
pub const MAX_COMMAND_LEN: usize = 128 * 1_024;
/// The longest length line, in bytes. Any 64-bit number fits.
const MAX_HEADER_LEN: usize = 32;

/// The spans of a command's arguments in its input buffer.
#[derive(Clone, Debug)]
pub struct ArgumentSpans {
    /// Start and end. An input buffer is far shorter than 4 GiB, and half the bytes are copied with a command that waits for a fleet.
    spans: [(u32, u32); MAX_ARGUMENTS],
    len: usize,
}

/// A command: its input buffer and the spans of its arguments.
#[derive(Clone, Copy, Debug)]
pub struct RespCommand<'a> {
    bytes: &'a [u8],
    spans: &'a ArgumentSpans,
}

/// A command that owns its bytes.
#[derive(Clone, Debug)]
pub struct OwnedRespCommand {
    bytes: Box<[u8]>,
    spans: ArgumentSpans,
}

/// What the input starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseOutcome {
    /// A command of this many bytes. It has at least one argument.
    Command(usize),
    /// This many bytes without a command: an empty line or an empty array.
    Empty(usize),
    /// An incomplete command.
    Incomplete,
    /// A protocol error. The connection has to be closed, because the start of the next command is unknown.
    Invalid(ProtocolError),
}

/// Why the input is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number of arguments is not a number, or too large.
    InvalidArrayLen,
    /// The length of an argument is not a number, negative, or too large.
    InvalidBulkLen,
    /// An argument does not start with a dollar sign.
    NotABulkString(u8),
    /// An argument is longer than its declared length.
    MissingCrlf,
    /// All arguments together are too long.
    CommandTooLong,
    /// An inline command is too long.
    InlineTooLong,
    /// An inline command has too many arguments.
    TooManyInlineArguments,
    /// A quote is not closed, or is closed inside an argument.
    UnbalancedQuotes,
}

/// Parses the command at the start of `input` and puts the spans of its arguments into `spans`.
///
/// ```
/// use tollgate_server::resp::{RespCommand, ParseOutcome, ArgumentSpans, parse};
///
/// let mut bytes = *b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nPING";
/// let mut spans = ArgumentSpans::new();
/// assert_eq!(parse(&mut bytes, &mut spans), ParseOutcome::Command(22));
/// let command = RespCommand::new(&bytes, &spans);
/// assert_eq!((command.argument(0), command.argument(1), command.argument(2)), (&b"ECHO"[..], &b"hi"[..], &b""[..]));
/// assert_eq!(parse(&mut bytes[22..], &mut spans), ParseOutcome::Incomplete);
/// ```
pub fn parse(input: &mut [u8], spans: &mut ArgumentSpans) -> ParseOutcome {
    spans.len = 0;
    match input.first() {
        None => ParseOutcome::Incomplete,
        Some(b'*') => parse_array(input, spans),
        Some(_) => parse_inline(input, spans),
    }
}

/// Parses the command at the start of `input`, before the one in front of it is run. An inline command is not parsed ahead,
/// because that rewrites it.
pub(super) fn parse_ahead(input: &[u8], spans: &mut ArgumentSpans) -> Option<ParseOutcome> {
    spans.len = 0;
    matches!(input.first(), Some(b'*')).then(|| parse_array(input, spans))
}

impl ArgumentSpans {
    /// No arguments.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            spans: [(0, 0); MAX_ARGUMENTS],
            len: 0,
        }
    }

    /// Returns false if there is no room.
    fn push(&mut self, place: &Range<usize>) -> bool {
        let (Some(free), Ok(start), Ok(end)) = (
            self.spans.get_mut(self.len),
            u32::try_from(place.start),
            u32::try_from(place.end),
        ) else {
            return false;
        };
        *free = (start, end);
        self.len = self.len.wrapping_add(1);
        true
    }
}

impl Default for ArgumentSpans {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> RespCommand<'a> {
    /// The command whose arguments are at these spans of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8], spans: &'a ArgumentSpans) -> Self {
        Self { bytes, spans }
    }

    /// The number of arguments, including the name.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.spans.len
    }

    /// Whether there are no arguments.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.spans.len == 0
    }

    /// The argument at an index; empty if there is none.
    #[must_use]
    pub fn argument(&self, index: usize) -> &'a [u8] {
        let known = self.spans.spans.get(..self.spans.len);
        let place = known.and_then(|spans| spans.get(index));
        place
            .and_then(|(start, end)| self.bytes.get(index_of(*start)..index_of(*end)))
            .unwrap_or_default()
    }

    /// The same command with its own bytes.
    #[must_use]
    pub fn to_owned(&self) -> OwnedRespCommand {
        // The bytes after the last argument belong to the next command.
        let known = self.spans.spans.get(..self.spans.len);
        let end = known
            .and_then(<[_]>::last)
            .map_or(0, |(_, end)| index_of(*end));
        OwnedRespCommand {
            bytes: self.bytes.get(..end).unwrap_or_default().into(),
            spans: self.spans.clone(),
        }
    }

    /// The arguments from this index on, two at a time. A last one without a partner is left out.
    pub(super) fn pairs_from(
        &self,
        first: usize,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let Self { bytes, spans } = *self;
        let at = move |(start, end): (u32, u32)| {
            let place = index_of(start)..index_of(end);
            bytes.get(place).unwrap_or_default()
        };
        let (pairs, _) = spans
            .spans
            .get(first..spans.len)
            .unwrap_or_default()
            .as_chunks();
        pairs
            .iter()
            .map(move |[name, value]| (at(*name), at(*value)))
    }

    /// The arguments from this index on.
    pub fn arguments_from(
        &self,
        first: usize,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let command = *self;
        (first.min(self.len())..self.len()).map(move |index| command.argument(index))
    }
}

impl OwnedRespCommand {
    /// Borrows the command.
    #[must_use]
    pub const fn as_command(&self) -> RespCommand<'_> {
        RespCommand::new(&self.bytes, &self.spans)
    }
}

/// A position in the input. It came from a `usize`, so it fits.
#[inline]
fn index_of(position: u32) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

/// A number on a line of its own.
enum LengthLine {
    More,
    Invalid,
    Number { number: i64, next: usize },
}

fn parse_array(input: &[u8], spans: &mut ArgumentSpans) -> ParseOutcome {
    let most = i64::try_from(MAX_ARGUMENTS).unwrap_or(i64::MAX);
    let (count, mut at) = match parse_header(input, 1) {
        LengthLine::More => return ParseOutcome::Incomplete,
        LengthLine::Invalid => return ParseOutcome::Invalid(ProtocolError::InvalidArrayLen),
        LengthLine::Number { number, .. } if number > most => {
            return ParseOutcome::Invalid(ProtocolError::InvalidArrayLen);
        }
        // Negative lengths mean a null array. Redis skips them too.
        LengthLine::Number { number, next } if number <= 0 => return ParseOutcome::Empty(next),
        LengthLine::Number { number, next } => (number, next),
    };
    let mut total = 0_usize;
    for _ in 0..count {
        match input.get(at) {
            None => return ParseOutcome::Incomplete,
            Some(b'$') => {}
            Some(other) => return ParseOutcome::Invalid(ProtocolError::NotABulkString(*other)),
        }
        let (len, start) = match parse_header(input, at.saturating_add(1)) {
            LengthLine::More => return ParseOutcome::Incomplete,
            LengthLine::Invalid => return ParseOutcome::Invalid(ProtocolError::InvalidBulkLen),
            LengthLine::Number { number, next } => match usize::try_from(number) {
                Ok(len) if len <= MAX_ARGUMENT_LEN => (len, next),
                _ => return ParseOutcome::Invalid(ProtocolError::InvalidBulkLen),
            },
        };
        total = total.saturating_add(len);
        if total > MAX_COMMAND_LEN {
            return ParseOutcome::Invalid(ProtocolError::CommandTooLong);
        }
        let end = start.saturating_add(len);
        let next = end.saturating_add(2);
        match input.get(end..next) {
            None => return ParseOutcome::Incomplete,
            Some(b"\r\n") => {}
            Some(_) => return ParseOutcome::Invalid(ProtocolError::MissingCrlf),
        }
        if !spans.push(&(start..end)) {
            return ParseOutcome::Invalid(ProtocolError::InvalidArrayLen);
        }
        at = next;
    }
    ParseOutcome::Command(at)
}

/// Parses a number that ends with a line break.
fn parse_header(input: &[u8], at: usize) -> LengthLine {
    let line = input.get(at..).unwrap_or_default();
    // One or two digits are by far the most common.
    let (number, len) = match line {
        [one @ b'0'..=b'9', b'\r', b'\n', ..] => (i64::from(one - b'0'), 1),
        [tens @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
            (i64::from(tens - b'0') * 10 + i64::from(one - b'0'), 2)
        }
        _ => match parse_long_header(line) {
            Ok(found) => found,
            Err(other) => return other,
        },
    };
    LengthLine::Number {
        number,
        next: at.saturating_add(len).saturating_add(2),
    }
}

#[inline(never)]
fn parse_long_header(line: &[u8]) -> Result<(i64, usize), LengthLine> {
    let prefix = line.get(..MAX_HEADER_LEN).unwrap_or(line);
    let Some(len) = prefix.iter().position(|byte| *byte == b'\r') else {
        let is_short = prefix.len() < MAX_HEADER_LEN;
        return Err(if is_short {
            LengthLine::More
        } else {
            LengthLine::Invalid
        });
    };
    match line.get(len.saturating_add(1)) {
        None => return Err(LengthLine::More),
        Some(b'\n') => {}
        Some(_) => return Err(LengthLine::Invalid),
    }
    let digits = prefix.get(..len).unwrap_or_default();
    let number = super::number::parse_integer(digits).ok_or(LengthLine::Invalid)?;
    Ok((number, len))
}

/// Parses a line of arguments, as people type it without a client library.
fn parse_inline(input: &mut [u8], spans: &mut ArgumentSpans) -> ParseOutcome {
    let prefix = input.get(..MAX_INLINE_LEN).unwrap_or(input);
    let Some(end) = prefix.iter().position(|byte| *byte == b'\n') else {
        let is_short = prefix.len() < MAX_INLINE_LEN;
        return if is_short {
            ParseOutcome::Incomplete
        } else {
            ParseOutcome::Invalid(ProtocolError::InlineTooLong)
        };
    };
    let line = input.get_mut(..end).unwrap_or_default();
    let consumed = end.saturating_add(1);
    match super::inline::split(line, |word| spans.push(&word)) {
        Ok(()) if spans.len == 0 => ParseOutcome::Empty(consumed),
        Ok(()) => ParseOutcome::Command(consumed),
        Err(broken) => ParseOutcome::Invalid(broken),
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArrayLen => f.write_str("invalid multibulk length"),
            Self::InvalidBulkLen => f.write_str("invalid bulk length"),
            Self::NotABulkString(byte) => {
                let shown = match byte {
                    b' '..=b'~' => char::from(*byte),
                    _ => '?',
                };
                write!(f, "expected '$', got '{shown}'")
            }
            Self::MissingCrlf => f.write_str("expected CRLF after a bulk string"),
            Self::CommandTooLong => f.write_str("too big command"),
            Self::InlineTooLong => f.write_str("too big inline request"),
            Self::TooManyInlineArguments => f.write_str("too many arguments in an inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

impl std::error::Error for ProtocolError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(bytes: &[u8]) -> (ParseOutcome, Vec<Vec<u8>>) {
        let mut bytes = bytes.to_vec();
        let mut spans = ArgumentSpans::new();
        let parsed = parse(&mut bytes, &mut spans);
        let found = RespCommand::new(&bytes, &spans);
        (
            parsed,
            found.arguments_from(0).map(<[u8]>::to_vec).collect(),
        )
    }

    fn outcome(bytes: &[u8]) -> ParseOutcome {
        parsed(bytes).0
    }

    #[test]
    fn arguments_may_hold_any_bytes() {
        let (outcome, spans) = parsed(b"*3\r\n$0\r\n\r\n$4\r\n\r\n\r\n\r\n$1\r\n\0\r\nrest");
        assert_eq!(outcome, ParseOutcome::Command(27));
        assert_eq!(spans, [&b""[..], b"\r\n\r\n", b"\0"]);
    }

    #[test]
    fn every_prefix_of_a_command_is_incomplete() {
        let whole = b"*2\r\n$11\r\nCL.THROTTLE\r\n$3\r\nkey\r\n";
        for cut in 0..whole.len() {
            assert_eq!(outcome(&whole[..cut]), ParseOutcome::Incomplete, "{cut}");
        }
        assert_eq!(outcome(whole), ParseOutcome::Command(whole.len()));
        let line = b"PING \"a b\"\r\n";
        for cut in 0..line.len() {
            assert_eq!(outcome(&line[..cut]), ParseOutcome::Incomplete, "{cut}");
        }
    }

    #[test]
    fn empty_arrays_and_lines_are_no_commands() {
        assert_eq!(outcome(b"*0\r\nPING"), ParseOutcome::Empty(4));
        assert_eq!(outcome(b"*-1\r\n"), ParseOutcome::Empty(5));
        assert_eq!(outcome(b"\r\n"), ParseOutcome::Empty(2));
        assert_eq!(outcome(b"  \t\n"), ParseOutcome::Empty(4));
    }

    #[test]
    fn invalid_lengths_are_refused_immediately() {
        let cases: [(&[u8], ProtocolError); 14] = [
            (b"*65\r\n", ProtocolError::InvalidArrayLen),
            (b"*9223372036854775808\r\n", ProtocolError::InvalidArrayLen),
            (b"*x\r\n", ProtocolError::InvalidArrayLen),
            (b"*\r\n", ProtocolError::InvalidArrayLen),
            (b"*1\rx", ProtocolError::InvalidArrayLen),
            (
                b"*00000000000000000000000000000001\r\n",
                ProtocolError::InvalidArrayLen,
            ),
            (b"*1\r\n$65537\r\n", ProtocolError::InvalidBulkLen),
            (b"*1\r\n$-1\r\n", ProtocolError::InvalidBulkLen),
            (b"*1\r\n$ 1\r\n", ProtocolError::InvalidBulkLen),
            (
                b"*1\r\n$99999999999999999999\r\n",
                ProtocolError::InvalidBulkLen,
            ),
            (b"*1\r\n*1\r\n", ProtocolError::NotABulkString(b'*')),
            (b"*1\r\n:1\r\n", ProtocolError::NotABulkString(b':')),
            (b"*1\r\n$1\r\nabc", ProtocolError::MissingCrlf),
            (b"say \"hello\n", ProtocolError::UnbalancedQuotes),
        ];
        for (bytes, broken) in cases {
            assert_eq!(outcome(bytes), ParseOutcome::Invalid(broken), "{bytes:?}");
        }
    }

    #[test]
    fn a_command_is_bounded_as_a_whole() {
        let word = format!(
            "${MAX_ARGUMENT_LEN}\r\n{}\r\n",
            "x".repeat(MAX_ARGUMENT_LEN)
        );
        let bytes = format!("*3\r\n{word}{word}$1\r\n");
        assert_eq!(
            outcome(bytes.as_bytes()),
            ParseOutcome::Invalid(ProtocolError::CommandTooLong)
        );
        let endless = vec![b'a'; MAX_INLINE_LEN];
        assert_eq!(
            outcome(&endless),
            ParseOutcome::Invalid(ProtocolError::InlineTooLong)
        );
        assert_eq!(outcome(&endless[1..]), ParseOutcome::Incomplete);
        let many = "a ".repeat(MAX_ARGUMENTS + 1) + "\n";
        assert_eq!(
            outcome(many.as_bytes()),
            ParseOutcome::Invalid(ProtocolError::TooManyInlineArguments)
        );
    }
}
