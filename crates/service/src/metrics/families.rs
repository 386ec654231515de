//! Every metric there is: its name, what it means and which labels it has. `docs/metrics.md` is this table.
//!
//! Labels come from here, from enums and from names in the policy, never from a request, so no caller can add a series.
//! Must not know: where the numbers come from.

/// What kind of number a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// It only grows; `_total` is added to its name.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Spans of time in buckets.
    Histogram,
    /// Always 1; the labels say it. `_info` is added to its name.
    Info,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricFamily {
    /// Without what the kind adds to it.
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

impl MetricKind {
    /// What samples have after the family's name, where there is one sample for a set of labels.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge | Self::Histogram => "",
            Self::Info => "_info",
        }
    }

    pub(crate) const fn type_name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

macro_rules! families {
    ($($constant:ident $kind:ident $name:literal [$($label:literal)*] $help:literal;)*) => {
        $(
            pub(super) const $constant: MetricFamily = MetricFamily {
                name: $name,
                kind: MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )*

        /// All of them, in the order they are told.
        #[cfg(test)]
        pub(super) const FAMILIES: &[MetricFamily] = &[$($constant),*];
    };
}

families! {
    LIMIT_DECISIONS Counter "tollgate_limit_decisions" ["limit" "outcome"]
        "Requests that a limit was asked about: allowed (and admitted by all others too), denied, would_deny (in shadow)";
    LIMIT_NEAR Counter "tollgate_limit_near" ["limit"]
        "Requests that a limit admitted with at least 80 % of it used";
    LIMIT_WAITS Counter "tollgate_limit_waits" ["limit"]
        "Requests that a limit admitted after a wait";
    LIMIT_STORE_ERRORS Counter "tollgate_limit_store_errors" ["limit"]
        "Requests on which the store did not answer a limit, decided by its on_store_failure";
    LIMIT_OVERFLOW Counter "tollgate_limit_overflow" ["limit"]
        "Requests that a limit decided by the store's overflow, which may deny too much";
    CANDIDATE_COMPARED Counter "tollgate_candidate_compared" ["limit"]
        "Requests on which a limit and its candidate were both asked";
    CANDIDATE_DIVERGED Counter "tollgate_candidate_diverged" ["limit" "direction"]
        "Requests that a limit's candidate would have decided differently: would_deny, would_allow";
    CANDIDATE_UNKNOWN Counter "tollgate_candidate_unknown" ["limit"]
        "Requests on which the store did not answer for a candidate";
    REQUESTS Counter "tollgate_requests" ["transport" "outcome"]
        "Questions answered: allowed, waited (allowed after a wait), denied, looked (nothing was charged), failed (not understood or not decided)";
    REFUSALS Counter "tollgate_refusals" ["reason"]
        "Requests refused by the policy, by why";
    DURATION Histogram "tollgate_request_duration_seconds" ["transport"]
        "From when a question was read to when its answer was written, without the network; of pipelined commands, until all of them were";
    WAIT Histogram "tollgate_wait_seconds" []
        "How long requests were told to wait before they go on";
    WAITING Gauge "tollgate_waiting_requests" ["listener"]
        "Answers that are held back now until their requests may go on";
    THROTTLE Counter "tollgate_throttle_commands" ["command" "outcome"]
        "Redis commands that bring their own quota";
    STORE_SLOTS Gauge "tollgate_store_slots" ["store"]
        "Slots for states of keys; about four sevenths of them can be in use at once";
    STORE_LIVE Gauge "tollgate_store_live" ["store"]
        "Slots whose state still counts, within about 1 % of the slots";
    STORE_EVICTIONS Counter "tollgate_store_live_evictions" ["store"]
        "States that still counted and were given up for others; each forgave a key what it owed";
    STORE_OVERFLOW Counter "tollgate_store_overflow_decisions" ["store"]
        "Decisions made by the overflow because there was no room for the key";
    STORE_BYTES Gauge "tollgate_store_bytes" ["store" "part"]
        "Bytes set aside for tables and taken by collections";
    SHARED_CALLS Counter "tollgate_store_calls" ["outcome"]
        "Calls of the store that a fleet shares, by how they ended: answered, refused (nothing was charged), busy (not made, too many were under way), ambiguous (no answer came, they may have been carried out)";
    SHARED_DEGRADED Gauge "tollgate_store_degraded" []
        "1 while some part of the shared store is away and this node decides by itself";
    BREAKER Gauge "tollgate_breaker_state" ["part"]
        "Whether a part of the shared store is asked: 0 (closed, it is), 1 (open, it is not)";
    BREAKER_OPENINGS Counter "tollgate_breaker_openings" []
        "How often a part of the shared store was given up on";
    LOCAL_DECISIONS Counter "tollgate_local_decisions" []
        "Decisions that were made without the shared store, in whole or in part";
    DENIALS_REMEMBERED Counter "tollgate_denials_remembered" []
        "Denials answered without asking the shared store because an earlier one was still true";
    REPLAYED Counter "tollgate_replayed" []
        "Keys whose spending on this node was told to the shared store when it was back";
    REPLAY_LOST Counter "tollgate_replay_lost" []
        "Keys whose spending on this node there was no room to remember";
    DEGRADED Gauge "tollgate_degraded" ["cause"]
        "1 if within the last 10 s some decision could not be exact: store (it did not answer), overflow (no room for a key), saturation (this server had too much to do)";
    MOST_WAITING Gauge "tollgate_waiting_requests_most" []
        "How many gateways' requests may be held back at the same time";
    CROWDED_OUT Counter "tollgate_crowded_out" ["outcome"]
        "Requests that would have had to wait while as many did as may: refused, let_through (their limits want it so)";
    RUNTIME_LATE Gauge "tollgate_runtime_late_seconds" []
        "How long something that was ready waited for a thread, at worst in the last seconds";
    DECISION_AGE Gauge "tollgate_watchdog_age_seconds" []
        "How long ago the watchdog last decided a synthetic request; above 5 s health checks fail; not there before the first one";
    CONNECTIONS Gauge "tollgate_connections" ["listener"]
        "Connections that are open";
    CONNECTIONS_ACCEPTED Counter "tollgate_connections_accepted" ["listener"]
        "Connections that were served";
    CONNECTIONS_REFUSED Counter "tollgate_connections_refused" ["listener"]
        "Connections closed at once because too many were open";
    ACCEPT_ERRORS Counter "tollgate_accept_errors" ["listener"]
        "Connections that the operating system could not hand over";
    FAILED_HANDSHAKES Counter "tollgate_failed_handshakes" ["listener"]
        "Connections that did not come to speak TLS: too slow, no common version, a certificate that is not accepted";
    PANICS Counter "tollgate_panics" ["listener"]
        "Bugs that ended one request or connection and nothing else";
    TLS_EXPIRES Gauge "tollgate_tls_certificate_expires_timestamp_seconds" []
        "When the certificate in force expires; not there where TLS is not spoken";
    TLS_RELOADS Counter "tollgate_tls_reloads" ["outcome"]
        "Times that the files of TLS were read because they had changed: loaded, refused; not there where TLS is not spoken";
    GENERATION Gauge "tollgate_policy_generation" []
        "The version of the policy in force, counted from 1 since the process began";
    POLICY_VALID Gauge "tollgate_policy_valid" []
        "1 if what the policy's file says is in force, 0 if it is wrong and an earlier version is";
    POLICY_LOADED_AT Gauge "tollgate_policy_loaded_timestamp_seconds" []
        "When the policy in force was loaded";
    RELOADS Counter "tollgate_policy_reloads" ["outcome"]
        "Times that the policy's file was read because it had changed or somebody said so: loaded, refused";
    SWITCHES Gauge "tollgate_switches" ["halt"]
        "Limits that operators have halted (everything counts as one): shadow, off";
    OVERRIDES Gauge "tollgate_overrides" []
        "Keys that operators have given another quota";
    BLOCKS Gauge "tollgate_blocks" []
        "Keys and networks that operators have blocked";
    FLEET_NODES Gauge "tollgate_fleet_nodes" []
        "Nodes of the fleet as last seen, this one included; like all of these not there outside a fleet";
    FLEET_MISMATCH Gauge "tollgate_fleet_mismatch" ["what"]
        "Nodes that differ from this one for longer than a change takes to get round: secret (every limit is then counted several times, each to the whole), policy";
    FLEET_CONTROLS_VERSION Gauge "tollgate_fleet_controls_version" []
        "Version of what operators said that is in force here; the same on all nodes once it has got round";
    FLEET_CONTROLS_WAITING Gauge "tollgate_fleet_controls_waiting" []
        "How much operators said here that the other nodes cannot know yet";
    FLEET_BEAT_AGE Gauge "tollgate_fleet_last_beat_age_seconds" []
        "How long ago this node could last say that it is there";
    FLEET_PANICS Counter "tollgate_fleet_panics" []
        "Bugs that ended the task that talks to the fleet, which was started again";
    TICKETS_OPEN Gauge "tollgate_tickets" []
        "Tickets that are kept until a response is reported or they expire, settled ones included";
    TICKETS_GIVEN_UP Counter "tollgate_tickets_given_up" []
        "Tickets that were given up for want of room";
    QUOTA_STREAMS Gauge "tollgate_quota_streams" []
        "Clients of Envoy's quota service that are connected";
    QUOTA_BUCKETS Gauge "tollgate_quota_buckets" []
        "Buckets that quotas are given out for, each once for every client that has it";
    QUOTA_REPORTS Counter "tollgate_quota_reports" []
        "Reports about buckets";
    QUOTA_ASSIGNMENTS Counter "tollgate_quota_assignments" ["outcome"]
        "Assignments that were sent: changed (other than the one before, or the first), repeated";
    QUOTA_ABANDONED Counter "tollgate_quota_abandoned" []
        "Buckets that clients were told to forget because nobody used them";
    QUOTA_REFUSED Counter "tollgate_quota_refused" []
        "Reports about buckets that were given nothing: no room for more, or an id that is too long or empty";
    ADMIN_REJECTED Counter "tollgate_admin_rejected" ["why"]
        "Requests to the admin listener that were turned away: token (none or a wrong one), forbidden (a read token that would operate), origin (a browser that another site sent), flood (too many wrong tokens)";
    LOGS_SUPPRESSED Counter "tollgate_denial_logs_suppressed" []
        "Denials that were not logged, to keep the log readable";
    LOG_LINES_DROPPED Counter "tollgate_log_lines_dropped" []
        "Log lines that were dropped because nobody read stderr fast enough";
    BUILD Info "tollgate_build" ["version"]
        "Which program this is";
    PROCESS_CPU Counter "process_cpu_seconds" []
        "User and system CPU time spent";
    PROCESS_RESIDENT Gauge "process_resident_memory_bytes" []
        "Resident memory";
    PROCESS_VIRTUAL Gauge "process_virtual_memory_bytes" []
        "Virtual memory";
    PROCESS_FDS Gauge "process_open_fds" []
        "Open file descriptors";
    PROCESS_MAX_FDS Gauge "process_max_fds" []
        "The most file descriptors that may be open";
    PROCESS_THREADS Gauge "process_threads" []
        "Threads";
    PROCESS_STARTED Gauge "process_start_time_seconds" []
        "When the process began, in seconds since 1970";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_spelt_as_prometheus_has_them() {
        for family in FAMILIES {
            let same = FAMILIES.iter().filter(|other| other.name == family.name);
            assert_eq!(same.count(), 1, "{}", family.name);
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(family.name.chars().all(is_plain), "{}", family.name);
            for word in ["_total", "_info", "_count", "_sum", "_bucket", "_created"] {
                assert!(!family.name.ends_with(word), "{}", family.name);
            }
            assert!(!family.help.ends_with('.') && !family.help.contains(['\\', '\n', '"']));
            assert!(!family.labels.contains(&"le"));
        }
    }

    /// Nobody's key, address or header can become a label.
    #[test]
    fn there_is_no_label_that_a_caller_could_choose() {
        let known = [
            "limit",
            "outcome",
            "direction",
            "transport",
            "reason",
            "command",
            "store",
            "part",
            "cause",
            "listener",
            "halt",
            "why",
            "version",
            "what",
        ];
        for label in FAMILIES.iter().flat_map(|family| family.labels) {
            assert!(known.contains(label), "{label}: who chooses its values?");
        }
    }

    /// The page that people read is this table, and its list of labels is complete.
    #[test]
    fn the_documentation_has_every_metric_and_every_label_as_it_is() {
        let page = include_str!("../../../../docs/metrics.md");
        let table = page.split("| metric | kind | labels | |").nth(1).unwrap();
        let table = table.split("\n\n").next().unwrap();
        let rows: Vec<&str> = table
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        let expected: Vec<String> = FAMILIES
            .iter()
            .map(|family| {
                let MetricFamily {
                    name,
                    kind,
                    labels,
                    help,
                } = family;
                let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
                let labels = labels.join(", ");
                let (suffix, word) = (kind.suffix(), kind.type_name());
                format!("| `{name}{suffix}` | {word} | {labels} | {help} |")
            })
            .collect();
        assert_eq!(rows, expected);
        for label in FAMILIES.iter().flat_map(|family| family.labels) {
            assert!(page.contains(&format!("\n| `{label}` | ")), "{label}");
        }
    }
}
