//! The Redis clients of Node.js. Clients of other languages are in the tests of the server crate.

use std::process::Command;

use tollgate_testkit::peer_programs;

use super::output;
use super::server::Server;

const POLICY: &str = "
limits:
  - name: per-address
    key: ip
    rate: 10/h
";

#[test]
fn node_redis_and_ioredis_connect_pipeline_and_read_every_answer() {
    let server = Server::start(POLICY);
    let script =
        crate::harness::repository().join("crates/cli/tests/cli/with_peers/redis_clients.js");
    let mut command = Command::new(peer_programs::program("node"));
    command.arg(script).arg(server.resp.port().to_string()).env(
        "NODE_PATH",
        peer_programs::file("node-redis", "node_modules"),
    );
    assert_eq!(output(&mut command), "fine\n");
    let log = server.stop();
    assert!(log.contains("panics=0"), "{log}");
}
