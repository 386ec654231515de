//! Where commands and replies of the Redis protocol begin and end, in both its versions. What is inside passes unread.
//!
//! Must not know: what is done with them.

/// The bytes are something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotResp;

/// Replies are nested no deeper than this.
const DEEPEST: u32 = 32;
/// A first line is no longer than this.
const LONGEST_LINE: usize = 65_536;
/// Commands whose second word says what they do.
const FAMILIES: &[&str] = &[
    "ACL", "CLIENT", "CLUSTER", "CONFIG", "DEBUG", "SCRIPT", "SENTINEL",
];

/// The name of the first command and how many bytes it takes; nothing while it is not all there.
pub(super) fn command(bytes: &[u8]) -> Result<Option<(String, usize)>, NotResp> {
    match bytes.first() {
        None => Ok(None),
        Some(b'*') => listed(bytes),
        Some(first) if first.is_ascii_alphabetic() => Ok(inline(bytes)?),
        Some(_) => Err(NotResp),
    }
}

/// How many bytes the first reply takes; nothing while it is not all there.
pub(super) fn reply(bytes: &[u8]) -> Result<Option<usize>, NotResp> {
    value(bytes, 0, 0)
}

/// Whether a reply is pushed by the server and answers no command.
pub(super) fn is_pushed(reply: &[u8]) -> bool {
    reply.first() == Some(&b'>')
}

fn listed(bytes: &[u8]) -> Result<Option<(String, usize)>, NotResp> {
    let Some((count, mut at)) = number(bytes, 0)? else {
        return Ok(None);
    };
    let mut words = Vec::new();
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(NotResp),
        }
        let Some((length, start)) = number(bytes, at)? else {
            return Ok(None);
        };
        let length = usize::try_from(length).map_err(|_negative| NotResp)?;
        at = start.saturating_add(length).saturating_add(2);
        let Some(word) = bytes.get(start..at) else {
            return Ok(None);
        };
        if words.len() < 2 {
            words.push(word.get(..length).unwrap_or_default());
        }
    }
    Ok(Some((name(&words), at)))
}

fn inline(bytes: &[u8]) -> Result<Option<(String, usize)>, NotResp> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() > LONGEST_LINE {
            Err(NotResp)
        } else {
            Ok(None)
        };
    };
    let line = bytes.get(..end).unwrap_or_default();
    let words: Vec<&[u8]> = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .take(2)
        .collect();
    Ok(Some((name(&words), end + 1)))
}

fn name(words: &[&[u8]]) -> String {
    let upper = |word: &[u8]| String::from_utf8_lossy(word).to_ascii_uppercase();
    let first = words.first().map(|word| upper(word)).unwrap_or_default();
    match words.get(1) {
        Some(second) if FAMILIES.contains(&first.as_str()) => format!("{first} {}", upper(second)),
        _ => first,
    }
}

/// The end of the value at this place.
fn value(bytes: &[u8], at: usize, depth: u32) -> Result<Option<usize>, NotResp> {
    let Some(kind) = bytes.get(at) else {
        return Ok(None);
    };
    if depth > DEEPEST {
        return Err(NotResp);
    }
    match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => line_end(bytes, at),
        b'$' | b'!' | b'=' => {
            let Some((length, start)) = number(bytes, at)? else {
                return Ok(None);
            };
            let Ok(length) = usize::try_from(length) else {
                return Ok(Some(start));
            };
            let end = start.saturating_add(length).saturating_add(2);
            Ok((end <= bytes.len()).then_some(end))
        }
        b'*' | b'~' | b'>' => values(bytes, at, 1, 0, depth),
        b'%' => values(bytes, at, 2, 0, depth),
        // Attributes stand before the value that they are about.
        b'|' => values(bytes, at, 2, 1, depth),
        _ => Err(NotResp),
    }
}

/// The end of a list: so many values for each that is counted, and so many more.
fn values(
    bytes: &[u8],
    at: usize,
    each: i64,
    more: i64,
    depth: u32,
) -> Result<Option<usize>, NotResp> {
    let Some((count, mut at)) = number(bytes, at)? else {
        return Ok(None);
    };
    for _ in 0..count.saturating_mul(each).saturating_add(more) {
        let Some(end) = value(bytes, at, depth + 1)? else {
            return Ok(None);
        };
        at = end;
    }
    Ok(Some(at))
}

/// The number in a line behind its first byte, and where the next line begins.
fn number(bytes: &[u8], at: usize) -> Result<Option<(i64, usize)>, NotResp> {
    let Some(end) = line_end(bytes, at)? else {
        return Ok(None);
    };
    let digits = bytes.get(at + 1..end - 2).ok_or(NotResp)?;
    let text = std::str::from_utf8(digits).map_err(|_not_text| NotResp)?;
    let number = text.parse().map_err(|_no_number| NotResp)?;
    Ok(Some((number, end)))
}

/// Where the line ends that contains this place, its end included.
fn line_end(bytes: &[u8], at: usize) -> Result<Option<usize>, NotResp> {
    let rest = bytes.get(at..).unwrap_or_default();
    match rest.windows(2).position(|two| two == b"\r\n") {
        Some(length) => Ok(Some(at + length + 2)),
        None if rest.len() > LONGEST_LINE => Err(NotResp),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_their_names_however_they_are_written() {
        let cases: [(&[u8], &str); 5] = [
            (b"*1\r\n$4\r\nping\r\n", "PING"),
            (b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\r\n\r\n\r\n", "SET"),
            (
                b"*3\r\n$6\r\nscript\r\n$4\r\nload\r\n$0\r\n\r\n",
                "SCRIPT LOAD",
            ),
            (b"PING\r\n", "PING"),
            (b"config get a\n", "CONFIG GET"),
        ];
        for (bytes, name) in cases {
            let found = command(bytes);
            assert_eq!(found, Ok(Some((name.to_owned(), bytes.len()))), "{name}");
            for length in 0..bytes.len() {
                assert_eq!(command(&bytes[..length]), Ok(None), "{name} of {length}");
            }
        }
    }

    #[test]
    fn replies_are_found_whole_in_both_versions() {
        let cases: [&[u8]; 12] = [
            b"+OK\r\n",
            b"-ERR a\r\n",
            b":-7\r\n",
            b"$3\r\na\r\n\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n",
            b"%1\r\n+a\r\n:1\r\n",
            b"_\r\n",
            b"|1\r\n+a\r\n:1\r\n:2\r\n",
            b">2\r\n+message\r\n+a\r\n",
        ];
        for bytes in cases {
            assert_eq!(reply(bytes), Ok(Some(bytes.len())), "{bytes:?}");
            for length in 0..bytes.len() {
                assert_eq!(reply(&bytes[..length]), Ok(None), "{bytes:?} of {length}");
            }
        }
        assert!(is_pushed(b">0\r\n") && !is_pushed(b"*0\r\n"));
    }

    #[test]
    fn what_is_something_else_is_said_so() {
        assert_eq!(command(b"\x16\x03\x01\x02\x00"), Err(NotResp));
        assert_eq!(command(b"*1\r\n:1\r\n"), Err(NotResp));
        assert_eq!(command(b"*one\r\n"), Err(NotResp));
        assert_eq!(reply(b"HTTP/1.1 200 OK\r\n"), Err(NotResp));
        let deep = b"*1\r\n".repeat(100);
        assert_eq!(reply(&deep), Err(NotResp));
        assert_eq!(reply(&[b'+'; LONGEST_LINE + 2]), Err(NotResp));
    }
}
