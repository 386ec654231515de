//! The head of a request without a body, as the bytes of HTTP/1.1.
//!
//! Names and values are those of the `http` crate, which have no CR, LF or NUL. Must not know: connections, routes.

use hyper::header::{CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use hyper::{Method, Request};

/// Appends the head of a request that has no body. Its framing is written here, whatever the fields say of it.
pub(super) fn write_request_head<B>(request: &Request<B>, out: &mut Vec<u8>) {
    let target = request.uri().path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    out.extend_from_slice(request.method().as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let mut has_length = false;
    for (name, value) in request.headers() {
        if is_framing(name) {
            has_length |= *name == CONTENT_LENGTH;
            continue;
        }
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    // A method that usually has a body says that there is none (RFC 9110, section 8.6).
    if has_length || expects_body(request.method()) {
        out.extend_from_slice(b"content-length: 0\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

fn is_framing(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING
}

fn expects_body(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(request: hyper::http::request::Builder) -> String {
        let mut out = Vec::new();
        write_request_head(&request.body(()).unwrap(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_head_has_its_fields_in_order() {
        let request = Request::get("/a?b")
            .header("host", "a.example")
            .header("x-a", "1")
            .header("x-a", "2");
        let head = "GET /a?b HTTP/1.1\r\nhost: a.example\r\nx-a: 1\r\nx-a: 2\r\n\r\n";
        assert_eq!(written(request), head);
    }

    #[test]
    fn a_request_without_a_body_never_announces_one() {
        let request = Request::delete("/")
            .header("content-length", "5")
            .header("transfer-encoding", "chunked");
        let head = "DELETE / HTTP/1.1\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(written(request), head);
        assert_eq!(
            written(Request::post("/")),
            "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
        );
    }
}
