//! A request described by text: by command-line flags, or in a file of policy tests.
//!
//! Must not know: policies, which flags exist.

use std::net::IpAddr;

use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::grammar::{self, GrammarError};

/// The attributes of a request that was not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestDescription {
    ip: Option<IpAddr>,
    attributes: Vec<(Attribute, Vec<u8>)>,
}

impl Attributes for RequestDescription {
    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let attribute_text = self.attributes.iter().find(|(name, _)| name == attribute);
        attribute_text.map(|(_, value)| &**value)
    }
}

impl RequestDescription {
    /// Sets the client's address.
    pub(crate) fn set_ip(&mut self, ip: IpAddr) {
        self.ip = Some(ip);
    }

    /// Adds an attribute. A repeated header is joined as in HTTP. For other attributes the first value stays.
    pub(crate) fn add(&mut self, attribute: Attribute, value: &str) {
        let before = self
            .attributes
            .iter_mut()
            .find(|(name, _)| *name == attribute);
        match (before, &attribute) {
            (None, _) => self.attributes.push((attribute, value.as_bytes().to_vec())),
            (Some((_, before)), Attribute::Header(name)) => {
                let separator: &[u8] = if &**name == "cookie" { b"; " } else { b", " };
                before.extend_from_slice(separator);
                before.extend_from_slice(value.as_bytes());
            }
            (Some(_), _) => {}
        }
    }

    /// Adds the path, the query and the host of a target.
    pub(crate) fn set_target(&mut self, target: &Target) {
        self.add(Attribute::Path, &target.path);
        for (name, value) in &target.query {
            self.add(Attribute::Query(name.as_str().into()), value);
        }
        if let Some(host) = &target.host {
            self.add(Attribute::Host, host);
        }
    }

    /// Adds the host and the cookies from their headers, unless they are set already.
    pub(crate) fn with_derived_attributes(mut self) -> Self {
        let header = |name: &str| {
            let value = self.get(&Attribute::Header(name.into()));
            value.map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let (host_header, cookies) = (header("host"), header("cookie"));
        if let Some(host_header) = host_header {
            self.add(Attribute::Host, &normalize_host(&host_header));
        }
        for (name, value) in cookies
            .iter()
            .flat_map(|text| text.split(';'))
            .filter_map(split_cookie)
        {
            self.add(Attribute::Cookie(name.into()), value);
        }
        self
    }
}

/// Splits one cookie into its name and value.
fn split_cookie(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.trim().split_once('=')?;
    (!name.is_empty()).then_some((name, value))
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    path: String,
    query: Vec<(String, String)>,
    host: Option<String>,
}

/// Parses a method and a target, as in `POST /login?next=home`. The HTTP version may follow.
pub(crate) fn parse_request_line(text: &str) -> Result<(Box<str>, Target), String> {
    let mut parts = text.split_ascii_whitespace();
    let (Some(method), Some(to), version, None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("it must be a method and a path, as in 'POST /login'".to_owned());
    };
    if let Some(version) = version.filter(|version| !version.starts_with("HTTP/")) {
        return Err(format!(
            "{version:?} follows the path; spaces in a path are written %20"
        ));
    }
    Ok((
        grammar::parse_method(method).map_err(error_line)?,
        parse_target(to)?,
    ))
}

/// Parses a path with its query, or a URL.
pub(crate) fn parse_target(text: &str) -> Result<Target, String> {
    let (host_part, rest) = match text.split_once("://") {
        Some(("http" | "https", rest)) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (authority, rest) = rest.split_at(end);
            (Some(normalize_host(authority)), rest)
        }
        _ => (None, text),
    };
    let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = if path.is_empty() && host_part.is_some() {
        "/"
    } else {
        path
    };
    if !path.starts_with('/') && path != "*" {
        return Err(format!("the path {path:?} does not begin with a slash"));
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((percent_decode(name)?, percent_decode(value)?))
    });
    Ok(Target {
        path: path.to_owned(),
        query: query.collect::<Result<_, String>>()?,
        host: host_part,
    })
}

/// The host as policies see it: lower case, without the port.
pub(crate) fn normalize_host(text: &str) -> String {
    let text = text.trim();
    let end = match text.strip_prefix('[') {
        // An IPv6 address contains colons.
        Some(rest) => rest.find(']').map_or(text.len(), |end| end + 2),
        // Without brackets it has no port.
        None => match text.split_once(':') {
            Some((name, port)) if !port.contains(':') => name.len(),
            _ => text.len(),
        },
    };
    text.get(..end).unwrap_or(text).to_ascii_lowercase()
}

/// Parses a header, as in `x-api-key: k`.
pub(crate) fn parse_header(text: &str) -> Result<(Attribute, String), String> {
    let Some((name, value)) = text.split_once(':') else {
        return Err("it must be a name, a colon and a value, as in 'x-api-key: k'".to_owned());
    };
    let name = grammar::parse_header_name(name.trim()).map_err(error_line)?;
    Ok((Attribute::Header(name), value.trim().to_owned()))
}

