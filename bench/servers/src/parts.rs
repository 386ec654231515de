//! The parts of a run: which servers meet, in which shape they are asked, and what is promised of each.
//!
//! Must not know: how anything is measured, how any server is asked.

use crate::contenders::{
    Article, Contender, Nginx, Ours, Store, Throttlecrab, bare_echo, bare_hyper, bare_tonic,
    tonic_and_call,
};
use crate::goals::Goals;
use crate::load::Shape;
use crate::options::{Options, Part};
use crate::resident;
use crate::stats::Table;
use crate::study::{Keys, Study, fill};

/// Keys of a fleet, when there are many.
const FLEET_KEYS: u32 = 10_000;

/// One question at a time on each connection.
const ONE_BY_ONE: Shape = Shape {
    connections: 16,
    depth: 1,
    in_batches: false,
};
const PIPELINED: Shape = Shape {
    connections: 16,
    depth: 16,
    in_batches: true,
};

/// Several calls at a time on each of a few connections, as Envoy's workers have them.
const MULTIPLEXED: Shape = Shape {
    connections: 4,
    depth: 8,
    in_batches: false,
};

/// Runs what was asked for; the tables, with the promises last.
pub(crate) fn run(options: &Options) -> Result<Vec<Table>, String> {
    let mut goals = Goals::new();
    let mut tables = Vec::new();
    let has = |part| options.parts.contains(&part);
    if has(Part::Fleet) {
        fleet(options, &mut tables, &mut goals)?;
    }
    let beside_peers = [Part::Resp, Part::Pipelined, Part::Http, Part::Grpc];
    if beside_peers.into_iter().any(has) {
        beside(options, &mut tables, &mut goals)?;
    }
    if has(Part::Cores) {
        cores(options, &mut tables)?;
    }
    if has(Part::Memory) {
        tables.push(resident::study(options, &mut goals)?);
    }
    tables.push(goals.into_table());
    Ok(tables)
}

/// The protocols, beside other servers and beside floors.
fn beside(options: &Options, tables: &mut Vec<Table>, goals: &mut Goals) -> Result<(), String> {
    let has = |part| options.parts.contains(&part);
    let throttlecrab = Throttlecrab::start(&options.throttlecrab, options.keys)?;
    let ours = Ours::start(&options.tollgate, options.keys, None)?;
    if has(Part::Resp) || has(Part::Pipelined) {
        resp(options, &ours, &throttlecrab, tables, goals)?;
    }
    if has(Part::Http) {
        http(options, &ours, &throttlecrab, tables, goals)?;
    }
    if has(Part::Grpc) {
        grpc(options, &ours, &throttlecrab, tables, goals)?;
    }
    Ok(())
}

/// Envoy's question to a node of a fleet, beside what it is made of: bare tonic, and bare tonic that makes the same call of
/// the same script through the same client.
fn fleet(options: &Options, tables: &mut Vec<Table>, goals: &mut Goals) -> Result<(), String> {
    let store = Store::start()?;
    let ours = Ours::start_on(&options.tollgate, options.keys, &store)?;
    let ours = ours.grpc();
    let call = store.call_of(&ours)?;
    let (tonic, parts) = (bare_tonic(&ours)?, tonic_and_call(&ours, &store, &call)?);
    let contenders = [ours, tonic, parts];
    let parts = contenders[2].name;
    for keys in [Keys::Hot, Keys::Many(FLEET_KEYS)] {
        let title = "gRPC, Envoy's RLS, over Redis";
        let study = Study::run(title, options, MULTIPLEXED, keys, &contenders)?;
        let what = format!("RLS over Redis beside the sum of its parts, {}", name(keys));
        goals.at_most(&what, 1.3, study.ours_to(parts));
        tables.push(study.table());
    }
    Ok(())
}

