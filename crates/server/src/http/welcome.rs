//! The welcome page: the policy in plain words and commands to try.
//!
//! Must not know: HTTP, terminals.

use tollgate_policy::explain::{Explanation, LimitExplanation};

use crate::listen::LocalEndpoint;

/// The page lists at most this many limits, and the number of all others.
const MAX_LISTED: usize = 12;

/// The welcome page of a server reached at `endpoint`. `also` are further commands to try, one per line.
pub(crate) fn policy_welcome(
    endpoint: &LocalEndpoint,
    policy: &Explanation,
    also: &[String],
) -> String {
    let (curl, url) = (endpoint.curl(), endpoint.url());
    let check = format!("{url}/v1/check");
    let also: String = also.iter().map(|line| format!("  {line}\n")).collect();
    let mut limits = String::new();
    if let Some(mode) = &policy.mode {
        limits.push_str(&format!("  {mode}\n"));
    }
    if policy.limits.is_empty() {
        limits.push_str("  there are no limits: every request is admitted\n");
    }
    for limit in policy.limits.iter().take(MAX_LISTED) {
        limits.push_str(&format!("  {}\n", describe_limit(limit)));
    }
    if let Some(more @ 1..) = policy.limits.len().checked_sub(MAX_LISTED) {
        limits.push_str(&format!("  and {more} more: {curl} -s {url}/v1/limits\n"));
    }
    format!(
        "Tollgate, a rate limiter. Ask it whether a request may proceed:\n\
         \n\
         {limits}\
         \n\
         Try it:\n\
         \x20 {curl} -i '{check}?key=alice'\n\
         \x20 for i in $(seq 25); do {curl} -s -o /dev/null -w '%{{http_code}} ' '{check}?key=bob'; done; echo\n\
         \x20 {curl} -s --json '{{\"attributes\": {{\"ip\": \"192.0.2.7\", \"path\": \"/login\", \"method\": \"POST\"}}}}' {check}\n\
         {also}\
         \n\
         Everything else: {url}/openapi.json\n"
    )
}

/// The welcome page of a server that decides by envoyproxy/ratelimit configuration.
pub(crate) fn envoy_welcome(endpoint: &LocalEndpoint, rules: &[String], also: &[String]) -> String {
    let (curl, url) = (endpoint.curl(), endpoint.url());
    let also: String = also.iter().map(|line| format!("  {line}\n")).collect();
    let mut shown: String = rules
        .iter()
        .take(MAX_LISTED)
        .map(|rule| format!("  {rule}\n"))
        .collect();
    if rules.is_empty() {
        shown.push_str("  there are no limits: every request is admitted\n");
    }
    if let Some(more @ 1..) = rules.len().checked_sub(MAX_LISTED) {
        shown.push_str(&format!("  and {more} more\n"));
    }
    format!(
        "Tollgate, a rate limiter, by files of envoyproxy/ratelimit. Point Envoy's rate limit service at its gRPC address.\n\
         \n\
         {shown}\
         \n\
         Try it:\n\
         \x20 {curl} -s --json '{{\"domain\": \"DOMAIN\", \"descriptors\": [{{\"entries\": [{{\"key\": \"KEY\", \"value\": \"VALUE\"}}]}}]}}' {url}/json\n\
         \x20 {curl} -s {url}/healthcheck\n\
         {also}\
         \n\
         Everything else: {url}/openapi.json\n"
    )
}

/// One limit as a line of text.
fn describe_limit(limit: &LimitExplanation) -> String {
    let first = limit.quotas.first();
    let windows = first.map_or(&[][..], |quota| &quota.windows);
    let words: Vec<&str> = windows.iter().map(|window| window.words.as_str()).collect();
    let words = match words.is_empty() {
        true => "no limit".to_owned(),
        false => words.join(", and "),
    };
    let mode = match limit.mode.as_str() {
        "enforced" => String::new(),
        other => format!(" ({other})"),
    };
    format!(
        "{}{mode}: {}; for {}; {words}",
        limit.name, limit.applies_to, limit.per
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::explain::explain;
    use tollgate_policy::load;
    use tollgate_policy::source::SourceFormat;

    fn welcome(text: &str) -> String {
        let policy = load(text, "a.yaml", SourceFormat::Yaml).unwrap();
        let endpoint = LocalEndpoint::Tcp(([127, 0, 0, 1], 80).into());
        policy_welcome(&endpoint, &explain(&policy).unwrap(), &[])
    }

    #[test]
    fn a_limit_is_one_line() {
        let text = welcome("limits: [{ name: a, rate: 10/s, burst: 20, mode: shadow }]");
        let line = "  a (shadow: counted, never enforced): every request; for everyone together; at most 20 at once, \
                    then one every 100 ms; never more than 30 in any second\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_long_policy_does_not_fill_the_screen() {
        let limits: String = (0..15)
            .map(|n| format!("  - {{ name: l{n}, rate: 1/s }}\n"))
            .collect();
        let text = welcome(&format!("limits:\n{limits}"));
        assert!(text.contains("l11:") && !text.contains("l12:"), "{text}");
        assert!(text.contains("  and 3 more: "), "{text}");
    }
}
