//! Raises the limit of open files (RLIMIT_NOFILE): each connection needs one, and the usual soft limit is too low.
//!
//! Must not know: what the files are.

/// Files besides connections: listeners, policy and TLS files, the log, watches, the runtime.
const RESERVED_FILES: u64 = 64;

/// Raises the soft limit to the hard limit. Logs a warning if that is too low for `connections`.
#[cfg(unix)]
pub(super) fn raise_to_hard_limit(connections: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    let allowed = match setrlimit(Resource::Nofile, all) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::debug!(%error, "limit of open files was not raised");
            current
        }
    };
    if let Some(allowed) = too_few(allowed, connections) {
        let needed = connections.saturating_add(RESERVED_FILES);
        tracing::warn!(
            allowed,
            needed,
            "limit of open files is too low for --max-connections; raise the hard limit (LimitNOFILE, ulimit -Hn)"
        );
    }
}

#[cfg(not(unix))]
pub(super) fn raise_to_hard_limit(_connections: u64) {}

/// The limit, if it is too low. `None` means unlimited.
fn too_few(allowed: Option<u64>, connections: u64) -> Option<u64> {
    allowed.filter(|allowed| *allowed < connections.saturating_add(RESERVED_FILES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_must_fit_connections_and_reserved_files() {
        assert_eq!(too_few(None, u64::MAX), None);
        assert_eq!(too_few(Some(1_064), 1_000), None);
        assert_eq!(too_few(Some(1_063), 1_000), Some(1_063));
        assert_eq!(too_few(Some(10), u64::MAX), Some(10));
    }
}
