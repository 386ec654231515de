//! TLS connections: every protocol, clients with a wrong certificate or none, files that change, and handshakes that never end.

mod certificates;
mod handshakes;
mod protocols;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, pause, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_core::Timestamp;
use tollgate_server::admin::{AdminApi, AdminTokens};
use tollgate_server::listen::{
    ApplicationProtocol, ConnectionHandler, DrainOutcome, Listener, ListenerLimits, LocalEndpoint,
    Peer, ServerTls, ShutdownSignal, ShutdownTrigger, Stream, TlsFiles, TlsReload, accept,
};
use tollgate_server::resp::{RespLimits, RespServer};
use tollgate_server::{HttpApi, HttpLimits, ListenerCounters};
use tollgate_store::{Clock as _, ManualClock, MemoryStore, SystemClock};
use tollgate_testkit::certificates::{CertificateAndKey, CertificateAuthority};

use crate::harness::{HttpClient, policy};

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

const GET: &[u8] = b"GET /v1/check?key=a HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";

/// Listeners of both protocols, and the files of their certificate.
struct TlsServer {
    folder: PathBuf,
    authority: CertificateAuthority,
    tls: Arc<ServerTls>,
    http: SocketAddr,
    redis: SocketAddr,
    app: Arc<HttpApi<ManualClock>>,
    resp: Arc<RespServer<ManualClock>>,
    stop: ShutdownTrigger,
    listeners: JoinSet<DrainOutcome>,
}

impl TlsServer {
    async fn start(name: &str, is_mutual: bool, bounds: ListenerLimits) -> Self {
        let folder = format!("tollgate-server-tls-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let authority = CertificateAuthority::new("ours");
        write(&folder, &authority.server("first"));
        std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
        let files = TlsFiles {
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            client_authorities: is_mutual.then(|| folder.join("ca.pem")),
        };
        let tls = Arc::new(ServerTls::open(files, SystemClock::new().now()).unwrap());
        let (stop, stopping) = ShutdownTrigger::new();
        let mut listeners = JoinSet::new();

        let text = "limits: [{ name: demo, key: header.x-api-key, rate: 10/s, burst: 20 }]";
        let clock = || ManualClock::at(Timestamp::from_secs(1_700_000_000));
        let app = Arc::new(HttpApi::new(&policy(text), 1_000, clock()).unwrap());
        let (listener, http) = free(&tls, ApplicationProtocol::Http1).await;
        let mut limits = HttpLimits::default();
        limits.listener = bounds;
        listeners.spawn(Arc::clone(&app).run(listener, limits, stopping.wait()));

        let store = MemoryStore::with_clock(1_000, clock()).unwrap();
        let resp = Arc::new(RespServer::new(store).unwrap());
        let (listener, redis) = free(&tls, ApplicationProtocol::Redis).await;
        let mut limits = RespLimits::default();
        limits.listener = bounds;
        listeners.spawn(Arc::clone(&resp).run(listener, limits, stopping.wait()));
        Self {
            folder,
            authority,
            tls,
            http,
            redis,
            app,
            resp,
            stop,
            listeners,
        }
    }

    /// Connects a client that trusts our authority and presents a certificate if it has one.
    async fn connect(
        &self,
        address: SocketAddr,
        shows: Option<&CertificateAndKey>,
    ) -> io::Result<TlsStream<TcpStream>> {
        connect(&self.authority, address, shows, &["http/1.1"]).await
    }

    async fn stop(mut self) -> usize {
        self.stop.trigger();
        let mut cut = 0;
        while let Some(ended) = timeout(DEADLINE, self.listeners.join_next()).await.unwrap() {
            cut += ended.unwrap().aborted;
        }
        cut
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

async fn free(tls: &Arc<ServerTls>, spoken: ApplicationProtocol) -> (Listener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (
        Listener::from(listener).with_tls(tls.for_protocol(spoken)),
        address,
    )
}

fn write(folder: &std::path::Path, pair: &CertificateAndKey) {
    std::fs::write(folder.join("cert.pem"), &pair.certificate).unwrap();
    std::fs::write(folder.join("key.pem"), &pair.key).unwrap();
}

async fn connect(
    authority: &CertificateAuthority,
    address: SocketAddr,
    shows: Option<&CertificateAndKey>,
    alpn: &[&str],
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shows {
        None => builder.with_no_client_auth(),
        Some(CertificateAndKey { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    timeout(DEADLINE, handshake).await.unwrap()
}

/// Sends bytes and reads until the end.
async fn exchange(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) -> io::Result<String> {
    stream.write_all(bytes).await?;
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer))
        .await
        .unwrap()?;
    Ok(String::from_utf8(answer).unwrap())
}

fn shown_by_server(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}
