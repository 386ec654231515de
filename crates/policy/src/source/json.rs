//! Parses strict JSON: no comments, no trailing commas, names in double quotes.
//!
//! A parser of our own, because diagnostics need the location of every value and `serde_json` reports only the
//! locations of errors. Tests compare it with `serde_json`. Must not know: fields.

use super::diagnostic::Diagnostic;
use super::line_index::LineIndex;
use super::node::{Located, MapEntry, SourceNode, SourceValue};
use super::{MAX_DEPTH, MAX_NODES, empty_file, too_deep, too_many};

/// Parses a text. Stops at the first error, because later errors would be misleading.
pub(super) fn parse(text: &str, lines: &LineIndex<'_>) -> Result<SourceNode, Diagnostic> {
    let mut reader = JsonParser {
        text,
        lines,
        at: 0,
        nodes: 0,
    };
    reader.skip_space();
    if reader.at == text.len() {
        return Err(empty_file());
    }
    let tree = reader.value(0)?;
    reader.skip_space();
    if reader.at < text.len() {
        return Err(reader.unexpected(
            "unexpected text after the value",
            "a JSON file is one value; is there a bracket too many before this?",
        ));
    }
    Ok(tree)
}

struct JsonParser<'a> {
    text: &'a str,
    lines: &'a LineIndex<'a>,
    at: usize,
    nodes: usize,
}

