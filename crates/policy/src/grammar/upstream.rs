//! Addresses of upstreams (`http://127.0.0.1:3000`), and the hosts and path prefixes of routes.
//!
//! Must not know: fields, connections.

use std::net::Ipv6Addr;

use super::{GrammarError, quote};
use crate::model::{UpstreamAddress, UpstreamEndpoint, UpstreamProtocol};

const EXAMPLES: &str = "write one such as `http://127.0.0.1:3000`, `https://api.internal`, `h2c://10.0.0.2:50051` or `unix:/run/app.sock`";
const MAX_LEN: usize = 255;

/// Parses the address of an upstream. It has no path: a route removes prefixes.
///
/// ```
/// use tollgate_policy::grammar::parse_upstream_address;
///
/// assert_eq!(parse_upstream_address("https://api.internal").unwrap().to_string(), "https://api.internal:443");
/// assert!(parse_upstream_address("127.0.0.1:3000").is_err(), "a scheme is missing");
/// ```
///
/// # Errors
/// The text is not such an address.
pub fn parse_upstream_address(text: &str) -> Result<UpstreamAddress, GrammarError> {
    let invalid = || {
        let message = format!("{} is not the address of an upstream", quote(text));
        GrammarError::with_help(message, EXAMPLES)
    };
    if let Some(path) = text.strip_prefix("unix:") {
        let is_path = path.starts_with('/') && path.len() <= MAX_LEN && !path.contains('\0');
        return match is_path {
            true => Ok(UpstreamAddress {
                protocol: UpstreamProtocol::Http,
                endpoint: UpstreamEndpoint::Unix(path.into()),
            }),
            false => Err(invalid()),
        };
    }
    let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
    let (protocol, default_port) = match scheme {
        "http" => (UpstreamProtocol::Http, 80),
        "https" => (UpstreamProtocol::Https, 443),
        "h2c" => (UpstreamProtocol::H2c, 80),
        _ => return Err(invalid()),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#']) {
        return Err(GrammarError::with_help(
            format!("{} has a path, and an upstream has none", quote(text)),
            "leave the path out; `strip_prefix` of a route removes prefixes",
        ));
    }
    let (host, port) = split_port(rest).ok_or_else(invalid)?;
    let port = match port {
        Some(port) => port.parse::<u16>().ok().filter(|port| *port > 0),
        None => Some(default_port),
    };
    Ok(UpstreamAddress {
        protocol,
        endpoint: UpstreamEndpoint::Tcp(host.into(), port.ok_or_else(invalid)?),
    })
}

/// The host without brackets, and the port.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        return match port.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => port.is_empty().then_some((host, None)),
        };
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    is_host_name(host).then_some((host, port))
}

fn is_host_name(text: &str) -> bool {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !text.is_empty() && text.len() <= MAX_LEN && text.bytes().all(is_name_byte)
}

/// Parses the host of a route: a name, or `*.` and the end of names. It is lower-cased.
///
/// # Errors
/// The text is neither.
pub fn parse_route_host(text: &str) -> Result<Box<str>, GrammarError> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_ipv6 = || {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
    };
    let is_host = is_host_name(name) && !name.ends_with('.') || is_ipv6();
    if !is_host {
        return Err(GrammarError::with_help(
            format!("{} is not the host of a route", quote(text)),
            "write a name without a port such as `api.example.com`, or `*.example.com` for all names below it",
        ));
    }
    Ok(text.to_ascii_lowercase().into())
}

/// Parses the path prefix of a route, in the one spelling in which paths are matched. A slash at the end is removed.
///
/// # Errors
/// The text is not such a prefix.
pub fn parse_route_path(text: &str) -> Result<Box<str>, GrammarError> {
    let is_segment_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte);
    let segments = text
        .strip_prefix('/')
        .map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let is_segment = |segment: &str| {
        !segment.is_empty()
            && !matches!(segment, "." | "..")
            && segment.bytes().all(is_segment_byte)
    };
    match segments {
        Some(_) if text == "/" => Ok("/".into()),
        Some(rest) if text.len() <= MAX_LEN && rest.split('/').all(is_segment) => {
            Ok(format!("/{rest}").into())
        }
        _ => Err(GrammarError::with_help(
            format!("{} is not the path prefix of a route", quote(text)),
            "write whole segments such as `/api/v1`, without `..`, `//`, escapes and placeholders",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_a_host_and_a_port() {
        for (text, shown) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://app/", "http://app:80"),
            ("https://api.internal", "https://api.internal:443"),
            ("h2c://[::1]:50051", "h2c://[::1]:50051"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]:443"),
            ("unix:/run/app.sock", "unix:/run/app.sock"),
        ] {
            let address = parse_upstream_address(text).unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(parse_upstream_address(shown), Ok(address));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "http://",
            "http:///",
            "127.0.0.1:3000",
            "ftp://a",
            "http://a:0",
            "http://a:65536",
            "http://a:",
            "http://a:b",
            "http://u@a",
            "http://a/b",
            "http://a?b",
            "http://a#b",
            "http://[::1",
            "http://[::1]x",
            "http://[x]",
            "http://::1",
            "http://a b",
            "http://a\n",
            "unix:",
            "unix:run/a",
            "HTTP://a",
            "http://ü",
        ] {
            assert!(parse_upstream_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_and_prefixes_of_routes_have_one_spelling() {
        for (text, host) in [
            ("A.Example", "a.example"),
            ("*.a.example", "*.a.example"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(parse_route_host(text).as_deref(), Ok(host));
        }
        for text in ["", "*", "a:80", "a.", "*.", "*.*.a", "a/b", "[a]"] {
            assert!(parse_route_host(text).is_err(), "{text}");
        }
        for (text, path) in [("/", "/"), ("/api/", "/api"), ("/a/b", "/a/b")] {
            assert_eq!(parse_route_path(text).as_deref(), Ok(path));
        }
        for text in [
            "", "api", "//", "/a//b", "/a/../b", "/.", "/a%20b", "/{id}", "/a;b", "/a?b", "/a\\b",
        ] {
            assert!(parse_route_path(text).is_err(), "{text}");
        }
    }
}
