//! The request that a gateway holds, reconstructed from header fields. Policies match and key by it.
//!
//! Must not know: which limits exist, responses.

use std::net::IpAddr;
use std::sync::OnceLock;

use hyper::HeaderMap;
use tollgate_http::{AddressSource, ClientAddressResolver};
use tollgate_policy::attributes::{Attribute, AttributeFamily, Attributes, Unreadable};
use tollgate_policy::model::DuplicateRule;

use super::Gateway;
use super::repeated_values::{
    NamedValues, ResolvedValue, cookie_pairs, header_lines, query_pairs, resolve, values_named,
};
use crate::http::bad_input::BadInput;
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

/// A request that a gateway asks about.
#[derive(Debug)]
pub(crate) struct ForwardedRequest<'a> {
    headers: &'a HeaderMap,
    ip: IpAddr,
    method: Box<[u8]>,
    host: Box<[u8]>,
    path: &'a [u8],
    /// The raw query. It is parsed only if a policy uses it.
    query: &'a [u8],
    pairs: OnceLock<NamedValues>,
    cookies: OnceLock<NamedValues>,
    /// Values that are not the first one, as it was sent.
    resolved: Vec<(Attribute, Box<[u8]>)>,
    unreadable: Option<Unreadable>,
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
        let uri = single_header(headers, fields.uri)?;
        let (path, query) = path_and_query(uri);
        let ip = client_address(headers, peer, clients)?;
        Ok(Self {
            headers,
            ip,
            method: single_header(headers, fields.method)?
                .to_ascii_uppercase()
                .into(),
            host: without_port(single_header(headers, fields.host)?)
                .to_ascii_lowercase()
                .into(),
            path,
            query,
            pairs: OnceLock::new(),
            cookies: OnceLock::new(),
            resolved: Vec::new(),
            unreadable: None,
        })
    }

    /// Decides which value counts where the client sent several, for every attribute that the policy reads.
    pub(crate) fn resolve_duplicates(&mut self, rules: &[(Attribute, DuplicateRule)]) {
        for (attribute, rule) in rules {
            let resolved = match attribute {
                Attribute::Header(name) => self.resolved_header(name, *rule),
                Attribute::Query(name) => resolve(values_named(self.pairs(), name), *rule, b","),
                Attribute::Cookie(name) => resolve(values_named(self.cookies(), name), *rule, b","),
                _ => continue,
            };
            match resolved {
                ResolvedValue::First => {}
                ResolvedValue::Other(value) => {
                    let value = value.into();
                    self.resolved.push((attribute.clone(), value));
                }
                ResolvedValue::Refused => {
                    self.unreadable = Some(Unreadable::Duplicate(attribute.clone()));
                    return;
                }
            }
        }
    }

    fn resolved_header(&self, name: &str, rule: DuplicateRule) -> ResolvedValue<'a> {
        // Most requests repeat no field.
        match self.headers.len() == self.headers.keys_len() {
            true => ResolvedValue::First,
            false => resolve(header_lines(self.headers, name), rule, b", "),
        }
    }

    fn pairs(&self) -> &NamedValues {
        self.pairs.get_or_init(|| query_pairs(self.query))
    }

    fn cookies(&self) -> &NamedValues {
        self.cookies.get_or_init(|| cookie_pairs(self.headers))
    }
}

impl Attributes for ForwardedRequest<'_> {
    fn ip(&self) -> Option<IpAddr> {
        Some(self.ip)
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let mut resolved = self.resolved.iter();
        if let Some((_, value)) = resolved.find(|(known, _)| known == attribute) {
            return Some(value);
        }
        match attribute {
            Attribute::Method => Some(&self.method),
            Attribute::Host => Some(&self.host),
            Attribute::Path => Some(self.path),
            Attribute::Header(name) => self
                .headers
                .get(&**name)
                .map(hyper::http::HeaderValue::as_bytes),
            Attribute::Query(name) => values_named(self.pairs(), name).next(),
            Attribute::Cookie(name) => values_named(self.cookies(), name).next(),
            // Gateways send neither verified claims nor descriptors.
            _ => None,
        }
    }

    fn visit_names(&self, family: AttributeFamily, visit: &mut dyn FnMut(&str)) -> bool {
        let pairs = match family {
            AttributeFamily::Header => {
                self.headers.keys().for_each(|name| visit(name.as_str()));
                return true;
            }
            AttributeFamily::Query => self.pairs(),
            AttributeFamily::Cookie => self.cookies(),
            // Gateways send neither verified claims nor descriptors.
            _ => return true,
        };
        // A policy's names are text, so other names are in none.
        let names = pairs
            .iter()
            .filter_map(|(name, _)| std::str::from_utf8(name).ok());
        names.for_each(visit);
        true
    }

    fn unreadable(&self) -> Option<Unreadable> {
        self.unreadable.clone()
    }
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
