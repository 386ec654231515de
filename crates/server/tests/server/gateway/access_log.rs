//! The access log: one line for each request, whatever becomes of it, and nothing in it that a client could forge.

use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tollgate_server::gateway::{AccessLog, AccessLogOutput, GatewayLimits};

use super::recorder::Recorder;
use super::{OK, TestGateway, exchange, get, start_logged, wait_until};

const GATEWAY: &str =
    "gateway: { upstreams: { app: http://UPSTREAM }, routes: [{ upstream: app }] }";

/// Keeps the lines.
#[derive(Default)]
struct LineCollector(Mutex<Vec<String>>);

impl AccessLogOutput for LineCollector {
    fn write_line(&self, line: &[u8]) {
        let line = String::from_utf8(line.to_vec()).unwrap();
        self.0.lock().unwrap().push(line);
    }
}

impl LineCollector {
    /// Waits until there are this many lines. A line is written after its response.
    async fn lines(&self, count: usize) -> Vec<String> {
        wait_until(|| self.0.lock().unwrap().len() >= count).await;
        self.0.lock().unwrap().clone()
    }
}

async fn start(
    limits: &str,
    upstream: std::net::SocketAddr,
    format: &str,
) -> (TestGateway, Arc<LineCollector>) {
    let lines = Arc::<LineCollector>::default();
    let output: Arc<dyn AccessLogOutput> = Arc::<LineCollector>::clone(&lines);
    let log = AccessLog::new(format.parse().unwrap(), output);
    let text = format!("limits: {limits}\n{GATEWAY}");
    let bounds = GatewayLimits::default();
    let gateway = start_logged(&text, upstream, bounds, "", Some(log)).await;
    (gateway, lines)
}

#[tokio::test]
async fn each_request_has_one_line_with_its_decision_and_its_upstream() {
    let recorder = Recorder::start(OK).await;
    let format = "$remote_addr \"$request\" $host $status $body_bytes_sent [$tollgate_decision $tollgate_reason $tollgate_limit $tollgate_wait] \
                  $tollgate_route $upstream_addr $upstream_status $request_id $request_completion \"$http_authorization\" \"$http_x_a\" \"$sent_http_via\"";
    let limits = "[{ name: all, rate: 1/h }]";
    let (gateway, lines) = start(limits, recorder.address, format).await;
    let fields = "X-Request-Id: id-1\r\nAuthorization: Bearer secret\r\nX-A: a\"b\\\r\n";
    exchange(gateway.address, &get("/a//b?c", fields)).await;
    let denied = exchange(gateway.address, &get("/", "X-Request-Id: id-2\r\n")).await;
    let body_len = denied.split_once("\r\n\r\n").unwrap().1.len();
    let upstream = recorder.address;
    let expected = [
        format!(
            "127.0.0.1 \"GET /a//b?c HTTP/1.1\" a.example 200 2 [admitted - all 0.000] */ http://{upstream} 200 id-1 OK \"[redacted]\" \"a\\x22b\\x5C\" \"1.1 tollgate\"\n"
        ),
        format!(
            "127.0.0.1 \"GET / HTTP/1.1\" a.example 429 {body_len} [denied rate all 0.000] - - - id-2 OK \"-\" \"-\" \"-\"\n"
        ),
    ];
    assert_eq!(lines.lines(2).await, expected);
    gateway.running.stop().await;
}

/// What a client sends cannot add a line or a field.
#[tokio::test]
async fn every_line_is_one_json_object() {
    let recorder = Recorder::start(OK).await;
    let (gateway, lines) = start("none", recorder.address, "json").await;
    for fields in [
        "",
        "User-Agent: a\",\"status\":1,\"x\":\"\r\n",
        "User-Agent: \u{fc}\t\\\r\nReferer: \"}\r\n",
    ] {
        exchange(gateway.address, &get("/%22%0a\"", fields)).await;
    }
    exchange(gateway.address, &get("/%22?a", "")).await;
    for line in lines.lines(4).await {
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed["method"], "GET", "{line}");
        assert!(parsed["status"].as_u64().is_some_and(|status| status > 1));
        assert!(parsed["request_time"].is_number(), "{line}");
        // A path that cannot be read is refused before a limit sees it.
        let is_decided = parsed["status"] != 400;
        assert_eq!(parsed["wait"].is_number(), is_decided, "{line}");
        assert_eq!(parsed["decision"] == "admitted", is_decided, "{line}");
        assert_eq!(parsed.as_object().unwrap().len(), 20);
    }
    gateway.running.stop().await;
}

/// nginx's status for it is 499.
#[tokio::test]
async fn requests_that_end_early_are_logged_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let format = "\"$request\" $status $request_completion";
    let (gateway, lines) = start("none", listener.local_addr().unwrap(), format).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(get("/gone", "").as_bytes()).await.unwrap();
    let (_upstream, _) = listener.accept().await.unwrap();
    drop(client);
    assert_eq!(lines.lines(1).await, ["\"GET /gone HTTP/1.1\" 499 -\n"]);
    // The upstream ends in the middle of a body.
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(get("/half", "").as_bytes()).await.unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
    upstream.write_all(half).await.unwrap();
    drop(upstream);
    assert_eq!(lines.lines(2).await[1], "\"GET /half HTTP/1.1\" 200 -\n");
    // hyper refuses it before the service sees it.
    exchange(gateway.address, "GET / HTTP/1.1\nHost: a\n\n").await;
    assert_eq!(lines.lines(3).await[2], "\"-\" 400 -\n");
    gateway.running.stop().await;
}