/// Parses a name and a value, as in `sub=ada`.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        _ => Err("it must be a name, an equals sign and a value, as in 'sub=ada'".to_owned()),
    }
}

/// Parses the entries of a descriptor, as in `method=GET,path=/login`. An entry without `=` has an empty value.
pub(crate) fn parse_descriptor_entries(text: &str) -> Result<Vec<(String, String)>, String> {
    text.split(',')
        .map(|entry| {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            if name.trim().is_empty() {
                return Err(
                    "it must be entries with commas between them, as in 'method=GET,path=/login'"
                        .to_owned(),
                );
            }
            Ok((name.trim().to_owned(), value.to_owned()))
        })
        .collect()
}

/// Parses an IP address.
pub(crate) fn parse_address(text: &str) -> Result<IpAddr, String> {
    grammar::parse_address(text).map_err(error_line)
}

/// The message and the help of an error, in one line.
fn error_line(wrong: GrammarError) -> String {
    match wrong.help {
        Some(help) => format!("{}; {help}", wrong.message),
        None => wrong.message.into(),
    }
}

/// Decodes a part of a query: `+` is a space, `%` and two digits are a byte.
fn percent_decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                digit()
                    .zip(digit())
                    .and_then(|(high, low)| u8::try_from(high * 16 + low).ok())
                    .ok_or_else(|| {
                        format!("in {text:?} two hexadecimal digits must follow each %")
                    })?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|error| format!("{text:?} is not UTF-8: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_text(request: &RequestDescription, name: &str) -> Option<String> {
        let value = request.get(&Attribute::parse(name).unwrap())?;
        Some(String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn a_host_loses_its_port_and_an_ipv6_address_nothing() {
        for (text, host) in [
            ("A.example:80", "a.example"),
            ("a.example", "a.example"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("2001:db8::1", "2001:db8::1"),
        ] {
            assert_eq!(normalize_host(text), host);
        }
    }

    #[test]
    fn a_request_line_has_method_path_query_and_host() {
        let (method, target) =
            parse_request_line("post https://API.example.com:8443/a%2Fb?x=1+2&y=%26&x=3&z")
                .unwrap();
        let mut request = RequestDescription::default();
        request.add(Attribute::Method, &method);
        request.set_target(&target);
        let request = request.with_derived_attributes();
        for (name, value) in [
            ("method", Some("POST")),
            ("path", Some("/a%2Fb")),
            ("host", Some("api.example.com")),
            ("query.x", Some("1 2")),
            ("query.y", Some("&")),
            ("query.z", Some("")),
            ("query.w", None),
        ] {
            assert_eq!(attribute_text(&request, name).as_deref(), value, "{name}");
        }
        assert!(parse_request_line("GET /a HTTP/1.1").is_ok());
        assert_eq!(
            parse_request_line("GET https://example.com")
                .unwrap()
                .1
                .path,
            "/"
        );
    }

    #[test]
    fn invalid_text_is_refused_with_a_reason() {
        for (text, reason) in [
            (
                "POST",
                "it must be a method and a path, as in 'POST /login'",
            ),
            ("", "it must be a method and a path, as in 'POST /login'"),
            (
                "GET login",
                "the path \"login\" does not begin with a slash",
            ),
            ("G@T /", "`G@T` is not a method"),
            (
                "GET /a b",
                "\"b\" follows the path; spaces in a path are written %20",
            ),
            (
                "GET /?x=%zz",
                "in \"%zz\" two hexadecimal digits must follow each %",
            ),
            (
                "GET /?x=%f",
                "in \"%f\" two hexadecimal digits must follow each %",
            ),
            ("GET /?x=%ff", "\"%ff\" is not UTF-8"),
        ] {
            let error = parse_request_line(text).unwrap_err();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
        assert!(parse_header("x-api-key").unwrap_err().contains("a colon"));
        assert!(parse_header("a b: c").unwrap_err().contains("`a b`"));
        assert!(parse_pair("sub").unwrap_err().contains("an equals sign"));
        assert!(
            parse_descriptor_entries("a=1,,b=2")
                .unwrap_err()
                .contains("entries")
        );
        assert!(
            parse_address("localhost")
                .unwrap_err()
                .contains("not an address")
        );
    }

    #[test]
    fn headers_are_joined_and_set_host_and_cookies() {
        let mut request = RequestDescription::default();
        for text in [
            "X-Tag: a",
            "Cookie: sid=1; theme=",
            "x-tag:b",
            "cookie: sid=2; lang=en",
            "Host: [2001:DB8::1]:80",
        ] {
            let (attribute, value) = parse_header(text).unwrap();
            request.add(attribute, &value);
        }
        let request = request.with_derived_attributes();
        for (name, value) in [
            ("header.x-tag", "a, b"),
            ("cookie.sid", "1"),
            ("cookie.theme", ""),
            ("cookie.lang", "en"),
            ("host", "[2001:db8::1]"),
        ] {
            assert_eq!(
                attribute_text(&request, name).as_deref(),
                Some(value),
                "{name}"
            );
        }
    }
}
