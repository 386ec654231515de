//! `tollgate explain`: prints what a policy does, or what it does with one request.
//!
//! Must not know: how explanations are made.

mod envoy;
mod policy;

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;
use tollgate_policy::attributes::Attribute;
use tollgate_policy::source::Diagnostics;

use crate::input::{self, FileKind, InputOptions};
use crate::json;
use crate::output::{Color, CommandError, print, print_error};
use crate::request_description::{self, RequestDescription, Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A policy file; `-` is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    input: InputOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also explain what a fleet does: over-admission, decisions without Redis, round trips and Redis Cluster slots. Default: only if the
    /// policy sets `fleet`, `colocate`, `consistency` or `on_store_failure`
    #[arg(long)]
    fleet: bool,
    #[command(flatten)]
    request: RequestArguments,
}

/// The flags that describe a request.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Request (explains what the policy does with it)")]
struct RequestArguments {
    /// Method and path, for example 'POST /login?next=home'
    #[arg(long, value_name = "LINE", value_parser = request_description::parse_request_line)]
    request: Option<(Box<str>, Target)>,
    /// A header, for example 'x-api-key: k'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER", value_parser = request_description::parse_header)]
    headers: Vec<(Attribute, String)>,
    /// IP address of the client
    #[arg(long, value_name = "ADDRESS", value_parser = request_description::parse_address)]
    ip: Option<IpAddr>,
    /// The host. Default: the Host header
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// A claim of a verified token, for example 'sub=ada'; may be repeated
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = request_description::parse_pair)]
    claims: Vec<(String, String)>,
    /// The entries of an Envoy descriptor in order, for example 'method=GET,path=/login'; may be repeated
    #[arg(long = "descriptor", value_name = "ENTRIES", value_parser = parse_descriptor)]
    descriptors: Vec<DescriptorArgument>,
    /// The domain of the descriptors
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
}

/// The value of one `--descriptor`.
#[derive(Clone, Debug)]
struct DescriptorArgument(Vec<(String, String)>);

fn parse_descriptor(text: &str) -> Result<DescriptorArgument, String> {
    request_description::parse_descriptor_entries(text).map(DescriptorArgument)
}

impl RequestArguments {
    /// The request for a Tollgate policy, if any flag describes one.
    fn to_request(&self) -> Option<RequestDescription> {
        let is_described = self.request.is_some()
            || self.ip.is_some()
            || self.host.is_some()
            || self.domain.is_some()
            || !self.headers.is_empty()
            || !self.claims.is_empty()
            || !self.descriptors.is_empty();
        is_described.then(|| {
            let mut request = RequestDescription::default();
            if let Some(ip) = self.ip {
                request.set_ip(ip);
            }
            if let Some(host) = &self.host {
                request.add(Attribute::Host, &request_description::normalize_host(host));
            }
            if let Some((method, target)) = &self.request {
                request.add(Attribute::Method, method);
                request.set_target(target);
            }
            for (attribute, value) in &self.headers {
                request.add(attribute.clone(), value);
            }
            for (name, value) in &self.claims {
                request.add(Attribute::Claim(name.as_str().into()), value);
            }
            for (name, value) in self.descriptors.iter().flat_map(|one| &one.0) {
                request.add(Attribute::Descriptor(name.as_str().into()), value);
                request.add(Attribute::AnyDescriptor(name.as_str().into()), value);
            }
            if let Some(domain) = &self.domain {
                request.add(Attribute::Domain, domain);
            }
            request.with_derived_attributes()
        })
    }
}

/// An explanation as text and as JSON.
#[derive(Debug)]
struct RenderedExplanation {
    text: String,
    data: serde_json::Value,
}

impl RenderedExplanation {
    fn new(explained: &(impl Serialize + std::fmt::Display)) -> Result<Self, CommandError> {
        Ok(Self {
            text: explained.to_string(),
            data: to_json(explained)?,
        })
    }
}

fn to_json(explained: &impl Serialize) -> Result<serde_json::Value, CommandError> {
    serde_json::to_value(explained).map_err(|error| CommandError::Other(error.into()))
}

/// Why a file cannot be explained.
enum ExplainError {
    Invalid(Vec<Diagnostics>),
    Failed(CommandError),
}

impl From<CommandError> for ExplainError {
    fn from(failure: CommandError) -> Self {
        Self::Failed(failure)
    }
}

/// The JSON output.
#[derive(Serialize)]
struct ExplainReport {
    ok: bool,
    file: String,
    kind: &'static str,
    /// Of the request if one is described, else of the policy.
    explanation: Option<serde_json::Value>,
    #[serde(flatten)]
    wrong: json::ProblemReport,
}

/// Explains a policy. Returns whether the policy is valid.
pub(crate) fn explain(options: &Options, color: Color) -> Result<bool, CommandError> {
    let (name, kind, result) = match input::read(&options.file, options.input) {
        Err(problems) => (
            problems.file.to_string(),
            FileKind::Policy,
            Err(ExplainError::Invalid(vec![problems])),
        ),
        Ok(source) => {
            let result = match source.kind {
                FileKind::Envoy => envoy::explain(&source, &options.request),
                FileKind::Policy => policy::explain(&source, &options.request, options.fleet),
                FileKind::Tests => Err(ExplainError::Invalid(vec![input::file_problem(
                    &source.name,
                    "this is a test file, not a policy",
                    "explain the policy that its field `policy` names",
                )])),
            };
            (source.name, source.kind, result)
        }
    };
    let (rendered, problems) = match result {
        Ok(rendered) => (Some(rendered), Vec::new()),
        Err(ExplainError::Invalid(problems)) => (None, problems),
        Err(ExplainError::Failed(failure)) => return Err(failure),
    };
    let ok = rendered.is_some();
    let (text, explanation) = match rendered {
        Some(rendered) => (rendered.text, Some(rendered.data)),
        None => (String::new(), None),
    };
    if options.json {
        json::print_json(&ExplainReport {
            ok,
            file: name,
            kind: kind.as_str(),
            explanation,
            wrong: json::problem_report(&problems),
        })?;
        return Ok(ok);
    }
    print(&text)?;
    let colour = color.is_enabled_on_stderr();
    problems
        .iter()
        .for_each(|file| print_error(&file.render(colour)));
    Ok(ok)
}
