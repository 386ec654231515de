//! The URL of a command, and whether the command may send there.
//!
//! A load on somebody else's server is an attack, so only this machine is permitted unless the user names the host twice. One request may
//! go anywhere. Must not know: what is sent.

use std::net::IpAddr;

use http::Uri;

use crate::output::CommandError;

/// Stands for the number of a request in a URL or a header.
pub(super) const NUMBER: &str = "{n}";

/// A URL that requests may be sent to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    text: String,
    uri: Uri,
    is_loopback_only: bool,
}

impl Target {
    /// Reads the URL of a load. A host that is not this machine must be the permitted one.
    pub(crate) fn parse(text: &str, permitted: Option<&str>) -> Result<Self, CommandError> {
        let mut target = Self::anywhere(text)?;
        let host = target.uri.host().unwrap_or_default();
        if !is_loopback(host) && permitted != Some(host) {
            return Err(CommandError::Usage(format!(
                "{host} is not this machine; if you may load it, write --yes-really {host}"
            )));
        }
        target.is_loopback_only = permitted != Some(host);
        Ok(target)
    }

    /// Reads the URL of `call`.
    pub(crate) fn anywhere(text: &str) -> Result<Self, CommandError> {
        let invalid = |reason: &str| {
            CommandError::Usage(format!("{:?} is not valid: {reason}", redact(text)))
        };
        let uri: Uri = text
            .replace(NUMBER, "0")
            .parse()
            .map_err(|error| invalid(&format!("{error}")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(invalid("write http:// or https:// and a host"));
        }
        let authority = uri.authority().ok_or_else(|| invalid("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(CommandError::Usage(
                "the URL has a user name or password; send it in a header: -H 'authorization: …'"
                    .to_owned(),
            ));
        }
        let host = authority.host();
        if host.is_empty() {
            return Err(invalid("it has no host"));
        }
        let port = authority.as_str().get(host.len()..).unwrap_or_default();
        if !matches!(port, "" | ":") && authority.port_u16().is_none() {
            return Err(invalid("the port is not a number from 0 to 65535"));
        }
        // The host is checked once, and has to be the same for every request.
        if has_number_in_authority(text) {
            return Err(invalid("{n} may be in the path and in the query only"));
        }
        Ok(Self {
            text: text.to_owned(),
            uri,
            is_loopback_only: false,
        })
    }

    /// Whether requests may go to addresses of this machine only.
    pub(super) const fn is_loopback_only(&self) -> bool {
        self.is_loopback_only
    }

    /// The URI of a request with this number.
    pub(super) fn numbered_uri(&self, number: u64) -> Option<Uri> {
        match self.text.contains(NUMBER) {
            true => self.text.replace(NUMBER, &number.to_string()).parse().ok(),
            false => Some(self.uri.clone()),
        }
    }

    /// The same scheme and host with another path.
    pub(super) fn with_path(&self, path: &str) -> Option<Uri> {
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(path.parse().ok()?);
        Uri::from_parts(parts).ok()
    }

    /// The URL without its query and its fragment, which may have secrets. Fragments are not sent.
    pub(crate) fn redacted(&self) -> String {
        let sent = self.text.split('#').next().unwrap_or_default();
        match sent.split_once('?') {
            Some((before, _)) => format!("{before}?…"),
            None => sent.to_owned(),
        }
    }
}

/// Whether the number of a request is a part of the host or the port.
fn has_number_in_authority(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next();
    authority.is_some_and(|authority| authority.contains(NUMBER))
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// A URL without what may be secret: user, password, query and fragment.
fn redact(text: &str) -> String {
    let text = match text.split_once('#') {
        // A password with such a character looks like a fragment.
        Some((before, after)) if !after.contains('@') => before,
        _ => text,
    };
    let (path, query) = match text.split_once('?') {
        Some((path, _)) => (path, "?…"),
        None => (text, ""),
    };
    if query_has_user(text, path) {
        return "…".to_owned();
    }
    match (path.split_once("://"), path.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}{query}"),
        (None, Some((_, host))) => format!("…@{host}{query}"),
        (_, None) => format!("{path}{query}"),
    }
}

/// Whether what looks like a query is a part of a password: the host comes after it.
fn query_has_user(text: &str, path: &str) -> bool {
    let query = text.get(path.len()..).unwrap_or_default();
    let authority = path.split_once("://").map_or(path, |(_, rest)| rest);
    query.contains('@') && !authority.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, permitted: Option<&str>) -> Result<Target, String> {
        Target::parse(text, permitted).map_err(|error| match error {
            CommandError::Usage(message) => message,
            CommandError::Other(error) => error.to_string(),
        })
    }

    #[test]
    fn only_this_machine_is_permitted_unless_the_host_is_named_again() {
        for url in [
            "http://127.0.0.1:8080/a",
            "http://127.9.9.9/",
            "https://localhost/",
            "http://[::1]:80/",
            "http://[::ffff:127.0.0.1]/",
        ] {
            assert!(parse(url, None).is_ok(), "{url}");
        }
        for url in [
            "http://example.com/",
            "http://10.0.0.1/",
            "http://127.0.0.1.example.com/",
            "http://localhost.example.com/",
            "http://0.0.0.0/",
            "http://[2001:db8::1]/",
        ] {
            let error = parse(url, None).unwrap_err();
            assert!(error.contains("is not this machine"), "{url}: {error}");
        }
        // The number of a request made it another host than the one that was checked: `[1::1]`, `[2::1]`.
        for url in [
            "http://[{n}::1]/",
            "http://127.0.0.{n}/",
            "http://127.0.0.1:80{n}/",
        ] {
            let error = parse(url, None).unwrap_err();
            assert!(error.contains("path and in the query"), "{url}: {error}");
        }
        assert!(parse("http://localhost/", None).unwrap().is_loopback_only());
        let permitted = parse("http://localhost/", Some("localhost")).unwrap();
        assert!(!permitted.is_loopback_only(), "the user named it");
        assert!(parse("http://example.com/", Some("example.com")).is_ok());
        assert!(parse("http://example.com/", Some("example.org")).is_err());
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_with_the_reason() {
        for (url, part) in [
            ("127.0.0.1:8080", "http://"),
            ("/v1/check", "http://"),
            ("ftp://127.0.0.1/", "http://"),
            ("http://ada:secret@127.0.0.1/", "authorization"),
            ("http://127.0.0.1/a b", "not valid"),
            ("http://127.0.0.1:99999/", "the port"),
            ("http://127.0.0.1:x/", "the port"),
            ("http://:80/", "no host"),
        ] {
            let error = parse(url, None).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
        for url in [
            "http://ada:secret@127.0.0.1/",
            "http://ada:secret?x@127.0.0.1/",
            "http://ada:secret#x@127.0.0.1/",
            "http://127.0.0.1:x/#secret",
        ] {
            let error = parse(url, None).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn numbers_replace_the_placeholder_and_output_has_no_query() {
        let target = parse("http://127.0.0.1/check?key={n}", None).unwrap();
        assert_eq!(
            target.numbered_uri(7).unwrap().to_string(),
            "http://127.0.0.1/check?key=7"
        );
        assert_eq!(
            target.with_path("/b?c").unwrap().to_string(),
            "http://127.0.0.1/b?c"
        );
        assert_eq!(target.redacted(), "http://127.0.0.1/check?…");
        // Fragments of sign-in pages hold tokens.
        let target = parse("http://127.0.0.1/a#access_token=secret?x", None).unwrap();
        assert_eq!(target.redacted(), "http://127.0.0.1/a");
    }
}
