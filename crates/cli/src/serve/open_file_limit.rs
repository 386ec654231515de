//! How many files the process may have open: every connection is one, and the usual allowance is far below what a server needs.
//!
//! Must not know: what files are for.

/// Beside connections: listeners, files that are read, the log, watches, the runtime's own.
const RESERVED_FILES: u64 = 64;

/// Takes all that the operating system allows, and says so in the log if that is not enough for `connections`.
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
            tracing::debug!(%error, "the allowance of open files stays as it is");
            current
        }
    };
    if let Some(allowed) = too_few(allowed, connections) {
        let needed = connections.saturating_add(RESERVED_FILES);
        tracing::warn!(
            allowed,
            needed,
            "fewer files may be open than --max-connections needs; raise the hard limit (LimitNOFILE, ulimit -Hn)"
        );
    }
}

#[cfg(not(unix))]
pub(super) fn allow(_connections: u64) {}

/// The allowance, if it is not enough. `None` is no limit.
fn too_few(allowed: Option<u64>, connections: u64) -> Option<u64> {
    allowed.filter(|allowed| *allowed < connections.saturating_add(RESERVED_FILES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_a_few_more_have_to_fit() {
        assert_eq!(too_few(None, u64::MAX), None);
        assert_eq!(too_few(Some(1_064), 1_000), None);
        assert_eq!(too_few(Some(1_063), 1_000), Some(1_063));
        assert_eq!(too_few(Some(10), u64::MAX), Some(10));
    }
}
