//! The priority classes of compiled rules: which class a request belongs to.
//!
//! Classes are matched by an index of their own, as a list of denials is: the first class that matches counts. Must not know:
//! what is shed.

use super::matched_rules::{ListVerdict, MatchedRules};
use super::{RuleError, Rules, RulesDraft};
use crate::attributes::Attributes;
use crate::model::{DenyRule, OverloadSpec, PathSettings, PriorityClassSpec, RetrySource};

/// The classes of a policy and what sheds them.
#[derive(Debug)]
pub struct PriorityRules {
    names: Box<[Box<str>]>,
    /// The class of each entry of the index.
    matched_classes: Box<[usize]>,
    /// The class of requests that match no other.
    default_class: usize,
    /// The classes with conditions, as a list of denials.
    index: Box<Rules>,
    overload: OverloadSpec,
    retries: RetrySource,
}

impl PriorityRules {
    /// Compiles classes. Without any, there is one class.
    ///
    /// # Errors
    /// A condition exceeds a bound.
    pub(crate) fn new(
        classes: &[PriorityClassSpec],
        (overload, retries): (OverloadSpec, RetrySource),
        paths: PathSettings,
        secret: [u8; 16],
    ) -> Result<Self, Vec<RuleError>> {
        let (mut deny, mut matched_classes) = (Vec::new(), Vec::new());
        for (index, class) in classes.iter().enumerate() {
            if let Some(matching) = &class.matching {
                matched_classes.push(index);
                deny.push(DenyRule {
                    matching: matching.clone(),
                    status: 503,
                    message: None,
                });
            }
        }
        let index = RulesDraft {
            deny,
            paths,
            ..RulesDraft::default()
        };
        let names = classes.iter().map(|class| class.name.value.clone());
        let default_class = classes.iter().position(|class| class.matching.is_none());
        Ok(Self {
            names: match classes.is_empty() {
                true => Box::new([Box::from("default")]),
                false => names.collect(),
            },
            matched_classes: matched_classes.into(),
            default_class: default_class.unwrap_or(0),
            index: Box::new(Rules::new(index, secret)?),
            overload,
            retries,
        })
    }

    /// The class of a request, by its place in the order of classes.
    #[must_use]
    pub fn class_of(&self, request: &dyn Attributes) -> usize {
        if self.matched_classes.is_empty() {
            return self.default_class;
        }
        let mut matched = MatchedRules::new();
        self.index.match_rules(request, &mut matched);
        let ListVerdict::Denied(entry) = matched.list_verdict else {
            return self.default_class;
        };
        let class = self.matched_classes.get(entry).copied();
        let class = class.unwrap_or(self.default_class);
        // A spelling that servers read differently must not make a request more important.
        match matched.is_ambiguous() {
            true => class.max(self.default_class),
            false => class,
        }
    }

    /// The names of the classes, the most important first.
    #[must_use]
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// How retries are recognised.
    #[must_use]
    pub const fn retries(&self) -> &RetrySource {
        &self.retries
    }

    /// Which mechanisms shed.
    #[must_use]
    pub const fn overload(&self) -> &OverloadSpec {
        &self.overload
    }
}
