//! The conditions of a limit in the form that the search compares: normalized like requests, letters in one case.
//!
//! Upper and lower case of paths and hosts are not told apart, because a request may be read in both. Must not know:
//! how values are divided.

use std::net::IpAddr;

use super::super::glob_pattern::GlobPattern;
use super::super::matcher::{compile_glob_of, normalize_value_of};
use super::super::network_index;
use super::super::path;
use crate::attributes::Attribute;
use crate::model::{IpNet, Match, Template, Test};

/// The conditions of one limit, by the index of their attribute.
#[derive(Debug)]
pub(super) struct LimitConditions {
    pub(super) list: Vec<(usize, Requirement)>,
}

/// What a limit requires of one attribute. Everything but `Absent` requires that it is present.
#[derive(Debug)]
pub(super) enum Requirement {
    /// Any value, or a condition that is not compared.
    Present,
    Absent,
    OneOf(Vec<Box<[u8]>>),
    NotOneOf(Vec<Box<[u8]>>),
    Glob(Vec<GlobPattern>),
    NotGlob(Vec<GlobPattern>),
    Within(Vec<IpNet>),
    NotWithin(Vec<IpNet>),
    Route(Vec<RouteTemplate>),
    NotRoute(Vec<RouteTemplate>),
}

/// The segments of a template; `None` for `{x}`.
#[derive(Debug)]
pub(super) struct RouteTemplate {
    pub(super) segments: Vec<Option<Box<[u8]>>>,
    /// It ends in `{*x}`.
    pub(super) has_catch_all: bool,
}

impl LimitConditions {
    pub(super) fn new(matching: &Match, mut index: impl FnMut(&Attribute) -> usize) -> Self {
        let conditions = matching.conditions.iter().filter_map(|condition| {
            let condition = &condition.value;
            let requirement = Requirement::new(&condition.attribute, &condition.test);
            // Any other condition on a route is about the transport's route, which may be any.
            let is_route = matches!(
                requirement,
                Requirement::Route(_) | Requirement::NotRoute(_)
            );
            let is_compared = is_route || condition.attribute != Attribute::Route;
            is_compared.then(|| (index(&condition.attribute), requirement))
        });
        Self {
            list: conditions.collect(),
        }
    }

    /// Whether a condition requires the absence of one of these attributes.
    pub(super) fn excludes(&self, required: &[usize]) -> bool {
        self.list.iter().any(|(attribute, requirement)| {
            matches!(requirement, Requirement::Absent) && required.contains(attribute)
        })
    }
}

impl Requirement {
    fn new(attribute: &Attribute, test: &Test) -> Self {
        let is_address = *attribute == Attribute::Ip;
        match test {
            Test::Absent => Self::Absent,
            Test::OneOf(values) if is_address => Self::Within(addresses(values)),
            Test::Within(networks) => Self::Within(canonical(networks)),
            Test::OneOf(values) => Self::OneOf(normalized(attribute, values)),
            Test::Glob(globs) if !is_address => {
                let globs = globs.iter().map(|glob| compile(attribute, &glob.0));
                globs
                    .collect::<Option<_>>()
                    .map_or(Self::Present, Self::Glob)
            }
            Test::Route(templates) => Self::Route(parsed(templates)),
            Test::Not(inner) => match Self::new(attribute, inner) {
                Self::OneOf(values) => Self::NotOneOf(values),
                Self::Glob(globs) => Self::NotGlob(globs),
                Self::Within(networks) => Self::NotWithin(networks),
                Self::Route(templates) => Self::NotRoute(templates),
                _ => Self::Present,
            },
            Test::Present | Test::Glob(_) => Self::Present,
        }
    }
}

/// Whether case does not tell values apart.
const fn is_folded(attribute: &Attribute) -> bool {
    matches!(attribute, Attribute::Path | Attribute::Host)
}

fn normalized(attribute: &Attribute, values: &[Box<str>]) -> Vec<Box<[u8]>> {
    let values = values.iter().map(|value| {
        let mut value = normalize_value_of(attribute, value);
        if is_folded(attribute) {
            value.make_ascii_lowercase();
        }
        value
    });
    values.collect()
}

fn compile(attribute: &Attribute, glob: &str) -> Option<GlobPattern> {
    match is_folded(attribute) {
        true => compile_glob_of(attribute, &glob.to_ascii_lowercase()),
        false => compile_glob_of(attribute, glob),
    }
}

fn addresses(values: &[Box<str>]) -> Vec<IpNet> {
    let addresses = values.iter().filter_map(|value| value.parse().ok());
    let networks = addresses.map(|address: IpAddr| network_index::canonical(address.into()));
    networks.collect()
}

fn canonical(networks: &[IpNet]) -> Vec<IpNet> {
    let networks = networks.iter().copied();
    networks.map(network_index::canonical).collect()
}

fn parsed(templates: &[Template]) -> Vec<RouteTemplate> {
    templates
        .iter()
        .map(|template| RouteTemplate::new(&template.0))
        .collect()
}

impl RouteTemplate {
    fn new(template: &str) -> Self {
        let mut segments = Vec::new();
        for segment in template.split('/').filter(|segment| !segment.is_empty()) {
            if segment.starts_with("{*") {
                return Self {
                    segments,
                    has_catch_all: true,
                };
            }
            let is_any = segment.starts_with('{') && segment.ends_with('}');
            segments.push((!is_any).then(|| {
                let mut literal = path::decode_escapes(segment.as_bytes());
                literal.make_ascii_lowercase();
                literal.into()
            }));
        }
        Self {
            segments,
            has_catch_all: false,
        }
    }
}
