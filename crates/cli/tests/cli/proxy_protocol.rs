//! The gateway behind TCP load balancers: HAProxy and nginx send the PROXY protocol, and the client's address is limited.

use std::net::SocketAddr;
use std::process::Command;

use tollgate_testkit::nginx::{LISTEN, Nginx};
use tollgate_testkit::peer_programs;
use tollgate_testkit::process::{Process, TempFolder, on_a_free_port};

use crate::harness::tollgate;
use crate::serve::{PolicyFile, ServerProcess};
use crate::with_peers::output;
use crate::with_peers::upstream::Upstream;

const POLICY: &str = "limits: [{ name: per-address, key: ip, rate: 1/h }]";
/// Where Debian's package `libnginx-mod-stream` puts it.
const NGINX_STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
/// What curl says if the server closes the connection.
const CLOSED: &str = "000";

/// A gateway that accepts the PROXY protocol from these addresses.
fn serve(proxies: &str, upstream: &Upstream, policy: &PolicyFile) -> (ServerProcess, SocketAddr) {
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0", "--proxy-protocol=gateway"]);
    command
        .arg("--listen-gateway=127.0.0.1:0")
        .arg(format!("--trusted-proxies={proxies}"))
        .arg(format!("--upstream=http://{}", upstream.address))
        .arg("--config")
        .arg(&policy.0);
    let server = ServerProcess::start(command);
    let (_, gateway) = server.printed.split_once("gateway on http://").unwrap();
    let gateway = gateway.lines().next().unwrap().parse().unwrap();
    (server, gateway)
}

/// HAProxy before a gateway. It forwards TCP and sends the header that `directive` names.
fn balance(directive: &str, gateway: SocketAddr) -> (Process, SocketAddr) {
    on_a_free_port("haproxy", |address| {
        let folder = TempFolder::new("haproxy")?;
        let settings = format!(
            "defaults\n    mode tcp\n    timeout connect 10s\n    timeout client 30s\n    timeout server 30s\n\
             listen balancer\n    bind {address}\n    server gateway {gateway} {directive}\n"
        );
        let settings = folder.write("haproxy.cfg", &settings)?;
        let mut command = Command::new(peer_programs::program("haproxy"));
        command.arg("-db").arg("-f").arg(settings);
        let process = Process::start("haproxy", &mut command, folder)?;
        process.until("a listener", || std::net::TcpStream::connect(address).ok())?;
        Ok((process, address))
    })
}

/// nginx before a gateway. It forwards TCP and sends version 1, the only one that it knows.
fn balance_with_nginx(gateway: SocketAddr) -> Nginx {
    let module = peer_programs::program(NGINX_STREAM_MODULE);
    Nginx::running(&format!(
        "load_module {};\nerror_log stderr notice;\nevents {{}}\n\
         stream {{ server {{ listen {LISTEN}; proxy_pass {gateway}; proxy_protocol on; }} }}\n",
        module.display()
    ))
}

/// The status that curl gets from this local address.
fn status(from: &str, to: SocketAddr, more: &[&str]) -> String {
    let mut command = Command::new("sh");
    // curl fails if the connection is closed; what it prints says so.
    command.args(["-c", "curl \"$@\" || true", "curl", "-s", "-m", "30"]);
    command.args(["--interface", from, "-o", "/dev/null", "-w", "%{http_code}"]);
    output(command.args(more).arg(format!("http://{to}/")))
}

#[test]
fn the_address_that_haproxy_sends_is_limited_in_both_versions() {
    let upstream = Upstream::start();
    for (number, directive) in ["send-proxy", "send-proxy-v2"].into_iter().enumerate() {
        let policy = PolicyFile::new(&format!("proxied-{number}"), POLICY);
        let (server, gateway) = serve("127.0.0.1", &upstream, &policy);
        let (_haproxy, balancer) = balance(directive, gateway);
        for (client, expected) in [
            ("127.0.0.2", "200"),
            ("127.0.0.2", "429"),
            ("127.0.0.3", "200"),
            ("127.0.0.3", "429"),
        ] {
            assert_eq!(
                status(client, balancer, &[]),
                expected,
                "{directive} {client}"
            );
        }
        // Without a header, and with a header of a sender that is not trusted.
        assert_eq!(status("127.0.0.1", gateway, &[]), CLOSED, "{directive}");
        let forged = ["--haproxy-protocol"];
        assert_eq!(status("127.0.0.9", gateway, &forged), CLOSED, "{directive}");
        let (ended, last) = server.stop("TERM");
        assert!(ended.success(), "{last}");
    }
    assert_eq!(upstream.answered(), 4, "nothing else reaches the upstream");
}

#[test]
fn the_address_that_nginx_sends_is_limited() {
    let upstream = Upstream::start();
    let policy = PolicyFile::new("proxied-by-nginx", POLICY);
    let (_server, gateway) = serve("127.0.0.1", &upstream, &policy);
    let nginx = balance_with_nginx(gateway);
    for (client, expected) in [
        ("127.0.0.2", "200"),
        ("127.0.0.2", "429"),
        ("127.0.0.3", "200"),
    ] {
        assert_eq!(status(client, nginx.address(), &[]), expected, "{client}");
    }
    assert_eq!(upstream.answered(), 2);
}

#[test]
fn a_balancer_that_is_not_trusted_is_refused() {
    let upstream = Upstream::start();
    let policy = PolicyFile::new("not-trusted", POLICY);
    let (_server, gateway) = serve("10.0.0.0/8", &upstream, &policy);
    for directive in ["send-proxy", "send-proxy-v2"] {
        let (_haproxy, balancer) = balance(directive, gateway);
        assert_eq!(status("127.0.0.2", balancer, &[]), CLOSED, "{directive}");
    }
    let nginx = balance_with_nginx(gateway);
    assert_eq!(status("127.0.0.2", nginx.address(), &[]), CLOSED, "nginx");
    assert_eq!(upstream.answered(), 0);
}
