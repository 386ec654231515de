//! A soak of the gateway: clients of all kinds for a while, and then nothing is left of them. `cargo xtask soak --minutes N`
//! runs it for longer.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_testkit::memory_slope::{MemorySamples, open_files, resident_bytes};
use tollgate_testkit::nginx::Nginx;
use tollgate_testkit::process::TempFolder;

use crate::harness::tollgate;
use crate::serve::{DEADLINE, PolicyFile, ServerProcess};

/// How long it runs, in seconds. `xtask/src/soak.rs` has the same name.
const SECONDS: &str = "TOLLGATE_SOAK_SECONDS";
const DEFAULT_SECONDS: u64 = 15;
const SAMPLES: u64 = 60;

const NGINX: &str = r#"error_log stderr notice;
events {}
http {
    access_log off;
    client_max_body_size 0;
    server {
        listen 127.0.0.1:8000;
        location / { return 200 "$request_method $request_uri"; }
    }
}
"#;

/// Upstream connections end soon after the load, so that open files can be compared.
const POLICY: &str = "
limits:
  - { name: per-key, key: header.x-key, rate: 100/s }
  - { name: in-flight, concurrency: 6 }
gateway:
  max_body_size: 64KiB
  upstreams: { app: { addresses: http://UPSTREAM, keepalive_timeout: 1s } }
  routes: [{ upstream: app }]
";

/// What a client sends, and whether it reads the responses.
const REQUESTS: [(&str, bool); 9] = [
    (
        "GET /NUMBER HTTP/1.1\r\nHost: a\r\nX-Key: kNUMBER\r\nConnection: close\r\n\r\n",
        true,
    ),
    (
        "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\nGET /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        true,
    ),
    (
        "POST /a HTTP/1.1\r\nHost: a\r\nX-Key: hot\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
        true,
    ),
    (
        "POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        true,
    ),
    (
        "POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n",
        true,
    ),
    (
        "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        true,
    ),
    ("GET /aborted HTTP/1.1\r\nHost: a\r\n\r\n", false),
    (
        "POST /aborted HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\nhalf",
        false,
    ),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false),
];

/// One exchange. The gateway may end it at any time.
fn ask(address: SocketAddr, number: u64) -> std::io::Result<()> {
    let index = usize::try_from(number).unwrap() % REQUESTS.len();
    let (text, is_read) = REQUESTS[index];
    let mut client = TcpStream::connect(address)?;
    client.set_read_timeout(Some(DEADLINE))?;
    client.write_all(text.replace("NUMBER", &number.to_string()).as_bytes())?;
    if is_read {
        client.read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

#[test]
fn the_gateway_keeps_its_memory_and_its_files() {
    let seconds = std::env::var(SECONDS).ok();
    let seconds = seconds.map_or(DEFAULT_SECONDS, |text| text.parse().expect("seconds"));
    let nginx = Nginx::running(NGINX);
    let folder = TempFolder::new("soak").unwrap();
    let policy = POLICY.replace("UPSTREAM", &nginx.address().to_string());
    let file = PolicyFile::new("soak", &policy);
    let mut command = tollgate(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-gateway=127.0.0.1:0",
    ]);
    // Few keys, so that their table is full soon and does not grow later.
    command.args(["--keys=2000", "--log-denials=off", "--access-log"]);
    command.arg(folder.path().join("access.log"));
    command.arg("--config").arg(&file.0);
    let server = ServerProcess::start(command);
    let address = server
        .printed
        .lines()
        .find_map(|line| line.strip_prefix("gateway on http://"));
    let address: SocketAddr = address.unwrap().parse().unwrap();
    ask(address, 0).unwrap();
    let (files_before, is_over) = (
        open_files(server.id()).unwrap(),
        Arc::<AtomicBool>::default(),
    );
    let done = Arc::<AtomicU64>::default();
    let clients: Vec<_> = (0..4_u64)
        .map(|client| {
            let (is_over, done) = (Arc::clone(&is_over), Arc::clone(&done));
            thread::spawn(move || {
                let mut number = client;
                while !is_over.load(Ordering::Relaxed) {
                    // A reset is a way to refuse.
                    let _refused = ask(address, number);
                    number += 4;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut memory = MemorySamples::default();
    for _ in 0..SAMPLES {
        // The time is the load's: nothing is waited for.
        thread::park_timeout(Duration::from_millis(seconds * 1_000 / SAMPLES));
        memory.add(resident_bytes(server.id()).unwrap());
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    let done = done.load(Ordering::Relaxed);
    println!(
        "{done} exchanges in {seconds} s, memory grew by {} bytes",
        memory.growth()
    );
    assert!(done > 100, "{done} exchanges");
    memory.check().unwrap();
    // Upstream connections expire a second after their last request.
    let mut files = open_files(server.id()).unwrap();
    for _ in 0..600 {
        if files <= files_before {
            break;
        }
        thread::park_timeout(Duration::from_millis(50));
        files = open_files(server.id()).unwrap();
    }
    assert!(
        files <= files_before,
        "{files} open files, {files_before} before"
    );
    // It still answers.
    ask(address, 0).unwrap();
    let (status, _) = server.stop("TERM");
    assert!(status.success());
}
