//! Writes one line: the values of a request in a format, escaped so that no client can write a line or a field of its own.
//!
//! The bytes that clients choose are bounded for each line, so that no line is too long to be written. Must not know: where
//! lines are written, how values are found.

use std::borrow::Cow;
use std::io::Write as _;

use super::format::{AccessLogFormat, Escape, Part};
use super::variable::Variable;

/// The most bytes of values in one line. What is beyond is cut off.
const MAX_VALUE_LEN: usize = 8 * 1_024;

/// The values of one request.
pub(super) trait LogValues {
    /// The value of a variable. `None` if the request has none.
    fn value(&self, variable: &Variable) -> Option<Cow<'_, [u8]>>;
}

/// Renders one line, with its line end.
pub(super) fn render(format: &AccessLogFormat, values: &impl LogValues) -> Vec<u8> {
    let mut line = Vec::with_capacity(512);
    let mut left = MAX_VALUE_LEN;
    for part in &format.parts {
        match part {
            Part::Text(text) => line.extend_from_slice(text.as_bytes()),
            Part::Variable {
                variable,
                is_quoted,
            } => {
                let value = values.value(variable);
                let value = value.as_deref();
                let value = value.map(|value| value.get(..left).unwrap_or(value));
                let value = value.filter(|value| !value.is_empty());
                left = left.saturating_sub(value.map_or(0, <[u8]>::len));
                match (format.escape, value) {
                    (Escape::Default, Some(value)) => escape_default(value, &mut line),
                    (Escape::Default, None) => line.push(b'-'),
                    (Escape::Json, Some(value)) => escape_json(value, &mut line),
                    (Escape::Json, None) if !is_quoted => line.extend_from_slice(b"null"),
                    (Escape::Json, None) => {}
                }
            }
        }
    }
    line.push(b'\n');
    line
}

fn escape_default(value: &[u8], line: &mut Vec<u8>) {
    for byte in value {
        match byte {
            b'"' | b'\\' | 0..=31 | 127.. => {
                // Writing to memory does not fail.
                let _written = write!(line, "\\x{byte:02X}");
            }
            _ => line.push(*byte),
        }
    }
}

/// Bytes that are not UTF-8 become U+FFFD.
fn escape_json(value: &[u8], line: &mut Vec<u8>) {
    for byte in String::from_utf8_lossy(value).bytes() {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            // Also DEL, which terminals act on.
            0..=31 | 127 => {
                let _written = write!(line, "\\u{byte:04x}");
            }
            _ => line.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same value for every variable.
    struct Same<'a>(Option<&'a [u8]>);

    impl LogValues for Same<'_> {
        fn value(&self, _: &Variable) -> Option<Cow<'_, [u8]>> {
            self.0.map(Cow::Borrowed)
        }
    }

    fn line(format: &str, value: Option<&[u8]>) -> String {
        let format = format.parse().unwrap();
        String::from_utf8(render(&format, &Same(value))).unwrap()
    }

    #[test]
    fn values_are_escaped_and_missing_ones_are_marked() {
        let text = "<$host> \"$http_a\"";
        let value = &b"a\"b\\\r\n\x7f\xfc"[..];
        let escaped = "a\\x22b\\x5C\\x0D\\x0A\\x7F\\xFC";
        assert_eq!(
            line(text, Some(value)),
            format!("<{escaped}> \"{escaped}\"\n")
        );
        assert_eq!(line(text, None), "<-> \"-\"\n");
        let json = "escape=json {\"a\":\"$host\",\"b\":$status}";
        assert_eq!(line(json, Some(b"7")), "{\"a\":\"7\",\"b\":7}\n");
        assert_eq!(line(json, None), "{\"a\":\"\",\"b\":null}\n");
    }

    #[test]
    fn long_values_do_not_make_long_lines() {
        let long = vec![b'\n'; 40_000];
        let text = line("$host $http_a $status!", Some(&long));
        assert_eq!(text, format!("{} - -!\n", "\\x0A".repeat(MAX_VALUE_LEN)));
    }

    proptest! {
        /// Whatever a client sends, it is one line, and with `escape=json` one value.
        #[test]
        fn any_value_stays_in_its_place(value in prop::collection::vec(any::<u8>(), 0..60)) {
            let text = line("[$host]", Some(&value));
            prop_assert_eq!(text.matches('\n').count(), 1);
            prop_assert!(text.trim_end().bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            let json = line("escape=json {\"a\":\"$host\"}", Some(&value));
            let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
            let expected = String::from_utf8_lossy(&value);
            prop_assert_eq!(parsed["a"].as_str(), Some(&*expected));
        }
    }
}
