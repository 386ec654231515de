//! A node of a fleet on one Redis: what the node costs and what its Redis costs, `exact` and `leased`.
//!
//! Envoy's call is measured beside what it is made of: bare tonic, and bare tonic that makes the same call of the same script
//! through the same client. Must not know: how anything is measured.

use super::{Keys, ONE_BY_ONE, Report, Workload, fill_all, streams};
use crate::contenders::{
    Consistency, Counters, EnvoyproxyRatelimit, Limitador, Ours, Setup, Store, bare_tonic,
    tonic_and_call,
};
use crate::options::Options;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), String> {
    let stores = [Store::start()?, Store::start()?];
    let start = |store, consistency| {
        let mut setup = Setup::new(&options.tollgate, options.keys);
        setup.shared = Some((store, consistency));
        Ours::start(setup)
    };
    let exact = start(&stores[0], Consistency::Exact)?;
    let leased = start(&stores[1], Consistency::Leased)?;

    let node = exact.grpc();
    let call = stores[0].call_of(&node)?;
    let floors = [
        bare_tonic(&node)?,
        tonic_and_call(&node, &stores[0], &call)?,
    ];
    let [tonic, composed] = floors;
    let mut contenders = vec![
        node.called(EXACT),
        leased.grpc().called(LEASED),
        tonic,
        composed,
    ];
    let parts = contenders[3].name;
    let mut limitador = limitador(options)?;
    for (limitador, _store, name) in &limitador {
        contenders.push(limitador.grpc().called(name));
    }
    let ratelimit = ratelimit(options)?;
    contenders.extend(ratelimit.as_ref().map(EnvoyproxyRatelimit::grpc));
    for (suffix, keys) in [("", Keys::Hot), (", many keys", Keys::Many(options.many()))] {
        let workload = Workload {
            id: &format!("redis grpc{suffix}"),
            title: "gRPC, Envoy's RLS, over Redis, 10 × 50 streams",
            shape: streams(10, 50),
            keys,
        };
        let study = report.study(options, workload, &contenders)?;
        let what = format!(
            "RLS over Redis beside the sum of its parts, {}",
            keys.name()
        );
        report.goals.at_most(&what, 1.3, study.ours_to(parts));
        limitador.retain(|(_, _, name)| !study.has_failed(name));
    }

    let mut contenders = vec![exact.http().called(EXACT), leased.http().called(LEASED)];
    for (limitador, _store, name) in &limitador {
        contenders.push(limitador.http().called(name));
    }
    fill_all(&contenders, options.many())?;
    let workload = Workload {
        id: "redis http",
        title: "HTTP check over Redis",
        shape: ONE_BY_ONE,
        keys: Keys::Many(options.many()),
    };
    let study = report.study(options, workload, &contenders)?;
    let what = "HTTP check over Redis: `leased` beside `exact`";
    report.goals.at_most(what, 1.0, study.times_ours(LEASED));
    Ok(())
}

/// The peer that answers Envoy too, on a Redis of its own for each of its two ways to count there.
fn limitador(options: &Options) -> Result<Vec<(Limitador, Store, &'static str)>, String> {
    let Some(program) = &options.limitador else {
        return Ok(Vec::new());
    };
    let stores = [Store::start()?, Store::start()?];
    let [exact, cached] = stores;
    Ok(vec![
        (
            Limitador::start(program, Counters::Redis(&exact))?,
            exact,
            "limitador-server",
        ),
        (
            Limitador::start(program, Counters::RedisCached(&cached))?,
            cached,
            "limitador-server, cached",
        ),
    ])
}

/// The service that Envoy's authors offer for this call, on a Redis of its own.
fn ratelimit(options: &Options) -> Result<Option<EnvoyproxyRatelimit>, String> {
    let program = options.ratelimit.as_ref();
    program
        .map(|program| EnvoyproxyRatelimit::start(program, &Store::start()?))
        .transpose()
}

const EXACT: &str = "tollgate, exact";
const LEASED: &str = "tollgate, leased";
