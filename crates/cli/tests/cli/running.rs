//! Running a server: notifications of the service manager, readiness, shutdown in two steps, secrets, settings.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Folder, output, repository, run_output, tollgate};
use crate::serve::{ServerProcess, get};

/// Longer than any step takes, so only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

/// A server on a free port, with further arguments.
fn serve(more: &[&str]) -> Command {
    let mut command = tollgate(&["serve"]);
    command
        .env("TOLLGATE_LISTEN", "127.0.0.1:0")
        .env("TOLLGATE_LISTEN_GRPC", "off")
        .env("TOLLGATE_LISTEN_RESP", "off")
        .env("TOLLGATE_LISTEN_ADMIN", "off")
        .args(more);
    command
}

#[test]
fn the_service_manager_is_notified_of_ready_reload_and_stop() {
    let folder = Folder::new();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    let receive = || {
        let mut state = [0; 64];
        let len = manager.recv(&mut state).unwrap();
        String::from_utf8_lossy(&state[..len]).into_owned()
    };
    let mut command = serve(&[]);
    command.env("NOTIFY_SOCKET", &path);
    let served = ServerProcess::start(command);
    assert_eq!(receive(), "READY=1");
    served.signal("HUP");
    assert_eq!(
        (receive(), receive()),
        ("RELOADING=1".to_owned(), "READY=1".to_owned())
    );
    let (status, _) = served.stop("TERM");
    assert_eq!(receive(), "STOPPING=1");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn during_the_drain_delay_readyz_returns_503_and_a_second_signal_ends_it() {
    let folder = Folder::new();
    let mut command = serve(&["--drain-delay=1h", "--listen-admin=unix:admin.sock"]);
    command.current_dir(folder.path());
    let served = ServerProcess::start(command);
    let health = || {
        let mut command = tollgate(&["health", "--at=unix:admin.sock"]);
        run_output(command.current_dir(folder.path()).output().unwrap())
    };
    assert_eq!(
        get(served.address, "/readyz").as_deref(),
        Some("HTTP/1.1 200 OK")
    );
    assert_eq!(health(), (Some(0), "ready\n".to_owned(), String::new()));
    served.signal("TERM");
    served.wait_for("stopping");
    let not_ready = "HTTP/1.1 503 Service Unavailable";
    assert_eq!(get(served.address, "/readyz").as_deref(), Some(not_ready));
    let message = "not ready: unix:admin.sock: the server is stopping\n";
    assert_eq!(health(), (Some(1), String::new(), message.to_owned()));
    assert_eq!(
        get(served.address, "/healthz").as_deref(),
        Some("HTTP/1.1 200 OK")
    );
    let asked = get(served.address, "/v1/check?key=late");
    assert_eq!(
        asked.as_deref(),
        Some("HTTP/1.1 200 OK"),
        "requests are still answered"
    );
    let (status, _) = served.stop("TERM");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_second_signal_closes_open_connections() {
    let served = ServerProcess::start(serve(&["--drain-timeout=1h"]));
    let mut stuck = TcpStream::connect(served.address).unwrap();
    stuck.set_read_timeout(Some(DEADLINE)).unwrap();
    let head =
        "POST /v1/check HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
    stuck.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 25];
    stuck.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    served.signal("INT");
    served.wait_for("stopping");
    served.signal("INT");
    served.wait_for("second stop signal");
    let last = served.wait_for("stopped");
    assert!(last.contains("cut=0"), "{last}");
    assert_eq!(stuck.read(&mut answer).unwrap_or(0), 0);
}

#[test]
fn health_says_why_a_server_is_not_ready() {
    let (code, stdout, stderr) = output(&["health", "--at=127.0.0.1:9"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.starts_with("not ready: 127.0.0.1:9: "), "{stderr}");
    let (code, _, stderr) = output(&["health", "--at=off"]);
    assert_eq!(
        (code, stderr.as_str()),
        (Some(1), "not ready: off: the listener is off\n")
    );
    // `health` reads the address from the same variable as `serve`, also if it is 0.0.0.0.
    let served = ServerProcess::start(serve(&[]));
    let mut command = tollgate(&["health"]);
    let everywhere = SocketAddr::from(([0, 0, 0, 0], served.address.port()));
    command.env("TOLLGATE_LISTEN_ADMIN", everywhere.to_string());
    let (code, stdout, _) = run_output(command.output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(0), "ready\n"));
}

/// The replies to a Redis client.
fn redis(served: &ServerProcess, commands: &str) -> String {
    let (_, address) = served.printed.split_once("listening on redis://").unwrap();
    let address: SocketAddr = address.lines().next().unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(commands.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_password_of_redis_clients_comes_from_a_file_or_the_environment() {
    let folder = Folder::with(&[("password", "open sesame\n"), ("empty", "\n")]);
    let file = folder.path().join("password");
    let flag = format!("--resp-password-file={}", file.display());
    let resp = "--listen-resp=127.0.0.1:0";
    let by_file = serve(&[resp, &flag]);
    let mut by_environment = serve(&[resp]);
    by_environment.env("TOLLGATE_RESP_PASSWORD", "open sesame");
    for command in [by_file, by_environment] {
        let served = ServerProcess::start(command);
        let answer = redis(
            &served,
            "PING\r\nAUTH wrong\r\nAUTH 'open sesame'\r\nPING\r\nQUIT\r\n",
        );
        let lines: Vec<&str> = answer.split("\r\n").collect();
        let [first, second, rest @ ..] = lines.as_slice() else {
            panic!("{answer}");
        };
        assert!(
            first.starts_with("-NOAUTH") && second.starts_with("-WRONGPASS"),
            "{answer}"
        );
        assert_eq!(rest, ["+OK", "+PONG", "+OK", ""]);
    }
    let mut twice = serve(&[resp, &flag]);
    twice.env("TOLLGATE_RESP_PASSWORD", "open sesame");
    let (code, _, stderr) = run_output(twice.output().unwrap());
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("TOLLGATE_RESP_PASSWORD and the file for the same secret are both set"),
        "{stderr}"
    );
    assert!(!stderr.contains("sesame"), "{stderr}");
    let flag = format!(
        "--resp-password-file={}",
        folder.path().join("empty").display()
    );
    let (code, _, stderr) = run_output(serve(&[resp, &flag]).output().unwrap());
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("the password of Redis clients is empty"),
        "{stderr}"
    );
}

/// A password of five letters and listeners for the whole network were accepted without a word.
#[test]
fn what_other_machines_can_reach_unprotected_is_warned_of() {
    let open = serve(&["--listen-resp=0.0.0.0:0", "--listen-grpc=[::]:0"]);
    let served = ServerProcess::start(open);
    for (listener, address) in [("grpc", "[::]:0"), ("resp", "0.0.0.0:0")] {
        let line = served.wait_for("listener is open to other machines");
        for part in [
            format!("listener=\"{listener}\""),
            format!("address={address}"),
            "missing=\"TLS and client authentication\"".to_owned(),
        ] {
            assert!(line.contains(&part), "{line}");
        }
    }
    let mut short = serve(&["--listen-resp=0.0.0.0:0"]);
    short.env("TOLLGATE_RESP_PASSWORD", "short");
    let served = ServerProcess::start(short);
    let line = served.wait_for("shorter than 16 characters");
    assert!(
        line.contains("openssl rand -hex 32") && !line.contains("short\""),
        "{line}"
    );
    let line = served.wait_for("listener is open to other machines");
    assert!(line.contains("missing=\"TLS\""), "{line}");
    // On this machine alone nothing is missing. The first line of the log is the last one.
    let mut local = serve(&["--listen-resp=127.0.0.1:0"]);
    local.env("TOLLGATE_RESP_PASSWORD", "0123456789abcdef");
    let served = ServerProcess::start(local);
    served.signal("TERM");
    let line = served.wait_for("");
    assert!(line.contains("stopping"), "{line}");
}

#[test]
fn a_token_that_can_be_guessed_is_refused_where_other_machines_can_connect() {
    let admin = |address: &str| {
        let mut command = serve(&[&format!("--listen-admin={address}")]);
        command.env("TOLLGATE_ADMIN_OPERATE_TOKEN", "0123456789abcdef");
        command
    };
    let (code, _, stderr) = run_output(admin("0.0.0.0:0").output().unwrap());
    assert_eq!(code, Some(1));
    for part in [
        "the admin operate token has fewer than 128 bits",
        "openssl rand -hex 32",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
    let served = ServerProcess::start(admin("127.0.0.1:0"));
    served.wait_for("the admin operate token has fewer than 128 bits");
}

#[test]
fn invalid_numbers_are_refused_with_the_reason() {
    for (argument, expected) in [
        ("--worker-threads=0", "it must be at least 1"),
        ("--worker-threads=2000", "it must be at most 1024"),
        ("--max-connections=0", "it must be at least 1"),
        ("--drain-delay=2h", "it must be at most 1h"),
        ("--drain-timeout=10", "'--drain-timeout <DURATION>'"),
    ] {
        let (code, _, stderr) = run_output(serve(&[argument]).output().unwrap());
        assert_eq!(code, Some(2), "{argument}: {stderr}");
        assert!(stderr.contains(expected), "{argument}: {stderr}");
    }
}

#[test]
fn too_few_open_files_are_warned_of_and_worker_threads_can_be_set() {
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_tollgate");
    let script = "ulimit -S -n 100 && ulimit -H -n 1000 && exec \"$0\" serve --worker-threads 1 \
                  --listen 127.0.0.1:0 --listen-resp off --listen-admin off";
    command
        .args(["-c", script, program])
        .env("TOLLGATE_LISTEN_GRPC", "off");
    let served = ServerProcess::start(command);
    let line = served.wait_for("limit of open files is too low for --max-connections");
    assert!(
        line.contains("allowed=1000"),
        "the soft limit was raised to the hard one: {line}"
    );
    assert_eq!(
        get(served.address, "/healthz").as_deref(),
        Some("HTTP/1.1 200 OK")
    );
}

#[test]
fn the_settings_page_equals_the_output_of_the_program() {
    let (code, printed, _) = output(&["settings"]);
    assert_eq!(code, Some(0));
    let page = std::fs::read_to_string(repository().join("docs/settings.md")).unwrap_or_default();
    assert!(
        page == printed,
        "docs/settings.md is stale; regenerate it with\n    cargo run -- settings > docs/settings.md"
    );
    // Every flag in `--help` is on the page, with its variable and under the same heading.
    let (_, help, _) = output(&["serve", "--help"]);
    let mut heading = "";
    let mut flags = 0;
    for line in help.lines() {
        if let Some(found) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            heading = found;
        }
        let Some(flag) = line.trim_start().strip_prefix("--") else {
            continue;
        };
        let flag = flag.split(' ').next().unwrap();
        if matches!(flag, "color" | "help") {
            continue;
        }
        let section = page
            .split(&format!("## {heading}\n"))
            .nth(1)
            .unwrap_or_default();
        let section = section.split("\n## ").next().unwrap();
        let variable = flag.to_uppercase().replace('-', "_");
        let row = format!("| `--{flag} ");
        let row = section.lines().find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("--{flag} is not under {heading}"));
        assert!(
            row.contains(&format!("| `TOLLGATE_{variable}` |")) || flag == "log-level",
            "{row}"
        );
        flags += 1;
    }
    assert!(flags >= 20, "{flags} of {help}");
}

