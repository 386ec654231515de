//! The Go program of `examples/clients`. Those in Python and Node run with all other tests.

use std::process::Command;

use tollgate_testkit::peer_programs;
use tollgate_testkit::process::TempFolder;

use super::output;
use crate::clients::a_client_waits_and_gives_its_place_back;
use crate::harness::repository;

#[test]
fn the_go_example_waits_and_gives_its_place_back() {
    let folder = TempFolder::new("go").unwrap();
    let built = folder.path().join("client");
    let mut build = Command::new(peer_programs::program("go"));
    build
        .args(["build", "-o"])
        .arg(&built)
        .arg(repository().join("examples/clients/go/main.go"))
        .env("GOCACHE", folder.path().join("cache"))
        .env("GOPATH", folder.path().join("path"))
        // Only the standard library: nothing may be fetched.
        .env("GOPROXY", "off")
        .env("GO111MODULE", "off");
    output(&mut build);
    a_client_waits_and_gives_its_place_back("go", || Command::new(&built));
}
