//! Overload control of each upstream and route.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::recorder::Recorder;
use super::{DEADLINE, OK, exchange, get, start};

/// The first concurrency limit of a route.
const LIMIT: usize = 32;

#[tokio::test]
async fn an_upstream_that_hangs_sheds_its_own_route_and_no_other() {
    let fast = Recorder::start(OK).await;
    let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = format!(
        "limits: none
overload: {{ adaptive_concurrency: enforce }}
gateway:
  upstreams: {{ fast: http://UPSTREAM, slow: http://{} }}
  routes: [{{ upstream: fast }}, {{ path: /slow, upstream: slow }}]",
        slow.local_addr().unwrap()
    );
    let gateway = start(&text, fast.address).await;
    let (mut clients, mut connections) = (Vec::new(), Vec::new());
    for _ in 0..LIMIT {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(get("/slow", "").as_bytes()).await.unwrap();
        let (mut connection, _) = timeout(DEADLINE, slow.accept()).await.unwrap().unwrap();
        let mut first = [0; 1];
        connection.read_exact(&mut first).await.unwrap();
        clients.push(client);
        connections.push(connection);
    }
    let shed = exchange(gateway.address, &get("/slow", "")).await;
    assert!(shed.starts_with("HTTP/1.1 503 "), "{shed}");
    assert!(shed.contains("#overloaded"), "{shed}");
    for _ in 0..3 {
        let served = exchange(gateway.address, &get("/fast", "")).await;
        assert!(served.starts_with("HTTP/1.1 200 "), "{served}");
    }
    drop((clients, connections));
}
