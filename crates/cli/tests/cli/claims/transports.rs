//! Asks a server about a token in every transport, with curl and redis-cli. Must not know: which tokens are good.

use std::process::{Command, Stdio};

use tollgate_testkit::redis::tool;

use crate::harness::Folder;
use crate::serve::ServerProcess;

/// How a server is asked about a request with a token.
#[derive(Clone, Copy, Debug)]
pub(super) enum AskedTransport {
    /// `POST /v1/check` of the HTTP API.
    HttpCheck,
    /// `ShouldRateLimit` of Envoy, with the header field as an entry of the descriptor.
    GrpcRls,
    /// `TG.CHECK` of Redis clients.
    RespCheck,
    /// A request through the gateway to its upstream.
    Gateway,
}

impl AskedTransport {
    pub(super) const ALL: [Self; 4] = [
        Self::HttpCheck,
        Self::GrpcRls,
        Self::RespCheck,
        Self::Gateway,
    ];

    /// Whether a request with this token is admitted.
    pub(super) fn is_admitted(self, server: &ServerProcess, token: &str) -> bool {
        let field = format!("Bearer {token}");
        match self {
            Self::HttpCheck => {
                let url = format!("http://{}/v1/check", server.address);
                let body = format!(r#"{{"attributes":{{"header.authorization":"{field}"}}}}"#);
                is_status_admitted(&[&url, "--json", &body])
            }
            Self::Gateway => {
                let url = format!("http://{}/", printed_address(server, "gateway on http://"));
                is_status_admitted(&[&url, "-H", &format!("authorization: {field}")])
            }
            Self::RespCheck => {
                let address = printed_address(server, "listening on redis://");
                let (host, port) = address.rsplit_once(':').unwrap();
                let check = ["TG.CHECK", "header.authorization", &field];
                let mut command = Command::new(tool("redis-cli"));
                let reply = stdout(command.args(["-h", host, "-p", port]).args(check));
                let reply = String::from_utf8(reply).unwrap();
                let mut lines = reply.lines().skip_while(|line| *line != "allowed");
                match lines.nth(1) {
                    Some("1") => true,
                    Some("0") => false,
                    other => panic!("{other:?} in {reply}"),
                }
            }
            Self::GrpcRls => ask_rls(server, &field),
        }
    }
}

/// Whether curl gets 200 and not 429.
fn is_status_admitted(arguments: &[&str]) -> bool {
    let mut command = Command::new(tool("curl"));
    command.args(["-sS", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}"]);
    match &*stdout(command.args(arguments)) {
        b"200" => true,
        b"429" => false,
        other => panic!("status {}", String::from_utf8_lossy(other)),
    }
}

/// Calls `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit` with one descriptor of one entry.
fn ask_rls(server: &ServerProcess, field: &str) -> bool {
    let entry = [
        length_delimited(1, b"header.authorization"),
        length_delimited(2, field.as_bytes()),
    ];
    let descriptor = length_delimited(1, &entry.concat());
    let request = [
        length_delimited(1, b"edge"),
        length_delimited(2, &descriptor),
    ]
    .concat();
    let length = u32::try_from(request.len()).unwrap().to_be_bytes();
    let folder = Folder::new();
    folder.write("request", &[&[0][..], &length, &request].concat());
    let service = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let url = format!(
        "http://{}/{service}",
        printed_address(server, "listening on grpc://")
    );
    let mut command = Command::new(tool("curl"));
    command.args(["-sS", "-m", "30", "--http2-prior-knowledge", &url]);
    command.args(["-H", "content-type: application/grpc", "-H", "te: trailers"]);
    command
        .args(["--data-binary", "@request"])
        .current_dir(folder.path());
    let response = stdout(&mut command);
    // `overall_code` is the first field of the message, which comes after five bytes of gRPC: 1 is OK, 2 is OVER_LIMIT.
    match response.get(5..7) {
        Some([0x08, 1]) => true,
        Some([0x08, 2]) => false,
        other => panic!("{other:?} in {response:?}"),
    }
}

/// A field of a protobuf message.
fn length_delimited(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut len = bytes.len();
    while len > 0x7f {
        field.push(u8::try_from(len & 0x7f | 0x80).unwrap());
        len >>= 7;
    }
    field.push(u8::try_from(len).unwrap());
    field.extend_from_slice(bytes);
    field
}

/// The address after these words of the startup message.
fn printed_address<'a>(server: &'a ServerProcess, words: &str) -> &'a str {
    let (_, address) = server.printed.split_once(words).expect(words);
    address.lines().next().unwrap()
}

fn stdout(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}
