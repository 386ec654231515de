//! Warnings about servers: replica, eviction, low memory, old version, an undeclared cluster.
//!
//! Must not know: connections, how an operator reacts.

use std::fmt;

/// The kind of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerWarningKind {
    /// The server did not reply.
    Unreachable,
    /// The user may not call `INFO`.
    Silent,
    /// It is a replica. It is not used for decisions.
    Replica,
    /// It evicts states when memory is low. Each eviction refunds what a client has spent.
    Evicting,
    /// It may run out of memory and then refuse to decide.
    Bounded,
    /// It is older than the oldest supported version.
    Old,
    /// It is a cluster node, but the address does not say so: most keys would be refused.
    Clustered,
    /// The address says cluster, but it is not a cluster node.
    NotClustered,
}

/// A warning about one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerWarning {
    /// The server, as `host:port` or a path.
    pub server: String,
    /// The kind.
    pub kind: ServerWarningKind,
    /// The problem and its remedy, for people.
    pub message: String,
}

impl fmt::Display for ServerWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.server, self.message)
    }
}

/// The oldest supported version of Redis. Every Valkey is newer.
const OLDEST_VERSION: (u32, u32) = (6, 2);

/// The warnings that follow from a server's `INFO`.
pub(crate) fn server_warnings(
    server: &str,
    info: &str,
    is_cluster_expected: bool,
) -> Vec<ServerWarning> {
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim())
    };
    let mut warnings = Vec::new();
    let mut warn = |kind, message: String| warnings.push(warning(server, kind, message));
    if field("role") == Some("slave") {
        warn(
            ServerWarningKind::Replica,
            "it is a replica and is not used for decisions; configure the primary or sentinels"
                .to_owned(),
        );
    }
    let policy = field("maxmemory_policy").unwrap_or("noeviction");
    let limit = field("maxmemory").and_then(|bytes| bytes.parse::<u64>().ok());
    if policy != "noeviction" {
        warn(
            ServerWarningKind::Evicting,
            format!(
                "maxmemory-policy is {policy}: evicting a state refunds what was spent; set it to noeviction"
            ),
        );
    } else if let Some(bytes) = limit.filter(|bytes| *bytes > 0) {
        warn(
            ServerWarningKind::Bounded,
            format!(
                "maxmemory is {bytes} bytes: beyond it every decision is refused; reserve 150 bytes per key"
            ),
        );
    }
    if let Some(version) = field("redis_version")
        && field("server_name") != Some("valkey")
        && parse_version(version).is_some_and(|version| version < OLDEST_VERSION)
    {
        warn(
            ServerWarningKind::Old,
            format!("version {version} is not supported; the oldest tested version is 6.2"),
        );
    }
    match (field("cluster_enabled"), is_cluster_expected) {
        (Some("1"), false) => warn(
            ServerWarningKind::Clustered,
            "it is a cluster node; use redis+cluster:// in its address".to_owned(),
        ),
        (Some("0"), true) => warn(
            ServerWarningKind::NotClustered,
            "it is not a cluster node; use redis:// in its address".to_owned(),
        ),
        _ => {}
    }
    warnings
}

/// The warning for a server that did not reply, or refused.
pub(crate) fn no_answer_warning(server: &str, is_refused: bool) -> ServerWarning {
    if is_refused {
        let message =
            "the user may not call INFO, so it could not be inspected; permit the command";
        return warning(server, ServerWarningKind::Silent, message.to_owned());
    }
    let message = "it did not reply; decisions go on without it until it does";
    warning(server, ServerWarningKind::Unreachable, message.to_owned())
}

fn warning(server: &str, kind: ServerWarningKind, message: String) -> ServerWarning {
    ServerWarning {
        server: server.to_owned(),
        kind,
        message,
    }
}

fn parse_version(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(info: &str, is_cluster_expected: bool) -> Vec<ServerWarningKind> {
        server_warnings("a:1", info, is_cluster_expected)
            .iter()
            .map(|warning| warning.kind)
            .collect()
    }

    #[test]
    fn each_misconfiguration_gives_a_warning() {
        let well = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";
        assert_eq!(kinds(well, false), []);
        assert_eq!(kinds(well, true), [ServerWarningKind::NotClustered]);
        let with = |from: &str, to: &str| kinds(&well.replace(from, to), false);
        assert_eq!(
            with("role:master", "role:slave"),
            [ServerWarningKind::Replica]
        );
        assert_eq!(
            with("noeviction", "allkeys-lru"),
            [ServerWarningKind::Evicting]
        );
        assert_eq!(
            with("maxmemory:0", "maxmemory:1000"),
            [ServerWarningKind::Bounded]
        );
        assert_eq!(with("7.0.15", "6.0.16"), [ServerWarningKind::Old]);
        assert_eq!(with("7.0.15", "10.1.0"), []);
        assert_eq!(
            with("cluster_enabled:0", "cluster_enabled:1"),
            [ServerWarningKind::Clustered]
        );
        assert_eq!(kinds("nonsense", false), []);
    }

    #[test]
    fn a_warning_names_the_server_and_the_remedy() {
        let warnings = server_warnings("10.0.0.1:6379", "maxmemory_policy:volatile-ttl", false);
        let message = warnings[0].to_string();
        assert!(message.starts_with("10.0.0.1:6379: "), "{message}");
        assert!(message.contains("volatile-ttl") && message.contains("noeviction"));
    }
}
