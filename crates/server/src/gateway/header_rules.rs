//! The header fields that a proxy removes, rewrites and adds: those of one connection, those that name the client, and `Via`.
//!
//! Must not know: routes, limits, connections.

use std::net::IpAddr;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{
    CONNECTION, EXPECT, Entry, FORWARDED, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE, VIA,
};
use hyper::http::Version;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Fields of one connection (RFC 9110, section 7.6.1), also without `Connection` naming them.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
];

/// Fields by which some servers replace the path: it would not be the one that was matched.
const PATH_OVERRIDES: [&str; 3] = ["x-original-url", "x-rewrite-url", "x-original-uri"];

/// The two ends of the client's connection, for the fields that name them.
#[derive(Clone, Debug)]
pub(super) struct ClientConnection {
    /// The peer of the connection.
    pub(super) peer: IpAddr,
    /// The same as a field, made once for all requests of the connection.
    pub(super) peer_field: HeaderValue,
    /// The client, behind trusted proxies.
    pub(super) client: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub(super) is_trusted: bool,
    pub(super) has_tls: bool,
}

/// Removes the fields of one connection from a message. `TE: trailers` stays, because gRPC requires it.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // One look at each name is cheaper than to search for each field, and most messages have none.
    if !headers.keys().any(is_hop_by_hop) {
        return;
    }
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    let mut codings = headers
        .get_all(TE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let has_trailers = codings.any(|value| {
        let mut names = value.split(',').map(str::trim);
        names.any(|name| name.eq_ignore_ascii_case("trailers"))
    });
    match has_trailers {
        true => drop(headers.insert(TE, HeaderValue::from_static("trailers"))),
        false => drop(headers.remove(TE)),
    }
}

/// Whether a field is removed, or names others that are.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "te"
            | "keep-alive"
            | "proxy-connection"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
            | "proxy-authenticate"
            | "proxy-authorization"
    )
}

/// The fields that `Connection` names. Those that frame or address a message stay: removing them would change it.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(CONNECTION).iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let names = names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    let is_kept = |name: &HeaderName| {
        matches!(
            name.as_str(),
            "host" | "content-length" | "te" | "trailer" | "close" | "keep-alive"
        )
    };
    names.filter(|name| !is_kept(name)).collect()
}

/// Rewrites the fields that name the client. What an untrusted peer says about itself is replaced.
pub(super) fn rewrite_forwarded(headers: &mut HeaderMap, connection: &ClientConnection) {
    if !connection.is_trusted {
        remove_claims(headers);
    }
    let scheme = if connection.has_tls { "https" } else { "http" };
    append_to_list(headers, X_FORWARDED_FOR, connection.peer_field.clone());
    let proto = headers.entry(X_FORWARDED_PROTO);
    proto.or_insert(HeaderValue::from_static(scheme));
    if let Some(host) = headers.get(HOST).cloned() {
        headers.entry(X_FORWARDED_HOST).or_insert(host);
    }
    let client = match connection.client == connection.peer {
        true => connection.peer_field.clone(),
        false => address_field(connection.client),
    };
    headers.insert(X_REAL_IP, client);
    // Nobody gets the field who did not use it. That of an untrusted peer is removed.
    if connection.is_trusted && headers.contains_key(FORWARDED) {
        let element = match connection.peer {
            IpAddr::V4(peer) => format!("for={peer};proto={scheme}"),
            IpAddr::V6(peer) => format!("for=\"[{peer}]\";proto={scheme}"),
        };
        append_to_list(headers, FORWARDED, value_of(element));
    }
    headers.remove(EXPECT);
}

/// Removes what a client must not say of itself. Some servers read `_` in names as `-`.
fn remove_claims(headers: &mut HeaderMap) {
    let is_claim = |name: &HeaderName| {
        let name = name.as_str();
        // Most names differ in the first letter.
        if !name.starts_with(['x', 'f']) {
            return false;
        }
        let is_same = |other: &str| {
            let same = |(a, b): (u8, u8)| a == b || a == b'_' && b == b'-';
            name.len() == other.len() && name.bytes().zip(other.bytes()).all(same)
        };
        name == "forwarded"
            || is_same("x-real-ip")
            || is_same("x-forwarded")
            || name.get(.."x-forwarded-".len()).is_some_and(|start| {
                matches!(
                    start,
                    "x-forwarded-" | "x_forwarded_" | "x-forwarded_" | "x_forwarded-"
                )
            })
            || PATH_OVERRIDES.iter().any(|known| is_same(known))
    };
    let claims: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_claim(name))
        .cloned()
        .collect();
    for name in claims {
        headers.remove(name);
    }
}

/// Tells the upstream which prefix was removed from the path.
pub(super) fn add_prefix(headers: &mut HeaderMap, prefix: &str) {
    if let Ok(prefix) = HeaderValue::from_str(prefix) {
        headers.insert(X_FORWARDED_PREFIX, prefix);
    }
}