fn resp(
    options: &Options,
    ours: &Ours,
    throttlecrab: &Throttlecrab,
    tables: &mut Vec<Table>,
    goals: &mut Goals,
) -> Result<(), String> {
    let (ours, article) = (ours.resp(), Article::start()?);
    let floor = bare_echo(&ours)?;
    let contenders = [ours, floor, throttlecrab.resp(), article.resp()];
    let [_, echo, crab, lua] = [0, 1, 2, 3].map(|index| contenders[index].name);
    for keys in patterns(options, &contenders)? {
        let what = name(keys);
        if options.parts.contains(&Part::Resp) {
            let title = "Redis protocol, one by one";
            let study = Study::run(title, options, ONE_BY_ONE, keys, &contenders)?;
            goals.at_most(
                &format!("RESP beside the echo, {what}"),
                1.15,
                study.ours_to(echo),
            );
            tables.push(study.table());
        }
        if options.parts.contains(&Part::Pipelined) {
            let title = "Redis protocol, pipelined by 16";
            let study = Study::run(title, options, PIPELINED, keys, &contenders)?;
            let goal = |part| format!("RESP by 16 {part}, {what}");
            goals.at_least(
                &goal("beside throttlecrab-server"),
                4.0,
                study.times_ours(crab),
            );
            goals.at_least(
                &goal("beside the articles' script"),
                8.0,
                study.times_ours(lua),
            );
            goals.at_most(&goal("beside the echo"), 2.0, study.ours_to(echo));
            tables.push(study.table());
        }
    }
    Ok(())
}

fn http(
    options: &Options,
    ours: &Ours,
    throttlecrab: &Throttlecrab,
    tables: &mut Vec<Table>,
    goals: &mut Goals,
) -> Result<(), String> {
    let (ours, nginx) = (ours.http(), Nginx::start()?);
    let floor = bare_hyper(&ours)?;
    let contenders = [ours, floor, throttlecrab.http(), nginx.http()];
    let hyper = contenders[1].name;
    for keys in patterns(options, &contenders)? {
        let study = Study::run("HTTP check", options, ONE_BY_ONE, keys, &contenders)?;
        let what = format!("HTTP check beside bare hyper, {}", name(keys));
        goals.at_most(&what, 1.2, study.ours_to(hyper));
        tables.push(study.table());
    }
    Ok(())
}

fn grpc(
    options: &Options,
    ours: &Ours,
    throttlecrab: &Throttlecrab,
    tables: &mut Vec<Table>,
    goals: &mut Goals,
) -> Result<(), String> {
    let ours = ours.grpc();
    let floor = bare_tonic(&ours)?;
    let contenders = [ours, floor, throttlecrab.grpc()];
    let tonic = contenders[1].name;
    for keys in patterns(options, &contenders)? {
        let study = Study::run("gRPC, Envoy's RLS", options, MULTIPLEXED, keys, &contenders)?;
        let what = format!("gRPC RLS beside bare tonic, {}", name(keys));
        goals.at_most(&what, 1.2, study.ours_to(tonic));
        tables.push(study.table());
    }
    Ok(())
}

/// One worker and two, which is all that two cores can show: the client is on them too.
fn cores(options: &Options, tables: &mut Vec<Table>) -> Result<(), String> {
    let start = |workers| Ours::start(&options.tollgate, options.keys, Some(workers));
    let (one, two) = (start(1)?, start(2)?);
    type Way = fn(&Ours) -> Contender;
    let ways: [(&str, Way, Shape); 3] = [
        ("Redis protocol, pipelined by 16", Ours::resp, PIPELINED),
        ("HTTP check", Ours::http, ONE_BY_ONE),
        ("gRPC, Envoy's RLS", Ours::grpc, MULTIPLEXED),
    ];
    for (title, way, shape) in ways {
        let contenders = [
            way(&one).called("one worker"),
            way(&two).called("two workers"),
        ];
        let study = Study::run(title, options, shape, Keys::Many(options.keys), &contenders)?;
        tables.push(study.table());
    }
    Ok(())
}

/// The patterns of keys. All of them are there before the second is asked.
fn patterns(options: &Options, contenders: &[Contender]) -> Result<[Keys; 2], String> {
    for contender in contenders {
        fill(contender, options.keys)?;
    }
    Ok([Keys::Hot, Keys::Many(options.keys)])
}

fn name(keys: Keys) -> String {
    match keys {
        Keys::Hot => "one hot key".to_owned(),
        Keys::Many(count) => format!("{count} keys"),
    }
}
