//! Responses that can be read in two ways: the client gets 502, and the connection is not used again.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{DEADLINE, exchange, get, start};

const AMBIGUOUS: [&str; 9] = [
    "content-length: 2\r\ncontent-length: 3\r\n\r\nok!",
    "content-length: 2, 3\r\n\r\nok!",
    "content-length: +2\r\n\r\nok",
    "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "transfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "transfer-encoding: identity\r\n\r\nok",
    "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "content-length : 2\r\n\r\nok",
    "x: a\r\n b\r\ncontent-length: 2\r\n\r\nok",
];

#[tokio::test]
async fn an_ambiguous_response_is_502_and_its_connection_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = "limits: none\ngateway: { upstreams: { app: { addresses: http://UPSTREAM, retries: 0, ejection: { failures: 1000 } } }, routes: [{ upstream: app }] }";
    let gateway = start(text, listener.local_addr().unwrap()).await;
    let post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
    for request in [get("/", ""), post.to_owned()] {
        for ambiguous in AMBIGUOUS {
            let (response, ()) = tokio::join!(exchange(gateway.address, &request), async {
                let (mut upstream, _) = listener.accept().await.unwrap();
                let answer = format!("HTTP/1.1 200 OK\r\n{ambiguous}");
                upstream.write_all(answer.as_bytes()).await.unwrap();
                let mut rest = Vec::new();
                let closed = timeout(DEADLINE, upstream.read_to_end(&mut rest)).await;
                let _reset = closed.expect("a closed connection");
            });
            assert!(
                response.starts_with("HTTP/1.1 502"),
                "{request} {ambiguous}: {response}"
            );
        }
    }
    gateway.running.stop().await;
}