/// Adds our name to `Via`, with the version in which the message was received.
pub(super) fn add_via(headers: &mut HeaderMap, received: Version) {
    let via = match received {
        Version::HTTP_2 => HeaderValue::from_static("2 tollgate"),
        Version::HTTP_10 => HeaderValue::from_static("1.0 tollgate"),
        _ => HeaderValue::from_static("1.1 tollgate"),
    };
    append_to_list(headers, VIA, via);
}

/// Appends an item to a list field. Several lines become one, so that no server reads only the first.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, item: HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(item);
        }
        Entry::Occupied(mut entry) => {
            let mut list = Vec::new();
            for line in entry.iter() {
                list.extend_from_slice(line.as_bytes());
                list.extend_from_slice(b", ");
            }
            list.extend_from_slice(item.as_bytes());
            let joined = HeaderValue::from_maybe_shared(Bytes::from(list));
            entry.insert(joined.unwrap_or(item));
        }
    }
}

/// An address as a field.
pub(super) fn address_field(address: IpAddr) -> HeaderValue {
    value_of(address.to_canonical().to_string())
}

fn value_of(text: String) -> HeaderValue {
    // Addresses are printable ASCII.
    HeaderValue::try_from(text).unwrap_or_else(|_never| HeaderValue::from_static("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn list(headers: &HeaderMap) -> Vec<String> {
        let mut list: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        list.sort();
        list
    }

    fn connection(is_trusted: bool) -> ClientConnection {
        let peer = IpAddr::from([192, 0, 2, 1]);
        ClientConnection {
            peer,
            peer_field: address_field(peer),
            client: [203, 0, 113, 9].into(),
            is_trusted,
            has_tls: true,
        }
    }

    #[test]
    fn fields_of_one_connection_are_removed_with_those_it_names() {
        let mut message = headers(&[
            ("connection", "close, X-Once,,  x-twice, bad name"),
            ("connection", "host, content-length"),
            ("x-once", "1"),
            ("x-twice", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("te", "gzip, trailers"),
            ("host", "a"),
            ("content-length", "0"),
            ("trailer", "x-sum"),
            ("x-stays", "3"),
        ]);
        remove_hop_by_hop(&mut message);
        let stays = [
            "content-length: 0",
            "host: a",
            "te: trailers",
            "trailer: x-sum",
            "x-stays: 3",
        ];
        assert_eq!(list(&message), stays);
        let mut plain = headers(&[("te", "gzip")]);
        remove_hop_by_hop(&mut plain);
        assert!(plain.is_empty());
    }

    #[test]
    fn every_field_of_a_connection_is_found_alone() {
        for name in HOP_BY_HOP.iter().chain([&TE]) {
            let mut message = HeaderMap::new();
            message.insert(name, HeaderValue::from_static("x"));
            remove_hop_by_hop(&mut message);
            assert!(message.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_an_untrusted_client_says_of_itself_is_replaced() {
        let forged = [
            ("host", "a.example"),
            ("forwarded", "for=10.0.0.1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x_forwarded_for", "10.0.0.1"),
            ("x-forwarded-host", "evil"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-port", "1"),
            ("x-forwarded", "x"),
            ("x_forwarded-for", "10.0.0.1"),
            ("x-real-ip", "10.0.0.1"),
            ("x_real_ip", "10.0.0.1"),
            ("x-original-url", "/admin"),
            ("x-rewrite-url", "/admin"),
            ("x_original_uri", "/admin"),
            ("expect", "100-continue"),
        ];
        let mut untrusted = headers(&forged);
        rewrite_forwarded(&mut untrusted, &connection(false));
        let expected = [
            "host: a.example",
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-host: a.example",
            "x-forwarded-proto: https",
            "x-real-ip: 203.0.113.9",
        ];
        assert_eq!(list(&untrusted), expected);
    }

    #[test]
    fn a_trusted_proxy_is_believed_and_added() {
        let mut trusted = headers(&[
            ("host", "a.example"),
            ("forwarded", "for=203.0.113.9"),
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-host", "public.example"),
            ("x-forwarded-proto", "http"),
        ]);
        rewrite_forwarded(&mut trusted, &connection(true));
        let expected = [
            "forwarded: for=203.0.113.9, for=192.0.2.1;proto=https",
            "host: a.example",
            "x-forwarded-for: 203.0.113.9, 10.0.0.2, 192.0.2.1",
            "x-forwarded-host: public.example",
            "x-forwarded-proto: http",
            "x-real-ip: 203.0.113.9",
        ];
        assert_eq!(list(&trusted), expected);
    }

    #[test]
    fn via_lists_every_proxy() {
        let mut message = headers(&[("via", "1.0 a"), ("via", "1.1 b")]);
        add_via(&mut message, Version::HTTP_2);
        assert_eq!(list(&message), ["via: 1.0 a, 1.1 b, 2 tollgate"]);
    }
}
