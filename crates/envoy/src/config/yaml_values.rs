//! Parses booleans, numbers and texts as YAML 1.1 does: `yes` is a boolean and `1_000` a number. Existing files rely on it.
//!
//! Must not know: which field is parsed.

use tollgate_policy::source::{SourceNode, SourceValue};

/// `Ok(None)` for null, `Err` for a value of the wrong type.
pub(super) type FieldResult<T> = Result<Option<T>, ()>;

/// A text: any scalar as written, quoted or not.
pub(super) fn parse_text(node: &SourceNode) -> FieldResult<Box<str>> {
    match &node.value {
        SourceValue::Null => Ok(None),
        SourceValue::Scalar { text, .. } => Ok(Some(text.clone())),
        SourceValue::List(_) | SourceValue::Map(_) => Err(()),
    }
}

/// A boolean. A quoted value is a text.
pub(super) fn parse_bool(node: &SourceNode) -> FieldResult<bool> {
    let SourceValue::Scalar {
        text,
        quoted: false,
    } = &node.value
    else {
        return null_or_error(node);
    };
    match &**text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => {
            Ok(Some(true))
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off" | "OFF" => {
            Ok(Some(false))
        }
        _ => Err(()),
    }
}

/// A number of requests. A quoted value is a text.
pub(super) fn parse_count(node: &SourceNode) -> FieldResult<u32> {
    let SourceValue::Scalar {
        text,
        quoted: false,
    } = &node.value
    else {
        return null_or_error(node);
    };
    let whole = parse_integer(text).and_then(|number| u32::try_from(number).ok());
    whole.map(Some).ok_or(())
}

fn null_or_error<T>(node: &SourceNode) -> FieldResult<T> {
    match node.value {
        SourceValue::Null => Ok(None),
        _ => Err(()),
    }
}

/// An integer in any base of YAML; a leading zero means octal.
fn parse_integer(text: &str) -> Option<i64> {
    let plain: String = text.chars().filter(|&c| c != '_').collect();
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", plain.strip_prefix('+').unwrap_or(&plain)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (base, digits) = match digits.split_at_checked(2) {
        Some(("0x", rest)) => (16, rest),
        Some(("0o", rest)) => (8, rest),
        Some(("0b", rest)) => (2, rest),
        _ => match digits.strip_prefix('0') {
            Some(rest) if !rest.is_empty() => (8, rest),
            _ => (10, digits),
        },
    };
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), base).ok()
}

/// An integer or a float.
pub(super) fn parse_number(text: &str) -> Option<f64> {
    if let Some(whole) = parse_integer(text) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "protobuf's Struct has no other numbers, and the reference loses the same digits"
        )]
        return Some(whole as f64);
    }
    let begins = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.');
    let sound = text.starts_with(begins) && text.contains(|c: char| c.is_ascii_digit());
    let parsed: Option<f64> = text.parse().ok();
    parsed.filter(|number| sound && number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::source::SourceLocation;

    fn node(text: &str, quoted: bool) -> SourceNode {
        SourceNode {
            location: SourceLocation::default(),
            value: SourceValue::Scalar {
                text: text.into(),
                quoted,
            },
        }
    }

    #[test]
    fn booleans_are_those_of_yaml_1_1() {
        assert_eq!(parse_bool(&node("yes", false)), Ok(Some(true)));
        assert_eq!(parse_bool(&node("OFF", false)), Ok(Some(false)));
        assert_eq!(parse_bool(&node("true", true)), Err(()));
        assert_eq!(parse_bool(&node("maybe", false)), Err(()));
        let nothing = SourceNode {
            location: SourceLocation::default(),
            value: SourceValue::Null,
        };
        assert_eq!(parse_bool(&nothing), Ok(None));
    }

    #[test]
    fn counts_are_whole_and_fit_in_32_bits() {
        let of = |text| parse_count(&node(text, false));
        assert_eq!(of("0"), Ok(Some(0)));
        assert_eq!(of("1_000"), Ok(Some(1_000)));
        assert_eq!(of("0x10"), Ok(Some(16)));
        assert_eq!(of("010"), Ok(Some(8)));
        assert_eq!(of("4294967295"), Ok(Some(u32::MAX)));
        for wrong in [
            "4294967296",
            "-1",
            "1.5",
            "1e3",
            "ten",
            "",
            "--1",
            "0x",
            "0x-1",
        ] {
            assert_eq!(of(wrong), Err(()), "{wrong}");
        }
        assert_eq!(parse_count(&node("10", true)), Err(()));
    }

    #[test]
    fn numbers_of_metadata_may_have_fractions() {
        assert_eq!(parse_number("1.5"), Some(1.5));
        assert_eq!(parse_number("-3"), Some(-3.0));
        assert_eq!(parse_number("1e3"), Some(1_000.0));
        for text in ["inf", "nan", "e3", "1.2.3", "v1", "-", "."] {
            assert_eq!(parse_number(text), None, "{text}");
        }
    }
}
