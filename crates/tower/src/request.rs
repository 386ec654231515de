//! Reads a request into the attributes that policies use: what the client sent, what the router chose, and what the program
//! put into the request's extensions.
//!
//! Must not know: limits, decisions, responses.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use http::header::{CONTENT_TYPE, COOKIE, HOST};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Uri};
use tollgate_service::{
    Attribute, AttributeFamily, Attributes, ClientAddressResolver, HttpAttributes, Unreadable,
    find_header, without_port,
};

use crate::overload::TargetFinder;

/// The address of a connection's peer, for servers whose framework does not put it into requests.
///
/// Insert it into the extensions of every request. With axum or tonic and the feature of the same name that is not needed:
/// the layer reads `ConnectInfo<SocketAddr>` and `TcpConnectInfo`.
///
/// ```
/// use tollgate_tower::PeerAddress;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddress([192, 0, 2, 7].into()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self(address.ip())
    }
}

/// Reads the text of an attribute out of a request's extensions.
type ReadExtension = Box<dyn for<'a> Fn(&'a Extensions) -> Option<&'a str> + Send + Sync>;

/// An attribute `extension.NAME` that the program provides.
pub(crate) struct ExtensionAttribute {
    name: Box<str>,
    read: ReadExtension,
}

impl ExtensionAttribute {
    pub(crate) fn new<T: Send + Sync + 'static>(
        name: &str,
        read: impl for<'a> Fn(&'a T) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            read: Box::new(move |extensions| read(extensions.get::<T>()?)),
        }
    }
}

impl fmt::Debug for ExtensionAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExtensionAttribute")
            .field(&self.name)
            .finish()
    }
}

/// What the program knows of its requests.
#[derive(Debug, Default)]
pub(crate) struct RequestSettings {
    pub(crate) clients: ClientAddressResolver,
    pub(crate) extensions: Vec<ExtensionAttribute>,
    /// The paths of gRPC methods that exist. Clients choose paths, so only these may become keys.
    pub(crate) grpc_methods: HashSet<Box<str>>,
    /// Which requests share a concurrency limit. Without it all do.
    pub(crate) overload_targets: Option<TargetFinder>,
}

/// A request without its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    extensions: &'a Extensions,
    /// The peer, unless the extensions name it.
    peer: Option<IpAddr>,
}

