//! What is known of a request: the words that policies match and key by, and the trait through which a transport
//! answers them.
//!
//! Must not know: HTTP libraries, policies, limits.

use std::net::IpAddr;

/// One thing that can be known of a request, as policies name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Attribute {
    /// `ip`: the client's address, after trusted proxies.
    Ip,
    /// `method`: upper-case.
    Method,
    /// `host`: lower-case, without a port.
    Host,
    /// `route`: the template that the path belongs to, never the path itself.
    Route,
    /// `path`: as the client sent it, without its query. To match by, never to key by.
    Path,
    /// `header.NAME`: names are lower-case.
    Header(Box<str>),
    /// `query.NAME`
    Query(Box<str>),
    /// `cookie.NAME`
    Cookie(Box<str>),
    /// `claim.NAME`: of a token that was verified. An unverified claim is absent.
    Claim(Box<str>),
    /// `descriptor.NAME`: an entry of an Envoy descriptor.
    Descriptor(Box<str>),
    /// `domain`: of an Envoy request.
    Domain,
}

impl Attribute {
    /// The attribute that policies call by this name, if there is one. Header names are made lower-case.
    ///
    /// ```
    /// use tollgate_policy::attributes::Attribute;
    ///
    /// assert_eq!(Attribute::named("header.X-Api-Key"), Some(Attribute::Header("x-api-key".into())));
    /// assert_eq!(Attribute::named("header."), None);
    /// assert_eq!(Attribute::named("weather"), None);
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
                    _ => None,
                };
            }
        };
        Some(simple)
    }

    /// Whether a client can make up its value. An address, a method, a route's template and a verified claim it cannot.
    #[must_use]
    pub const fn is_client_chosen(&self) -> bool {
        !matches!(
            self,
            Self::Ip | Self::Method | Self::Route | Self::Claim(_)
        )
    }

    /// Every kind of name there is, for messages and for the schema.
    pub const NAMES: [&'static str; 11] = [
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
        }
    }
}

/// A request, as far as policies may look at it. A transport implements what it can know; the rest is absent.
///
/// Values are bytes as they came: they are compared and hashed, never shown.
pub trait Attributes: Sync {
    /// The client's address.
    fn ip(&self) -> Option<IpAddr> {
        None
    }

    /// Any other attribute. [`Attribute::Route`] is only what the transport itself knows of routes; where it knows
    /// nothing, rules find the template by the path.
    fn get(&self, attribute: &Attribute) -> Option<&[u8]>;
}
