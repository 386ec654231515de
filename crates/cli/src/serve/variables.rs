//! Warns about environment variables that look like settings and are none: misspelt ones and former names.
//!
//! Must not know: what the settings mean. It never logs a value, which may be a secret.

use clap::Args as _;
use tollgate_policy::grammar::nearest_name;

use super::settings::{FORMER_HEADERS, HEADERS, Options, headers_variable};

/// The prefix of all our variables.
const PREFIX: &str = "TOLLGATE_";
/// Variables with secrets. They have no flag, because every user of the machine can read command lines.
const SECRETS: [&str; 5] = [
    super::tokens::READ_TOKEN_VARIABLE,
    super::tokens::OPERATE_TOKEN_VARIABLE,
    super::settings::PASSWORD_VARIABLE,
    super::settings::FLEET_SECRET,
    super::settings::RESP_PASSWORD,
];

/// Logs a warning for each variable that begins like ours and is ignored or will be.
pub(super) fn warn_about_variables() {
    if headers_variable() == FORMER_HEADERS {
        tracing::warn!(
            former = FORMER_HEADERS,
            new = HEADERS,
            "variable was renamed; the next release ignores the former name"
        );
    }
    let known = known_variables();
    for (name, value) in std::env::vars_os() {
        let (Some(name), value) = (name.to_str(), value.to_string_lossy()) else {
            continue;
        };
        if is_unknown(name, &value, &known) {
            let did_you_mean = suggest(name, &known);
            tracing::warn!(variable = name, did_you_mean, "unknown variable is ignored");
        }
    }
}

/// The variables of all settings.
fn known_variables() -> Vec<String> {
    let serve = Options::augment_args(clap::Command::new("serve"));
    let of_flags = serve.get_arguments().filter_map(clap::Arg::get_env);
    let of_flags = of_flags.map(|name| name.to_string_lossy().into_owned());
    let others = SECRETS.into_iter().chain([HEADERS, FORMER_HEADERS]);
    of_flags.chain(others.map(str::to_owned)).collect()
}

fn is_unknown(name: &str, value: &str, known: &[String]) -> bool {
    name.starts_with(PREFIX)
        && !known.iter().any(|known| known == name)
        && !is_from_kubernetes(name, value)
}

/// The known variable that was probably meant. The prefix is left out, because it makes all names alike.
fn suggest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let name = name.strip_prefix(PREFIX)?;
    match name {
        "PORT" | "ADDR" | "ADDRESS" | "BIND" | "HOST" => return Some("TOLLGATE_LISTEN"),
        "LOG_LEVEL" => return Some("TOLLGATE_LOG"),
        "POLICY" | "POLICY_FILE" | "FILE" => return Some("TOLLGATE_CONFIG"),
        _ => {}
    }
    let stems = known.iter().filter_map(|known| known.strip_prefix(PREFIX));
    let nearest = nearest_name(name, stems)?;
    let is_nearest = |known: &&String| known.strip_prefix(PREFIX) == Some(nearest);
    known.iter().find(is_nearest).map(String::as_str)
}

/// Whether Kubernetes sets the variable in every pod beside a service whose name begins with `tollgate`, as in
/// `TOLLGATE_SERVICE_HOST`, `TOLLGATE_SERVICE_PORT_HTTP`, `TOLLGATE_PORT=tcp://…` and `TOLLGATE_PORT_8080_TCP_ADDR`.
fn is_from_kubernetes(name: &str, value: &str) -> bool {
    let has_protocol = |rest: &str| {
        let mut parts = rest.splitn(3, '_');
        let port = parts.next().is_some_and(|port| port.parse::<u16>().is_ok());
        port && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && value.contains("://"))
        || name
            .split_once("_PORT_")
            .is_some_and(|(_, rest)| has_protocol(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `TOLLGATE_LISTEN_RPC=…` was ignored without a word, and the server listened where nobody asked.
    #[test]
    fn misspelt_variables_are_found_and_get_a_suggestion() {
        let known = known_variables();
        for (name, suggestion) in [
            ("TOLLGATE_LISTEN_RPC", Some("TOLLGATE_LISTEN_GRPC")),
            ("TOLLGATE_CONFG", Some("TOLLGATE_CONFIG")),
            ("TOLLGATE_TRUSTED_PROXY", Some("TOLLGATE_TRUSTED_PROXIES")),
            ("TOLLGATE_FLEET_SECERT", Some("TOLLGATE_FLEET_SECRET")),
            ("TOLLGATE_LOG_LEVEL", Some("TOLLGATE_LOG")),
            ("TOLLGATE_POLICY", Some("TOLLGATE_CONFIG")),
            ("TOLLGATE_PORT", Some("TOLLGATE_LISTEN")),
            ("TOLLGATE_WEATHER", None),
        ] {
            assert!(is_unknown(name, "8080", &known), "{name}");
            assert_eq!(suggest(name, &known), suggestion, "{name}");
        }
        for name in [
            "TOLLGATE_LISTEN",
            "TOLLGATE_WORDS",
            "TOLLGATE_RESP_PASSWORD",
            "PATH",
        ] {
            assert!(!is_unknown(name, "", &known), "{name}");
        }
    }

    #[test]
    fn variables_that_kubernetes_injects_are_not_settings() {
        let known = known_variables();
        for (name, value) in [
            ("TOLLGATE_SERVICE_HOST", "10.0.0.1"),
            ("TOLLGATE_SERVICE_PORT", "8080"),
            ("TOLLGATE_SERVICE_PORT_HTTP", "8080"),
            ("TOLLGATE_PORT", "tcp://10.0.0.1:8080"),
            ("TOLLGATE_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("TOLLGATE_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("TOLLGATE_PORT_8081_UDP_PROTO", "udp"),
            ("TOLLGATE_REDIS_PORT", "tcp://10.0.0.2:6379"),
            ("TOLLGATE_REDIS_SERVICE_HOST", "10.0.0.2"),
            ("TOLLGATE_ADMIN_PORT_8088_TCP_PORT", "8088"),
        ] {
            assert!(!is_unknown(name, value, &known), "{name}");
        }
        for name in ["TOLLGATE_PORT", "TOLLGATE_PORT_HTTP", "TOLLGATE_SERVICE"] {
            assert!(is_unknown(name, "8080", &known), "{name}");
        }
    }

    /// No setting may have a name that Kubernetes could inject.
    #[test]
    fn no_setting_looks_injected() {
        for name in known_variables() {
            assert!(!is_from_kubernetes(&name, "tcp://10.0.0.1:80"), "{name}");
        }
    }
}
