//! The attributes of an HTTP request, for every transport that has one: the same spelling rules wherever a request is read.
//!
//! Must not know: sockets, how a transport learned of the request, which limits exist.

mod header_lookup;
mod percent;
mod repeated_values;

pub use header_lookup::find_header;
pub use percent::{decode_form, without_port};

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::OnceLock;

use http::HeaderMap;
use http::header::{COOKIE, HeaderValue};
use tollgate_policy::attributes::{Attribute, AttributeFamily, Attributes, Unreadable};
use tollgate_policy::model::DuplicateRule;

use repeated_values::{
    NamedValues, ResolvedValue, cookie_pairs, has_other_value_at_semicolons, header_lines,
    query_pairs, resolve, values_named,
};

/// An HTTP request as policies see it. It borrows everything that is already spelled as policies expect.
///
/// ```
/// use http::HeaderMap;
/// use tollgate_service::{Attribute, Attributes, HttpAttributes};
///
/// let headers = HeaderMap::new();
/// let request = HttpAttributes::new(&headers)
///     .with_method(b"get")
///     .with_host(b"Api.Example:8443")
///     .with_target(b"/items/7", b"page=2");
/// assert_eq!(request.get(&Attribute::Method), Some(&b"GET"[..]));
/// assert_eq!(request.get(&Attribute::Host), Some(&b"api.example"[..]));
/// assert_eq!(request.get(&Attribute::Query("page".into())), Some(&b"2"[..]));
/// ```
#[derive(Debug)]
pub struct HttpAttributes<'a> {
    headers: &'a HeaderMap,
    ip: Option<IpAddr>,
    method: Option<Cow<'a, [u8]>>,
    host: Option<Cow<'a, [u8]>>,
    path: Option<&'a [u8]>,
    route: Option<&'a [u8]>,
    /// The raw query. It is parsed only if a policy uses it.
    query: &'a [u8],
    pairs: OnceLock<NamedValues>,
    cookies: OnceLock<NamedValues>,
    /// Values that are not the first one, as it was sent.
    resolved: Vec<(Attribute, Box<[u8]>)>,
    unreadable: Option<Unreadable>,
}

impl<'a> HttpAttributes<'a> {
    /// A request with these header fields and nothing else.
    #[must_use]
    pub const fn new(headers: &'a HeaderMap) -> Self {
        Self {
            headers,
            ip: None,
            method: None,
            host: None,
            path: None,
            route: None,
            query: b"",
            pairs: OnceLock::new(),
            cookies: OnceLock::new(),
            resolved: Vec::new(),
            unreadable: None,
        }
    }

    /// Sets the address of the client, after trusted proxies.
    #[must_use]
    pub const fn with_ip(mut self, ip: IpAddr) -> Self {
        self.ip = Some(ip);
        self
    }

    /// Sets the method. It becomes upper-case.
    #[must_use]
    pub fn with_method(mut self, method: &'a [u8]) -> Self {
        self.method = Some(match method.iter().any(u8::is_ascii_lowercase) {
            true => method.to_ascii_uppercase().into(),
            false => method.into(),
        });
        self
    }

    /// Sets the host. It becomes lower-case and loses its port.
    #[must_use]
    pub fn with_host(mut self, host: &'a [u8]) -> Self {
        let name = without_port(host);
        self.host = Some(match name.iter().any(u8::is_ascii_uppercase) {
            true => name.to_ascii_lowercase().into(),
            false => name.into(),
        });
        self
    }

    /// Sets the path as the client sent it, and the query without its question mark.
    #[must_use]
    pub fn with_target(mut self, path: &'a [u8], query: &'a [u8]) -> Self {
        self.path = Some(path);
        self.query = query;
        // Servers that end the query there read other parameters than those that do not.
        if query.contains(&b'#') {
            self.unreadable = Some(Unreadable::Fragment);
        }
        self
    }

    /// Sets the route template that the transport's own router chose.
    #[must_use]
    pub const fn with_route(mut self, route: &'a [u8]) -> Self {
        self.route = Some(route);
        self
    }

    /// Marks the request as one that cannot be read. It is refused.
    #[must_use]
    pub fn with_unreadable(mut self, reason: Unreadable) -> Self {
        self.unreadable = Some(reason);
        self
    }

    /// Whether the request may have an attribute more than once. Most requests do not, so they need not look at the rules.
    #[must_use]
    pub fn may_repeat_values(&self) -> bool {
        self.headers.len() != self.headers.keys_len()
            || !self.query.is_empty()
            || self.headers.contains_key(COOKIE)
    }

    /// Decides which value counts where the client sent several, for every attribute that the policy reads: see
    /// [`Rules::duplicate_rules`](tollgate_policy::rules::Rules::duplicate_rules).
    pub fn resolve_duplicates(&mut self, rules: &[(Attribute, DuplicateRule)]) {
        // Most requests repeat no field.
        let repeats_header = self.headers.len() != self.headers.keys_len();
        for (attribute, rule) in rules {
            let resolved = match attribute {
                Attribute::Header(name) if repeats_header => {
                    resolve(header_lines(self.headers, name), *rule, b", ")
                }
                Attribute::Query(name) => self.resolved_parameter(name, *rule),
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

    fn resolved_parameter(&self, name: &str, rule: DuplicateRule) -> ResolvedValue<'_> {
        if rule == DuplicateRule::Refused && has_other_value_at_semicolons(self.query, name) {
            return ResolvedValue::Refused;
        }
        resolve(values_named(self.pairs(), name), rule, b",")
    }

    fn pairs(&self) -> &NamedValues {
        self.pairs.get_or_init(|| query_pairs(self.query))
    }

    fn cookies(&self) -> &NamedValues {
        self.cookies.get_or_init(|| cookie_pairs(self.headers))
    }
}

impl Attributes for HttpAttributes<'_> {
    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let mut resolved = self.resolved.iter();
        if let Some((_, value)) = resolved.find(|(known, _)| known == attribute) {
            return Some(value);
        }
        match attribute {
            Attribute::Method => self.method.as_deref(),
            Attribute::Host => self.host.as_deref(),
            Attribute::Path => self.path,
            Attribute::Route => self.route,
            Attribute::Header(name) => find_header(self.headers, name).map(HeaderValue::as_bytes),
            Attribute::Query(name) => values_named(self.pairs(), name).next(),
            Attribute::Cookie(name) => values_named(self.cookies(), name).next(),
            // Verified claims and descriptors come from elsewhere.
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
            // Verified claims and descriptors come from elsewhere.
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
