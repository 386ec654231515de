//! Finds where a reply of the server ends, and reads replies that are a list of integers.
//!
//! Nearly every reply is a short list of integers, which is read in place. All others are handed to the client library's
//! parser, once they are complete. Every length comes from the server and is bounded. Must not know: connections, scripts.

use arrayvec::ArrayVec;
use redis::{ErrorKind, RedisError, Value};

/// The most integers that are read in place: enough for the reply to a batch of six buckets.
const INLINE_INTEGERS: usize = 16;
/// The longest reply. A page of the register has at most 256 entries of 17 kB.
pub const MAX_REPLY: usize = 8 << 20;
/// Lists are nested at most this deeply.
const MAX_DEPTH: usize = 8;
/// The digits of the longest integer, with its sign.
const MAX_DIGITS: usize = 20;

/// A reply of the server.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerReply {
    /// A short list of integers.
    Integers(ArrayVec<i64, INLINE_INTEGERS>),
    /// Any other reply, errors too.
    Other(Value),
}

impl ServerReply {
    /// The reply as the client library has it.
    #[must_use]
    pub fn into_value(self) -> Value {
        match self {
            Self::Integers(integers) => {
                Value::Array(integers.into_iter().map(Value::Int).collect())
            }
            Self::Other(value) => value,
        }
    }
}

/// The bytes are not a reply, or a reply above the bounds. Nothing after them can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidFrame;

impl From<InvalidFrame> for RedisError {
    fn from(_: InvalidFrame) -> Self {
        Self::from((ErrorKind::Parse, "the reply could not be parsed"))
    }
}

/// The first reply in `bytes` and its length; `None` if it is not complete.
///
/// # Errors
///
/// No further bytes make this a reply.
pub fn parse_reply(bytes: &[u8]) -> Result<Option<(ServerReply, usize)>, InvalidFrame> {
    if let Some((integers, len)) = parse_integers(bytes) {
        return Ok(Some((ServerReply::Integers(integers), len)));
    }
    let mut at = 0;
    if !skip_frame(bytes, &mut at, 0)? {
        return match bytes.len() {
            0..MAX_REPLY => Ok(None),
            _ => Err(InvalidFrame),
        };
    }
    let frame = bytes.get(..at).ok_or(InvalidFrame)?;
    match redis::parse_redis_value(frame) {
        Ok(value) => Ok(Some((ServerReply::Other(value), at))),
        Err(_invalid) => Err(InvalidFrame),
    }
}

/// A complete list of at most [`INLINE_INTEGERS`] integers, and its length.
fn parse_integers(bytes: &[u8]) -> Option<(ArrayVec<i64, INLINE_INTEGERS>, usize)> {
    let mut at = 0;
    let count = usize::try_from(integer_line(bytes, &mut at, b'*')?).ok()?;
    let mut integers = ArrayVec::new();
    if count > INLINE_INTEGERS {
        return None;
    }
    for _ in 0..count {
        integers.push(integer_line(bytes, &mut at, b':')?);
    }
    Some((integers, at))
}

/// The integer on a line that begins with `kind`.
fn integer_line(bytes: &[u8], at: &mut usize, kind: u8) -> Option<i64> {
    let rest = bytes.get(*at..)?;
    let (first, digits) = rest.split_first()?;
    if *first != kind {
        return None;
    }
    let (is_negative, digits) = match digits.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, digits),
    };
    let mut number = 0_i64;
    for (index, byte) in digits.iter().take(MAX_DIGITS).enumerate() {
        let digit = match byte {
            b'0'..=b'9' => i64::from(byte - b'0'),
            b'\r' if index > 0 && digits.get(index + 1) == Some(&b'\n') => {
                *at += index + 3 + usize::from(is_negative);
                return Some(number);
            }
            _ => return None,
        };
        // Negative numbers have the larger range.
        let signed = if is_negative { -digit } else { digit };
        number = number.checked_mul(10)?.checked_add(signed)?;
    }
    None
}

