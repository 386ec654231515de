//! Requests over HTTP/2 without bodies, several streams at a time on one connection.
//!
//! Frames are those of `grpc`. Fields that stay the same are named by number after the first request, as real clients do; the
//! key is sent as text. Must not know: sockets, what is asked.

use super::grpc::{
    ACK, DATA, END_HEADERS, END_STREAM, FRAME_HEAD, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
    frame, preface, text,
};
use super::resp::{KEY_DIGITS, key, put_digits};
use super::{Heard, Talk};

/// `GET` and `http` of the fixed table, then the five fields of the first request, newest first in the server's table.
const FIELDS_BY_NUMBER: [u8; 7] = [
    0x82,
    0x86,
    0x80 | 66,
    0x80 | 65,
    0x80 | 64,
    0x80 | 63,
    0x80 | 62,
];
/// `:status: 200` of the fixed table.
const STATUS_200: u8 = 0x88;

/// The request of `http::Requests::api`, which differs in the key only.
pub(crate) struct Streams {
    stream: u32,
    /// The field with the key, which is not put into the server's table.
    key_field: Vec<u8>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        let mut key_field = vec![0x00];
        text("x-api-key", &mut key_field);
        text(&key(0), &mut key_field);
        Self {
            stream: 1,
            key_field,
        }
    }
}

fn first_fields() -> Vec<u8> {
    let mut block = vec![0x82, 0x86];
    // Literals that the server is to remember, with names of the fixed table.
    for (name, value) in [
        (0x44, "/items/7?page=2"),
        (0x41, "api.example"),
        (0x7a, "client/1.0"),
        (0x53, "application/json"),
        (0x50, "gzip"),
    ] {
        block.push(name);
        text(value, &mut block);
    }
    block
}

impl Talk for Streams {
    fn greet(&mut self, out: &mut Vec<u8>) {
        preface(out);
    }

    fn ask(&mut self, key: u32, out: &mut Vec<u8>) {
        let digits = self.key_field.len() - KEY_DIGITS;
        if let Some(place) = self.key_field.get_mut(digits..) {
            put_digits(place, key);
        }
        let mut block = match self.stream {
            1 => first_fields(),
            _ => FIELDS_BY_NUMBER.to_vec(),
        };
        block.extend_from_slice(&self.key_field);
        frame(HEADERS, END_HEADERS | END_STREAM, self.stream, &block, out);
        self.stream += 2;
    }

    fn hear(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Heard, String> {
        let mut heard = Heard::default();
        loop {
            let rest = input.get(heard.consumed..).unwrap_or_default();
            let [a, b, c, kind, flags, _, _, _, _, after @ ..] = rest else {
                return Ok(heard);
            };
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            let Some(payload) = after.get(..length) else {
                return Ok(heard);
            };
            heard.consumed += FRAME_HEAD + length;
            match *kind {
                HEADERS if !is_success(payload) => {
                    let shown = payload.escape_ascii();
                    return Err(format!("a response does not have status 200: {shown}"));
                }
                HEADERS | DATA if flags & END_STREAM != 0 => {
                    heard.answers += 1;
                    heard.admitted += 1;
                }
                SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[], out),
                PING if flags & ACK == 0 => frame(PING, ACK, 0, payload, out),
                RST_STREAM => return Err("the server has reset a stream".to_owned()),
                GOAWAY => return Err("the server wants no more requests".to_owned()),
                _ => {}
            }
        }
    }
}

/// Whether the status is 200. It is the first field, behind changes of the table's size.
fn is_success(block: &[u8]) -> bool {
    let mut fields = block.iter().skip_while(|byte| **byte & 0xe0 == 0x20);
    fields.next() == Some(&STATUS_200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_when_their_stream_ends() {
        let (mut input, mut out) = (Vec::new(), Vec::new());
        frame(SETTINGS, 0, 0, &[], &mut input);
        frame(HEADERS, END_HEADERS, 1, &[0x20, STATUS_200], &mut input);
        frame(DATA, END_STREAM, 1, b"ok", &mut input);
        let whole = input.len();
        frame(HEADERS, END_HEADERS, 3, &[STATUS_200], &mut input);
        input.pop();
        let heard = Streams::new().hear(&input, &mut out).unwrap();
        let counts = (heard.consumed, heard.answers, heard.admitted);
        assert_eq!(counts, (whole, 1, 1));
        assert_eq!(out, [0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]);
    }

    #[test]
    fn another_status_is_an_error() {
        let mut input = Vec::new();
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x8d], &mut input);
        assert!(Streams::new().hear(&input, &mut Vec::new()).is_err());
    }

    #[test]
    fn requests_differ_in_the_key_only() {
        let (mut streams, mut out) = (Streams::new(), Vec::new());
        streams.ask(123, &mut out);
        assert!(out.ends_with(b"user000000000123"));
    }
}
