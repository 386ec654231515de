//! The request that a gateway holds, reconstructed from header fields. Policies match and key by it.
//!
//! Must not know: which limits exist, responses.

use std::net::IpAddr;

use hyper::HeaderMap;
use tollgate_http::{AddressSource, ClientAddressResolver};
use tollgate_service::HttpAttributes;

use super::Gateway;
use crate::http::bad_input::BadInput;

/// The header fields in which a gateway describes the request.
struct GatewayFields {
    method: &'static str,
    uri: &'static str,
    host: &'static str,
}

const ORIGINAL: GatewayFields = GatewayFields {
    method: "x-original-method",
    uri: "x-original-uri",
    host: "x-original-host",
};
const FORWARDED: GatewayFields = GatewayFields {
    method: "x-forwarded-method",
    uri: "x-forwarded-uri",
    host: "x-forwarded-host",
};

/// Parses the header fields in which a gateway describes a request. All of them are required. If a gateway does not set a
/// field, the client could set it, or all clients would share one quota; both have to be noticed.
pub(crate) fn parse_forwarded<'a>(
    gateway: Gateway,
    headers: &'a HeaderMap,
    peer: IpAddr,
    clients: &ClientAddressResolver,
) -> Result<HttpAttributes<'a>, BadInput> {
    let fields = match gateway {
        Gateway::Nginx => ORIGINAL,
        Gateway::Traefik | Gateway::Caddy | Gateway::Haproxy => FORWARDED,
    };
    let uri = single_header(headers, fields.uri)?;
    let (path, query) = path_and_query(uri);
    let ip = client_address(headers, peer, clients)?;
    Ok(HttpAttributes::new(headers)
        .with_ip(ip)
        .with_method(single_header(headers, fields.method)?)
        .with_host(single_header(headers, fields.host)?)
        .with_target(path, query))
}

fn required_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a [u8], BadInput> {
    let Some(value) = headers.get(name).filter(|value| !value.is_empty()) else {
        let reason = "the gateway must send this field; docs/gateways.md has its settings";
        return Err(BadInput::new(name, b"", reason));
    };
    Ok(value.as_bytes())
}

/// A field that describes the request. A gateway that adds it, and does not replace what the client sent, is noticed: the
/// client would choose the path that is limited.
fn single_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a [u8], BadInput> {
    let value = required_header(headers, name)?;
    if headers.get_all(name).iter().any(|other| other != value) {
        let reason = "it is sent more than once; the gateway must replace what the client sent";
        return Err(BadInput::new(name, value, reason));
    }
    Ok(value)
}

/// The address of the client. A field without a valid address is an error. Falling back to the gateway's address would put all
/// its clients into one quota.
fn client_address(
    headers: &HeaderMap,
    peer: IpAddr,
    clients: &ClientAddressResolver,
) -> Result<IpAddr, BadInput> {
    let field = clients.field().unwrap_or_default();
    let last = required_header(headers, field)?;
    let lines = headers.get_all(field).into_iter();
    let client = clients.resolve(peer, lines.map(hyper::http::HeaderValue::as_bytes));
    match client.source {
        AddressSource::Forwarded => Ok(client.address),
        AddressSource::Peer | AddressSource::Fallback => {
            let reason = "it does not name the client by an IP address";
            Err(BadInput::new(field, last, reason))
        }
    }
}

