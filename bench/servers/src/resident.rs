//! Resident memory of our whole process: with as many live keys as it was made for, and with idle connections beside them.
//!
//! Must not know: how anything is kept.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::contenders::{Contender, Ours, Setup};
use crate::goals::Goals;
use crate::options::Options;
use crate::stats::Table;
use crate::study::fill;
use crate::system;

/// The connections of one listener are a part of all files that may be open.
const SPARE_FILES: u64 = 200;

pub(crate) fn study(options: &Options, goals: &mut Goals) -> Result<Table, String> {
    let (keys, count) = (options.keys, options.idle);
    if system::raise_open_files() < count as u64 + SPARE_FILES {
        return Err(format!(
            "{count} connections need more open files than this system allows"
        ));
    }
    let mut table = Table::new("Resident memory of the server", &["", "MB"]);
    let mut row =
        |what: String, bytes: u64| table.row(vec![what, format!("{:.1}", megabytes(bytes))]);
    // A process for each kind, so that nobody profits from what another has left behind.
    for (kind, of) in [
        ("Redis protocol", Ours::resp as fn(&Ours) -> Contender),
        ("HTTP", Ours::http),
    ] {
        let ours = Ours::start(Setup::new(&options.tollgate, keys))?;
        let empty = ours.server.resident()?;
        row(format!("{kind}: just started, made for {keys} keys"), empty);
        let contender = of(&ours);
        fill(&contender, keys)?;
        let full = ours.server.resident()?;
        row(format!("{kind}: with {keys} live keys"), full);
        goals.megabytes(
            &format!("{keys} live keys in all, {kind}"),
            80.0,
            megabytes(full),
        );
        let connections = idle(contender.address, count, &contender)?;
        let more = ours.server.resident()?.saturating_sub(full);
        let with = connections.len();
        row(format!("{kind}: {with} idle connections, more"), more);
        goals.megabytes(
            &format!("{with} idle connections more, {kind}"),
            100.0,
            megabytes(more),
        );
    }
    Ok(table)
}

pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Connections that have asked one question each and say nothing more.
pub(crate) fn idle(
    address: SocketAddr,
    count: usize,
    contender: &Contender,
) -> Result<Vec<TcpStream>, String> {
    let failed = |error: std::io::Error| format!("an idle connection to {address}: {error}");
    let mut open = Vec::with_capacity(count);
    let (mut question, mut buffer) = (Vec::new(), [0; 4_096]);
    (contender.talk)().ask(0, &mut question);
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        stream.write_all(&question).map_err(failed)?;
        let read = stream.read(&mut buffer).map_err(failed)?;
        let answer = buffer.get(..read).unwrap_or_default();
        let heard = (contender.talk)().hear(answer, &mut Vec::new())?;
        if heard.admitted != 1 {
            let shown = answer.escape_ascii();
            return Err(format!("connection {} was answered: {shown}", open.len()));
        }
        open.push(stream);
    }
    Ok(open)
}
