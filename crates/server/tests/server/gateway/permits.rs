//! Places of a concurrency limit: never more in flight than the limit, and every place comes back, whatever ends a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_server::gateway::Gateway;
use tollgate_store::SystemClock;

use super::{DEADLINE, get, start, wait_until};

const CAP: u64 = 3;

/// An upstream whose behaviour the path chooses: it crashes, stops in the middle, says nothing, or answers.
async fn serve(listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(answer(stream));
    }
}

async fn answer(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let is_for = |path: &str| head.starts_with(format!("GET {path} ").as_bytes());
    if is_for("/crash") {
        return;
    }
    if is_for("/silent") {
        // Until the gateway gives up.
        let _closed = stream.read(&mut [0; 1]).await;
        return;
    }
    let half = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\nab";
    let _gone = stream.write_all(half).await;
    if !is_for("/half") {
        tokio::task::yield_now().await;
        let _gone = stream.write_all(b"cd").await;
    }
}

/// Sends a request and reads until the end, or leaves before the response.
async fn ask(address: SocketAddr, path: &str, is_aborted: bool) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(get(path, "").as_bytes()).await.unwrap();
    let mut response = Vec::new();
    if !is_aborted {
        let read = timeout(DEADLINE, client.read_to_end(&mut response)).await;
        // A response that the upstream cuts off may end with a reset.
        let _cut = read.expect("the end of the response");
    }
    String::from_utf8_lossy(&response).into_owned()
}

fn in_flight(gateway: &Gateway<SystemClock>) -> u64 {
    gateway.counts().upstreams[0].addresses[0].in_flight
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_flight_never_exceeds_the_limit_and_every_place_comes_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(listener));
    let text = format!(
        "limits: [{{ name: in-flight, concurrency: {CAP} }}]\n\
         gateway: {{ upstreams: {{ app: {{ addresses: 'http://UPSTREAM', first_byte_timeout: 200ms, retries: 0, ejection: {{ failures: 100000 }} }} }}, routes: [{{ upstream: app }}] }}"
    );
    let gateway = start(&text, address).await;
    let (is_over, sampled) = (Arc::<AtomicBool>::default(), Arc::clone(&gateway.gateway));
    let sampling = tokio::task::spawn_blocking({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(in_flight(&sampled));
                std::thread::yield_now();
            }
            most
        }
    });
    let mut clients = JoinSet::new();
    for client in 0..8 {
        let gateway = gateway.address;
        clients.spawn(async move {
            for number in 0..30 {
                let path = ["/", "/crash", "/half", "/", "/silent", "/"][(client + number) % 6];
                ask(gateway, path, (client + number) % 7 == 0).await;
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    wait_until(|| in_flight(&gateway.gateway) == 0).await;
    is_over.store(true, Ordering::Relaxed);
    let most = sampling.await.unwrap();
    assert!((1..=CAP).contains(&most), "{most} in flight");
    // Every place is free: as many requests as there are places are in flight at the same time.
    let mut silent = JoinSet::new();
    let reached = async {
        while in_flight(&gateway.gateway) < CAP {
            if u64::try_from(silent.len()).unwrap() < CAP {
                silent.spawn(ask(gateway.address, "/silent", false));
            }
            while silent.try_join_next().is_some() {}
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, reached).await.expect("free places");
    drop(silent);
    gateway.running.stop().await;
}