impl<'a> RequestHead<'a> {
    pub(crate) fn of_request<B>(request: &'a Request<B>, peer: Option<IpAddr>) -> Self {
        Self {
            peer,
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    pub(crate) const fn of_parts(parts: &'a Parts, peer: Option<IpAddr>) -> Self {
        Self {
            peer,
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }

    /// Whether it is a gRPC call. All of them are `POST`.
    #[inline]
    pub(crate) fn is_grpc(&self) -> bool {
        if *self.method != Method::POST {
            return false;
        }
        let content_type = self.headers.get(CONTENT_TYPE);
        content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
    }

    /// The address of the connection's peer, if anything knows it.
    fn peer(&self) -> Option<IpAddr> {
        if let Some(peer) = self.extensions.get::<PeerAddress>() {
            return Some(peer.0);
        }
        #[cfg(feature = "axum")]
        if let Some(info) = self
            .extensions
            .get::<axum::extract::ConnectInfo<SocketAddr>>()
        {
            return Some(info.0.ip());
        }
        #[cfg(feature = "tonic")]
        if let Some(info) = self
            .extensions
            .get::<tonic::transport::server::TcpConnectInfo>()
        {
            return info.remote_addr().map(|address| address.ip());
        }
        self.peer
    }

    /// The client's address behind trusted proxies.
    #[inline]
    fn client(&self, clients: &ClientAddressResolver) -> Option<IpAddr> {
        let peer = self.peer()?;
        let Some(field) = clients.field() else {
            return Some(match peer {
                IpAddr::V4(_) => peer,
                IpAddr::V6(v6) => v6.to_canonical(),
            });
        };
        let lines = self.headers.get_all(field).into_iter();
        let client = clients.resolve(peer, lines.map(HeaderValue::as_bytes));
        Some(client.address)
    }

    /// The URI as the client sent it. Nested routers of axum see only a part of it.
    fn original_uri(&self) -> &'a Uri {
        #[cfg(feature = "axum")]
        if let Some(original) = self.extensions.get::<axum::extract::OriginalUri>() {
            return &original.0;
        }
        self.uri
    }

    /// The route template, if a router has chosen one.
    fn route(&self, grpc_methods: &HashSet<Box<str>>) -> Option<&'a [u8]> {
        #[cfg(feature = "axum")]
        if let Some(route) = self.extensions.get::<axum::extract::MatchedPath>() {
            return Some(route.as_str().as_bytes());
        }
        let path = self.uri.path();
        (!grpc_methods.is_empty() && grpc_methods.contains(path)).then_some(path.as_bytes())
    }

    /// The host: `:authority` of HTTP/2 and of absolute targets, else `Host`. An error if they contradict each other.
    fn host(&self, uri: &'a Uri) -> Result<Option<&'a [u8]>, Unreadable> {
        let authority = uri.host().map(str::as_bytes);
        let fields = self.headers.get_all(HOST).into_iter();
        let mut hosts = authority
            .into_iter()
            .chain(fields.map(|value| without_port(value.as_bytes())));
        let first = hosts.next();
        match first {
            Some(first) if hosts.any(|other| !other.eq_ignore_ascii_case(first)) => {
                Err(Unreadable::Duplicate(Attribute::Host))
            }
            first => Ok(first),
        }
    }

    /// The attributes of the request. Only what every decision needs is read at once.
    #[inline]
    pub(crate) fn attributes(self, settings: &'a RequestSettings) -> LayerAttributes<'a> {
        LayerAttributes {
            head: self,
            uri: self.original_uri(),
            ip: self.client(&settings.clients),
            settings,
            http: OnceLock::new(),
        }
    }
}

/// The attributes of a request, with those that the program provides.
#[derive(Debug)]
pub(crate) struct LayerAttributes<'a> {
    head: RequestHead<'a>,
    uri: &'a Uri,
    ip: Option<IpAddr>,
    settings: &'a RequestSettings,
    /// Everything that is spelled in several ways or may be repeated, once it is needed.
    http: OnceLock<HttpAttributes<'a>>,
}

impl<'a> LayerAttributes<'a> {
    /// Whether the request may have an attribute more than once. Most requests do not, so they need not look at the rules.
    /// Cookies count only if the policy reads some.
    pub(crate) fn may_repeat_values(&self, reads_cookies: bool) -> bool {
        let headers = self.head.headers;
        self.uri.query().is_some()
            || headers.len() != headers.keys_len()
            || (reads_cookies && headers.contains_key(COOKIE))
            // The two may contradict each other.
            || (self.uri.authority().is_some() && headers.contains_key(HOST))
    }

    /// The attributes whose repeated values have to be resolved.
    pub(crate) fn http_mut(&mut self) -> Option<&mut HttpAttributes<'a>> {
        self.http();
        self.http.get_mut()
    }

    fn path(&self) -> &'a [u8] {
        match self.uri.path() {
            // The target of CONNECT has no path.
            "" => b"/",
            path => path.as_bytes(),
        }
    }

    fn http(&self) -> &HttpAttributes<'a> {
        self.http.get_or_init(|| self.read_http())
    }

    fn read_http(&self) -> HttpAttributes<'a> {
        let query = self.uri.query().unwrap_or_default();
        let http = HttpAttributes::new(self.head.headers)
            .with_method(self.head.method.as_str().as_bytes())
            .with_target(self.path(), query.as_bytes());
        match self.head.host(self.uri) {
            Ok(Some(host)) => http.with_host(host),
            Ok(None) => http,
            Err(reason) => http.with_unreadable(reason),
        }
    }
}

impl Attributes for LayerAttributes<'_> {
    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Path => Some(self.path()),
            Attribute::Route => self.head.route(&self.settings.grpc_methods),
            Attribute::Method if is_upper_case(self.head.method) => {
                Some(self.head.method.as_str().as_bytes())
            }
            Attribute::Header(name) if self.http.get().is_none() => {
                find_header(self.head.headers, name).map(HeaderValue::as_bytes)
            }
            Attribute::Extension(name) => {
                let mut known = self.settings.extensions.iter();
                let known = known.find(|known| known.name == *name)?;
                (known.read)(self.head.extensions).map(str::as_bytes)
            }
            other => self.http().get(other),
        }
    }

    fn visit_names(&self, family: AttributeFamily, visit: &mut dyn FnMut(&str)) -> bool {
        self.http().visit_names(family, visit)
    }

    fn unreadable(&self) -> Option<Unreadable> {
        self.http.get()?.unreadable()
    }
}

