//! Servers that are spoken to by TLS, with an authority that only the test knows.

use std::path::Path;

use tollgate_redis::{Identity, Options, RedisStore, Tls};
use tollgate_store::{ErrorKind, Op};
use tollgate_testkit::redis::{Kind, Node};

use crate::SECRET;
use crate::server_time::{PATIENT, one, ruled, slow_bucket};

/// An authority, and a certificate for this machine that it has signed.
struct Papers {
    authority: String,
    certificate: String,
    key: String,
}

impl Papers {
    fn new() -> Self {
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        // Another name than the certificate's: one that is its own issuer would be taken for its own authority.
        let name = "authority of a test";
        authority
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let signed = authority.self_signed(&authority_key).unwrap();
        let issuer = rcgen::Issuer::new(authority, authority_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let own = rcgen::CertificateParams::new(names).unwrap();
        let certificate = own.signed_by(&key, &issuer).unwrap();
        Self {
            authority: signed.pem(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    fn write(&self, folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("authority.pem"), &self.authority).unwrap();
        std::fs::write(folder.join("certificate.pem"), &self.certificate).unwrap();
        std::fs::write(folder.join("key.pem"), &self.key).unwrap();
    }
}

async fn spend(port: u16, tls: Tls) -> Result<(), ErrorKind> {
    let mut options = Options::new(format!("rediss://127.0.0.1:{port}"), SECRET);
    options.deadline = PATIENT;
    options.connect_deadline = PATIENT;
    options.tls = tls;
    let store = RedisStore::connect(options)
        .await
        .map_err(|error| error.kind())?;
    let limit = ruled(1, slow_bucket(10));
    let answered = one(&store, "alice", &limit, Op::Spend(1)).await;
    answered.map(|_| ()).map_err(|error| error.kind())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_spoken_to_by_tls_if_their_certificate_is_trusted() {
    let papers = Papers::new();
    let folder = std::env::temp_dir().join(format!("tollgate-tls-{}", std::process::id()));
    papers.write(&folder);
    let path = |name: &str| folder.join(name).display().to_string();
    let node = Node::start(Kind::Redis, &["--save", "", "--appendonly", "no"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap()
        .port();
    // At once: a port without its certificates is refused.
    node.tell(&[
        "CONFIG",
        "SET",
        "tls-ca-cert-file",
        &path("authority.pem"),
        "tls-cert-file",
        &path("certificate.pem"),
        "tls-key-file",
        &path("key.pem"),
        "tls-auth-clients",
        "yes",
        "tls-port",
        &port.to_string(),
    ]);
    std::fs::remove_dir_all(&folder).unwrap();
    let mut tls = Tls::default();
    tls.roots = Some(papers.authority.clone().into_bytes());
    tls.identity = Some(Identity {
        certificate: papers.certificate.clone().into_bytes(),
        key: papers.key.clone().into_bytes(),
    });
    assert_eq!(spend(port, tls.clone()).await, Ok(()));

    // Nobody is asked whose authority is another, or who wants a certificate that we do not have.
    let mut stranger = tls.clone();
    stranger.roots = Some(Papers::new().authority.into_bytes());
    assert_eq!(spend(port, stranger).await, Err(ErrorKind::Unreachable));
    let mut anonymous = tls.clone();
    anonymous.identity = None;
    assert_eq!(spend(port, anonymous).await, Err(ErrorKind::Unreachable));
    let mut broken = tls;
    broken.roots = Some(b"no certificate".to_vec());
    assert_eq!(spend(port, broken).await, Err(ErrorKind::BadRequest));
}
