//! What a web page of another site can make a browser send here, and what is refused for it.
//!
//! A page can send a request without asking first (a CORS preflight, which is never allowed here) if its content type is
//! `text/plain`, a form or missing. Browsers say in `Origin` and `Sec-Fetch-Site` where a request comes from. Must not know:
//! endpoints, responses.

use hyper::HeaderMap;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The content type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyType {
    /// `application/json`, or another type that ends with `+json`. A page can send it only after a preflight.
    Json,
    /// `application/x-www-form-urlencoded`, which `curl -d` sends for any body.
    UrlEncoded,
    /// No content type.
    Missing,
    /// Any other type, or more than one.
    Other,
}

impl BodyType {
    /// The type of a request's body.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(CONTENT_TYPE).iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Missing,
            (Some(value), None) => Self::parse(value.as_bytes()),
            _ => Self::Other,
        }
    }

    /// The type that a `Content-Type` names. Parameters do not matter.
    pub(crate) fn parse(value: &[u8]) -> Self {
        let essence = value.split(|byte| *byte == b';').next();
        let essence = essence.unwrap_or_default().trim_ascii();
        if essence.eq_ignore_ascii_case(b"application/json") {
            return Self::Json;
        }
        if essence.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
            return Self::UrlEncoded;
        }
        let suffix = essence.len().checked_sub(5);
        let suffix = suffix.and_then(|start| essence.get(start..));
        let is_json = essence
            .get(..12)
            .is_some_and(|start| start.eq_ignore_ascii_case(b"application/"))
            && suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json"));
        match is_json {
            true => Self::Json,
            false if essence.is_empty() => Self::Missing,
            false => Self::Other,
        }
    }

    /// Whether a body of this type is read. What a page could send without a preflight is read only if no page sent it.
    pub(crate) fn is_acceptable(self, headers: &HeaderMap) -> bool {
        match self {
            Self::Json => true,
            Self::UrlEncoded | Self::Missing => !is_cross_site(headers),
            Self::Other => false,
        }
    }
}

/// Whether a page of another origin sent the request. Only browsers send these fields.
pub(crate) fn is_cross_site(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).map_or(&b""[..], |host| host.as_bytes());
    let is_ours = |origin: &[u8]| {
        let name = [&b"http://"[..], b"https://"];
        let name = name.iter().find_map(|scheme| origin.strip_prefix(*scheme));
        name.is_some_and(|name| !host.is_empty() && name.eq_ignore_ascii_case(host))
    };
    let origins = headers.get_all(ORIGIN).iter();
    let sites = headers.get_all(FETCH_SITE).iter();
    let is_same = origins.map(HeaderValue::as_bytes).all(is_ours)
        && sites
            .map(HeaderValue::as_bytes)
            .all(|site| matches!(site, b"same-origin" | b"none"));
    !is_same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_what_a_browser_takes_it_for() {
        for (value, expected) in [
            ("application/json", BodyType::Json),
            (" Application/JSON ; charset=utf-8", BodyType::Json),
            ("application/vnd.acme+JSON", BodyType::Json),
            ("application/x-www-form-urlencoded", BodyType::UrlEncoded),
            ("", BodyType::Missing),
            ("; application/json", BodyType::Missing),
            ("text/plain", BodyType::Other),
            ("text/plain; application/json", BodyType::Other),
            ("text/plain+json", BodyType::Other),
            ("text/plain, application/json", BodyType::Other),
            ("application/json, text/plain", BodyType::Other),
            ("multipart/form-data; boundary=+json", BodyType::Other),
            ("application/octet-stream", BodyType::Other),
            ("+json", BodyType::Other),
            ("json", BodyType::Other),
        ] {
            assert_eq!(BodyType::parse(value.as_bytes()), expected, "{value}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(BodyType::of_headers(&headers), BodyType::Missing);
        headers.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        assert_eq!(BodyType::of_headers(&headers), BodyType::Json);
        headers.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        assert_eq!(BodyType::of_headers(&headers), BodyType::Other);
    }
}
