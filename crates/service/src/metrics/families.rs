//! The table of all metrics: name, kind, labels and help text. `docs/metrics.md` shows the same table.
//!
//! Labels are constants, enum names and names of the policy, never values of a request, so no caller can add a series. Must
//! not know: where the numbers come from.

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// A counter; its samples have the suffix `_total`.
    Counter,
    /// A gauge.
    Gauge,
    /// A histogram of durations.
    Histogram,
    /// Always 1, with its information in labels; its samples have the suffix `_info`.
    Info,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricFamily {
    /// The name without the kind's suffix.
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

impl MetricKind {
    /// The suffix of a sample's name, for kinds with one sample for each set of labels.
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

        /// All families, in the order of the page.
        #[cfg(test)]
        pub(super) const FAMILIES: &[MetricFamily] = &[$($constant),*];
    };
}

families! {
    LIMIT_DECISIONS Counter "tollgate_limit_decisions" ["limit" "outcome"]
        "Requests evaluated by each limit: allowed (also admitted by all other limits), denied, would_deny (in shadow mode)";
    LIMIT_NEAR Counter "tollgate_limit_near" ["limit"]
        "Requests admitted by each limit with at least 80 % of its quota used";
    LIMIT_WAITS Counter "tollgate_limit_waits" ["limit"]
        "Requests admitted by each limit after a wait";
    LIMIT_STORE_ERRORS Counter "tollgate_limit_store_errors" ["limit"]
        "Requests refused because the store did not answer and the limit's on_store_failure is closed; tollgate_local_decisions_total counts decisions without the store";
    LIMIT_OVERFLOW Counter "tollgate_limit_overflow" ["limit"]
        "Requests decided without a state of the key because memory for keys was full";
    LIMIT_SPILLED_OVER Counter "tollgate_limit_spilled_over" ["limit"]
        "Requests admitted by each limit that were charged to its spillover quota, or that borrowed from other shares";
    LIMIT_EVICTIONS Counter "tollgate_limit_evictions" ["limit"]
        "Live states of each limit that were evicted because memory for keys was full";
    LIMIT_CAPACITY_REFUSALS Counter "tollgate_limit_capacity_refusals" ["limit"]
        "Requests refused with 503 because memory for keys was full and the limit is when_full: refuse";
    CANDIDATE_COMPARED Counter "tollgate_candidate_compared" ["limit"]
        "Requests evaluated by both a limit and its candidate";
    CANDIDATE_DIVERGED Counter "tollgate_candidate_diverged" ["limit" "direction"]
        "Requests that a limit's candidate would decide differently: would_deny, would_allow";
    CANDIDATE_UNKNOWN Counter "tollgate_candidate_unknown" ["limit"]
        "Requests for which the store did not answer for a candidate";
    REQUESTS Counter "tollgate_requests" ["transport" "outcome"]
        "Requests by outcome: allowed, waited (allowed after a wait), denied, looked (a peek, nothing charged), failed (invalid or not decided)";
    REFUSALS Counter "tollgate_refusals" ["reason"]
        "Requests refused by the policy, by reason";
    DURATION Histogram "tollgate_request_duration_seconds" ["transport"]
        "Time from reading a request to writing its response, without the network; each pipelined command takes as long as its whole batch";
    WAIT Histogram "tollgate_wait_seconds" []
        "Time that requests had to wait before they were admitted";
    WAITING Gauge "tollgate_waiting_requests" ["listener"]
        "Requests that wait now";
    THROTTLE Counter "tollgate_throttle_commands" ["command" "outcome"]
        "Redis commands that bring their own quota";
    STORE_SLOTS Gauge "tollgate_store_slots" ["store"]
        "Slots of the memory store; about four sevenths of them can be in use at once";
    STORE_LIVE Gauge "tollgate_store_live" ["store"]
        "Slots with a live state, within about 1 % of the slots";
    STORE_EVICTIONS Counter "tollgate_store_live_evictions" ["store"]
        "Live states evicted for other keys; each eviction resets a key's usage";
    STORE_OVERFLOW Counter "tollgate_store_overflow_decisions" ["store"]
        "Decisions by overflow slots because there was no slot for the key";
    STORE_BYTES Gauge "tollgate_store_bytes" ["store" "part"]
        "Bytes allocated for tables and for collections";
    SHARED_CALLS Counter "tollgate_store_calls" ["outcome"]
        "Calls of the shared store by result: answered, refused (nothing charged), busy (not sent, too many calls in flight), ambiguous (no reply, may have been carried out)";
    SHARED_WAITING Gauge "tollgate_store_calls_waiting" []
        "Calls that wait to be sent, because the shared store has as many as it can answer in time";
    SHARED_DEGRADED Gauge "tollgate_store_degraded" []
        "1 while a part of the shared store is unavailable and this node decides by itself";
    BREAKER Gauge "tollgate_breaker_state" ["part"]
        "State of the circuit breaker of each part of the shared store: 0 (closed), 1 (open)";
    BREAKER_OPENINGS Counter "tollgate_breaker_openings" []
        "Times that a circuit breaker opened";
    LOCAL_DECISIONS Counter "tollgate_local_decisions" []
        "Decisions made without the shared store, in whole or in part";
    CACHED_DENIALS Counter "tollgate_denials_remembered" []
        "Denials answered from the denial cache without a call of the shared store";
    REPLAYED Counter "tollgate_replayed" []
        "Keys whose local usage was replayed to the shared store after an outage";
    REPLAY_DROPPED Counter "tollgate_replay_lost" []
        "Keys whose local usage was not recorded for the replay because the table was full";
    DEGRADED Gauge "tollgate_degraded" ["cause"]
        "1 if a decision of the last 10 s was not exact: store (it did not answer), overflow (no slot for a key), saturation (this server was overloaded)";
    MAX_WAITING Gauge "tollgate_waiting_requests_most" []
        "The most requests that may wait at the same time";
    WAIT_QUEUE_FULL Counter "tollgate_crowded_out" ["outcome"]
        "Requests that would have had to wait while the wait queue was full: refused, let_through (admitted because their limits are open)";
    RUNTIME_DELAY Gauge "tollgate_runtime_late_seconds" []
        "Worst scheduling delay of the runtime in the last seconds";
    DECISION_AGE Gauge "tollgate_watchdog_age_seconds" []
        "How long ago the watchdog last decided a synthetic request; above 5 s health checks fail; not there before the first one";
    CONNECTIONS Gauge "tollgate_connections" ["listener"]
        "Open connections";
    CONNECTIONS_ACCEPTED Counter "tollgate_connections_accepted" ["listener"]
        "Accepted connections";
    CONNECTIONS_REFUSED Counter "tollgate_connections_refused" ["listener"]
        "Connections closed at once because too many were open";
    CONNECTIONS_EVICTED Counter "tollgate_connections_evicted" ["listener"]
        "Connections without an answered request that were closed for a newer one because too many were open";
    AUTH_FAILURES Counter "tollgate_auth_failures" ["listener"]
        "Wrong tokens on the admin listener and wrong passwords of Redis clients";
    ACCEPT_ERRORS Counter "tollgate_accept_errors" ["listener"]
        "Connections that the operating system failed to accept";
    FAILED_HANDSHAKES Counter "tollgate_failed_handshakes" ["listener"]
        "Failed TLS handshakes (timeout, no common version, certificate not accepted) and PROXY headers (late, invalid, not from a trusted proxy)";
    BUFFER_REFUSALS Counter "tollgate_buffer_refusals" ["listener"]
        "Requests refused and connections closed because --max-buffered-bytes left no room for them";
    FLOODS Counter "tollgate_http2_floods" ["listener"]
        "Connections closed because they sent too many HTTP/2 frames that ask for nothing";
    PANICS Counter "tollgate_panics" ["listener"]
        "Panics that ended one request or connection";
    OVERLOAD_LIMIT Gauge "tollgate_overload_concurrency_limit" ["upstream" "route"]
        "The adaptive concurrency limit of an upstream and route, without names in the tower layer; absent unless the policy has `overload`, as all that follow";
    OVERLOAD_IN_FLIGHT Gauge "tollgate_overload_requests_in_flight" ["upstream" "route"]
        "Requests that hold a place under the adaptive concurrency limit";
    OVERLOAD_QUEUED Gauge "tollgate_overload_requests_queued" ["upstream" "route"]
        "Requests that wait for a place";
    OVERLOAD_SHED_PERCENT Gauge "tollgate_overload_shed_percent" ["upstream" "route" "class"]
        "The percentage of a class that the utilization shedder sheds";
    OVERLOAD_SHED Counter "tollgate_overload_shed_requests" ["class" "mechanism" "mode"]
        "Requests that a mechanism shed, or would have shed in shadow mode";
    OVERLOAD_CREDIT_OFFERS Counter "tollgate_overload_credit_offers" ["mode"]
        "Responses that told a client how much it may send, or would have in shadow mode";
    OVERLOAD_CREDITS Gauge "tollgate_overload_credits_per_second" ["upstream" "route"]
        "The credits of all clients of an upstream and route for each second; absent unless the policy has `credits`, as the next";
    OVERLOAD_CREDIT_CLIENTS Gauge "tollgate_overload_credit_clients" ["upstream" "route"]
        "Client addresses that have credits";
    OVERLOAD_FLEET_LIMIT Gauge "tollgate_overload_fleet_concurrency_limit" ["upstream" "route"]
        "The sum of the concurrency limits of all nodes that reported this upstream and route within the last heartbeats; absent without a fleet or its store, and unless the policy reserves a share, as the next";
    OVERLOAD_FLEET_IN_FLIGHT Gauge "tollgate_overload_fleet_requests_in_flight" ["upstream" "route" "importance"]
        "Requests in flight on all these nodes: of the first class, and of all others";
    OVERLOAD_CPU Gauge "tollgate_overload_process_cpu_percent" []
        "Processor time of this process in percent of what it may use, by which utilization sheds; absent if it cannot be measured";
    GATEWAY_RESPONSES Counter "tollgate_gateway_responses" ["route" "status"]
        "Responses of upstreams, and of the gateway in their place, for each route; absent without a gateway, as all that follow";
    UPSTREAM_REQUESTS Counter "tollgate_upstream_requests" ["upstream"]
        "Requests for each upstream, without retries";
    UPSTREAM_FAILURES Counter "tollgate_upstream_failures" ["upstream"]
        "Requests to which no address of the upstream responded";
    UPSTREAM_RETRIES Counter "tollgate_upstream_retries" ["upstream"]
        "Requests that were sent again";
    UPSTREAM_CONNECTIONS Gauge "tollgate_upstream_connections" ["upstream" "address"]
        "Open connections to each address";
    UPSTREAM_IN_FLIGHT Gauge "tollgate_upstream_requests_in_flight" ["upstream" "address"]
        "Requests in progress at each address";
    UPSTREAM_AVAILABLE Gauge "tollgate_upstream_available" ["upstream" "address"]
        "1 if the address gets requests, 0 if it is ejected or unhealthy";
    UPSTREAM_EJECTIONS Counter "tollgate_upstream_ejections" ["upstream" "address"]
        "Times that the address was ejected after failures";
    BUFFERED_BYTES Gauge "tollgate_buffered_bytes" []
        "Bytes buffered now for all connections together: incomplete requests and unread replies; the first 4 KiB of a connection are not counted";
    MAX_BUFFERED_BYTES Gauge "tollgate_buffered_bytes_most" []
        "The most bytes that may be buffered for all connections together (--max-buffered-bytes)";
    TLS_EXPIRES Gauge "tollgate_tls_certificate_expires_timestamp_seconds" []
        "Expiry time of the current certificate; absent without TLS";
    TLS_RELOADS Counter "tollgate_tls_reloads" ["outcome"]
        "Reloads of the TLS files after a change: loaded, refused; absent without TLS";
    GENERATION Gauge "tollgate_policy_generation" []
        "Generation of the current policy, counted from 1 since the process started";
    POLICY_VALID Gauge "tollgate_policy_valid" []
        "1 if the policy file is in effect, 0 if it is invalid and an earlier version is in effect";
    POLICY_LOADED_AT Gauge "tollgate_policy_loaded_timestamp_seconds" []
        "Time at which the current policy was loaded";
    RELOADS Counter "tollgate_policy_reloads" ["outcome"]
        "Reloads of the policy file after a change or a request: loaded, refused";
    SWITCHES Gauge "tollgate_switches" ["halt"]
        "Limits that operators have switched, counting all limits together as one: shadow, off";
    OVERRIDES Gauge "tollgate_overrides" []
        "Keys with an operator's quota override";
    BLOCKS Gauge "tollgate_blocks" []
        "Keys and networks that operators have blocked";
    FLEET_NODES Gauge "tollgate_fleet_nodes" []
        "Nodes of the fleet as last reported, including this one; all fleet metrics are absent outside a fleet";
    FLEET_MISMATCH Gauge "tollgate_fleet_mismatch" ["what"]
        "Nodes that differ from this one for longer than a rollout takes: secret (each group of nodes counts separately up to the whole limit), policy";
    FLEET_REJECTED Counter "tollgate_fleet_messages_rejected" ["why"]
        "Messages in the fleet register that were ignored because they are not authentic: forged, replayed, unsigned";
    FLEET_CONTROLS_VERSION Gauge "tollgate_fleet_controls_version" []
        "Version of the operators' changes applied on this node; the same on all nodes once they are synchronised";
    FLEET_CONTROLS_WAITING Gauge "tollgate_fleet_controls_waiting" []
        "Operators' changes on this node that are not yet shared with the other nodes";
    FLEET_HEARTBEAT_AGE Gauge "tollgate_fleet_last_beat_age_seconds" []
        "Time since the last successful heartbeat of this node";
    FLEET_PANICS Counter "tollgate_fleet_panics" []
        "Panics of the fleet membership task, which was restarted";
    TICKETS_OPEN Gauge "tollgate_tickets" []
        "Tickets kept until their response is reported or they expire, including settled ones";
    TICKETS_DROPPED Counter "tollgate_tickets_given_up" []
        "Tickets dropped because the table was full";
    QUOTA_STREAMS Gauge "tollgate_quota_streams" []
        "Connected clients of Envoy's rate limit quota service";
    QUOTA_BUCKETS Gauge "tollgate_quota_buckets" []
        "Buckets with assignments, counted once for each client";
    QUOTA_REPORTS Counter "tollgate_quota_reports" []
        "Reports about buckets";
    QUOTA_ASSIGNMENTS Counter "tollgate_quota_assignments" ["outcome"]
        "Assignments sent: changed (different from the previous one, or the first), repeated";
    QUOTA_ABANDONED Counter "tollgate_quota_abandoned" []
        "Idle buckets that clients were told to abandon";
    QUOTA_REFUSED Counter "tollgate_quota_refused" []
        "Reports about buckets without an assignment: too many buckets, or an invalid id";
    ADMIN_REJECTED Counter "tollgate_admin_rejected" ["why"]
        "Requests rejected by the admin listener: token (missing or wrong), forbidden (a read token for an operation), origin (a browser on another site), flood (a wrong token while too many answers to wrong tokens are delayed)";
    LOGS_SUPPRESSED Counter "tollgate_denial_logs_suppressed" []
        "Denials not logged because of the log's rate limit";
    UNTRUSTED_GATEWAYS Counter "tollgate_untrusted_gateway_requests" []
        "Requests of gateways outside --trusted-proxies; their clients are refused";
    OPERATOR_ADJUSTMENTS Counter "tollgate_operator_adjustments" ["what"]
        "Operators' changes of a key's units: charge, refund";
    TOKENS Counter "tollgate_tokens" ["outcome"]
        "Tokens of requests whose policy reads claims: verified (by their signature), cached (verified before), or the reason why their claims are absent";
    TOKEN_SIGNATURES Counter "tollgate_token_signature_checks" []
        "Signatures of tokens that were computed";
    LOG_LINES_DROPPED Counter "tollgate_log_lines_dropped" []
        "Log lines that were dropped because nobody read stderr fast enough";
    ACCESS_LOG_LINES_DROPPED Counter "tollgate_access_log_lines_dropped" []
        "Lines of the gateway's access log that were dropped because they were not written fast enough";
    STATE_SAVES Counter "tollgate_state_saves" ["outcome"]
        "Saves of the state file (--state): saved, failed";
    STATE_SAVED_AT Gauge "tollgate_state_saved_timestamp_seconds" []
        "When the state file was last saved, in seconds since 1970";
    STATE_DAMAGED Gauge "tollgate_state_damaged" []
        "1 if the state file was damaged at the start, so that the process began without state";
    BUILD Info "tollgate_build" ["version"]
        "Version of the program";
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
        "Start time of the process in seconds since 1970";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_follow_prometheus_conventions() {
        for family in FAMILIES {
            let same = FAMILIES.iter().filter(|other| other.name == family.name);
            assert_eq!(same.count(), 1, "{}", family.name);
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(family.name.chars().all(is_plain), "{}", family.name);
            for suffix in ["_total", "_info", "_count", "_sum", "_bucket", "_created"] {
                assert!(!family.name.ends_with(suffix), "{}", family.name);
            }
            assert!(!family.help.ends_with('.') && !family.help.contains(['\\', '\n', '"']));
            assert!(!family.labels.contains(&"le"));
        }
    }

    /// Keys, addresses and headers cannot become labels.
    #[test]
    fn no_label_has_values_that_a_caller_chooses() {
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
            // Names and addresses of the policy's `gateway`, and the first digit of a status.
            "route",
            "status",
            "upstream",
            "address",
            // Names of the policy's `priorities`, and fields and modes of its `overload`.
            "class",
            "mechanism",
            "mode",
            "importance",
        ];
        for label in FAMILIES.iter().flat_map(|family| family.labels) {
            assert!(known.contains(label), "{label}: who chooses its values?");
        }
    }

    /// The documentation has this table and lists all labels.
    #[test]
    fn the_documentation_lists_every_metric_and_label() {
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
                let (suffix, type_name) = (kind.suffix(), kind.type_name());
                format!("| `{name}{suffix}` | {type_name} | {labels} | {help} |")
            })
            .collect();
        assert_eq!(rows, expected);
        for label in FAMILIES.iter().flat_map(|family| family.labels) {
            assert!(page.contains(&format!("\n| `{label}` | ")), "{label}");
        }
    }
}