/// The path and the query of a request target in origin or absolute form.
fn path_and_query(uri: &[u8]) -> (&[u8], &[u8]) {
    let find = |text: &[u8], wanted: &[u8]| text.iter().position(|byte| wanted.contains(byte));
    let scheme = uri.windows(3).position(|three| three == b"://");
    let target = match scheme.and_then(|at| Some((uri.get(..at)?, uri.get(at + 3..)?))) {
        Some((scheme, rest)) if scheme.iter().all(u8::is_ascii_alphabetic) => find(rest, b"/?")
            .and_then(|at| rest.get(at..))
            .unwrap_or(b"/"),
        _ => uri,
    };
    let end = find(target, b"#").unwrap_or(target.len());
    let target = target.get(..end).unwrap_or_default();
    match find(target, b"?").and_then(|at| target.split_at_checked(at)) {
        Some((b"", query)) => (b"/", query.get(1..).unwrap_or_default()),
        Some((path, query)) => (path, query.get(1..).unwrap_or_default()),
        None => (target, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Gateways;
    use super::*;
    use hyper::header::HeaderName;
    use tollgate_http::TrustedProxies;
    use tollgate_policy::attributes::{Attribute, Attributes as _, Unreadable};
    use tollgate_policy::model::DuplicateRule;

    fn read(gateway: Gateway, headers: &HeaderMap) -> Result<HttpAttributes<'_>, BadInput> {
        let gateways = Gateways::new(TrustedProxies::default());
        let clients = gateways.client_source(gateway);
        parse_forwarded(gateway, headers, [127, 0, 0, 1].into(), clients)
    }

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    const FROM_NGINX: [(&str, &str); 4] = [
        ("x-original-uri", "/items/7?page=2&q=a%20b"),
        ("x-original-method", "POST"),
        ("x-original-host", "Api.Example:8443"),
        ("x-real-ip", "192.0.2.7"),
    ];

    fn get<'a>(request: &'a HttpAttributes<'_>, name: &str) -> Option<&'a str> {
        let attribute = Attribute::parse(name).unwrap();
        request
            .get(&attribute)
            .map(|value| std::str::from_utf8(value).unwrap())
    }

    #[test]
    fn the_fields_of_nginx_become_attributes() {
        let mut fields = FROM_NGINX.to_vec();
        fields.push(("X-Api-Key", "carol"));
        fields.push(("cookie", "a=1; session=s3; sessions=no"));
        let headers = headers(&fields);
        let request = read(Gateway::Nginx, &headers).unwrap();
        assert_eq!(request.ip(), Some([192, 0, 2, 7].into()));
        for (name, value) in [
            ("method", Some("POST")),
            ("host", Some("api.example")),
            ("path", Some("/items/7")),
            ("query.page", Some("2")),
            ("query.q", Some("a b")),
            ("query.none", None),
            ("header.x-api-key", Some("carol")),
            ("cookie.session", Some("s3")),
            ("cookie.sess", None),
            ("claim.sub", None),
        ] {
            assert_eq!(get(&request, name), value, "{name}");
        }
    }

    #[test]
    fn missing_gateway_fields_are_named() {
        for missing in 0..4 {
            let mut fields = FROM_NGINX.to_vec();
            let (name, _) = fields.remove(missing);
            let headers = headers(&fields);
            let error = read(Gateway::Nginx, &headers);
            assert_eq!(error.unwrap_err().field, name);
        }
        let headers = headers(&FROM_NGINX);
        let error = read(Gateway::Caddy, &headers);
        assert_eq!(
            error.unwrap_err().field,
            "x-forwarded-uri",
            "another gateway's fields"
        );
    }

    /// A gateway that adds its fields behind those of the client let the client choose the path that is limited.
    #[test]
    fn two_different_descriptions_of_the_request_are_refused() {
        for at in 0..3 {
            let mut fields = FROM_NGINX.to_vec();
            fields.insert(0, (fields[at].0, "/other"));
            let error = read(Gateway::Nginx, &headers(&fields)).unwrap_err();
            assert_eq!(error.field, fields[0].0);
            fields[0] = FROM_NGINX[at];
            assert!(read(Gateway::Nginx, &headers(&fields)).is_ok(), "equal");
        }
    }

    #[test]
    fn a_client_cannot_choose_its_address() {
        let fields = [
            ("x-forwarded-uri", "/"),
            ("x-forwarded-method", "GET"),
            ("x-forwarded-host", "a.example"),
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-for", "192.0.2.7, 127.0.0.1"),
            ("x-real-ip", "203.0.113.9"),
        ];
        let headers = headers(&fields);
        let request = read(Gateway::Traefik, &headers).unwrap();
        assert_eq!(request.ip(), Some([192, 0, 2, 7].into()));
    }

    #[test]
    fn a_field_without_a_client_address_is_an_error() {
        let mut nginx = FROM_NGINX.to_vec();
        let mut others = vec![
            ("x-forwarded-uri", "/"),
            ("x-forwarded-method", "GET"),
            ("x-forwarded-host", "a.example"),
            ("x-forwarded-for", ""),
        ];
        for wrong in [
            "unknown",
            "here",
            "192.0.2.7, _hidden",
            "192.0.2.7, , 127.0.0.1",
        ] {
            (nginx[3].1, others[3].1) = (wrong, wrong);
            for (gateway, fields) in [(Gateway::Nginx, &nginx), (Gateway::Haproxy, &others)] {
                let error = read(gateway, &headers(fields)).unwrap_err();
                assert_eq!(error.field, fields[3].0, "{wrong}");
            }
        }
        nginx[3].1 = "192.0.2.7";
        nginx.push(("x-real-ip", "192.0.2.8"));
        let error = read(Gateway::Nginx, &headers(&nginx)).unwrap_err();
        assert_eq!(error.field, "x-real-ip", "two of them are one too many");
    }

    /// A client that sends one key for the limiter and another for the server gets neither, unless the policy chooses.
    #[test]
    fn repeated_values_are_refused_unless_the_policy_chooses_one() {
        let mut fields = FROM_NGINX.to_vec();
        fields[0].1 = "/items?q=1&q=2&same=1&same=1";
        fields.extend([("x-api-key", "junk"), ("x-api-key", "real")]);
        fields.push(("cookie", "s=a; s=b"));
        let headers = headers(&fields);
        for (name, rule, expected) in [
            ("header.x-api-key", DuplicateRule::First, Some("junk")),
            ("header.x-api-key", DuplicateRule::Last, Some("real")),
            (
                "header.x-api-key",
                DuplicateRule::Joined,
                Some("junk, real"),
            ),
            ("header.x-api-key", DuplicateRule::Refused, None),
            ("query.q", DuplicateRule::Last, Some("2")),
            ("query.q", DuplicateRule::Refused, None),
            ("query.same", DuplicateRule::Refused, Some("1")),
            ("cookie.s", DuplicateRule::First, Some("a")),
            ("cookie.s", DuplicateRule::Joined, Some("a,b")),
            ("cookie.s", DuplicateRule::Refused, None),
        ] {
            let attribute = Attribute::parse(name).unwrap();
            let mut request = read(Gateway::Nginx, &headers).unwrap();
            request.resolve_duplicates(&[(attribute.clone(), rule)]);
            match expected {
                Some(value) => {
                    assert_eq!(get(&request, name), Some(value), "{name} {rule:?}");
                    assert_eq!(request.unreadable(), None);
                }
                None => {
                    let reason = Some(Unreadable::Duplicate(attribute));
                    assert_eq!(request.unreadable(), reason, "{name} {rule:?}");
                }
            }
        }
    }

    #[test]
    fn targets_are_split_into_path_and_query() {
        for (uri, expected) in [
            ("/a/b?c=d", ("/a/b", "c=d")),
            ("/a?b?c", ("/a", "b?c")),
            ("/a#x?y", ("/a", "")),
            ("http://h.example/a?b", ("/a", "b")),
            ("http://h.example", ("/", "")),
            ("http://h.example?b", ("/", "b")),
            ("/r?to=http://x/y", ("/r", "to=http://x/y")),
            ("*", ("*", "")),
        ] {
            let (path, query) = path_and_query(uri.as_bytes());
            let expected: (&str, &str) = expected;
            assert_eq!(
                (path, query),
                (expected.0.as_bytes(), expected.1.as_bytes()),
                "{uri}"
            );
        }
    }
}
