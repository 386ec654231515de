//! Questions and answers in the protocol of Redis: commands whose key has always the same length, and replies that are arrays
//! of whole numbers.
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
    /// The first number is 1, as in throttlecrab and in the article's script.
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

/// The length of the array that the input begins with, and the first digit in it; `None` if it is not whole.
fn reply(input: &[u8]) -> Result<Option<(usize, u8)>, String> {
    let Some(kind) = input.first() else {
        return Ok(None);
    };
    if *kind != b'*' {
        let shown: String = input.escape_ascii().take(200).map(char::from).collect();
        return Err(format!("not an array: {shown}"));
    }
    let Some(count) = input.get(1) else {
        return Ok(None);
    };
    let (mut lines, mut at, mut first) = (usize::from(count.wrapping_sub(b'0')) + 1, 0, 0);
    while lines > 0 {
        let rest = input.get(at..).unwrap_or_default();
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        if at == 4 {
            first = rest.get(1).copied().unwrap_or(0);
        }
        at += end + 1;
        lines -= 1;
    }
    Ok(Some((at, first)))
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
        assert_eq!((heard.consumed, heard.answers, heard.admitted), (26, 2, 1));
        assert!(commands.hear(b"-ERR no\r\n", &mut Vec::new()).is_err());
    }
}
