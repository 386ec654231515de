//! The parts of a run: which servers meet, in which shape they are asked, and what is promised of each.
//!
//! Must not know: how anything is measured, how any server is asked.

mod connections;
mod fleet;
mod gateway;
mod grpc;
mod http;
mod resp;
mod workers;

use crate::contenders::{Contender, Ours, Setup, Throttlecrab};
use crate::goals::Goals;
use crate::load::Shape;
use crate::measurements::Measurements;
use crate::options::{Options, Part};
use crate::resident;
use crate::stats::Table;
use crate::study::{Keys, Study, Workload, fill};

/// One request at a time on each connection.
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

/// So many calls at a time on each of so many connections, as Envoy's workers have them.
const fn streams(connections: usize, depth: usize) -> Shape {
    Shape {
        connections,
        depth,
        in_batches: false,
    }
}

/// What a run has shown. Tables are printed as they come, so that a run that is ended early has shown something.
pub(crate) struct Report {
    pub(crate) goals: Goals,
    pub(crate) measurements: Measurements,
    is_markdown: bool,
}

impl Report {
    pub(crate) fn print(&self, table: &Table) {
        println!("{}", table.render(self.is_markdown));
    }

    /// Runs a study, prints its table and keeps its measurements.
    fn study(
        &mut self,
        options: &Options,
        workload: Workload<'_>,
        contenders: &[Contender],
    ) -> Result<Study, String> {
        let study = Study::run(options, workload, contenders)?;
        study.measurements(&mut self.measurements);
        self.print(&study.table());
        Ok(study)
    }
}

/// Runs what was asked for.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let mut report = Report {
        goals: Goals::new(),
        measurements: Measurements::default(),
        is_markdown: options.markdown,
    };
    let has = |part| options.parts.contains(&part);
    let beside_peers = [Part::Resp, Part::Pipelined, Part::Http, Part::Grpc];
    if beside_peers.into_iter().any(has) {
        beside(options, &mut report)?;
    }
    if has(Part::Fleet) {
        fleet::run(options, &mut report)?;
    }
    if has(Part::Connections) {
        connections::run(options, &mut report)?;
    }
    if has(Part::Workers) {
        workers::run(options, &mut report)?;
    }
    if has(Part::Gateway) {
        gateway::run(options, &mut report)?;
    }
    if has(Part::Memory) {
        let table = resident::study(options, &mut report.goals)?;
        report.print(&table);
    }
    Ok(report)
}

/// The protocols, beside other servers and beside floors.
fn beside(options: &Options, report: &mut Report) -> Result<(), String> {
    let has = |part| options.parts.contains(&part);
    let throttlecrab = options.throttlecrab.as_ref();
    let throttlecrab = throttlecrab
        .map(|program| Throttlecrab::start(program, options.keys))
        .transpose()?;
    let throttlecrab = throttlecrab.as_ref();
    let ours = Ours::start(Setup::new(&options.tollgate, options.keys))?;
    if has(Part::Grpc) {
        grpc::run(options, &ours, throttlecrab, report)?;
    }
    if has(Part::Resp) || has(Part::Pipelined) {
        resp::run(options, &ours, throttlecrab, report)?;
    }
    if has(Part::Http) {
        http::run(options, &ours, throttlecrab, report)?;
    }
    Ok(())
}

/// Makes all keys known to all contenders.
fn fill_all(contenders: &[Contender], keys: u32) -> Result<(), String> {
    contenders
        .iter()
        .try_for_each(|contender| fill(contender, keys))
}
