//! What every request of a run has in common.
//!
//! Must not know: when requests are sent.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;

use super::target::NUMBER;
use super::{RequestBody, RequestFailure, Target};
use crate::output::CommandError;

const AGENT: &str = concat!("tollgate/", env!("CARGO_PKG_VERSION"));

/// Makes requests that differ only in their number, and in method and path if a log is replayed.
#[derive(Clone, Debug)]
pub(crate) struct RequestTemplate {
    target: Target,
    method: Method,
    headers: Vec<(HeaderName, HeaderText)>,
    body: Bytes,
}

#[derive(Clone, Debug)]
enum HeaderText {
    Fixed(HeaderValue),
    Numbered(String),
}

impl RequestTemplate {
    pub(crate) fn new(
        target: &Target,
        method: &str,
        headers: &[String],
        body: String,
    ) -> Result<Self, CommandError> {
        let method = method.parse().map_err(|_invalid| {
            CommandError::Usage(format!("--method {method:?} is not a method"))
        })?;
        let mut texts = Vec::with_capacity(headers.len() + 2);
        for line in headers {
            texts.push(parse_header_line(line).map_err(CommandError::Usage)?);
        }
        let mut add_default = |name: HeaderName, value: &'static str| {
            if !texts.iter().any(|(known, _)| *known == name) {
                texts.push((name, HeaderText::Fixed(HeaderValue::from_static(value))));
            }
        };
        add_default(USER_AGENT, AGENT);
        if body.trim_start().starts_with(['{', '[']) {
            add_default(CONTENT_TYPE, "application/json");
        }
        Ok(Self {
            target: target.clone(),
            method,
            headers: texts,
            body: body.into(),
        })
    }

    /// The request with this number; a line of a log has its own method and path.
    pub(crate) fn request(
        &self,
        number: u64,
        line: Option<(&str, &str)>,
    ) -> Result<Request<RequestBody>, RequestFailure> {
        let (method, uri) = match line {
            Some((method, path)) => (
                Method::from_bytes(method.as_bytes()).ok(),
                self.target.with_path(path),
            ),
            None => (Some(self.method.clone()), self.target.numbered_uri(number)),
        };
        let (Some(method), Some(uri)): (Option<Method>, Option<Uri>) = (method, uri) else {
            return Err(RequestFailure::Invalid);
        };
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        for (name, text) in &self.headers {
            let value = match text {
                HeaderText::Fixed(value) => value.clone(),
                HeaderText::Numbered(text) => {
                    let text = text.replace(NUMBER, &number.to_string());
                    HeaderValue::try_from(text).map_err(|_invalid| RequestFailure::Invalid)?
                }
            };
            request.headers_mut().append(name, value);
        }
        Ok(request)
    }
}

/// Reads `NAME: VALUE`. The line may be a secret, also one without a colon, so that no error repeats it.
fn parse_header_line(line: &str) -> Result<(HeaderName, HeaderText), String> {
    let (name, value) = line
        .split_once(':')
        .ok_or("--header: write NAME: VALUE, for example 'x-api-key: k'")?;
    let invalid = |error: &dyn std::fmt::Display| format!("--header: {error}");
    let name = name.trim().parse::<HeaderName>();
    let name = name.map_err(|error| invalid(&error))?;
    let value = value.trim();
    let fixed = HeaderValue::from_str(value).map_err(|error| invalid(&error))?;
    let text = match value.contains(NUMBER) {
        true => HeaderText::Numbered(value.to_owned()),
        false => HeaderText::Fixed(fixed),
    };
    Ok((name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(url: &str, headers: &[&str], body: &str) -> RequestTemplate {
        let headers: Vec<String> = headers.iter().map(|line| (*line).to_owned()).collect();
        let target = Target::parse(url, None).unwrap();
        RequestTemplate::new(&target, "POST", &headers, body.to_owned()).unwrap()
    }

    #[test]
    fn numbers_make_requests_differ() {
        let template = template("http://127.0.0.1/u/{n}", &["X-Api-Key: key-{n}"], "{}");
        let request = template.request(12, None).unwrap();
        assert_eq!(request.uri().path(), "/u/12");
        assert_eq!(request.headers()["x-api-key"], "key-12");
        assert_eq!(request.headers()["content-type"], "application/json");
        assert_eq!(request.method(), "POST");
    }

    #[test]
    fn a_line_of_a_log_has_its_own_method_and_path() {
        let template = template("http://127.0.0.1/", &["user-agent: mine"], "");
        let request = template.request(1, Some(("DELETE", "/a?b"))).unwrap();
        assert_eq!(
            (
                request.method().as_str(),
                request.uri().to_string().as_str()
            ),
            ("DELETE", "http://127.0.0.1/a?b")
        );
        assert_eq!(request.headers()["user-agent"], "mine");
        assert!(matches!(
            template.request(1, Some(("GET", "no path"))),
            Err(RequestFailure::Invalid)
        ));
    }

    #[test]
    fn header_lines_have_a_name_and_a_visible_value() {
        assert!(
            parse_header_line("x-api-key")
                .unwrap_err()
                .contains("NAME: VALUE")
        );
        assert!(parse_header_line("bad name: x").is_err());
        let error = parse_header_line("authorization: sec\nret").unwrap_err();
        assert!(!error.contains("sec"), "{error}");
    }
}
