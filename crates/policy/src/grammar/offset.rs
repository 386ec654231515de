//! UTC offsets: `+02:00`, `-03:30`, `Z`.
//!
//! Must not know: calendars.

use super::{GrammarError, quote};

/// Parses a UTC offset to minutes east of UTC, at most 14 hours either way.
///
/// # Errors
/// The text is not a valid offset.
pub fn parse_utc_offset(text: &str) -> Result<i16, GrammarError> {
    let text = text.trim();
    if matches!(text, "Z" | "UTC" | "utc") {
        return Ok(0);
    }
    let minutes = text
        .split_at_checked(1)
        .and_then(|(sign, clock)| match sign {
            "+" => Some((1, clock)),
            "-" => Some((-1, clock)),
            _ => None,
        })
        .and_then(|(sign, clock)| {
            let (hours, minutes) = clock.split_once(':')?;
            Some(sign * (two_digits(hours)? * 60 + two_digits(minutes).filter(|m| *m < 60)?))
        });
    match minutes {
        Some(minutes) if minutes.abs() <= 14 * 60 => Ok(minutes),
        Some(_) => Err(GrammarError::with_help(
            format!("{} is more than 14 hours from UTC", quote(text)),
            "write an offset from \"-14:00\" to \"+14:00\"",
        )),
        None => Err(GrammarError::with_help(
            format!("{} is not an offset from UTC", quote(text)),
            if text.contains('/') {
                "time zone names are not supported: write a fixed offset such as \"+02:00\""
            } else {
                "write it as \"+02:00\" or \"-03:30\""
            },
        )),
    }
}

fn two_digits(text: &str) -> Option<i16> {
    let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_parsed_to_minutes() {
        for (text, expected) in [
            ("Z", 0),
            ("UTC", 0),
            ("+00:00", 0),
            ("+02:00", 120),
            ("-03:30", -210),
            ("+14:00", 840),
        ] {
            assert_eq!(parse_utc_offset(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_offsets_are_rejected() {
        for (text, expected) in [
            ("", "not an offset"),
            ("2", "not an offset"),
            ("+2", "not an offset"),
            ("+2:00", "not an offset"),
            ("+02:60", "not an offset"),
            ("+0200", "not an offset"),
            ("++2:00", "not an offset"),
            ("é2:00", "not an offset"),
            ("NaN", "not an offset"),
            ("Europe/Berlin", "not an offset"),
            ("+14:01", "more than 14 hours"),
            ("-99:00", "more than 14 hours"),
        ] {
            let error = parse_utc_offset(text).unwrap_err();
            assert!(
                error.message.contains(expected),
                "{text}: {}",
                error.message
            );
            assert!(error.help.is_some());
        }
    }
}
