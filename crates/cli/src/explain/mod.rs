//! `tollgate explain`: what a policy does in plain words, or what it does with one request.
//!
//! Must not know: how it is found out.

mod envoy;
mod policy;

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;
use tollgate_policy::attributes::Attribute;
use tollgate_policy::source::Problems;

use crate::input::{self, How, Kind};
use crate::json;
use crate::output::{Color, Failure, complain, print};
use crate::request::{self, Request, Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A policy file; `-` is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    how: How,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

/// The request to be explained.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The request, where one is to be explained")]
struct Asked {
    /// Method and path, as in 'POST /login?next=home'
    #[arg(long, value_name = "LINE", value_parser = request::line)]
    request: Option<(Box<str>, Target)>,
    /// A header, as in 'x-api-key: k'; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "HEADER", value_parser = request::header)]
    headers: Vec<(Attribute, String)>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", value_parser = request::address)]
    ip: Option<IpAddr>,
    /// The host, instead of the one in the Host header
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// A claim of a verified token, as in 'sub=ada'; may be given more than once
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = request::pair)]
    claims: Vec<(String, String)>,
    /// The entries of a descriptor in order, as in 'method=GET,path=/login'; may be given more than once
    #[arg(long = "descriptor", value_name = "ENTRIES", value_parser = entries)]
    descriptors: Vec<Entries>,
    /// The domain of descriptors
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
}

/// The entries of one descriptor.
#[derive(Clone, Debug)]
struct Entries(Vec<(String, String)>);

fn entries(text: &str) -> Result<Entries, String> {
    request::entries(text).map(Entries)
}

impl Asked {
    /// The request as policies of ours see it, if one is asked about.
    fn request(&self) -> Option<Request> {
        let is_asked = self.request.is_some()
            || self.ip.is_some()
            || self.host.is_some()
            || self.domain.is_some()
            || !self.headers.is_empty()
            || !self.claims.is_empty()
            || !self.descriptors.is_empty();
        is_asked.then(|| {
            let mut request = Request::default();
            if let Some(ip) = self.ip {
                request.from(ip);
            }
            if let Some(host) = &self.host {
                request.say(Attribute::Host, &request::host(host));
            }
            if let Some((method, target)) = &self.request {
                request.say(Attribute::Method, method);
                request.go_to(target);
            }
            for (attribute, value) in &self.headers {
                request.say(attribute.clone(), value);
            }
            for (name, value) in &self.claims {
                request.say(Attribute::Claim(name.as_str().into()), value);
            }
            for (name, value) in self.descriptors.iter().flat_map(|one| &one.0) {
                request.say(Attribute::Descriptor(name.as_str().into()), value);
            }
            if let Some(domain) = &self.domain {
                request.say(Attribute::Domain, domain);
            }
            request.finish()
        })
    }
}

/// An explanation, for people and for programs.
#[derive(Debug)]
struct Said {
    words: String,
    data: serde_json::Value,
}

impl Said {
    fn new(explained: &(impl Serialize + std::fmt::Display)) -> Result<Self, Failure> {
        Ok(Self {
            words: explained.to_string(),
            data: data(explained)?,
        })
    }
}

fn data(explained: &impl Serialize) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(explained).map_err(|error| Failure::Other(error.into()))
}

/// Why there is no explanation.
enum Unexplained {
    Wrong(Vec<Problems>),
    Failed(Failure),
}

impl From<Failure> for Unexplained {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer {
    ok: bool,
    file: String,
    kind: &'static str,
    /// Of the policy, or of the request if one is asked about.
    explanation: Option<serde_json::Value>,
    #[serde(flatten)]
    wrong: json::Wrong,
}

/// Explains a policy. Answers whether it could be explained.
pub(crate) fn explain(options: &Options, color: Color) -> Result<bool, Failure> {
    let (name, kind, result) = match input::read(&options.file, options.how) {
        Err(problems) => (
            problems.file.to_string(),
            Kind::Policy,
            Err(Unexplained::Wrong(vec![problems])),
        ),
        Ok(source) => {
            let result = match source.kind {
                Kind::Envoy => envoy::explain(&source, &options.asked),
                Kind::Policy => policy::explain(&source, &options.asked),
                Kind::Tests => Err(Unexplained::Wrong(vec![input::refused(
                    &source.name,
                    "this is a file of tests, not a policy",
                    "explain the policy that it names after `policy:`",
                )])),
            };
            (source.name, source.kind, result)
        }
    };
    let (said, problems) = match result {
        Ok(said) => (Some(said), Vec::new()),
        Err(Unexplained::Wrong(problems)) => (None, problems),
        Err(Unexplained::Failed(failure)) => return Err(failure),
    };
    let ok = said.is_some();
    let (words, explanation) =
        said.map_or((String::new(), None), |said| (said.words, Some(said.data)));
    if options.json {
        json::answer(&Answer {
            ok,
            file: name,
            kind: kind.word(),
            explanation,
            wrong: json::wrong(&problems),
        })?;
        return Ok(ok);
    }
    print(&words)?;
    let colour = color.on(&std::io::stderr());
    problems
        .iter()
        .for_each(|file| complain(&file.render(colour)));
    Ok(ok)
}
