//! The policy that a test file names.
//!
//! Must not know: tests, expectations.

use std::path::Path;

use tollgate_core::Timestamp;
use tollgate_envoy::config::{self, EnvoyPolicy, InvalidFiles};
use tollgate_policy::model::Policy;
use tollgate_policy::source::{Diagnostic, Diagnostics, Located};

use super::envoy::EnvoyTarget;
use super::model::PolicyTest;
use super::native::NativeTarget;
use super::target::TestTarget;
use crate::input::{self, FileKind, InputOptions, SourceFile};

/// A policy under test.
#[derive(Debug)]
pub(super) enum TestedPolicy {
    Native(Box<Policy>),
    Envoy {
        policy: Box<EnvoyPolicy>,
        /// Its files, because every test loads its own copy.
        sources: Vec<SourceFile>,
    },
}

/// Why the policy under test cannot be loaded.
#[derive(Debug)]
pub(super) enum TestedPolicyError {
    /// The policy is not valid.
    Policy(Vec<Diagnostics>),
    /// The test file names it wrongly.
    Reference(Diagnostic),
}

impl TestedPolicy {
    /// Loads the policy files that a test file names.
    pub(super) fn load(
        file: &Path,
        named: &[Located<Box<str>>],
    ) -> Result<Self, TestedPolicyError> {
        let mut sources = Vec::new();
        for name in named {
            let path = input::resolve_beside(file, &name.value);
            if !path.exists() {
                return Err(TestedPolicyError::Reference(Diagnostic::new(
                    name.location,
                    format!("there is no file {}", path.display()),
                    "paths are relative to the folder of this file",
                )));
            }
            let source = input::read(&path, InputOptions::DEFAULT);
            sources.push(source.map_err(|problems| TestedPolicyError::Policy(vec![problems]))?);
        }
        match (sources.as_slice(), named) {
            ([only], [name]) if only.kind != FileKind::Envoy => load_native(only, name),
            (all, [name, ..]) if all.iter().any(|source| source.kind != FileKind::Envoy) => {
                Err(TestedPolicyError::Reference(Diagnostic::new(
                    name.location,
                    "only files of envoyproxy/ratelimit can be tested together",
                    "name one policy",
                )))
            }
            (all, _) => {
                let policy = load_envoy_files(all);
                let policy =
                    policy.map_err(|InvalidFiles(list)| TestedPolicyError::Policy(list))?;
                Ok(Self::Envoy {
                    policy: Box::new(policy),
                    sources,
                })
            }
        }
    }

    /// Starts an engine with an empty store.
    pub(super) fn start(&self, start: Timestamp) -> Result<Box<dyn TestTarget + '_>, String> {
        Ok(match self {
            Self::Native(policy) => Box::new(NativeTarget::new(policy, start)?),
            Self::Envoy { policy, sources } => {
                let own = load_envoy_files(sources).map_err(|refused| refused.to_string())?;
                Box::new(EnvoyTarget::new(policy, own, start)?)
            }
        })
    }

    /// Reports fields of steps that have no effect with this kind of policy.
    pub(super) fn unsupported_fields(&self, tests: &[PolicyTest]) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        for step in tests.iter().flat_map(|test| &test.steps) {
            let (unsupported, kind) = match self {
                Self::Native(_) => (
                    vec![("hits", step.template.hits.is_some())],
                    "a Tollgate policy",
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
            for (field, _) in unsupported.into_iter().filter(|(_, is_set)| *is_set) {
                problems.push(Diagnostic::new(
                    step.place,
                    format!("`{field}` has no effect with {kind}"),
                    format!("remove `{field}`"),
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
fn load_envoy_files(sources: &[SourceFile]) -> Result<EnvoyPolicy, InvalidFiles> {
    let files = sources.iter().map(|one| (&*one.name, &*one.text));
    config::load(&files.collect::<Vec<_>>())
}

fn load_native(
    source: &SourceFile,
    named: &Located<Box<str>>,
) -> Result<TestedPolicy, TestedPolicyError> {
    if source.kind == FileKind::Tests {
        return Err(TestedPolicyError::Reference(Diagnostic::new(
            named.location,
            format!("{} is a test file, not a policy", source.name),
            "name the policy under test",
        )));
    }
    let policy = tollgate_policy::load(&source.text, &source.name, source.format);
    policy
        .map(|policy| TestedPolicy::Native(Box::new(policy)))
        .map_err(|problems| TestedPolicyError::Policy(vec![problems]))
}
