//! An axum handler by itself and behind layers that limit it: CPU time for each request, without a network.
//!
//! `tollgate-bench-tower` measures all contenders in turns. `tollgate-bench-tower NAME TIMES` calls one of them inside
//! [`measured_section`], for callgrind. Every request is admitted. Must not know: how the layers decide.

mod contenders;

use std::error::Error;
use std::hint::black_box;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tower::Service as _;

use contenders::{CONTENDERS, Contender, request};

/// Requests of one turn of a contender.
const TURN: u64 = 5_000;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => compare(&runtime, 60),
        [flag] if flag == "--quick" => compare(&runtime, 10),
        [flag] if flag == "--list" => {
            CONTENDERS.iter().for_each(|one| println!("{}", one.name));
            Ok(())
        }
        [name, times] => {
            let found = CONTENDERS.iter().find(|one| one.name == *name);
            let found = found.ok_or_else(|| format!("there is no contender {name:?}"))?;
            let times = times.parse()?;
            let mut app = build(&runtime, found)?;
            // The first requests find everything cold.
            runtime.block_on(call_many(&mut app, 100))?;
            measured_section(&runtime, &mut app, times)
        }
        _ => Err("usage: tollgate-bench-tower [--quick | --list | NAME TIMES]".into()),
    }
}

fn build(runtime: &Runtime, contender: &Contender) -> Result<Router, Box<dyn Error>> {
    // Buffers of tower start a task, so they need a runtime around them.
    let _entered = runtime.enter();
    // As `axum::serve` does: a router without it builds its layers anew for each request.
    Ok((contender.build)()?.with_state(()))
}

/// Instructions in here are counted.
#[inline(never)]
fn measured_section(runtime: &Runtime, app: &mut Router, times: u64) -> Result<(), Box<dyn Error>> {
    runtime.block_on(call_many(app, times))
}

/// Prints the least CPU time of any turn for each contender, and what it adds to the handler.
fn compare(runtime: &Runtime, turns: u32) -> Result<(), Box<dyn Error>> {
    let mut apps = Vec::new();
    for contender in CONTENDERS {
        apps.push((contender.name, build(runtime, contender)?, u64::MAX));
    }
    for _ in 0..turns {
        for (_, app, least) in &mut apps {
            let begun = cpu_nanos();
            runtime.block_on(call_many(app, TURN))?;
            *least = (*least).min((cpu_nanos() - begun) / TURN);
        }
    }
    let bare = apps.first().map_or(0, |(_, _, least)| *least);
    println!("{:<34} {:>8} {:>8}", "layer", "ns", "added");
    for (name, _, least) in &apps {
        println!("{name:<34} {least:>8} {:>8}", least.saturating_sub(bare));
    }
    Ok(())
}

async fn call_many(app: &mut Router, times: u64) -> Result<(), Box<dyn Error>> {
    let template = request()?;
    for _ in 0..times {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = template.uri().clone();
        *request.headers_mut() = template.headers().clone();
        *request.extensions_mut() = template.extensions().clone();
        let response = app.call(black_box(request)).await?;
        if response.status() != 200 {
            return Err(format!("answered {}", response.status()).into());
        }
    }
    Ok(())
}

fn cpu_nanos() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
}
