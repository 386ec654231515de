//! The validity period of a certificate, read from the few X.509 fields before it.
//!
//! rustls verifies the certificates of peers, but does not expose when our own expires. Must not know: files, keys, trust.

use tollgate_core::Timestamp;

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

// DER tags.
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;

impl Validity {
    /// Reads the validity of a DER certificate. Returns `None` if the bytes are not one.
    pub(super) fn parse(certificate: &[u8]) -> Option<Self> {
        let mut certificate = Der(certificate).read(SEQUENCE)?;
        let mut signed = certificate.read(SEQUENCE)?;
        // The version is optional.
        signed.skip(VERSION);
        signed.read(INTEGER)?; // The serial number,
        signed.read(SEQUENCE)?; // how it is signed,
        signed.read(SEQUENCE)?; // and by whom.
        let mut validity = signed.read(SEQUENCE)?;
        Some(Self {
            from: validity.read_time()?,
            until: validity.read_time()?,
        })
    }
}

/// The unread part of a DER value.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Reads the next value if it has this tag.
    fn read(&mut self, tag: u8) -> Option<Self> {
        let (&found, rest) = self.0.split_first()?;
        if found != tag {
            return None;
        }
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // The low bits are the number of length bytes. Four suffice for any file here.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x0f))?;
                let len = bytes
                    .iter()
                    .fold(0_usize, |len, byte| len << 8 | usize::from(*byte));
                (len, rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some(Self(value))
    }

    /// Skips the next value if it has this tag.
    fn skip(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            // If it cannot be skipped, the next read fails.
            let _skipped = self.read(tag);
        }
    }

    /// Reads the next value as a time, in either encoding.
    fn read_time(&mut self) -> Option<Timestamp> {
        let tag = *self.0.first()?;
        let Self(text) = self.read(tag)?;
        let digits = text.strip_suffix(b"Z")?;
        let (year, rest) = match tag {
            UTC_TIME => {
                let (year, rest) = digits.split_at_checked(2)?;
                let year = parse_digits(year)?;
                // Two digits mean 1950 to 2049, RFC 5280 4.1.2.5.1.
                (if year < 50 { 2_000 } else { 1_900 } + year, rest)
            }
            GENERALIZED_TIME => {
                let (year, rest) = digits.split_at_checked(4)?;
                (parse_digits(year)?, rest)
            }
            _ => return None,
        };
        let mut parts = rest.chunks(2).map(parse_digits);
        let mut next = || parts.next().flatten();
        let (month, day) = (next()?, next()?);
        let (hour, minute, second) = (next()?, next()?, next()?);
        if rest.len() != 10 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let seconds =
            days_since_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
        // A time before 1970 becomes 1970: such certificates have expired either way.
        Some(Timestamp::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }
}

fn parse_digits(digits: &[u8]) -> Option<i64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Days from 1970-01-01 to a date. Years start in March here, so that the leap day comes last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months = (month + 9) % 12;
    let of_year = (153 * months + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
        - 719_468
}

/// Formats a time as UTC, to the second.
pub(super) fn format_utc(at: Timestamp) -> String {
    let seconds = at.as_nanos() / 1_000_000_000;
    let (day, rest) = (seconds / 86_400, seconds % 86_400);
    let day = i64::try_from(day).unwrap_or(i64::MAX / 2);
    // Start from a year that is not too late: no year has more than 366 days.
    let mut year = 1_970 + day / 366;
    while days_since_epoch(year + 1, 1, 1) <= day {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days_since_epoch(year, month + 1, 1) <= day {
        month += 1;
    }
    let of_month = day - days_since_epoch(year, month, 1) + 1;
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{of_month:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_time(tag: u8, text: &str) -> Option<u64> {
        let mut der = vec![tag, u8::try_from(text.len()).unwrap()];
        der.extend_from_slice(text.as_bytes());
        let time = Der(&der).read_time()?;
        Some(time.as_nanos() / 1_000_000_000)
    }

    #[test]
    fn both_spellings_of_a_time_are_read() {
        assert_eq!(read_time(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(read_time(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(
            read_time(GENERALIZED_TIME, "20500101000000Z"),
            Some(2_524_608_000)
        );
        assert_eq!(
            read_time(GENERALIZED_TIME, "20240229120000Z"),
            Some(1_709_208_000)
        );
        assert_eq!(read_time(UTC_TIME, "500101000000Z"), Some(0), "1950");
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in [
            "",
            "Z",
            "700101000000",
            "7001010000Z",
            "70010100000Z",
            "7001010000000Z",
            "701301000000Z",
            "700100000000Z",
            "700101240000Z",
            "70010100+000Z",
        ] {
            assert_eq!(read_time(UTC_TIME, text), None, "{text}");
        }
        assert_eq!(read_time(SEQUENCE, "700101000000Z"), None);
    }

    #[test]
    fn a_time_is_formatted_as_it_was_parsed() {
        for (text, formatted) in [
            ("700101000000Z", "1970-01-01 00:00:00 UTC"),
            ("240229235959Z", "2024-02-29 23:59:59 UTC"),
            ("241231000001Z", "2024-12-31 00:00:01 UTC"),
            ("250301101112Z", "2025-03-01 10:11:12 UTC"),
        ] {
            let seconds = read_time(UTC_TIME, text).unwrap();
            assert_eq!(format_utc(Timestamp::from_secs(seconds)), formatted);
        }
    }

    #[test]
    fn truncated_certificates_and_noise_are_refused() {
        // The smallest value with a validity at the place where certificates have it.
        let inner = |bytes: &[u8]| {
            let mut der = vec![SEQUENCE, u8::try_from(bytes.len()).unwrap()];
            der.extend_from_slice(bytes);
            der
        };
        let mut ends = vec![UTC_TIME, 13];
        ends.extend_from_slice(b"700101000000Z");
        ends.extend_from_slice(&[UTC_TIME, 13]);
        ends.extend_from_slice(b"491231235959Z");
        let mut signed = vec![INTEGER, 1, 1, SEQUENCE, 0, SEQUENCE, 0];
        signed.extend_from_slice(&inner(&ends));
        let certificate = inner(&inner(&signed));
        let found = Validity::parse(&certificate).unwrap();
        assert_eq!(found.until, Timestamp::from_secs(2_524_607_999));
        for len in 0..certificate.len() {
            assert_eq!(Validity::parse(&certificate[..len]), None, "{len}");
        }
        for tag in 0..=u8::MAX {
            let noise = [SEQUENCE, 0x84, tag, tag, tag, tag, tag];
            assert_eq!(Validity::parse(&noise), None, "{tag}");
        }
    }
}
