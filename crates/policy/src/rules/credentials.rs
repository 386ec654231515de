//! The canonical spelling of `Authorization`: its scheme is not case-sensitive, and any spaces may follow it.
//!
//! Must not know: conditions, keys.

use std::borrow::Cow;

use crate::attributes::Attribute;
use crate::model::{Glob, Test};

pub(super) fn is_credentials(attribute: &Attribute) -> bool {
    matches!(attribute, Attribute::Header(name) if &**name == "authorization")
}

/// The value with its scheme as `Bearer` and one space, if it is spelled differently. A value without a scheme stays as it is.
pub(super) fn canonical(value: &[u8]) -> Option<Vec<u8>> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let trimmed = value.trim_ascii();
    let (scheme, rest) = trimmed.split_at_checked(trimmed.iter().position(is_space)?)?;
    let is_canonical = matches!(rest, [b' ', first, ..] if !is_space(first))
        && trimmed.len() == value.len()
        && is_capitalized(scheme);
    if is_canonical {
        return None;
    }
    let mut canonical = capitalized(scheme);
    canonical.push(b' ');
    canonical.extend_from_slice(rest.trim_ascii());
    Some(canonical)
}

/// A test of a policy, for canonical values.
pub(super) fn canonical_test(test: &Test) -> Cow<'_, Test> {
    let text = |value: &str| -> Box<str> {
        let canonical = canonical(value.as_bytes()).and_then(|text| String::from_utf8(text).ok());
        canonical.map_or_else(|| value.into(), Into::into)
    };
    Cow::Owned(match test {
        Test::OneOf(values) => Test::OneOf(values.iter().map(|value| text(value)).collect()),
        Test::Glob(globs) => Test::Glob(
            globs
                .iter()
                .map(|glob| canonical_glob(glob, text))
                .collect(),
        ),
        Test::Not(inner) => Test::Not(Box::new(canonical_test(inner).into_owned())),
        _ => return Cow::Borrowed(test),
    })
}

/// In `bearer*` the scheme ends at the wildcard.
fn canonical_glob(glob: &Glob, text: impl Fn(&str) -> Box<str>) -> Glob {
    let end = glob.0.find(['*', '?', ' ']).unwrap_or(glob.0.len());
    match glob.0.split_at_checked(end) {
        Some((scheme, rest)) if !rest.starts_with(' ') && !rest.is_empty() => {
            let mut whole = String::from_utf8_lossy(&capitalized(scheme.as_bytes())).into_owned();
            whole.push_str(rest);
            Glob(whole.into())
        }
        _ => Glob(text(&glob.0)),
    }
}

fn is_capitalized(scheme: &[u8]) -> bool {
    match scheme {
        [first, rest @ ..] => {
            !first.is_ascii_lowercase() && !rest.iter().any(u8::is_ascii_uppercase)
        }
        [] => true,
    }
}

fn capitalized(scheme: &[u8]) -> Vec<u8> {
    let mut scheme = scheme.to_ascii_lowercase();
    if let Some(first) = scheme.first_mut() {
        first.make_ascii_uppercase();
    }
    scheme
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;
    use crate::rules::{KeyBuffer, MatchedRules, MeterRef, Rules};
    use crate::source::SourceFormat;
    use crate::tests::fixtures::Request;

    #[test]
    fn the_scheme_is_not_case_sensitive() {
        for value in [
            "bearer abc",
            "BEARER abc",
            "Bearer  abc",
            " Bearer abc",
            "Bearer\tabc",
            "bEARER abc ",
        ] {
            assert_eq!(
                canonical(value.as_bytes()).unwrap(),
                b"Bearer abc",
                "{value}"
            );
        }
        for value in ["Bearer abc", "Bearer abC d", "abc", "", "Basic x=="] {
            assert_eq!(canonical(value.as_bytes()), None, "{value}");
        }
    }

    /// A client that changes the case of the scheme had a fresh key with each spelling, and left limits on `Bearer *`.
    #[test]
    fn every_spelling_of_credentials_is_matched_and_has_one_key() {
        let text = |glob: &str| {
            format!(
                "limits: [{{ name: a, match: {{ header.authorization: {{ glob: \"{glob}\" }} }}, key: header.authorization, rate: 1/s }}]"
            )
        };
        for glob in ["Bearer *", "bearer *", "bearer*", "B*", "*abc"] {
            let policy = load(&text(glob), "p.yaml", SourceFormat::Yaml).unwrap();
            let rules = Rules::compile(&policy, [7; 16]).unwrap();
            let key = |value: &str| {
                let request = Request::with(&[("header.authorization", value)]);
                let mut matched = MatchedRules::new();
                rules.match_rules(&request, &mut matched);
                assert_eq!(matched.rules(), [0], "{glob} of {value}");
                let mut buffer = KeyBuffer::new();
                let meter = MeterRef { rule: 0, meter: 0 };
                rules.write_key(meter, &request, &matched, &mut buffer);
                buffer.as_bytes().to_vec()
            };
            for value in ["bearer abc", "BEARER abc", "Bearer  abc"] {
                assert_eq!(key(value), key("Bearer abc"), "{value}");
            }
        }
    }
}
