//! The decimal digits of numbers, eight at a time.
//!
//! Responses in all protocols consist mostly of numbers, and formatting takes several times as long as the digits. Must not know:
//! what the numbers mean, where they are written.

/// The first number with more than eight digits.
pub const EIGHT_DIGITS: u64 = 100_000_000;

/// Eight zeros as text.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The digits of a number below [`EIGHT_DIGITS`], left-aligned, and their count.
///
/// ```
/// let (digits, count) = tollgate_http::eight_digits(1_024);
/// assert_eq!(&digits[..count], b"1024");
/// ```
#[must_use]
#[inline]
pub const fn eight_digits(number: u64) -> ([u8; 8], usize) {
    let digits = padded_word(number);
    let zeros = if number == 0 {
        7
    } else {
        (digits ^ ZEROS).trailing_zeros() / 8
    };
    ((digits >> (zeros * 8)).to_le_bytes(), 8 - zeros as usize)
}

/// The digits of a number below [`EIGHT_DIGITS`] with leading zeros.
///
/// ```
/// assert_eq!(&tollgate_http::padded_digits(1_024), b"00001024");
/// ```
#[must_use]
#[inline]
pub const fn padded_digits(number: u64) -> [u8; 8] {
    padded_word(number).to_le_bytes()
}

/// The first digit is in the lowest byte. SWAR: the number is split into halves, quarters and single digits, each in its own part of
/// one integer.
#[inline]
const fn padded_word(number: u64) -> u64 {
    let (high, low) = (number / 10_000, number % 10_000);
    let fours = high | low << 32;
    // Multiplying and shifting divides exactly by 100, and below by 10, for values that fit into their part.
    let hundreds = (fours.wrapping_mul(10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | fours.wrapping_sub(hundreds.wrapping_mul(100)) << 16;
    let tens = (twos.wrapping_mul(103) >> 10) & 0x000f_000f_000f_000f;
    (tens | twos.wrapping_sub(tens.wrapping_mul(10)) << 8) | ZEROS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_digits_are_found_at_once_for_every_length() {
        let mut number = 0;
        while number < EIGHT_DIGITS {
            let (digits, count) = eight_digits(number);
            assert_eq!(digits[..count], *number.to_string().as_bytes());
            assert_eq!(padded_digits(number), *format!("{number:08}").as_bytes());
            number += 1 + number / 97;
        }
    }
}
