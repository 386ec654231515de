//! slowhttptest: clients that are slow on purpose.
use super::server::Server;
#[test]
fn todo() {
    let s = Server::start("limits: []");
    assert!(s.is_well());
    s.until("x", || s.sockets() > 0);
}
