//! One worker and two on both cores, which is all that two cores can show: the load is on the first of them too.
//! Also how evenly they serve few and many connections.
//!
//! Must not know: how anything is measured.

use super::{Keys, ONE_BY_ONE, PIPELINED, Report, Workload, connections, fill_all, streams};
use crate::contenders::{Contender, Ours, Setup};
use crate::load::Shape;
use crate::options::Options;

/// How ours is asked.
type Listener = fn(&Ours) -> Contender;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), String> {
    let start = |workers| {
        let mut setup = Setup::new(&options.tollgate, options.keys);
        setup.workers = Some(workers);
        Ours::start(setup)
    };
    let (one, two) = (start(1)?, start(2)?);
    let all: [(&str, &str, Listener, Shape); 3] = [
        (
            "resp",
            "Redis protocol, pipelined by 16",
            Ours::resp,
            PIPELINED,
        ),
        ("http", "HTTP check", Ours::http, ONE_BY_ONE),
        (
            "grpc",
            "gRPC, Envoy's RLS, 10 × 50 streams",
            Ours::grpc,
            streams(10, 50),
        ),
    ];
    let both = |listener: Listener| {
        [
            listener(&one).called("one worker"),
            listener(&two).called("two workers"),
        ]
    };
    for (id, title, listener, shape) in all {
        let contenders = both(listener);
        fill_all(&contenders, options.many())?;
        let workload = Workload {
            id: &format!("workers {id}"),
            title: &format!("{title}, server on both cores"),
            shape,
            keys: Keys::Many(options.many()),
        };
        report.study(options, workload, &contenders)?;
    }
    connections::of_workers(options, &both(Ours::http), report)
}