/// Moves `at` behind the frame that begins there. Returns false if it is not complete.
fn skip_frame(bytes: &[u8], at: &mut usize, depth: usize) -> Result<bool, InvalidFrame> {
    let Some(kind) = bytes.get(*at).copied() else {
        return Ok(false);
    };
    match kind {
        b'+' | b'-' | b':' => skip_line(bytes, at),
        b'$' => {
            let Some(len) = length_line(bytes, at)? else {
                return Ok(false);
            };
            // A length of -1 is nil, which has no bytes.
            *at += len.map_or(0, |len| len + 2);
            Ok(*at <= bytes.len())
        }
        b'*' if depth < MAX_DEPTH => {
            let Some(count) = length_line(bytes, at)? else {
                return Ok(false);
            };
            for _ in 0..count.unwrap_or(0) {
                if !skip_frame(bytes, at, depth + 1)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Err(InvalidFrame),
    }
}

fn skip_line(bytes: &[u8], at: &mut usize) -> Result<bool, InvalidFrame> {
    let rest = bytes.get(*at..).ok_or(InvalidFrame)?;
    match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            *at += end + 1;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// The length on a line: `Some(None)` for nil, `None` if the line is not complete.
fn length_line(bytes: &[u8], at: &mut usize) -> Result<Option<Option<usize>>, InvalidFrame> {
    let kind = bytes.get(*at).copied().ok_or(InvalidFrame)?;
    let rest = bytes.get(*at..).ok_or(InvalidFrame)?;
    match integer_line(bytes, at, kind) {
        Some(-1) => Ok(Some(None)),
        Some(len) => match usize::try_from(len) {
            Ok(len) if len <= MAX_REPLY => Ok(Some(Some(len))),
            _ => Err(InvalidFrame),
        },
        // A line that is longer than every length is not one.
        None if rest.len() <= MAX_DIGITS && !rest.contains(&b'\n') => Ok(None),
        None => Err(InvalidFrame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Option<(Value, usize)> {
        let parsed = parse_reply(bytes).unwrap();
        parsed.map(|(reply, len)| (reply.into_value(), len))
    }

    const REPLIES: [&[u8]; 12] = [
        b"*6\r\n:1700000000\r\n:5\r\n:1\r\n:0\r\n:0\r\n:-9223372036854775808\r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$5\r\n\r\n:1\r\r\n",
        b"+OK\r\n",
        b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
        b":42\r\n",
        b"*2\r\n*1\r\n:1\r\n$3\r\nabc\r\n",
        b"*17\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        b"*2\r\n:1\r\n$-1\r\n",
    ];

    /// The oracle is the client library's parser, which needs the whole reply at once.
    #[test]
    fn every_reply_is_read_as_the_client_library_reads_it_wherever_it_is_cut() {
        for reply in REPLIES {
            let expected = redis::parse_redis_value(reply).unwrap();
            for cut in 0..reply.len() {
                let text = String::from_utf8_lossy(reply);
                assert_eq!(parse_reply(&reply[..cut]), Ok(None), "{text} at {cut}");
            }
            let followed = [reply, b"+next\r\n"].concat();
            assert_eq!(parse(&followed), Some((expected, reply.len())));
        }
    }

    #[test]
    fn integers_are_read_in_place_and_other_replies_are_not() {
        let is_inline = |bytes| {
            let parsed = parse_reply(bytes).unwrap();
            matches!(parsed, Some((ServerReply::Integers(_), _)))
        };
        assert!(is_inline(b"*2\r\n:1\r\n:-2\r\n"));
        assert!(!is_inline(REPLIES[10]), "too many");
        assert!(!is_inline(b":1\r\n") && !is_inline(b"*1\r\n+1\r\n"));
    }

    #[test]
    fn bytes_that_are_no_reply_and_lengths_above_the_bounds_are_refused() {
        let deep = b"*1\r\n".repeat(MAX_DEPTH + 1);
        let wrong: [&[u8]; 9] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"*2\r\n:1\r\n?",
            b"$x\r\n",
            b"$-2\r\n",
            b"*99999999999\r\n",
            b"$8388609\r\n",
            b"$00000000000000000000000000",
            b"*1\r\n:99999999999999999999\r\n",
            &deep,
        ];
        for bytes in wrong {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(parse_reply(bytes), Err(InvalidFrame), "{text}");
        }
        let mut endless = b"+".to_vec();
        endless.resize(MAX_REPLY, b'x');
        assert_eq!(parse_reply(&endless), Err(InvalidFrame));
    }
}
