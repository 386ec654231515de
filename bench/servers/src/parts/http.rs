//! `POST /v1/check` beside other limiters over HTTP and beside bare hyper.
//!
//! Must not know: how anything is measured.

use super::{Keys, ONE_BY_ONE, Report, Workload, fill_all};
use crate::contenders::{Envoy, Limitador, Nginx, Ours, Throttlecrab, bare_hyper};
use crate::options::Options;

pub(super) fn run(
    options: &Options,
    ours: &Ours,
    throttlecrab: Option<&Throttlecrab>,
    report: &mut Report,
) -> Result<(), String> {
    let (ours, nginx) = (ours.http(), Nginx::start()?);
    let floor = bare_hyper(&ours)?;
    let envoy = options.envoy.as_ref();
    let envoy = envoy
        .map(|program| Envoy::start(program, options.many()))
        .transpose()?;
    let mut contenders = vec![ours, floor, nginx.http()];
    contenders.extend(throttlecrab.map(Throttlecrab::http));
    contenders.extend(envoy.as_ref().map(Envoy::http));
    let limitador = Limitador::in_memory(options)?;
    contenders.extend(limitador.as_ref().map(Limitador::http));
    let hyper = contenders[1].name;
    fill_all(&contenders, options.many())?;
    for (id, keys) in [
        ("http hot", Keys::Hot),
        ("http", Keys::Many(options.many())),
    ] {
        let workload = Workload {
            id,
            title: "HTTP check",
            shape: ONE_BY_ONE,
            keys,
        };
        let study = report.study(options, workload, &contenders)?;
        let what = format!("HTTP check beside bare hyper, {}", keys.name());
        report.goals.at_most(&what, 1.0, study.ours_to(hyper));
    }
    Ok(())
}
