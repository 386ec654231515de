//! `tollgate serve` with TLS, called by curl and redis-cli, with certificates that change.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use tollgate_testkit::certificates::{CertificateAndKey, CertificateAuthority};
use tollgate_testkit::redis::tool;

use crate::harness::{Folder, run_output, tollgate};
use crate::serve::ServerProcess;

/// A folder with a certificate, its key, and the CA of both sides.
fn folder(authority: &CertificateAuthority) -> Folder {
    let folder = Folder::new();
    write(&folder, "server", &authority.server("first"));
    write(&folder, "client", &authority.client("alice"));
    folder.write("ca.pem", authority.pem().as_bytes());
    folder
}

fn write(folder: &Folder, name: &str, pair: &CertificateAndKey) {
    folder.write(&format!("{name}.pem"), pair.certificate.as_bytes());
    folder.write(&format!("{name}.key"), pair.key.as_bytes());
}

fn serve(folder: &Folder, more: &[&str]) -> Command {
    let mut command = tollgate(&["serve"]);
    // As variables, so that arguments override them.
    command
        .env("TOLLGATE_LISTEN", "127.0.0.1:0")
        .env("TOLLGATE_LISTEN_GRPC", "off")
        .env("TOLLGATE_LISTEN_ADMIN", "off")
        .env("TOLLGATE_LISTEN_RESP", "127.0.0.1:0");
    command.current_dir(folder.path());
    command.args(["--tls-cert=server.pem", "--tls-key=server.key"]);
    command.args(more);
    command
}

/// The stdout of a program in this folder, or its stderr if it fails.
fn says(folder: &Folder, program: &mut Command) -> Result<String, String> {
    program.current_dir(folder.path()).stdin(Stdio::null());
    match run_output(program.output().unwrap()) {
        (Some(0), stdout, _) => Ok(stdout),
        (_, stdout, stderr) => Err(format!("{stdout}{stderr}")),
    }
}

fn curl(folder: &Folder, served: &ServerProcess, arguments: &[&str]) -> Result<String, String> {
    let url = format!("https://{}/healthz", served.address);
    let mut command = Command::new(tool("curl"));
    says(
        folder,
        command
            .args(["-sS", "--cacert", "ca.pem", &url])
            .args(arguments),
    )
}

fn redis_cli(
    folder: &Folder,
    served: &ServerProcess,
    arguments: &[&str],
) -> Result<String, String> {
    let (_, address) = served.printed.split_once("listening on rediss://").unwrap();
    let address: SocketAddr = address.lines().next().unwrap().parse().unwrap();
    let mut command = Command::new(tool("redis-cli"));
    command.args([
        "-p",
        &address.port().to_string(),
        "--tls",
        "--cacert",
        "ca.pem",
    ]);
    says(folder, command.args(arguments).arg("PING"))
}

#[test]
fn curl_and_redis_cli_work_over_tls_and_new_certificates_are_loaded() {
    let authority = CertificateAuthority::new("ours");
    let folder = folder(&authority);
    let served = ServerProcess::start(serve(&folder, &[]));
    assert_eq!(curl(&folder, &served, &[]).unwrap(), "ok\n");
    assert_eq!(redis_cli(&folder, &served, &[]).unwrap(), "PONG\n");
    served.wait_for("TLS certificate loaded");
    // The file watch or the signal loads the files, whichever comes first, and only once.
    write(&folder, "server", &authority.server("second"));
    served.signal("HUP");
    served.wait_for("TLS certificate loaded");
    assert_eq!(curl(&folder, &served, &[]).unwrap(), "ok\n");
    folder.write("server.key", b"nothing");
    let line = served.wait_for("TLS files refused");
    assert!(
        line.contains("server.key: there is no private key in it"),
        "{line}"
    );
    assert_eq!(curl(&folder, &served, &[]).unwrap(), "ok\n");
    let (status, last) = served.stop("TERM");
    assert_eq!(status.code(), Some(0), "{last}");
    assert!(last.contains("failed_handshakes=0"), "{last}");
}

#[test]
fn with_a_client_ca_a_client_certificate_is_required() {
    let authority = CertificateAuthority::new("ours");
    let folder = folder(&authority);
    let served = ServerProcess::start(serve(&folder, &["--tls-client-ca=ca.pem"]));
    assert!(curl(&folder, &served, &[]).is_err());
    let shown = ["--cert", "client.pem", "--key", "client.key"];
    assert_eq!(curl(&folder, &served, &shown).unwrap(), "ok\n");
    assert!(redis_cli(&folder, &served, &[]).is_err());
    assert_eq!(redis_cli(&folder, &served, &shown).unwrap(), "PONG\n");
    let stranger = CertificateAuthority::new("ours").client("alice");
    write(&folder, "client", &stranger);
    assert!(curl(&folder, &served, &shown).is_err());
    assert!(redis_cli(&folder, &served, &shown).is_err());
}

