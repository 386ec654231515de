//! Splits inline commands into arguments, with the quotes and escapes of `redis-cli`.
//!
//! Unquoting never makes an argument longer, so it is rewritten in place. Must not know: where lines come from.

use std::ops::Range;

use super::parse::ProtocolError;

/// Finds the arguments of a line and passes the span of each to `take`, which returns false if there are too many.
pub(super) fn split(
    line: &mut [u8],
    mut take: impl FnMut(Range<usize>) -> bool,
) -> Result<(), ProtocolError> {
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at >= line.len() {
            return Ok(());
        }
        let (word, next) = read_argument(line, at)?;
        if !take(word) {
            return Err(ProtocolError::TooManyInlineArguments);
        }
        at = next;
    }
}

/// The argument that starts at `start`, and where it ends in the line.
fn read_argument(line: &mut [u8], start: usize) -> Result<(Range<usize>, usize), ProtocolError> {
    let (mut from, mut to) = (start, start);
    let mut put = |line: &mut [u8], byte: u8| {
        if let Some(span) = line.get_mut(to) {
            *span = byte;
        }
        to += 1;
    };
    while let Some(byte) = line.get(from).copied() {
        if byte.is_ascii_whitespace() {
            break;
        }
        if byte != b'"' && byte != b'\'' {
            put(line, byte);
            from += 1;
            continue;
        }
        from += 1;
        loop {
            let inside = line
                .get(from)
                .copied()
                .ok_or(ProtocolError::UnbalancedQuotes)?;
            if inside == byte {
                break;
            }
            let rest = line.get(from..).unwrap_or_default();
            let (value, len) = unescape(rest, byte).unwrap_or((inside, 1));
            put(line, value);
            from += len;
        }
        from += 1;
        // `"a"b` is ambiguous, so it is rejected.
        if line
            .get(from)
            .is_some_and(|next| !next.is_ascii_whitespace())
        {
            return Err(ProtocolError::UnbalancedQuotes);
        }
    }
    Ok((start..to, from))
}

/// The byte that an escape stands for and the length of the escape, if one starts here.
fn unescape(rest: &[u8], quote: u8) -> Option<(u8, usize)> {
    let [b'\\', next, ..] = rest else {
        return None;
    };
    if quote == b'\'' {
        return (*next == b'\'').then_some((b'\'', 2));
    }
    if let [b'\\', b'x', high, low, ..] = rest
        && let (Some(high), Some(low)) = (hex(*high), hex(*low))
    {
        return Some((high << 4 | low, 4));
    }
    let value = match next {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => *other,
    };
    Some((value, 2))
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let mut line = line.to_vec();
        let mut places = Vec::new();
        split(&mut line, |span| {
            places.push(span);
            true
        })?;
        Ok(places.into_iter().map(|span| line[span].to_vec()).collect())
    }

    #[test]
    fn spaces_separate_and_quotes_join() {
        let line = br#"  GET "a b"   'c "d'  "" e "#;
        let expected: [&[u8]; 5] = [b"GET", b"a b", b"c \"d", b"", b"e"];
        assert_eq!(arguments(line).unwrap(), expected);
    }

    #[test]
    fn escapes_are_those_of_redis_cli() {
        let line = br#""\n\r\t\b\a\\\"\x41\xg" '\'\n'"#;
        let expected: [&[u8]; 2] = [b"\n\r\t\x08\x07\\\"Axg", b"'\\n"];
        assert_eq!(arguments(line).unwrap(), expected);
    }

    #[test]
    fn unclosed_quotes_are_refused() {
        for line in [&b"\"a"[..], b"'a", b"\"a\"b", b"\"a\\\"", b"\"", b"a \""] {
            assert_eq!(
                arguments(line),
                Err(ProtocolError::UnbalancedQuotes),
                "{line:?}"
            );
        }
    }
}
