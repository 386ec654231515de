//! The request that a gateway holds, reconstructed from header fields. Policies match and key by it.
//!
//! Must not know: which limits exist, responses.

use std::net::IpAddr;
use std::sync::OnceLock;

use hyper::HeaderMap;
use hyper::header::COOKIE;
use tollgate_http::{AddressSource, ClientAddressResolver};
use tollgate_policy::attributes::{Attribute, Attributes};

use super::Gateway;
use crate::http::bad_input::BadInput;
use crate::http::query::decode;
use crate::http::request_attributes::without_port;

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

type QueryPairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A request that a gateway asks about.
#[derive(Debug)]
pub(crate) struct ForwardedRequest<'a> {
    headers: &'a HeaderMap,
    ip: IpAddr,
    method: Box<[u8]>,
    host: Box<[u8]>,
    path: &'a [u8],
    /// The raw query. It is parsed only if a policy uses it.
    query: &'a str,
    pairs: OnceLock<QueryPairs>,
}

impl<'a> ForwardedRequest<'a> {
    /// Parses the header fields. All of them are required. If a gateway does not set a field, the client could set it, or all
    /// clients would share one quota; both have to be noticed.
    pub(crate) fn parse(
        gateway: Gateway,
        headers: &'a HeaderMap,
        peer: IpAddr,
        clients: &ClientAddressResolver,
    ) -> Result<Self, BadInput> {
        let fields = match gateway {
            Gateway::Nginx => ORIGINAL,
            Gateway::Traefik | Gateway::Caddy | Gateway::Haproxy => FORWARDED,
        };
        let uri = required_header(headers, fields.uri)?;
        let uri = std::str::from_utf8(uri)
            .map_err(|_not_text| BadInput::new(fields.uri, uri, "it is not UTF-8"))?;
        let (path, query) = path_and_query(uri);
        let ip = client_address(headers, peer, clients)?;
        Ok(Self {
            headers,
            ip,
            method: required_header(headers, fields.method)?
                .to_ascii_uppercase()
                .into(),
            host: without_port(required_header(headers, fields.host)?)
                .to_ascii_lowercase()
                .into(),
            path: path.as_bytes(),
            query,
            pairs: OnceLock::new(),
        })
    }

    fn query(&self, name: &str) -> Option<&[u8]> {
        let pairs = self.pairs.get_or_init(|| pairs(self.query));
        let found = pairs.iter().find(|(known, _)| known == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    fn cookie(&self, name: &str) -> Option<&[u8]> {
        let all = self.headers.get_all(COOKIE).into_iter();
        let mut each = all.flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
        each.find_map(|cookie| {
            let cookie = cookie.trim_ascii();
            let value = cookie.strip_prefix(name.as_bytes())?;
            value.strip_prefix(b"=")
        })
    }
}

impl Attributes for ForwardedRequest<'_> {
    fn ip(&self) -> Option<IpAddr> {
        Some(self.ip)
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Method => Some(&self.method),
            Attribute::Host => Some(&self.host),
            Attribute::Path => Some(self.path),
            Attribute::Header(name) => self
                .headers
                .get(&**name)
                .map(hyper::http::HeaderValue::as_bytes),
            Attribute::Query(name) => self.query(name),
            Attribute::Cookie(name) => self.cookie(name),
            // Gateways send neither verified claims nor descriptors.
            _ => None,
        }
    }
}

fn required_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a [u8], BadInput> {
    match headers.get(name).map(hyper::http::HeaderValue::as_bytes) {
        Some(value) if !value.is_empty() => Ok(value),
        _ => {
            let reason = "the gateway must send this field; docs/gateways.md has its settings";
            Err(BadInput::new(name, b"", reason))
        }
    }
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
fn path_and_query(uri: &str) -> (&str, &str) {
    let target = match uri.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) => rest
            .find(['/', '?'])
            .and_then(|at| rest.get(at..))
            .unwrap_or("/"),
        _ => uri,
    };
    let target = target.split_once('#').map_or(target, |(target, _)| target);
    match target.split_once('?') {
        Some(("", query)) => ("/", query),
        Some((path, query)) => (path, query),
        None => (target, ""),
    }
}

/// The names and values of a query. Text with an invalid escape stays as it is.
fn pairs(query: &str) -> QueryPairs {
    let plain = |text: &str| decode(text).unwrap_or_else(|| text.into());
    let each = query.split('&').filter(|pair| !pair.is_empty());
    each.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (plain(name), plain(value))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Gateways;
    use super::*;
    use hyper::header::HeaderName;
    use tollgate_http::TrustedProxies;

    fn read(gateway: Gateway, headers: &HeaderMap) -> Result<ForwardedRequest<'_>, BadInput> {
        let gateways = Gateways::new(TrustedProxies::default());
        let clients = gateways.client_source(gateway);
        ForwardedRequest::parse(gateway, headers, [127, 0, 0, 1].into(), clients)
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

    fn get<'a>(request: &'a ForwardedRequest<'_>, name: &str) -> Option<&'a str> {
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
            assert_eq!(path_and_query(uri), expected, "{uri}");
        }
    }
}
