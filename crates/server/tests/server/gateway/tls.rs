//! TLS in and out: one gateway calls another, so that each end is tested by the other.

use std::path::PathBuf;
use std::sync::Arc;

use tollgate_server::TrustedProxies;
use tollgate_server::gateway::{Gateway, GatewayLimits};
use tollgate_server::listen::{ApplicationProtocol, BufferBudget, ServerTls, TlsFiles};
use tollgate_service::{RateLimitService, Secret};
use tollgate_store::{Clock as _, SystemClock};
use tollgate_testkit::certificates::{CertificateAndKey, CertificateAuthority};

use super::recorder::Recorder;
use super::{OK, exchange, get, start};
use crate::harness::policy;
use crate::running_server::RunningServer;

/// A folder of PEM files, deleted with the value.
struct PemFolder(PathBuf);

impl PemFolder {
    fn new() -> Self {
        let path =
            std::env::temp_dir().join(format!("tollgate-gateway-tls-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn write_pair(&self, name: &str, pair: &CertificateAndKey) -> (PathBuf, PathBuf) {
        let certificate = self.write(&format!("{name}.pem"), &pair.certificate);
        (certificate, self.write(&format!("{name}.key"), &pair.key))
    }
}

impl Drop for PemFolder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A gateway before the recorder that requires TLS and a certificate of the client.
async fn start_inner(
    folder: &PemFolder,
    authority: &CertificateAuthority,
    recorder: &Recorder,
) -> RunningServer {
    let (certificate, key) = folder.write_pair("server", &authority.server("inner"));
    let files = TlsFiles {
        certificate,
        key,
        client_authorities: Some(folder.write("ca.pem", &authority.pem())),
    };
    let tls = Arc::new(ServerTls::open(files, SystemClock::new().now()).unwrap());
    let text = format!(
        "limits: none\ngateway: {{ upstreams: {{ app: http://{} }}, routes: [{{ upstream: app }}] }}",
        recorder.address
    );
    let policy = policy(&text);
    let spec = policy.gateway.clone().unwrap();
    let service = RateLimitService::new(&policy, 1_000, SystemClock::new(), Secret::random());
    let trusted: TrustedProxies = "".parse().unwrap();
    let buffers = Arc::<BufferBudget>::default();
    let gateway = Gateway::new(Arc::new(service.unwrap()), &spec, trusted, buffers).unwrap();
    RunningServer::start(|listener, stop| {
        let listener = listener.with_tls(tls.for_protocol(ApplicationProtocol::AnyHttp));
        Arc::new(gateway).run(listener, GatewayLimits::default(), stop)
    })
    .await
}

#[tokio::test]
async fn an_https_upstream_gets_http2_and_a_client_certificate() {
    let (folder, authority) = (PemFolder::new(), CertificateAuthority::new("ours"));
    let recorder = Recorder::start(OK).await;
    let inner = start_inner(&folder, &authority, &recorder).await;
    folder.write_pair("client", &authority.client("outer"));
    folder.write("other.pem", &CertificateAuthority::new("other").pem());
    let pem = |name: &str| folder.0.join(name).display().to_string();
    let identity = format!(
        "certificate: {}, key: {}",
        pem("client.pem"),
        pem("client.key")
    );
    for (tls, status) in [
        (
            format!("ca: {}, server_name: localhost, {identity}", pem("ca.pem")),
            "200",
        ),
        (format!("ca: {}, {identity}", pem("ca.pem")), "200"),
        // A name that the certificate does not have, no certificate of ours, and an authority that did not sign.
        (
            format!("ca: {}, server_name: a.example, {identity}", pem("ca.pem")),
            "502",
        ),
        (format!("ca: {}", pem("ca.pem")), "502"),
        (format!("ca: {}, {identity}", pem("other.pem")), "502"),
    ] {
        let text = format!(
            "limits: none\ngateway: {{ upstreams: {{ app: {{ addresses: https://UPSTREAM, retries: 0, tls: {{ {tls} }} }} }}, routes: [{{ upstream: app }}] }}"
        );
        let gateway = start(&text, inner.address).await;
        let response = exchange(gateway.address, &get("/", "")).await;
        assert_eq!(&response[9..12], status, "{tls}: {response}");
        gateway.running.stop().await;
    }
    let seen = recorder.requests();
    assert_eq!(seen.len(), 2);
    for request in seen {
        assert_eq!(
            request.field("via"),
            Some("1.1 tollgate, 2 tollgate"),
            "ALPN chose HTTP/2"
        );
        assert_eq!(request.field("x-forwarded-proto"), Some("https"));
        assert_eq!(request.field("host"), Some("a.example"));
    }
    inner.stop().await;
}

#[tokio::test]
async fn an_upstream_with_an_invalid_tls_file_is_refused_at_the_start() {
    let text = "limits: none\ngateway: { upstreams: { app: { addresses: https://a.example, tls: { ca: /nowhere.pem } } }, routes: [{ upstream: app }] }";
    let policy = policy(text);
    let spec = policy.gateway.clone().unwrap();
    let service = RateLimitService::new(&policy, 1_000, SystemClock::new(), Secret::random());
    let gateway = Gateway::new(
        Arc::new(service.unwrap()),
        &spec,
        TrustedProxies::default(),
        Arc::default(),
    );
    let error = gateway.unwrap_err().to_string();
    assert!(error.starts_with("/nowhere.pem"), "{error}");
}