/// curl writes the header of the PROXY protocol as HAProxy does, then begins TLS.
#[test]
fn tls_comes_after_the_header_of_the_proxy_protocol() {
    let authority = CertificateAuthority::new("ours");
    let folder = folder(&authority);
    let served = ServerProcess::start(serve(&folder, &["--proxy-protocol=api"]));
    let header = ["--haproxy-protocol"];
    assert_eq!(curl(&folder, &served, &header).unwrap(), "ok\n");
    assert!(curl(&folder, &served, &[]).is_err(), "without the header");
    assert_eq!(
        redis_cli(&folder, &served, &[]).unwrap(),
        "PONG\n",
        "only the listeners that are named"
    );
    let (_, last) = served.stop("TERM");
    assert!(last.contains("failed_handshakes=1"), "{last}");
}

/// curl makes a gRPC call over HTTP/2 and TLS, as Envoy does, and a request to the admin listener.
#[test]
fn grpc_and_the_admin_listener_use_tls() {
    let authority = CertificateAuthority::new("ours");
    let folder = folder(&authority);
    let listeners = ["--listen-grpc=127.0.0.1:0", "--listen-admin=127.0.0.1:0"];
    let served = ServerProcess::start(serve(&folder, &listeners));
    let at = |scheme: &str| {
        let (_, place) = served
            .printed
            .split_once(&format!(" on {scheme}://"))
            .unwrap();
        place.lines().next().unwrap().to_owned()
    };
    // An empty message in a gRPC frame.
    folder.write("question", &[0; 5]);
    let url = format!("https://{}/grpc.health.v1.Health/Check", at("grpcs"));
    let mut command = Command::new(tool("curl"));
    command.args(["-sS", "-i", "--http2", "--cacert", "ca.pem", &url]);
    command.args([
        "--data-binary",
        "@question",
        "-H",
        "content-type: application/grpc",
    ]);
    let said = says(&folder, command.args(["-H", "te: trailers"])).unwrap();
    assert!(said.starts_with("HTTP/2 200"), "{said}");
    assert!(said.contains("grpc-status: 0"), "{said}");
    let admin = served
        .printed
        .split_once("admin listener on https://")
        .unwrap()
        .1;
    let url = format!("https://{}/readyz", admin.lines().next().unwrap());
    let mut command = Command::new(tool("curl"));
    let said = says(&folder, command.args(["-sS", "--cacert", "ca.pem", &url]));
    assert_eq!(said.unwrap(), "ready\n");
}

#[test]
fn a_listener_can_be_excluded_and_unix_sockets_never_use_tls() {
    let authority = CertificateAuthority::new("ours");
    let folder = folder(&authority);
    let served = ServerProcess::start(serve(
        &folder,
        &["--tls-listeners=api", "--listen-resp=unix:r.sock"],
    ));
    assert!(
        served.printed.contains("listening on unix:r.sock (redis)"),
        "{}",
        served.printed
    );
    assert_eq!(curl(&folder, &served, &[]).unwrap(), "ok\n");
    drop(served);
    let mut command = serve(&folder, &["--tls-listeners=resp"]);
    command.env("TOLLGATE_TLS_CLIENT_CA", "ca.pem");
    let served = ServerProcess::start(command);
    assert!(
        served.printed.contains("listening on http://"),
        "{}",
        served.printed
    );
    assert!(
        served.printed.contains("listening on rediss://"),
        "{}",
        served.printed
    );
}

#[test]
fn invalid_files_at_startup_are_reported_with_the_reason() {
    let authority = CertificateAuthority::new("ours");
    let folder = folder(&authority);
    let refused = |change: &[&str]| {
        let (code, stdout, stderr) = run_output(serve(&folder, change).output().unwrap());
        assert!(
            matches!(code, Some(1 | 2)) && stdout.is_empty(),
            "{stdout}{stderr}"
        );
        stderr
    };
    let told = refused(&["--tls-client-ca=nowhere.pem"]);
    let expected = "error: cannot enable TLS: nowhere.pem: it cannot be read: No such file";
    assert!(told.starts_with(expected), "{told}");
    assert!(refused(&["--tls-listeners=api,rsp"]).contains("invalid value 'rsp'"));
    write(
        &folder,
        "server",
        &authority.server_between("old", 2019, 2020),
    );
    let told = refused(&[]);
    assert!(
        told.contains("server.pem: the certificate expired on 2020-01-01"),
        "{told}"
    );
    folder.write(
        "server.pem",
        authority.server("another").certificate.as_bytes(),
    );
    let told = refused(&[]);
    assert!(
        told.contains("server.key: the key does not belong to the certificate in server.pem"),
        "{told}"
    );
    let (code, _, told) = folder.run(&["serve", "--tls-cert=server.pem"]);
    assert_eq!(code, Some(2));
    assert!(told.contains("--tls-key <FILE>"), "{told}");
}
