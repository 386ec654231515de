//! Questions and answers in the protocol of Redis: commands whose key has always the same length, and replies that are arrays
//! of whole numbers and strings.
//!
//! Must not know: sockets.

use super::{Heard, Talk};

/// Digits of a key's number, in every question of every contender.
pub(crate) const KEY_DIGITS: usize = 12;

/// What makes a reply an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admits {
    /// The first number is 0, as in redis-cell.
    Zero,
    /// The first number is 1, as in `TG.CHECK`, in throttlecrab and in the article's script.
    One,
}

/// Commands that differ in the key only.
pub(crate) struct Commands {
    command: Vec<u8>,
    /// Where the digits of the key are.
    digits: usize,
    admits: Admits,
}

impl Commands {
    /// The words of a command. One of them is `KEY`, for which a key is put in.
    pub(crate) fn new(words: &[&str], admits: Admits) -> Self {
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        let mut digits = 0;
        for word in words {
            let is_key = *word == "KEY";
            let text = if is_key { key(0) } else { (*word).to_owned() };
            command.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
            if is_key {
                digits = command.len() + text.len() - KEY_DIGITS;
            }
            command.extend_from_slice(text.as_bytes());
            command.extend_from_slice(b"\r\n");
        }
        Self {
            command,
            digits,
            admits,
        }
    }

    /// Bytes of one command.
    pub(crate) fn len(&self) -> usize {
        self.command.len()
    }
}

/// The key of a number, always as long.
pub(crate) fn key(number: u32) -> String {
    format!("user{number:0KEY_DIGITS$}")
}

/// Puts a number where the digits of a key are.
pub(crate) fn put_digits(place: &mut [u8], mut number: u32) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

impl Talk for Commands {
    fn ask(&mut self, key: u32, out: &mut Vec<u8>) {
        let digits = self.digits..self.digits + KEY_DIGITS;
        if let Some(place) = self.command.get_mut(digits) {
            put_digits(place, key);
        }
        out.extend_from_slice(&self.command);
    }

    fn hear(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Result<Heard, String> {
        let mut heard = Heard::default();
        while let Some((len, first)) = reply(input.get(heard.consumed..).unwrap_or_default())? {
            heard.consumed += len;
            heard.answers += 1;
            let wanted = match self.admits {
                Admits::Zero => b'0',
                Admits::One => b'1',
            };
            heard.admitted += usize::from(first == wanted);
        }
        Ok(heard)
    }
}

/// The length of the array that the input begins with, and the first digit of its first whole number; `None` if it is not
/// whole.
fn reply(input: &[u8]) -> Result<Option<(usize, u8)>, String> {
    let Some((mut left, mut at)) = head(input, b"*")? else {
        return Ok(None);
    };
    let mut first = None;
    while left > 0 {
        let rest = input.get(at..).unwrap_or_default();
        let Some((length, line)) = head(rest, b":$")? else {
            return Ok(None);
        };
        at += line;
        if rest.first() == Some(&b'$') {
            at += length + 2;
        } else if first.is_none() {
            first = rest.get(1).copied();
        }
        left -= 1;
    }
    Ok((at <= input.len()).then_some((at, first.unwrap_or(0))))
}

/// The number in the line that the input begins with, if its type is one of these, and the length of the line.
fn head(input: &[u8], types: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let digits = input.get(1..end.saturating_sub(1)).unwrap_or_default();
    let is_type = input.first().is_some_and(|first| types.contains(first));
    let number = digits.iter().try_fold(0_usize, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    });
    // A number below zero is a wait that nobody has: it is not a length, and not the first of a reply.
    let number = number.or((input.first() == Some(&b':')).then_some(0));
    match number {
        Some(number) if is_type => Ok(Some((number, end + 1))),
        _ => {
            let shown: String = input.escape_ascii().take(200).map(char::from).collect();
            Err(format!("not a reply that is known: {shown}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_differ_in_the_key_only() {
        let mut commands = Commands::new(&["CL.THROTTLE", "KEY", "1"], Admits::Zero);
        let mut out = Vec::new();
        commands.ask(42, &mut out);
        let want = b"*3\r\n$11\r\nCL.THROTTLE\r\n$16\r\nuser000000000042\r\n$1\r\n1\r\n";
        assert_eq!(out, want);
        assert_eq!(commands.len(), out.len());
    }

    #[test]
    fn replies_are_counted_when_they_are_whole() {
        let mut commands = Commands::new(&["KEY"], Admits::Zero);
        let input = b"*2\r\n:0\r\n:15\r\n*2\r\n:1\r\n:0\r\n*2\r\n:0\r\n";
        let heard = commands.hear(input, &mut Vec::new()).unwrap();
        assert_eq!((heard.consumed, heard.answers, heard.admitted), (25, 2, 1));
        assert!(commands.hear(b"-ERR no\r\n", &mut Vec::new()).is_err());
    }

    #[test]
    fn replies_with_names_admit_by_their_first_number() {
        let mut commands = Commands::new(&["KEY"], Admits::One);
        let whole = b"*4\r\n$7\r\nallowed\r\n:1\r\n$4\r\nwait\r\n:-1\r\n";
        let heard = commands.hear(whole, &mut Vec::new()).unwrap();
        let counts = (heard.consumed, heard.answers, heard.admitted);
        assert_eq!(counts, (whole.len(), 1, 1));
        for length in 0..whole.len() {
            let part = whole.get(..length).unwrap();
            let heard = commands.hear(part, &mut Vec::new()).unwrap();
            assert_eq!(heard.answers, 0, "{length}");
        }
    }
}
