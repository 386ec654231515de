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
}

impl Target {
    /// Reads the URL of a load. A host that is not this machine must be the permitted one.
    pub(crate) fn parse(text: &str, permitted: Option<&str>) -> Result<Self, CommandError> {
        let target = Self::anywhere(text)?;
        let host = target.uri.host().unwrap_or_default();
        if !is_loopback(host) && permitted != Some(host) {
            return Err(CommandError::Usage(format!(
                "{host} is not this machine; if you may load it, write --yes-really {host}"
            )));
        }
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
        Ok(Self {
            text: text.to_owned(),
            uri,
        })
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

    /// The URL without its query, which may have secrets.
    pub(crate) fn redacted(&self) -> String {
        match self.text.split_once('?') {
            Some((before, _)) => format!("{before}?…"),
            None => self.text.clone(),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// A URL without what may be secret: user, password and query.
fn redact(text: &str) -> String {
    let (path, query) = match text.split_once('?') {
        Some((path, _)) => (path, "?…"),
        None => (text, ""),
    };
    match (path.split_once("://"), path.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}{query}"),
        (None, Some((_, host))) => format!("…@{host}{query}"),
        (_, None) => format!("{path}{query}"),
    }
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
        ] {
            let error = parse(url, None).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
        let secret = parse("http://ada:secret@127.0.0.1/", None).unwrap_err();
        assert!(!secret.contains("secret"), "{secret}");
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
    }
}
