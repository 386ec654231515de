//! gRPC message framing: a compression flag, four bytes of length, and the message.
//!
//! A message that arrives whole is not copied. Fragments are assembled up to the length limit. Must not know: what messages
//! contain.

use bytes::{Bytes, BytesMut};

use super::status::{GrpcCode, GrpcStatus};

/// The length of the prefix of each message, in bytes.
pub(crate) const PREFIX_LEN: usize = 5;

/// Decodes the messages of a stream.
#[derive(Debug)]
pub(crate) struct MessageDecoder {
    /// The unread bytes, while they are in one piece.
    contiguous: Bytes,
    /// The unread bytes, assembled from several pieces.
    assembled: BytesMut,
    /// The longest message.
    max_len: usize,
}

impl MessageDecoder {
    pub(crate) fn new(max_len: usize) -> Self {
        Self {
            contiguous: Bytes::new(),
            assembled: BytesMut::new(),
            max_len,
        }
    }

    /// Adds received bytes.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if self.contiguous.is_empty() && self.assembled.is_empty() {
            self.contiguous = bytes;
            return;
        }
        self.assembled.extend_from_slice(&self.contiguous);
        self.assembled.extend_from_slice(&bytes);
        self.contiguous = Bytes::new();
    }

    /// The next message, if it is complete.
    pub(crate) fn next_message(&mut self) -> Result<Option<Bytes>, GrpcStatus> {
        let unread: &[u8] = if self.assembled.is_empty() {
            &self.contiguous
        } else {
            &self.assembled
        };
        let Some((prefix, rest)) = unread.split_first_chunk::<PREFIX_LEN>() else {
            return Ok(None);
        };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            let message = "compressed messages are not supported";
            return Err(GrpcStatus::new(GrpcCode::Unimplemented, message));
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.max_len {
            let max_len = self.max_len;
            let message = format!("the message has {length} bytes; at most {max_len} are allowed");
            return Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let end = PREFIX_LEN.saturating_add(length);
        let framed = if self.assembled.is_empty() {
            self.contiguous.split_to(end)
        } else if self.assembled.len() == end {
            std::mem::take(&mut self.assembled).freeze()
        } else {
            self.assembled.split_to(end).freeze()
        };
        Ok(Some(framed.slice(PREFIX_LEN..)))
    }

    /// Takes the unread bytes out of the buffer that they arrived in, which is larger and would be kept for them. Returns how
    /// many bytes they take, and how many the message has by its prefix.
    pub(crate) fn detach(&mut self) -> (usize, usize) {
        if !self.contiguous.is_empty() {
            self.assembled.extend_from_slice(&self.contiguous);
            self.contiguous = Bytes::new();
        }
        let declared = match self.assembled.first_chunk::<PREFIX_LEN>() {
            Some([_, length @ ..]) => usize::try_from(u32::from_be_bytes(*length)),
            None => Ok(0),
        };
        let declared = declared.unwrap_or(usize::MAX);
        (self.assembled.capacity(), declared)
    }

    /// Whether no bytes of an incomplete message remain.
    pub(crate) fn is_empty(&self) -> bool {
        self.contiguous.is_empty() && self.assembled.is_empty()
    }
}

/// Most replies are shorter.
const USUAL_LEN: usize = 256;

/// A buffer with room for the prefix.
pub(crate) fn new_frame() -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_LEN);
    out.extend_from_slice(&[0; PREFIX_LEN]);
    out
}

/// Writes the length of the message into the prefix of a buffer made by [`new_frame`].
pub(crate) fn finish_frame(mut out: Vec<u8>) -> Bytes {
    let length = out.len().saturating_sub(PREFIX_LEN);
    // Replies are far shorter than 4 GiB.
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    if let Some(place) = out.get_mut(1..PREFIX_LEN) {
        place.copy_from_slice(&length);
    }
    out.into()
}

/// Encodes one message.
#[cfg(test)]
pub(crate) fn encode_frame(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = new_frame();
    write(&mut out);
    finish_frame(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> Vec<u8> {
        let mut both = encode_frame(|out| out.extend_from_slice(b"first")).to_vec();
        both.extend_from_slice(&encode_frame(|_empty| {}));
        both
    }

    #[test]
    fn messages_are_decoded_however_they_are_split() {
        let both = both();
        for cut in 0..both.len() {
            let mut decoder = MessageDecoder::new(64);
            let mut found = Vec::new();
            for piece in [&both[..cut], &both[cut..]] {
                decoder.push(Bytes::copy_from_slice(piece));
                while let Some(message) = decoder.next_message().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [&b"first"[..], b""], "cut at {cut}");
            assert!(decoder.is_empty());
        }
        let mut decoder = MessageDecoder::new(64);
        for byte in &both {
            assert!(decoder.next_message().unwrap().is_none() || decoder.is_empty());
            decoder.push(Bytes::copy_from_slice(&[*byte]));
        }
        assert!(!decoder.is_empty());
    }

    #[test]
    fn a_too_long_message_is_refused_before_it_has_arrived() {
        let mut decoder = MessageDecoder::new(64);
        decoder.push(Bytes::from_static(&[0, 0, 0, 0, 65]));
        assert_eq!(
            decoder.next_message().unwrap_err().code,
            GrpcCode::ResourceExhausted
        );
        let mut decoder = MessageDecoder::new(64);
        decoder.push(Bytes::from_static(&[1, 0, 0, 0, 1, 0]));
        assert_eq!(
            decoder.next_message().unwrap_err().code,
            GrpcCode::Unimplemented
        );
    }
}