/// The partition key in `RateLimit-Policy` is a digest of the client's key. The same secret gives the same digest.
#[test]
fn nodes_with_the_same_secret_make_the_same_digests() {
    let folder = Folder::with(&[
        ("secret", "correct horse battery staple\n"),
        ("short", "too short\n"),
        (
            "policy.yaml",
            "limits: [{ name: a, key: header.x-api-key, rate: 9/h }]\n",
        ),
    ]);
    let partition = |secret: &[&str], variable: Option<&str>| {
        let mut command = serve(&["--config=policy.yaml"]);
        command.current_dir(folder.path()).args(secret);
        if let Some(secret) = variable {
            command.env("TOLLGATE_FLEET_SECRET", secret);
        }
        let served = ServerProcess::start(command);
        let mut stream = TcpStream::connect(served.address).unwrap();
        let request = "GET /v1/check?key=alice HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, rest) = answer
            .split_once(";pk=:")
            .unwrap_or_else(|| panic!("{answer}"));
        rest.split(':').next().unwrap().to_owned()
    };
    let one = partition(&["--fleet-secret-file=secret"], None);
    assert_eq!(partition(&[], Some("correct horse battery staple")), one);
    assert_ne!(partition(&[], Some("correct horse battery stable")), one);
    assert_ne!(partition(&[], None), one);
    let mut command = serve(&["--fleet-secret-file=short"]);
    let (code, _, stderr) = run_output(command.current_dir(folder.path()).output().unwrap());
    assert_eq!(code, Some(1));
    assert!(
        stderr.ends_with("error: the fleet secret is not valid: it must have at least 16 bytes\n"),
        "{stderr}"
    );
}
