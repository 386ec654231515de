//! The checksum CRC-32C (Castagnoli) of a few hundred bytes. A crate for it brings tables and processor features that are not needed.
//!
//! Must not know: what is summed.

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The checksum of some bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let update = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            let carry = if sum & 1 == 1 { POLYNOMIAL } else { 0 };
            sum >> 1 ^ carry
        })
    };
    !bytes.iter().fold(u32::MAX, update)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the catalogue of CRCs, and vectors of RFC 3720.
    #[test]
    fn it_agrees_with_published_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b""), 0);
    }
}
