//! Explains files of envoyproxy/ratelimit: their rules, and which rule applies to each descriptor of a request.
//!
//! Must not know: flags.

use std::fmt::Write as _;

use serde::Serialize;
use tollgate_envoy::config::{
    self, ChargePlan, Descriptor, DescriptorEntry, EnvoyPolicy, InvalidFiles, RlsRequest, RuleQuota,
};

use super::{ExplainError, RenderedExplanation, RequestArguments, to_json};
use crate::input::SourceFile;
use crate::output::CommandError;

pub(super) fn explain(
    source: &SourceFile,
    arguments: &RequestArguments,
) -> Result<RenderedExplanation, ExplainError> {
    let policy = config::load(&[(&source.name, &source.text)])
        .map_err(|InvalidFiles(problems)| ExplainError::Invalid(problems))?;
    if !arguments.descriptors.is_empty() {
        return explain_request(&policy, arguments);
    }
    if arguments.to_request().is_some() {
        return Err(usage_error(
            "envoyproxy/ratelimit decides only by descriptors: pass --descriptor, for example --descriptor 'method=GET'",
        ));
    }
    let rules: Vec<_> = policy.explain().collect();
    let mut words = String::new();
    for rule in &rules {
        words += &format!("{rule}\n");
    }
    if rules.is_empty() {
        words += "no limits: every request is admitted\n";
    }
    Ok(RenderedExplanation {
        text: words,
        data: to_json(&RulesExplanation { rules: &rules })?,
    })
}

#[derive(Serialize)]
struct RulesExplanation<'a> {
    rules: &'a [config::RuleExplanation<'a>],
}

/// Which rule applies to one descriptor of a request.
#[derive(Serialize)]
struct DescriptorExplanation<'a> {
    descriptor: String,
    applies: bool,
    rule: Option<&'a str>,
    words: String,
}

#[derive(Serialize)]
struct DescriptorsExplanation<'a> {
    domain: &'a str,
    descriptors: Vec<DescriptorExplanation<'a>>,
}

fn explain_request(
    policy: &EnvoyPolicy,
    arguments: &RequestArguments,
) -> Result<RenderedExplanation, ExplainError> {
    let domains: Vec<_> = policy.domains().collect();
    let domain = match (arguments.domain.as_deref(), domains.as_slice()) {
        (Some(domain), _) => domain,
        (None, [only]) => only,
        (None, _) => {
            return Err(usage_error(
                "the file has several domains: choose one with --domain",
            ));
        }
    };
    let entries: Vec<Vec<DescriptorEntry<'_>>> = arguments
        .descriptors
        .iter()
        .map(|one| {
            one.0
                .iter()
                .map(|(key, value)| DescriptorEntry::new(key, value))
                .collect()
        })
        .collect();
    let descriptors: Vec<_> = entries.iter().map(|one| Descriptor::new(one)).collect();
    let request = RlsRequest::new(domain, &descriptors);
    let plan = policy
        .plan(&request)
        .map_err(|error| usage_error(&format!("--descriptor: {error}")))?;
    let explanation = DescriptorsExplanation {
        domain,
        descriptors: (0..descriptors.len())
            .map(|index| explain_descriptor(policy, &plan, &descriptors, index))
            .collect(),
    };
    let mut words = String::new();
    if !domains.contains(&domain) {
        words += &format!("there is no domain {domain}: every request is admitted\n");
    }
    for one in &explanation.descriptors {
        // Writing to a string cannot fail.
        writeln!(words, "{}\n  {}", one.descriptor, one.words).ok();
    }
    Ok(RenderedExplanation {
        text: words,
        data: to_json(&explanation)?,
    })
}

fn explain_descriptor<'a>(
    policy: &'a EnvoyPolicy,
    plan: &ChargePlan<'a>,
    descriptors: &[Descriptor<'_>],
    index: usize,
) -> DescriptorExplanation<'a> {
    let entries = descriptors.get(index).map_or(&[][..], |one| one.entries);
    let name: Vec<_> = entries
        .iter()
        .map(|entry| format!("{}={}", entry.key, entry.value))
        .collect();
    let rule = plan.rule(index);
    let is_counted = plan.charges().any(|charge| charge.descriptor == index);
    let words = match rule {
        None => "no rule has exactly these entries: admitted, not counted".to_owned(),
        Some(rule) => {
            let mut all = policy.explain();
            let words = all.find(|explained| std::ptr::eq(explained.rule(), rule));
            let words = words.map_or(String::new(), |words| words.to_string());
            let replaced = !is_counted && rule.quota != RuleQuota::Unlimited;
            match replaced {
                true => {
                    format!("{words}; another rule replaces it here, so it is not counted")
                }
                false => words,
            }
        }
    };
    DescriptorExplanation {
        descriptor: name.join(","),
        applies: is_counted || rule.is_some_and(|rule| rule.quota == RuleQuota::Unlimited),
        rule: rule.map(|rule| &*rule.name),
        words,
    }
}

fn usage_error(message: &str) -> ExplainError {
    ExplainError::Failed(CommandError::Usage(message.to_owned()))
}
