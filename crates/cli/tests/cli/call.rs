//! `tollgate call` beside real servers: ours, nginx, Envoy and HAProxy. Real time passes only where a server asks for a wait.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use tollgate_http::Dialect;
use tollgate_testkit::envoy::{Envoy, Version};
use tollgate_testkit::nginx::Nginx;
use tollgate_testkit::peer_programs::program;
use tollgate_testkit::process::{Process, TempFolder, on_a_free_port};

use crate::harness::{output, run_output, tollgate};
use crate::serve::{PolicyFile, ServerProcess};

const POLICY: &str = "
limits:
  - { name: per-key, key: header.x-api-key, rate: 60/min, burst: 2 }
  - { name: per-minute, match: { header.x-api-key: secret-minute }, key: header.x-api-key, rate: 1/min }
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

const HAPROXY: &str = "defaults
    mode http
    timeout client 10s
    timeout connect 10s
    timeout server 10s
frontend limited
    bind LISTEN
    stick-table type ip size 1k expire 10s store http_req_rate(2s)
    http-request track-sc0 src
    http-request return status 429 hdr Retry-After 2 if { sc_http_req_rate(0) gt 1 }
    http-request return status 200 content-type text/plain string hello
";

const ENVOY: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }
static_resources:
  listeners:
    - name: limited
      address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: limited
                http_filters:
                  - name: envoy.filters.http.local_ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
                      stat_prefix: http_local_rate_limiter
                      token_bucket: { max_tokens: 1, tokens_per_fill: 1, fill_interval: 1s }
                      filter_enabled: { default_value: { numerator: 100 } }
                      filter_enforced: { default_value: { numerator: 100 } }
                      enable_x_ratelimit_headers: DRAFT_VERSION_03
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - match: { prefix: / }
                          direct_response: { status: 200, body: { inline_string: hello } }
"#;

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

    let (code, body, told) = output(&["call", "--until-ok", &url]);
    assert_eq!(code, Some(0), "{told}");
    assert!(body.contains("\"allowed\":true"), "{body}");
    assert!(
        told.contains("2 attempts") || !told.contains("429"),
        "if it is refused, one wait is enough: {told}"
    );
}

#[test]
fn it_reads_every_dialect_of_our_server() {
    let policy = PolicyFile::new("call-dialects", POLICY);
    for dialect in Dialect::ALL {
        let mut serve = tollgate(&["serve", "--listen=127.0.0.1:0"]);
        serve.args(["--headers", dialect.name(), "--config"]);
        serve.arg(&policy.0);
        let server = ServerProcess::start(serve);
        let url = format!("http://{}/v1/check?key=secret-minute", server.address);
        let (code, _, told) = output(&["call", &url]);
        assert_eq!(code, Some(0), "{dialect}: {told}");
        let has_limit = told.lines().any(|line| {
            let mut cells = line.split_whitespace();
            cells.any(|cell| cell == "requests") && cells.next() == Some("1")
        });
        assert!(has_limit, "{dialect}: a quota of one request: {told}");
        let (code, _, told) = output(&["call", "--max-time=1s", "--retry=1", &url]);
        assert_eq!(code, Some(1), "{dialect}: {told}");
        assert!(
            told.contains("the server asks to wait "),
            "{dialect}: {told}"
        );
    }
}

