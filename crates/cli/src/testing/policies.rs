//! The policy that a file of tests is about.
//!
//! Must not know: tests, expectations.

use std::path::Path;

use tollgate_core::Timestamp;
use tollgate_envoy::config::{self, EnvoyPolicy, FilesRefused};
use tollgate_policy::model::Policy;
use tollgate_policy::source::{At, Diagnostic, Problems};

use super::envoy::Envoy;
use super::model::Test;
use super::native::Native;
use super::subject::Subject;
use crate::input::{self, How, Kind, Source};

/// A policy under test.
#[derive(Debug)]
pub(super) enum Tested {
    Native(Box<Policy>),
    Envoy {
        policy: EnvoyPolicy,
        /// Its files, because every test has a policy of its own.
        sources: Vec<Source>,
    },
}

/// Why there is no policy to test.
#[derive(Debug)]
pub(super) enum Untested {
    /// It is wrong itself.
    Policy(Vec<Problems>),
    /// The file of tests names it wrongly.
    Named(Diagnostic),
}

impl Tested {
    /// Loads what a file of tests names.
    pub(super) fn load(file: &Path, named: &[At<Box<str>>]) -> Result<Self, Untested> {
        let mut sources = Vec::new();
        for name in named {
            let path = input::beside(file, &name.value);
            if !path.exists() {
                return Err(Untested::Named(Diagnostic::new(
                    name.place,
                    format!("there is no file {}", path.display()),
                    "paths count from the folder of this file",
                )));
            }
            let source = input::read(&path, How::BY_NAME);
            sources.push(source.map_err(|problems| Untested::Policy(vec![problems]))?);
        }
        match (sources.as_slice(), named) {
            ([only], [name]) if only.kind != Kind::Envoy => native(only, name),
            (all, [name, ..]) if all.iter().any(|source| source.kind != Kind::Envoy) => {
                Err(Untested::Named(Diagnostic::new(
                    name.place,
                    "only files of envoyproxy/ratelimit can be tested together",
                    "name one policy",
                )))
            }
            (all, _) => {
                let policy = together(all);
                let policy = policy.map_err(|FilesRefused(list)| Untested::Policy(list))?;
                Ok(Self::Envoy { policy, sources })
            }
        }
    }

    /// Puts it to work, with nothing used yet.
    pub(super) fn put_to_work(&self, start: Timestamp) -> Result<Box<dyn Subject + '_>, String> {
        Ok(match self {
            Self::Native(policy) => Box::new(Native::new(policy, start)?),
            Self::Envoy { policy, sources } => {
                let own = together(sources).map_err(|refused| refused.to_string())?;
                Box::new(Envoy::new(policy, own, start)?)
            }
        })
    }

    /// What tests say that means nothing to this kind of policy, and would only look as if it was tested.
    pub(super) fn misfits(&self, tests: &[Test]) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        for step in tests.iter().flat_map(|test| &test.steps) {
            let (said, kind) = match self {
                Self::Native(_) => (
                    vec![("hits", step.asked.hits.is_some())],
                    "a policy that is not of envoyproxy/ratelimit",
                ),
                Self::Envoy { .. } => (
                    vec![
                        ("hold", step.hold.is_some()),
                        ("finish", step.finish.is_some()),
                        ("cost", step.cost.is_some()),
                    ],
                    "files of envoyproxy/ratelimit",
                ),
            };
            for (field, _) in said.into_iter().filter(|(_, is_said)| *is_said) {
                problems.push(Diagnostic::new(
                    step.place,
                    format!("`{field}` means nothing to {kind}"),
                    format!("leave `{field}` out"),
                ));
            }
        }
        problems
    }

    /// The names of its limits, and of their levels as `limit/level`.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Native(policy) => {
                let mut names = Vec::new();
                for limit in &policy.limits {
                    names.push(limit.name.value.to_string());
                    let levels = limit.levels.iter();
                    names.extend(
                        levels.map(|level| format!("{}/{}", limit.name.value, level.name.value)),
                    );
                }
                names
            }
            Self::Envoy { policy, .. } => {
                let rules = policy.rules().iter();
                rules.map(|rule| rule.name.to_string()).collect()
            }
        }
    }
}

/// Loads files of envoyproxy/ratelimit as one set.
fn together(sources: &[Source]) -> Result<EnvoyPolicy, FilesRefused> {
    let files = sources.iter().map(|one| (&*one.name, &*one.text));
    config::load(&files.collect::<Vec<_>>())
}

fn native(source: &Source, named: &At<Box<str>>) -> Result<Tested, Untested> {
    if source.kind == Kind::Tests {
        return Err(Untested::Named(Diagnostic::new(
            named.place,
            format!("{} is a file of tests, not a policy", source.name),
            "name the policy that is to be tested",
        )));
    }
    let policy = tollgate_policy::load(&source.text, &source.name, source.format);
    policy
        .map(|policy| Tested::Native(Box::new(policy)))
        .map_err(|problems| Untested::Policy(vec![problems]))
}
