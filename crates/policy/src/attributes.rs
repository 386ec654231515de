//! The attributes of a request that policies match and key by, and the trait that transports implement to provide them.
//!
//! Must not know: HTTP libraries, policies, limits.

use std::net::IpAddr;

pub use crate::rules::Unreadable;

/// An attribute of a request, by its name in policies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Attribute {
    /// `ip`: the client's address, after trusted proxies.
    Ip,
    /// `method`: upper-case.
    Method,
    /// `host`: lower-case, without a port and without a dot at the end.
    Host,
    /// `route`: the route template of the path, never the path itself.
    Route,
    /// `path`: as sent by the client, without the query. Policies can match by it but not key by it.
    Path,
    /// `header.NAME`: names are lower-case.
    Header(Box<str>),
    /// `query.NAME`
    Query(Box<str>),
    /// `cookie.NAME`
    Cookie(Box<str>),
    /// `claim.NAME`: a claim of a verified token. An unverified claim is absent.
    Claim(Box<str>),
    /// `descriptor.NAME`: an entry of an Envoy descriptor.
    Descriptor(Box<str>),
    /// `descriptors.NAME`: the first entry with this key in any descriptor of the same Envoy call.
    AnyDescriptor(Box<str>),
    /// `extension.NAME`: a value that the program around the limiter provides, such as the user that it has authenticated.
    Extension(Box<str>),
    /// `domain`: of an Envoy request.
    Domain,
}

impl Attribute {
    /// Parses the name of an attribute. Header names become lower-case.
    ///
    /// ```
    /// use tollgate_policy::attributes::Attribute;
    ///
    /// assert_eq!(Attribute::parse("header.X-Api-Key"), Some(Attribute::Header("x-api-key".into())));
    /// assert_eq!(Attribute::parse("header."), None);
    /// assert_eq!(Attribute::parse("weather"), None);
    /// ```
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let simple = match name {
            "ip" => Self::Ip,
            "method" => Self::Method,
            "host" => Self::Host,
            "route" => Self::Route,
            "path" => Self::Path,
            "domain" => Self::Domain,
            _ => {
                let (family, rest) = name.split_once('.')?;
                if rest.is_empty() {
                    return None;
                }
                return match family {
                    "header" => Some(Self::Header(rest.to_ascii_lowercase().into())),
                    "query" => Some(Self::Query(rest.into())),
                    "cookie" => Some(Self::Cookie(rest.into())),
                    "claim" => Some(Self::Claim(rest.into())),
                    "descriptor" => Some(Self::Descriptor(rest.into())),
                    "extension" => Some(Self::Extension(rest.into())),
                    "descriptors" => Some(Self::AnyDescriptor(rest.into())),
                    _ => None,
                };
            }
        };
        Some(simple)
    }

    /// Whether a client can make up its value. An address, a method, a route's template, a verified claim and a value
    /// of the program it cannot.
    #[must_use]
    pub const fn is_client_chosen(&self) -> bool {
        !matches!(
            self,
            Self::Ip | Self::Method | Self::Route | Self::Claim(_) | Self::Extension(_)
        )
    }

    /// All attribute names, for messages and for the schema.
    pub const NAMES: [&'static str; 13] = [
        "ip",
        "method",
        "host",
        "route",
        "path",
        "domain",
        "header.NAME",
        "query.NAME",
        "cookie.NAME",
        "claim.NAME",
        "descriptor.NAME",
        "descriptors.NAME",
        "extension.NAME",
    ];
}

impl std::fmt::Display for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::Method => f.write_str("method"),
            Self::Host => f.write_str("host"),
            Self::Route => f.write_str("route"),
            Self::Path => f.write_str("path"),
            Self::Domain => f.write_str("domain"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Query(name) => write!(f, "query.{name}"),
            Self::Cookie(name) => write!(f, "cookie.{name}"),
            Self::Claim(name) => write!(f, "claim.{name}"),
            Self::Descriptor(name) => write!(f, "descriptor.{name}"),
            Self::AnyDescriptor(name) => write!(f, "descriptors.{name}"),
            Self::Extension(name) => write!(f, "extension.{name}"),
        }
    }
}

/// The attributes of a request. A transport returns `None` for attributes that it does not have.
///
/// Values are the raw bytes of the request. Rules compare and hash them.
pub trait Attributes: Sync {
    /// The client's address.
    fn ip(&self) -> Option<IpAddr> {
        None
    }

    /// Any other attribute. [`Attribute::Route`] is the route that the transport itself knows. If it is `None`, the
    /// rules find the template by the path.
    fn get(&self, attribute: &Attribute) -> Option<&[u8]>;

    /// Why the transport cannot say what the request is. Such a request is refused.
    fn unreadable(&self) -> Option<Unreadable> {
        None
    }
}