#[test]
fn a_wait_that_passes_the_deadline_is_not_begun() {
    let (_policy, server) = server("call-deadline");
    let url = format!("http://{}/v1/check?key=secret-minute", server.address);
    assert_eq!(output(&["call", "-q", &url]).0, Some(0));
    let (code, body, told) = output(&["call", "--max-time=30s", "--retry=5", &url]);
    assert_eq!(code, Some(1), "a wait of a minute passes the deadline");
    let asked = "429 Too Many Requests: the server asks to wait ";
    assert!(told.contains(asked), "{told}");
    assert!(!told.contains("attempts"), "one is enough: {told}");
    assert!(body.contains("\"allowed\":false"), "{body}");
    assert!(!told.contains("secret"), "{told}");
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

/// Envoy reports its limit in the fields of draft 03 and gives no time to wait.
#[test]
fn it_waits_for_the_reset_that_an_envoy_reports() {
    let envoy = Envoy::start(Version::V1_40, ENVOY);
    let url = format!("http://{}/", envoy.listener("limited"));
    let (code, body, told) = output(&["call", &url]);
    assert_eq!((code, body.as_str()), (Some(0), "hello"), "{told}");
    assert!(told.contains("requests"), "the limit is shown: {told}");
    let (code, body, told) = output(&["call", "--until-ok", &url]);
    assert_eq!((code, body.as_str()), (Some(0), "hello"), "{told}");
    let refused = envoy.counted("http_local_rate_limiter.http_local_rate_limit.rate_limited");
    assert!(refused <= 2, "{refused} requests were refused");
}

#[test]
fn it_waits_as_long_as_a_haproxy_asks() {
    let haproxy = on_a_free_port("haproxy", |address| {
        let folder = TempFolder::new("haproxy")?;
        let text = HAPROXY.replace("LISTEN", &address.to_string());
        let file = folder.write("haproxy.cfg", &text)?;
        let mut command = Command::new(program("haproxy"));
        command.arg("-db").arg("-f").arg(file);
        let process = Process::start("haproxy", &mut command, folder)?;
        process.until("listening", || TcpStream::connect(address).ok())?;
        Ok((process, address))
    });
    let url = format!("http://{}/", haproxy.1);
    assert_eq!(output(&["call", "-q", &url]).1, "hello");
    let (code, body, told) = output(&["call", "--retry=2", &url]);
    assert_eq!((code, body.as_str()), (Some(0), "hello"), "{told}");
    assert!(told.contains("the server asks to wait 2 s"), "{told}");
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

/// A server that does not speak HTTP, and one without TLS, were called closed connections.
#[test]
fn what_is_not_http_or_tls_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4_096];
            let _read = stream.read(&mut request).unwrap();
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        }
    });
    for (scheme, part) in [("http", "invalid response"), ("https", "no TLS connection")] {
        let url = format!("{scheme}://{address}/");
        let (code, _, told) = output(&["call", &url]);
        assert_eq!(code, Some(1));
        assert!(told.contains(part), "{told}");
    }
    server.join().unwrap();
}

/// Of an endless response, `tollgate call URL | head` read on until `--max-time`, although nobody saw it.
#[test]
fn it_ends_when_nobody_reads_the_response_any_more() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _request = stream.read(&mut [0; 4_096]).unwrap();
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head).unwrap();
        // Until the client closes the connection.
        while stream.write_all(b"6\r\nhello\n\r\n").is_ok() {}
    });
    let mut command = tollgate(&["call", "--max-time=30s", &url]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = [0; 6];
    child.stdout.take().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"hello\n");
    let (code, _, told) = run_output(child.wait_with_output().unwrap());
    assert_eq!((code, told.as_str()), (Some(0), ""));
    server.join().unwrap();
}

/// A header without a colon, and a URL that cannot be read, were printed with their secrets.
#[test]
fn wrong_input_is_named_without_its_secrets() {
    for command in ["call", "load"] {
        for arguments in [
            &["-H", "authorization Bearer hunter2", "http://127.0.0.1:1/"][..],
            &["-H", "x-api-key: hunter2\u{1}", "http://127.0.0.1:1/"],
            &["-H", "api key: hunter2", "http://127.0.0.1:1/"],
            &["htp://127.0.0.1/?token=hunter2"],
            &["http://127.0.0.1/a b?token=hunter2"],
            &["http://anna:hunter2@127.0.0.1/"],
            &["htp://anna:hunter2@127.0.0.1/"],
            &["http://anna:hunter2?@127.0.0.1/"],
            &["http://127.0.0.1:x/#hunter2"],
        ] {
            let arguments: Vec<&str> = [command].iter().chain(arguments).copied().collect();
            let (code, body, told) = output(&arguments);
            assert_eq!(
                (code, body.as_str()),
                (Some(2), ""),
                "{arguments:?}: {told}"
            );
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
}
