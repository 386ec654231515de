//! Hash slots of a cluster. Must not know: which node owns a slot.

/// Number of slots.
pub(super) const SLOTS: usize = 16_384;

/// CRC-16 with polynomial 0x1021, as a byte table.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "an index below 256")]
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        #[expect(clippy::indexing_slicing, reason = "an index below 256")]
        {
            table[index] = crc;
        }
        index += 1;
    }
    table
};

/// The slot of a hash tag, without its braces.
pub(super) fn hash_slot(tag: &[u8]) -> u16 {
    let crc = tag.iter().fold(0_u16, |crc, byte| {
        let index = usize::from((crc >> 8) ^ u16::from(*byte));
        (crc << 8) ^ TABLE.get(index).copied().unwrap_or(0)
    });
    crc & 0x3fff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(hash_slot(b"123456789"), 0x31c3);
        assert_eq!(hash_slot(b"foo"), 12_182);
        assert_eq!(hash_slot(b"somekey"), 11_058);
        assert_eq!(hash_slot(b""), 0);
    }
}
