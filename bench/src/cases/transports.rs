//! What the server does with bytes that were read, up to the bytes or the response that it sends: no sockets.
//!
//! The clock stands still. Must not know: how any of it is done.

use std::error::Error;
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::Request;
use tollgate_policy::load;
use tollgate_policy::source::SourceFormat;
use tollgate_server::App;
use tollgate_server::grpc::GrpcServer;
use tollgate_server::listen::{LocalEndpoint, Peer};
use tollgate_server::resp::{Pipeline, RespServer};
use tollgate_store::{ManualClock, MemoryStore};

use super::{CaseRun, NOW};
use crate::measure::measured_section;

const THROTTLE: &[u8] = b"*6\r\n$11\r\nCL.THROTTLE\r\n$16\r\nuser000000000001\r\n$8\r\n10000000\r\n$2\r\n10\r\n$4\r\n3600\r\n$1\r\n1\r\n";
const CHECK: &[u8] =
    b"*3\r\n$8\r\nTG.CHECK\r\n$16\r\nheader.x-api-key\r\n$16\r\nuser000000000001\r\n";
const QUESTION: &[u8] = br#"{"attributes":{"header.x-api-key":"user000000000001"}}"#;

/// Domain `bench`, and one descriptor of one entry: `user` is `user000000000001`.
const RLS: &[u8] = b"\x0a\x05bench\x12\x1a\x0a\x18\x0a\x04user\x12\x10user000000000001";

/// So many commands in one read.
pub(super) fn throttle(times: u64, commands: usize) -> CaseRun {
    let server = RespServer::new(MemoryStore::with_clock(1_000, ManualClock::at(NOW))?)?;
    feed(times, &server, &THROTTLE.repeat(commands))
}

/// So many requests described by their attributes in one read, decided by a policy.
pub(super) fn resp_check(times: u64, commands: usize) -> CaseRun {
    let app = app(1_000_000_000)?;
    let store = MemoryStore::with_clock(1_000, ManualClock::at(NOW))?;
    // As `tollgate serve` has it: the service also counts decisions.
    let server = RespServer::new(store)?.with_checker(Arc::clone(app.service()) as Arc<_>);
    feed(times, &server, &CHECK.repeat(commands))
}

/// `POST /v1/check` under one bucket of so many units an hour: with one it is denied after the first, which is not counted.
pub(super) fn http_check(times: u64, units: u64) -> CaseRun {
    let app = app(units)?;
    let address = SocketAddr::from(([127, 0, 0, 1], 8080));
    let peer = Peer::new(Some(address), LocalEndpoint::Tcp(address));
    let request = Request::post("/v1/check")
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .body(QUESTION)?;
    let first = at_once(pin!(app.respond(&request, &peer)));
    if first.is_none_or(|first| first.status() != 200) {
        return Err("the first request was denied".into());
    }
    measured_section(times, || {
        at_once(pin!(black_box(&app).respond(black_box(&request), &peer)))
    });
    Ok(())
}

/// Envoy's question about one descriptor: the bytes of the message, and those of the answer.
pub(super) fn grpc_rls(times: u64) -> CaseRun {
    let server = GrpcServer::new(Arc::clone(app(1_000_000_000)?.envoy()));
    let mut out = Vec::with_capacity(4_096);
    let first = at_once(pin!(server.answer_bytes(RLS, &mut out)));
    first
        .ok_or("the first answer had to be waited for")?
        .map_err(|(_, why)| why)?;
    if !out.starts_with(&[8, 1]) {
        return Err(format!("answered: {}", out.escape_ascii()).into());
    }
    measured_section(times, || {
        out.clear();
        at_once(pin!(
            black_box(&server).answer_bytes(black_box(RLS), &mut out)
        ))
    });
    Ok(())
}

/// What is there when it is first looked at, as everything is that needs no fleet.
pub(super) fn at_once<F: Future>(answer: Pin<&mut F>) -> Option<F::Output> {
    match answer.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn feed(times: u64, server: &RespServer<ManualClock>, input: &[u8]) -> CaseRun {
    let mut session = server.session(None);
    let (mut input, mut out) = (input.to_vec(), Vec::with_capacity(4_096));
    let mut pipeline = Pipeline::new();
    let fed = server.feed(&mut session, &mut input, &mut pipeline, &mut out);
    if fed.consumed != input.len() || !out.starts_with(b"*") {
        return Err(format!("answered: {}", out.escape_ascii()).into());
    }
    measured_section(times, || {
        out.clear();
        server.feed(&mut session, black_box(&mut input), &mut pipeline, &mut out)
    });
    Ok(())
}

pub(super) fn app(units: u64) -> Result<App<ManualClock>, Box<dyn Error>> {
    let text = format!(
        "limits: [{{ name: per-key, key: header.x-api-key, missing: skip, rate: {units}/h, burst: {units} }}, \
         {{ name: per-user, key: descriptor.user, missing: skip, rate: {units}/h, burst: {units} }}]"
    );
    let policy =
        load(&text, "bench.yaml", SourceFormat::Yaml).map_err(|problems| problems.to_string())?;
    Ok(App::new(&policy, 1_000, ManualClock::at(NOW))?)
}
