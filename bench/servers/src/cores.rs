//! Which core the servers run on, and which the load.
//!
//! A server that shares its core with the load is measured with the load's caches and interrupts. Must not know: servers.

use std::sync::OnceLock;

use crate::system;

/// Where a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// On the core of servers, which the load does not use.
    ServerCore,
    /// On the core of the load: for a store that the measured server calls.
    LoadCore,
    /// On every core.
    AllCores,
}

/// The cores that this program was started with.
fn allowed() -> &'static [usize] {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    CORES.get_or_init(system::allowed_cores)
}

/// The load runs on the first core, servers on the last. With one core both share it.
fn cores(placement: Placement) -> &'static [usize] {
    let all = allowed();
    match placement {
        Placement::ServerCore => all.last().map_or(all, std::slice::from_ref),
        Placement::LoadCore => all.first().map_or(all, std::slice::from_ref),
        Placement::AllCores => all,
    }
}

/// Binds the load, which is this thread, to its core. Call it first.
pub(crate) fn bind_load() -> Result<(), String> {
    if allowed().len() < 2 {
        eprintln!("one core only: servers and load share it");
    }
    system::run_on(cores(Placement::LoadCore))
}

/// Does something, such as starting a process, on the cores of a placement.
pub(crate) fn with_placement<T>(
    placement: Placement,
    start: impl FnOnce() -> T,
) -> Result<T, String> {
    system::run_on(cores(placement))?;
    let started = start();
    system::run_on(cores(Placement::LoadCore))?;
    Ok(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_inherits_the_core_of_its_placement_and_the_load_returns_to_its_own() {
        bind_load().unwrap();
        let at_start = with_placement(Placement::ServerCore, system::allowed_cores).unwrap();
        assert_eq!(at_start, cores(Placement::ServerCore));
        assert_eq!(system::allowed_cores(), cores(Placement::LoadCore));
    }
}
