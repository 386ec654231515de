//! The front page: text for programs such as curl, and a small HTML page for browsers.
//!
//! Must not know: what the text says.

use hyper::HeaderMap;
use hyper::header::{ACCEPT, HeaderValue};

use crate::http::response::HttpResponse;

/// The page in the form that the client prefers. Browsers ask for `text/html`; curl accepts everything.
pub(crate) fn front_page(headers: &HeaderMap, text: String) -> HttpResponse {
    let accepted = headers
        .get_all(ACCEPT)
        .into_iter()
        .map(HeaderValue::as_bytes);
    let is_browser = accepted
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(is_html);
    let page = match is_browser {
        true => HttpResponse::html(html(&text))
            .with_header(
                "content-security-policy",
                "default-src 'none'; style-src 'unsafe-inline'",
            )
            .with_header("x-content-type-options", "nosniff"),
        false => HttpResponse::text(text),
    };
    page.with_header("vary", "accept")
}

/// Whether an element of `Accept` is HTML.
fn is_html(element: &[u8]) -> bool {
    let media_type = element.split(|byte| *byte == b';').next();
    media_type.is_some_and(|name| name.trim_ascii().eq_ignore_ascii_case(b"text/html"))
}

fn html(text: &str) -> String {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Tollgate</title>\n\
         <style>body{{max-width:70em;margin:2em auto;padding:0 1em;font-family:sans-serif}}pre{{white-space:pre-wrap}}</style>\n\
         </head><body><h1>Tollgate</h1>\n<pre>{text}</pre>\n\
         <p><a href=\"/v1/limits\">limits</a> · <a href=\"/openapi.json\">API</a> · <a href=\"/healthz\">health</a></p>\n\
         </body></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_ask_for_html_get_it() {
        for (accept, is_wanted) in [
            ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", true),
            ("application/json, TEXT/HTML;q=0.5", true),
            ("*/*", false),
            ("text/plain", false),
            ("application/text/html", false),
            ("", false),
        ] {
            let found = accept.as_bytes().split(|byte| *byte == b',').any(is_html);
            assert_eq!(found, is_wanted, "{accept}");
        }
    }

    #[test]
    fn nothing_in_the_text_is_markup() {
        let page = html("a <script>b</script> & c");
        assert!(
            page.contains("a &lt;script&gt;b&lt;/script&gt; &amp; c"),
            "{page}"
        );
    }
}
