//! Invalid settings of `tollgate serve`: each is reported with its reason, before the server listens.

use std::net::TcpListener;

use super::{PolicyFile, policy};
use crate::harness::output;

#[test]
fn an_invalid_policy_is_reported_with_its_line() {
    let wrong = PolicyFile::new("wrong", &policy("10/sce"));
    let file = wrong.0.display().to_string();
    let (code, stdout, stderr) = output(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-resp=off",
        "--listen-grpc=off",
        "--config",
        &file,
    ]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    let expected = format!("error: there is 1 problem with the policy\n\n{file}:4:11: ");
    assert!(stderr.starts_with(&expected), "{stderr}");
    assert!(stderr.contains("4 |     rate: 10/sce"), "{stderr}");
}

#[test]
fn a_port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, stdout, stderr) = output(&["serve", "--listen", &address]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    let expected = format!(
        "error: cannot listen on {address}: another program uses it; choose another address with --listen\n"
    );
    // On a machine with a low limit of open files a warning comes first.
    assert!(stderr.ends_with(&expected), "{stderr}");
    let free = [
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-grpc=off",
        "--listen-resp",
    ];
    let (code, stdout, stderr) = output(&[free[0], free[1], free[2], free[3], &address]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.ends_with("choose another address with --listen-resp\n"),
        "{stderr}"
    );
}

#[test]
fn invalid_arguments_are_reported() {
    let cases = [
        ("--config=/nowhere.yaml", "the file cannot be read"),
        (
            "--trusted-proxies=10.0.0.1/8",
            "it has bits beyond its length; 10.0.0.0/8 has not",
        ),
        (
            "--envoy-shadow-mode",
            "--envoy-shadow-mode: it is only for files of envoyproxy/ratelimit, and --config names none",
        ),
        (
            "--merge-domains",
            "--merge-domains: it is only for files of envoyproxy/ratelimit, and --config names none",
        ),
        ("--keys=0", "keys: 0 is not valid: it must be at least 1"),
        (
            "--listen=8080",
            "invalid value '8080' for '--listen <ADDRESS>'",
        ),
        (
            "--listen-resp=on",
            "it must be an address with a port (127.0.0.1:8080, [::1]:8080), `unix:` and a path, or `off`",
        ),
        (
            "--headers=draft-12",
            "there is no such dialect; there are draft-11, next, draft-07, draft-06, draft-03, envoy, x-ratelimit, \
             x-ratelimit-epoch, x-ratelimit-epoch-ms, discord, github, and none",
        ),
        (
            "--headers=draft-11,draft-07",
            "it writes `ratelimit` differently from draft-11; choose one of the two",
        ),
        (
            "--headers=none,github",
            "it means no dialect, so it must stand alone",
        ),
        (
            "--retry-jitter=10",
            "`10` has no unit of time; for seconds write `10s`",
        ),
        ("--retry-jitter=61m", "it must be at most 1h"),
        (
            "--listen-admin=0.0.0.0:0",
            "can be reached from other machines and has no tokens",
        ),
        (
            "--admin-read-token-file=/nowhere",
            "cannot read secret file=/nowhere",
        ),
        (
            "--log-level=loud",
            "it must be off, error, warn, info, debug or trace",
        ),
        ("--log-format=xml", "[possible values: text, json]"),
        ("--log-denials=few", "it must be off, sampled or all"),
        ("--confg=a.yaml", "unexpected argument '--confg' found"),
    ];
    for (argument, expected) in cases {
        let (code, stdout, stderr) = output(&["serve", argument]);
        assert!(matches!(code, Some(1 | 2)) && stdout.is_empty(), "{code:?}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}
