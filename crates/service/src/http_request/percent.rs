//! Decodes percent escapes, and hosts without their port. Pure functions.
//!
//! Must not know: HTTP libraries, which limits exist.

/// Decodes `application/x-www-form-urlencoded`: percent escapes, and `+` as a space. `None` if a `%` is not followed by two
/// hexadecimal digits.
///
/// ```
/// use tollgate_service::decode_form;
///
/// assert_eq!(decode_form(b"a%20b+c").as_deref(), Some(&b"a b c"[..]));
/// assert_eq!(decode_form(b"100%"), None);
/// ```
#[must_use]
pub fn decode_form(text: &[u8]) -> Option<Vec<u8>> {
    decode_with(text, |byte| if byte == b'+' { b' ' } else { byte })
}

/// Decodes percent escapes. `None` if a `%` is not followed by two hexadecimal digits.
pub(super) fn decode_escapes(text: &[u8]) -> Option<Vec<u8>> {
    decode_with(text, |byte| byte)
}

fn decode_with(text: &[u8], plain: impl Fn(u8) -> u8) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            byte => plain(byte),
        });
    }
    Some(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// A host without its port. The colons of an IPv6 address in brackets are not a port separator.
///
/// ```
/// use tollgate_service::without_port;
///
/// assert_eq!(without_port(b"a.example:80"), b"a.example");
/// assert_eq!(without_port(b"[::1]"), b"[::1]");
/// ```
#[must_use]
pub fn without_port(host: &[u8]) -> &[u8] {
    let is_digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    match host.iter().rposition(|byte| *byte == b':') {
        Some(colon) => match host.split_at_checked(colon) {
            Some((name, port)) if is_digits(port.get(1..).unwrap_or_default()) => name,
            _ => host,
        },
        None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_separated_from_ipv6_addresses() {
        for (host, name) in [
            ("a.example", "a.example"),
            ("a.example:80", "a.example"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("a:b", "a:b"),
            ("", ""),
        ] {
            assert_eq!(without_port(host.as_bytes()), name.as_bytes());
        }
    }
}