impl JsonParser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// An error at the bytes from `start` to the current position.
    fn error_at(&self, start: usize, message: impl Into<String>, help: &str) -> Diagnostic {
        Diagnostic::new(self.lines.locate(start..self.at), message, help)
    }

    /// An error at the next character, with a more specific message for some characters.
    fn unexpected(&self, message: &str, help: &str) -> Diagnostic {
        let (message, help) = match self.rest().chars().next() {
            None => (
                "unexpected end of file inside a value",
                "is a bracket or a quote not closed?",
            ),
            Some('/' | '#') => (
                "JSON has no comments",
                "remove it, or write the policy in YAML or TOML",
            ),
            Some('\'') => (
                "JSON strings need double quotes",
                "write \"…\" instead of '…'",
            ),
            Some(_) => (message, help),
        };
        Diagnostic::new(self.lines.locate(self.at..self.at + 1), message, help)
    }

    fn value(&mut self, depth: usize) -> Result<SourceNode, Diagnostic> {
        self.nodes += 1;
        let start = self.at;
        if self.nodes > MAX_NODES {
            return Err(too_many(self.lines.locate(start..start)));
        }
        let value = match self.peek() {
            Some(b'{' | b'[') if depth >= MAX_DEPTH => {
                return Err(too_deep(self.lines.locate(start..start + 1)));
            }
            Some(b'{') => SourceValue::Map(self.map(depth)?),
            Some(b'[') => SourceValue::List(self.list(depth)?),
            Some(b'"') => SourceValue::Scalar {
                text: self.string()?.into(),
                quoted: true,
            },
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        Ok(SourceNode {
            location: self.lines.locate(start..self.at),
            value,
        })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<SourceNode>, Diagnostic> {
        let mut values = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(values);
        }
        loop {
            values.push(self.value(depth + 1)?);
            if self.at_closing_bracket(b']')? {
                return Ok(values);
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<MapEntry>, Diagnostic> {
        let mut entries = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(entries);
        }
        loop {
            self.nodes += 1;
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(
                    self.unexpected("expected a name in double quotes", "write \"name\": value")
                );
            }
            let name = self.string()?;
            let name = Located::new(name.into_boxed_str(), self.lines.locate(start..self.at));
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected(
                    "expected `:` between a name and its value",
                    "write \"name\": value",
                ));
            }
            self.at += 1;
            self.skip_space();
            let value = self.value(depth + 1)?;
            entries.push(MapEntry { name, value });
            if self.at_closing_bracket(b'}')? {
                return Ok(entries);
            }
        }
    }

    /// After a value: whether the closing bracket follows. Otherwise consumes a comma before the next value.
    fn at_closing_bracket(&mut self, bracket: u8) -> Result<bool, Diagnostic> {
        self.skip_space();
        match self.peek() {
            Some(byte) if byte == bracket => {
                self.at += 1;
                Ok(true)
            }
            Some(b',') => {
                let comma = self.at;
                self.at += 1;
                let after = self.at;
                self.skip_space();
                if self.peek() == Some(bracket) {
                    self.at = after;
                    return Err(self.error_at(
                        comma,
                        "trailing comma",
                        "remove it: JSON allows no comma after the last value",
                    ));
                }
                Ok(false)
            }
            _ => Err(self.unexpected(
                if bracket == b']' {
                    "expected `,` or `]` after a value of a list"
                } else {
                    "expected `,` or `}` after a value of a map"
                },
                "is a comma or a closing bracket missing before this?",
            )),
        }
    }

    /// `true`, `false`, `null`, or an error.
    fn word(&mut self) -> Result<SourceValue, Diagnostic> {
        let length = self
            .rest()
            .find(|c: char| !(c.is_alphanumeric() || "_.-+%".contains(c)))
            .unwrap_or(self.rest().len());
        if length == 0 {
            return Err(self.unexpected(
                "expected a value",
                "a value is a text in double quotes, a number, true, false, null, a list […] or a map {…}",
            ));
        }
        let start = self.at;
        self.at += length;
        match self.text.get(start..self.at).unwrap_or_default() {
            "null" => Ok(SourceValue::Null),
            word @ ("true" | "false") => Ok(SourceValue::Scalar {
                text: word.into(),
                quoted: false,
            }),
            word => Err(self.error_at(
                start,
                format!("`{}` is not a JSON value", truncate_for_message(word)),
                "put a text in double quotes",
            )),
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    /// A number, kept as written.
    fn number(&mut self) -> Result<SourceValue, Diagnostic> {
        let start = self.at;
        let mut is_valid = true;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        is_valid &= whole == 1 || (whole > 1 && !leading_zero);
        if self.peek() == Some(b'.') {
            self.at += 1;
            is_valid &= self.digits() > 0;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            is_valid &= self.digits() > 0;
        }
        // Characters without a space before them belong to the number, so that messages show `10/s` as a whole.
        let tail = self
            .rest()
            .find(|c: char| !(c.is_alphanumeric() || "_.-+%/".contains(c)))
            .unwrap_or(self.rest().len());
        is_valid &= tail == 0;
        self.at += tail;
        let text = self.text.get(start..self.at).unwrap_or_default();
        if !is_valid {
            return Err(self.error_at(
                start,
                format!("`{}` is not a JSON number", truncate_for_message(text)),
                "put a text in double quotes; a number has no leading zero, unit or separator",
            ));
        }
        Ok(SourceValue::Scalar {
            text: text.into(),
            quoted: false,
        })
    }

    /// A string in double quotes, with its escapes resolved.
    fn string(&mut self) -> Result<String, Diagnostic> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let Some(next) = self.rest().chars().next() else {
                return Err(self.not_closed(start));
            };
            match next {
                '"' => {
                    self.at += 1;
                    return Ok(text);
                }
                '\\' => text.push(self.escape()?),
                '\n' | '\r' => return Err(self.not_closed(start)),
                '\0'..='\x1f' => {
                    let control = self.at;
                    self.at += 1;
                    return Err(self.error_at(
                        control,
                        format!(
                            "the control character {} must be escaped",
                            next.escape_unicode()
                        ),
                        "write it as an escape, such as \\t",
                    ));
                }
                _ => {
                    text.push(next);
                    self.at += next.len_utf8();
                }
            }
        }
    }

    fn not_closed(&self, start: usize) -> Diagnostic {
        self.error_at(
            start,
            "this text has no closing quote on its line",
            "close it with \"; write a line break in a text as \\n",
        )
    }

    fn escape(&mut self) -> Result<char, Diagnostic> {
        let start = self.at;
        self.at += 1;
        let letter = self.rest().chars().next();
        self.at += letter.map_or(0, char::len_utf8);
        Ok(match letter {
            Some(same @ ('"' | '\\' | '/')) => same,
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => return self.unicode(start),
            _ => {
                return Err(self.error_at(start, "unknown escape", "write a backslash as \\\\"));
            }
        })
    }

    /// The four digits after `\u`, and the low surrogate if there is one.
    fn unicode(&mut self, start: usize) -> Result<char, Diagnostic> {
        let first = self.four_digits();
        let code = match first {
            Some(high @ 0xd800..=0xdbff) if self.rest().starts_with("\\u") => {
                self.at += 2;
                match self.four_digits() {
                    Some(low @ 0xdc00..=0xdfff) => {
                        Some(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))
                    }
                    _ => None,
                }
            }
            other => other,
        };
        code.and_then(char::from_u32).ok_or_else(|| {
            self.error_at(
                start,
                "invalid Unicode escape",
                "write \\u and four hexadecimal digits, or the character itself",
            )
        })
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let code = u32::from_str_radix(digits, 16).ok()?;
        self.at += 4;
        Some(code)
    }
}

/// Truncates a text for a message.
fn truncate_for_message(text: &str) -> String {
    match text.char_indices().nth(40) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
