//! TLS servers, with an authority that only the test knows.

use tollgate_redis::{ClientIdentity, RedisOptions, RedisStore, RedisTls};
use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::certificates::CertificateAuthority;
use tollgate_testkit::process::{TempFolder, free_address};
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use crate::SECRET;
use crate::server_time::{LONG_TIMEOUT, decide_one, numbered_limit, slow_bucket};

async fn spend(port: u16, tls: RedisTls) -> Result<(), StoreErrorKind> {
    let mut options = RedisOptions::new(format!("rediss://127.0.0.1:{port}"), SECRET);
    options.deadline = LONG_TIMEOUT;
    options.connect_deadline = LONG_TIMEOUT;
    options.tls = tls;
    let store = RedisStore::connect(options)
        .await
        .map_err(|error| error.kind())?;
    let limit = numbered_limit(1, slow_bucket(10));
    let answered = decide_one(&store, "alice", &limit, Op::Spend(1)).await;
    answered.map(|_| ()).map_err(|error| error.kind())
}

/// A server that asks for client certificates, and its TLS port.
fn start(authority: &CertificateAuthority) -> (RedisNode, u16) {
    let own = authority.server("redis");
    let folder = TempFolder::new("certificates").unwrap();
    let file = |name, text: &str| folder.write(name, text).unwrap().display().to_string();
    let node = RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]);
    let port = free_address().unwrap().port();
    // In one command: a TLS port without certificates is rejected.
    node.tell(&[
        "CONFIG",
        "SET",
        "tls-ca-cert-file",
        &file("authority.pem", &authority.pem()),
        "tls-cert-file",
        &file("certificate.pem", &own.certificate),
        "tls-key-file",
        &file("key.pem", &own.key),
        "tls-auth-clients",
        "yes",
        "tls-port",
        &port.to_string(),
    ]);
    (node, port)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_used_over_tls_if_their_certificate_is_trusted() {
    let authority = CertificateAuthority::new("authority of a test");
    let (_node, port) = start(&authority);
    let own = authority.client("limiter");
    let mut tls = RedisTls::default();
    tls.roots = Some(authority.pem().into_bytes());
    tls.identity = Some(ClientIdentity {
        certificate: own.certificate.into_bytes(),
        key: own.key.into_bytes(),
    });
    assert_eq!(spend(port, tls.clone()).await, Ok(()));

    // Servers with an untrusted certificate, or that require a client certificate, are not used.
    let mut stranger = tls.clone();
    stranger.roots = Some(CertificateAuthority::new("another").pem().into_bytes());
    assert_eq!(
        spend(port, stranger).await,
        Err(StoreErrorKind::Unreachable)
    );
    let mut anonymous = tls.clone();
    anonymous.identity = None;
    assert_eq!(
        spend(port, anonymous).await,
        Err(StoreErrorKind::Unreachable)
    );
    let mut broken = tls;
    broken.roots = Some(b"no certificate".to_vec());
    assert_eq!(spend(port, broken).await, Err(StoreErrorKind::BadRequest));
}
