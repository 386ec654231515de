//! Unary gRPC calls as HTTP/2 frames written by hand, several streams at a time on one connection.
//!
//! A client of a few instructions a call, so that the server's work is what is seen. The header fields are put into the
//! server's table with the first call and named by number after that, as real clients do. Must not know: sockets, what is
//! asked.

use super::resp::{KEY_DIGITS, put_digits};
use super::{Heard, Talk};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const FRAME_HEAD: usize = 9;

/// `POST` and `http` of the fixed table, then the four fields of the first call, newest first in the server's table.
const FIELDS_BY_NUMBER: [u8; 6] = [0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62];

/// Calls that differ in the key only.
pub(crate) struct Calls {
    path: String,
    message: Vec<u8>,
    /// Where the digits of the key are.
    digits: usize,
    stream: u32,
    /// Messages that admit and whose streams have not ended yet.
    ahead: usize,
}

impl Calls {
    /// Calls of a method with a message, which holds the key of number 0.
    pub(crate) fn new(path: &str, message: &[u8]) -> Self {
        let key = super::resp::key(0);
        let place = message
            .windows(key.len())
            .position(|part| part == key.as_bytes());
        // Not compressed, then the length, then the message.
        let length = u32::try_from(message.len()).unwrap_or(0);
        let mut framed = vec![0];
        framed.extend_from_slice(&length.to_be_bytes());
        framed.extend_from_slice(message);
        Self {
            path: path.to_owned(),
            message: framed,
            digits: 5 + place.unwrap_or(0) + key.len() - KEY_DIGITS,
            stream: 1,
            ahead: 0,
        }
    }

    fn first_fields(&self) -> Vec<u8> {
        let mut block = vec![0x83, 0x86];
        // Literals that the server is to remember: names by their number in the fixed table, where they have one.
        block.push(0x44);
        text(&self.path, &mut block);
        block.push(0x41);
        text("127.0.0.1", &mut block);
        block.push(0x5f);
        text("application/grpc", &mut block);
        block.push(0x40);
        text("te", &mut block);
        text("trailers", &mut block);
        block
    }
}

pub(super) fn text(text: &str, block: &mut Vec<u8>) {
    // All of ours are shorter than 127 bytes, so the length is one byte.
    block.push(u8::try_from(text.len()).unwrap_or(0));
    block.extend_from_slice(text.as_bytes());
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    out.extend_from_slice(length.get(1..).unwrap_or_default());
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// What a connection begins with.
pub(super) fn preface(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    frame(SETTINGS, 0, 0, &[], out);
    // Room for all answers of a lap, so that it need not be renewed.
    let room = (1_u32 << 31) - 1 - 65_535;
    frame(WINDOW_UPDATE, 0, 0, &room.to_be_bytes(), out);
}

impl Talk for Calls {
    fn greet(&mut self, out: &mut Vec<u8>) {
        preface(out);
    }

    fn ask(&mut self, key: u32, out: &mut Vec<u8>) {
        let digits = self.digits..self.digits + KEY_DIGITS;
        if let Some(place) = self.message.get_mut(digits) {
            put_digits(place, key);
        }
        if self.stream == 1 {
            frame(HEADERS, END_HEADERS, 1, &self.first_fields(), out);
        } else {
            frame(HEADERS, END_HEADERS, self.stream, &FIELDS_BY_NUMBER, out);
        }
        frame(DATA, END_STREAM, self.stream, &self.message, out);
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
                // Field 1 is 1 in every admission: a code that is OK, or a truth. The five bytes before it are gRPC's own.
                DATA => self.ahead += usize::from(payload.get(5..7) == Some(&[0x08, 0x01])),
                HEADERS if flags & END_STREAM != 0 => {
                    heard.answers += 1;
                    heard.admitted += usize::from(self.ahead > 0);
                    self.ahead = self.ahead.saturating_sub(1);
                }
                SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[], out),
                PING if flags & ACK == 0 => frame(PING, ACK, 0, payload, out),
                RST_STREAM => return Err("the server has reset a stream".to_owned()),
                GOAWAY => return Err("the server wants no more calls".to_owned()),
                _ => {}
            }
        }
    }
}

/// The first message in what a server has sent, without gRPC's five bytes before it.
pub(crate) fn message(mut input: &[u8]) -> Option<Vec<u8>> {
    loop {
        let [a, b, c, kind, _, _, _, _, _, after @ ..] = input else {
            return None;
        };
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let (payload, rest) = after.split_at_checked(length)?;
        if *kind == DATA {
            return payload.get(5..).map(<[u8]>::to_vec);
        }
        input = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_when_their_stream_ends() {
        let mut calls = Calls::new("/a/B", b"user000000000000");
        let mut input = Vec::new();
        frame(SETTINGS, 0, 0, &[], &mut input);
        frame(HEADERS, END_HEADERS, 1, &[0x88], &mut input);
        frame(DATA, 0, 1, &[0, 0, 0, 0, 2, 8, 1], &mut input);
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88], &mut input);
        let whole = input.len();
        frame(DATA, 0, 3, &[0, 0, 0, 0, 2, 8, 1], &mut input);
        input.pop();
        let mut out = Vec::new();
        let heard = calls.hear(&input, &mut out).unwrap();
        assert_eq!(
            (heard.consumed, heard.answers, heard.admitted),
            (whole, 1, 1)
        );
        assert_eq!(out, [0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]);
    }

    #[test]
    fn the_key_is_put_into_the_message() {
        let mut calls = Calls::new("/a/B", b"..user000000000000..");
        let mut out = Vec::new();
        calls.ask(123, &mut out);
        let is_there = out.windows(16).any(|part| part == b"user000000000123");
        assert!(is_there);
    }
}
