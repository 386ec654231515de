//! Response statuses: `401`, or `4xx` for a class.
//!
//! Must not know: what they are used for.

use super::{GrammarError, quote};
use crate::model::StatusClass;

/// Parses one status from 100 to 599, or a class.
///
/// # Errors
/// The text is neither.
pub fn parse_status_class(text: &str) -> Result<StatusClass, GrammarError> {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    if let Some(first) = lower.strip_suffix("xx")
        && let Ok(first @ 1..=5) = first.parse::<u8>()
    {
        return Ok(StatusClass::Class(first));
    }
    let plain = text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(status @ 100..=599) if plain => Ok(StatusClass::Code(status)),
        _ => {
            let help = match lower.split_once('-') {
                Some((first, last)) if first.ends_with("00") && last.ends_with("99") => {
                    let class = first.get(..1).unwrap_or_default();
                    format!("did you mean `{class}xx`?")
                }
                _ => "write a status from 100 to 599 such as `401`, or a class such as `4xx`"
                    .to_owned(),
            };
            Err(GrammarError::with_help(
                format!("{} is not the status of a response", quote(text)),
                help,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_their_classes_are_parsed() {
        assert_eq!(parse_status_class("401"), Ok(StatusClass::Code(401)));
        assert_eq!(parse_status_class("4xx"), Ok(StatusClass::Class(4)));
        assert_eq!(parse_status_class("5XX"), Ok(StatusClass::Class(5)));
    }

    #[test]
    fn invalid_statuses_are_rejected() {
        for text in [
            "", "4", "40", "4x", "xx", "0xx", "9xx", "099", "600", "4010", "+40", "-401", "NaN",
            "1e2", "4O1", "400-499",
        ] {
            assert!(parse_status_class(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_status_class("400-499").unwrap_err().help.as_deref(),
            Some("did you mean `4xx`?")
        );
    }
}
