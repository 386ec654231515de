//! `tollgate call` beside real servers: ours and nginx. Real time passes only where a server asks for a wait.

use std::net::TcpListener;

use tollgate_testkit::nginx::Nginx;

use crate::harness::{output, tollgate};
use crate::serve::{PolicyFile, ServerProcess};

const POLICY: &str = "
limits:
  - { name: per-key, key: header.x-api-key, rate: 60/min, burst: 2 }
  - { name: daily, match: { header.x-api-key: slow }, key: header.x-api-key, rate: 1/day }
";

/// The second request of half a second is refused.
const NGINX: &str = "error_log stderr notice;
events {}
http {
    access_log off;
    limit_req_zone $server_name zone=all:64k rate=2r/s;
    server {
        listen 127.0.0.1:8000;
        limit_req zone=all;
        limit_req_status 429;
        location / { try_files /none @hello; }
        location @hello { return 200 hello; }
    }
}
";

fn server(name: &str) -> (PolicyFile, ServerProcess) {
    let policy = PolicyFile::new(name, POLICY);
    let mut serve = tollgate(&["serve", "--listen=127.0.0.1:0", "--config"]);
    serve.arg(&policy.0);
    (policy, ServerProcess::start(serve))
}

#[test]
fn it_shows_the_response_and_the_limits_and_waits_as_long_as_the_server_asks() {
    let (_policy, server) = server("call");
    let url = format!("http://{}/v1/check?key=secret-key", server.address);
    let (code, body, told) = output(&["call", &url]);
    assert_eq!(code, Some(0), "{told}");
    assert!(body.contains("\"allowed\":true"), "{body}");
    assert!(
        told.contains("per-key") && told.contains("requests"),
        "{told}"
    );
    assert_eq!(output(&["call", "-q", &url]).0, Some(0));

    let (code, body, told) = output(&["call", "--max-time=100ms", "--retry=5", &url]);
    assert_eq!(code, Some(1), "a wait of a second passes the deadline");
    assert!(
        told.contains("429 Too Many Requests: the server asks to wait 1 s"),
        "{told}"
    );
    assert!(body.contains("\"allowed\":false"), "{body}");
    assert!(!told.contains("secret-key"), "{told}");

    let (code, body, told) = output(&["call", "--until-ok", &url]);
    assert_eq!(code, Some(0), "{told}");
    assert!(body.contains("\"allowed\":true"), "{body}");
    assert!(
        told.contains("2 attempts"),
        "exactly one wait is enough: {told}"
    );
}

#[test]
fn a_quota_that_is_used_up_for_a_day_is_not_asked_again() {
    let (_policy, server) = server("call-daily");
    let url = format!("http://{}/v1/check?key=slow", server.address);
    assert_eq!(output(&["call", "-q", &url]).0, Some(0));
    let (code, _, told) = output(&["call", "--until-ok", &url]);
    assert_eq!(code, Some(1), "{told}");
    assert!(!told.contains("attempts"), "one is enough: {told}");
}

/// nginx says neither how long to wait nor what the limit is.
#[test]
fn it_backs_off_from_an_nginx_that_says_nothing() {
    let nginx = Nginx::running(NGINX);
    let url = format!("http://{}/", nginx.address());
    assert_eq!(output(&["call", "-q", &url]).1, "hello");
    let (code, body, told) = output(&["call", "--until-ok", "--include", &url]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        body.starts_with("HTTP/1.1 200 OK\n") && body.ends_with("\n\nhello"),
        "{body}"
    );
}

#[test]
fn what_cannot_be_called_is_named_without_its_query() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let url = format!("http://{address}/path?token=secret");
    let (code, body, told) = output(&["call", &url]);
    assert_eq!((code, body.as_str()), (Some(1), ""));
    assert_eq!(
        told,
        format!("error: http://{address}/path?…: no connection\n")
    );
    let (code, _, told) = output(&["call", "--until-ok", "--max-time=300ms", &url]);
    assert_eq!(code, Some(1));
    assert!(
        told.contains("no connection") || told.contains("--max-time"),
        "{told}"
    );
    for (arguments, part) in [
        (["call", "ftp://127.0.0.1/"], "http:// or https://"),
        (["call", "--max-time=0s"], "zero"),
        (["call", "--retry=x"], "--retry"),
    ] {
        let (code, _, told) = output(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(told.contains(part), "{told}");
    }
}