/// Whether a method needs no other spelling.
fn is_upper_case(method: &Method) -> bool {
    !method
        .as_str()
        .bytes()
        .any(|byte| byte.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(request: &Request<()>) -> Result<Option<&[u8]>, Unreadable> {
        RequestHead::of_request(request, None).host(request.uri())
    }

    /// HTTP/2 has the host in the target, HTTP/1 in a field. A client that sends both could name one host to the state and
    /// another to the handler.
    #[test]
    fn two_different_hosts_cannot_be_read() {
        let request = |uri: &str, hosts: &[&'static str]| {
            let mut request = Request::get(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            request.body(()).unwrap()
        };
        for (uri, hosts, expected) in [
            ("/", &["a.example:80"][..], Some("a.example")),
            ("/", &[], None),
            ("http://a.example/", &[], Some("a.example")),
            ("http://a.example:80/", &["A.example"], Some("a.example")),
            ("/", &["a.example", "a.example"], Some("a.example")),
        ] {
            let request = request(uri, hosts);
            assert_eq!(host(&request), Ok(expected.map(str::as_bytes)), "{uri}");
        }
        for (uri, hosts) in [
            ("http://a.example/", &["b.example"][..]),
            ("/", &["a.example", "b.example"]),
        ] {
            let refused = Err(Unreadable::Duplicate(Attribute::Host));
            assert_eq!(host(&request(uri, hosts)), refused, "{uri}");
        }
    }

    #[test]
    fn the_program_provides_attributes_from_extensions() {
        #[derive(Clone)]
        struct User(String);
        let mut request = Request::new(());
        let user = ExtensionAttribute::new("user", |user: &User| Some(user.0.as_str()));
        let settings = RequestSettings {
            extensions: vec![user],
            ..RequestSettings::default()
        };
        let read = |request: &Request<()>, name: &str| {
            let head = RequestHead::of_request(request, None);
            let attributes = head.attributes(&settings);
            let value = attributes.get(&Attribute::Extension(name.into()));
            value.map(<[u8]>::to_vec)
        };
        assert_eq!(read(&request, "user"), None);
        request.extensions_mut().insert(User("ada".to_owned()));
        assert_eq!(read(&request, "user"), Some(b"ada".to_vec()));
        assert_eq!(read(&request, "other"), None);
    }

    #[test]
    fn the_client_is_the_peer_unless_a_trusted_proxy_names_it() {
        use tollgate_service::ForwardedHeader;
        let mut request = Request::get("/")
            .header("x-forwarded-for", "192.0.2.7")
            .body(())
            .unwrap();
        let trusted = vec!["10.0.0.0/8".parse().unwrap()];
        let proxied =
            ClientAddressResolver::behind_proxies(ForwardedHeader::XForwardedFor, trusted);
        let client = |request: &Request<()>, clients: &ClientAddressResolver| {
            RequestHead::of_request(request, None).client(clients)
        };
        assert_eq!(client(&request, &proxied), None, "no peer is known");
        let of_connection = RequestHead::of_request(&request, Some([10, 0, 0, 2].into()));
        let direct = ClientAddressResolver::default();
        assert_eq!(of_connection.client(&direct), Some([10, 0, 0, 2].into()));
        assert_eq!(of_connection.client(&proxied), Some([192, 0, 2, 7].into()));
        let peer = SocketAddr::from(([10, 0, 0, 1], 80));
        request.extensions_mut().insert(PeerAddress::from(peer));
        let named = RequestHead::of_request(&request, Some([10, 0, 0, 2].into()));
        assert_eq!(
            named.client(&direct),
            Some(peer.ip()),
            "the request names it"
        );
        assert_eq!(client(&request, &direct), Some(peer.ip()));
        assert_eq!(client(&request, &proxied), Some([192, 0, 2, 7].into()));
        request
            .extensions_mut()
            .insert(PeerAddress([203, 0, 113, 1].into()));
        let forged = client(&request, &proxied);
        assert_eq!(forged, Some([203, 0, 113, 1].into()), "not a trusted proxy");
    }
}
