//! The time of a request through the layer, less that of the service alone, on the machine's clock.
//!
//! Must not know: how any of it is done.

use std::hint::black_box;
use std::time::Instant;

use tollgate_bench::cases::client::{NoContent, ReportingServer, call, request};
use tollgate_client::{PacerLayer, PacerSettings};
use tower_service::Service;

use crate::Failure;

const REQUESTS: u32 = 200_000;
const ROUNDS: usize = 9;

/// Measures both in turns, and prints the medians.
pub(crate) fn run() -> Result<(), Failure> {
    let settings = PacerSettings::default().with_initial_rate(1_000_000.0)?;
    let mut paced = tower_layer::Layer::layer(&PacerLayer::new(settings), ReportingServer::new());
    let mut server = ReportingServer::new();
    let (mut bare, mut layered) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(nanos_each(&mut server)?);
        layered.push(nanos_each(&mut paced)?);
    }
    let (bare, layered) = (median(bare), median(layered));
    println!(
        "a service that answers at once, two reported limits, median of {ROUNDS} rounds of {REQUESTS} requests"
    );
    println!("alone           {bare:>8.0} ns");
    println!("with the layer  {layered:>8.0} ns");
    println!("added           {:>8.0} ns", layered - bare);
    Ok(())
}

fn nanos_each<S: Service<hyper::Request<NoContent>>>(service: &mut S) -> Result<f64, Failure> {
    let request = request()?;
    let start = Instant::now();
    for _ in 0..REQUESTS {
        let response = call(black_box(service), black_box(&request).clone());
        if !matches!(black_box(response), Some(Ok(_))) {
            return Err("a request waits".into());
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
