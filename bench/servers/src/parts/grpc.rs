//! Envoy's call over gRPC, in the shapes in which it comes, with answers of one limit and of several.
//!
//! Envoy's workers have one connection each and as many streams on it as they have requests; a lone client has one stream. A
//! floor that answers with the same message is measured in the same run. Must not know: how anything is measured.

use super::{Keys, Report, Workload, fill_all, streams};
use crate::contenders::{Limitador, Ours, Setup, Throttlecrab, bare_tonic};
use crate::options::Options;

/// Connections and streams on each.
const SHAPES: [(usize, usize); 4] = [(10, 50), (2, 100), (4, 8), (50, 1)];

/// Limits that apply to one descriptor; the answer has a part for each.
const LIMITS: [usize; 3] = [2, 4, 8];

pub(super) fn run(
    options: &Options,
    ours: &Ours,
    throttlecrab: Option<&Throttlecrab>,
    report: &mut Report,
) -> Result<(), String> {
    let ours = ours.grpc();
    let floor = bare_tonic(&ours)?;
    let mut contenders = vec![ours, floor];
    contenders.extend(throttlecrab.map(Throttlecrab::grpc));
    let limitador = Limitador::in_memory(options)?;
    contenders.extend(limitador.as_ref().map(Limitador::grpc));
    let tonic = contenders[1].name;
    fill_all(&contenders, options.many())?;
    for (connections, depth) in SHAPES {
        let shape = format!("{connections} × {depth} streams");
        let workload = Workload {
            id: &format!("grpc {connections} x {depth}"),
            title: &format!("gRPC, Envoy's RLS, {shape}"),
            shape: streams(connections, depth),
            keys: Keys::Many(options.many()),
        };
        let study = report.study(options, workload, &contenders)?;
        let what = format!("gRPC RLS beside bare tonic, {shape}");
        report.goals.at_most(&what, 1.0, study.ours_to(tonic));
    }
    LIMITS
        .into_iter()
        .try_for_each(|limits| several_limits(options, limits, report))
}

/// Answers that are longer: one descriptor to which several limits apply.
fn several_limits(options: &Options, limits: usize, report: &mut Report) -> Result<(), String> {
    let mut setup = Setup::new(&options.tollgate, options.keys);
    setup.limits = limits;
    let ours = Ours::start(setup)?.grpc();
    let floor = bare_tonic(&ours)?;
    let contenders = [ours, floor];
    let tonic = contenders[1].name;
    fill_all(&contenders, options.many())?;
    let (connections, depth) = SHAPES[0];
    let what = format!("{connections} × {depth} streams, answers of {limits} limits");
    let workload = Workload {
        id: &format!("grpc {connections} x {depth}, {limits} limits"),
        title: &format!("gRPC, Envoy's RLS, {what}"),
        shape: streams(connections, depth),
        keys: Keys::Many(options.many()),
    };
    let study = report.study(options, workload, &contenders)?;
    let what = format!("gRPC RLS beside bare tonic, {what}");
    report.goals.at_most(&what, 1.0, study.ours_to(tonic));
    Ok(())
}
