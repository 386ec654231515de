//! Divides requests by the value of one attribute: exact values, networks, and prefixes or suffixes of patterns.
//!
//! Must not know: paths by segment, other attributes.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::glob_pattern::GlobPattern;
use super::ItemRequirement;
use super::conditions::Requirement;
use super::partition::{Partition, ValueClass};
use crate::attributes::Attribute;
use crate::model::IpNet;

/// Divides the values of an attribute. `steps` counts comparisons.
pub(super) fn partition(
    attribute: &Attribute,
    requirements: &[ItemRequirement<'_>],
    steps: &mut usize,
) -> Partition {
    let mut outside = Vec::new();
    let mut classes = match attribute {
        Attribute::Ip => networks(requirements, &mut outside, steps),
        _ => texts(attribute, requirements, &mut outside, steps),
    };
    // Any value that no condition names.
    classes.push(ValueClass::default());
    let is_absent =
        |(_, requirement): &&ItemRequirement<'_>| matches!(requirement, Requirement::Absent);
    let (absent, present): (Vec<_>, Vec<_>) = requirements.iter().partition(is_absent);
    if !absent.is_empty() {
        let added: Vec<usize> = absent.iter().map(|(item, _)| *item).collect();
        outside.extend(&added);
        let elsewhere: HashSet<usize> = outside.iter().copied().collect();
        let removed = present.iter().map(|(item, _)| *item);
        let removed: Vec<usize> = removed.filter(|item| !elsewhere.contains(item)).collect();
        classes.push(ValueClass {
            name: Some(format!("no {attribute}")),
            added,
            removed,
            ..ValueClass::default()
        });
    }
    for class in &mut classes {
        if let Some(name) = &mut class.name
            && !name.starts_with("no ")
        {
            *name = format!("{attribute} {name}");
        }
    }
    let mut partition = Partition::new(outside, classes);
    partition.keeps_all = partition.class_with_all();
    partition
}

/// One class for each network: the addresses that are in no narrower one.
fn networks(
    requirements: &[ItemRequirement<'_>],
    outside: &mut Vec<usize>,
    steps: &mut usize,
) -> Vec<ValueClass> {
    let mut wanted: BTreeMap<IpNet, Vec<usize>> = BTreeMap::new();
    let mut excluded: HashMap<IpNet, Vec<usize>> = HashMap::new();
    for (item, requirement) in requirements {
        match requirement {
            Requirement::Within(networks) => {
                outside.push(*item);
                for network in networks {
                    wanted.entry(*network).or_default().push(*item);
                }
            }
            Requirement::NotWithin(networks) => {
                for network in networks {
                    excluded.entry(*network).or_default().push(*item);
                }
            }
            _ => {}
        }
    }
    let mut classes = Vec::with_capacity(wanted.len());
    for network in wanted.keys() {
        let mut class = ValueClass {
            name: Some(network.to_string()),
            ..ValueClass::default()
        };
        let mut enclosing = Some(*network);
        while let Some(wide) = enclosing {
            class.added.extend(wanted.get(&wide).into_iter().flatten());
            class
                .removed
                .extend(excluded.get(&wide).into_iter().flatten());
            enclosing = wide.supernet();
            *steps += 1;
        }
        *steps += class.added.len() + class.removed.len();
        classes.push(class);
    }
    classes
}

/// A text to divide by: an exact value, or the literal part of a pattern.
#[derive(Default)]
struct TextEntry<'a> {
    /// It is a value of `one_of`: the items that want it and those that exclude it.
    value: Option<(Vec<usize>, Vec<usize>)>,
    /// The patterns that have it as their literal part, with their items.
    patterns: Vec<(usize, &'a GlobPattern)>,
}

/// All texts that the conditions on an attribute name, sorted.
#[derive(Default)]
struct TextTable<'a> {
    entries: BTreeMap<Box<[u8]>, TextEntry<'a>>,
    /// Items that apply by default, but not to every value: their patterns, and whether a value must match.
    open: Vec<(usize, &'a [GlobPattern], bool)>,
}

impl<'a> TextTable<'a> {
    fn new(
        ends: PatternEnd,
        requirements: &[ItemRequirement<'a>],
        outside: &mut Vec<usize>,
    ) -> Self {
        let mut table = Self::default();
        for (item, requirement) in requirements {
            match requirement {
                Requirement::OneOf(values) => {
                    outside.push(*item);
                    for value in values {
                        let entry = table.entries.entry(ends.value_key(value)).or_default();
                        entry.value.get_or_insert_default().0.push(*item);
                    }
                }
                Requirement::Glob(globs)
                    if globs.iter().all(|glob| !ends.literal(glob).is_empty()) =>
                {
                    outside.push(*item);
                    for glob in globs {
                        let key = ends.key(ends.literal(glob));
                        let entry = table.entries.entry(key).or_default();
                        entry.patterns.push((*item, glob));
                    }
                }
                Requirement::Glob(globs) => table.open.push((*item, globs, true)),
                Requirement::NotGlob(globs) => table.open.push((*item, globs, false)),
                _ => {}
            }
        }
        for (item, requirement) in requirements {
            let Requirement::NotOneOf(values) = requirement else {
                continue;
            };
            for value in values {
                let entry = table.entries.get_mut(&ends.value_key(value));
                if let Some((_, excluded)) = entry.and_then(|entry| entry.value.as_mut()) {
                    excluded.push(*item);
                }
            }
        }
        table
    }
}

/// Exact values, in which patterns are evaluated, and the literal parts of patterns.
fn texts(
    attribute: &Attribute,
    requirements: &[ItemRequirement<'_>],
    outside: &mut Vec<usize>,
    steps: &mut usize,
) -> Vec<ValueClass> {
    let ends = PatternEnd::new(attribute, requirements);
    let TextTable { entries, open } = TextTable::new(ends, requirements, outside);
    let mut classes = Vec::new();
    // The literal parts that begin the current text, from short to long: texts are sorted.
    let mut enclosing: Vec<&[u8]> = Vec::new();
    for (text, entry) in &entries {
        while enclosing.last().is_some_and(|last| !text.starts_with(last)) {
            enclosing.pop();
        }
        if !entry.patterns.is_empty() {
            enclosing.push(text);
        }
        let above = enclosing.iter().filter_map(|prefix| entries.get(*prefix));
        let patterns: Vec<(usize, &GlobPattern)> = above
            .flat_map(|entry| entry.patterns.iter().copied())
            .collect();
        *steps += patterns.len() + 1;
        if !entry.patterns.is_empty() {
            classes.push(ValueClass {
                name: Some(ends.name(text)),
                added: patterns.iter().map(|(item, _)| *item).collect(),
                ..ValueClass::default()
            });
        }
        if let Some((wanted, excluded)) = &entry.value {
            *steps += open.len();
            let value = ends.value(text);
            let matches = |glob: &GlobPattern| matches_value(attribute, glob, &value);
            let mut added = wanted.clone();
            let matching = patterns.iter().filter(|(_, glob)| matches(glob));
            added.extend(matching.map(|(item, _)| *item));
            let mut removed = excluded.clone();
            let failing = open
                .iter()
                .filter(|(_, globs, is_wanted)| globs.iter().any(matches) != *is_wanted);
            removed.extend(failing.map(|(item, ..)| *item));
            classes.push(ValueClass {
                name: Some(String::from_utf8_lossy(&value).into_owned()),
                added,
                removed,
                ..ValueClass::default()
            });
        }
    }
    classes
}

fn matches_value(attribute: &Attribute, glob: &GlobPattern, value: &[u8]) -> bool {
    // A path matches with and without its trailing slash.
    glob.matches(value) || *attribute == Attribute::Path && glob.matches(&[value, b"/"].concat())
}

/// Which end of patterns tells them apart: their literal prefixes or suffixes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PatternEnd {
    Prefix,
    /// A path matches with and without its trailing slash, so the prefix is compared with the longer one.
    PathPrefix,
    Suffix,
}

impl PatternEnd {
    fn new(attribute: &Attribute, requirements: &[ItemRequirement<'_>]) -> Self {
        if *attribute == Attribute::Path {
            return Self::PathPrefix;
        }
        let globs = requirements
            .iter()
            .filter_map(|(_, requirement)| match requirement {
                Requirement::Glob(globs) => Some(globs),
                _ => None,
            });
        let (mut prefixes, mut suffixes) = (0_usize, 0_usize);
        for glob in globs.flatten() {
            prefixes += usize::from(!Self::Prefix.literal(glob).is_empty());
            suffixes += usize::from(!Self::Suffix.literal(glob).is_empty());
        }
        match suffixes > prefixes {
            true => Self::Suffix,
            false => Self::Prefix,
        }
    }

    fn literal(self, glob: &GlobPattern) -> &[u8] {
        match self {
            Self::Prefix | Self::PathPrefix => glob.prefix(),
            Self::Suffix => glob.suffix(),
        }
    }

    /// The text in the order of comparison. Applied twice, it is the text itself.
    fn key(self, text: &[u8]) -> Box<[u8]> {
        match self {
            Self::Prefix | Self::PathPrefix => text.into(),
            Self::Suffix => text.iter().rev().copied().collect(),
        }
    }

    fn value_key(self, value: &[u8]) -> Box<[u8]> {
        match self {
            Self::PathPrefix => [value, b"/"].concat().into(),
            _ => self.key(value),
        }
    }

    fn value(self, key: &[u8]) -> Box<[u8]> {
        match self {
            Self::PathPrefix => key.strip_suffix(b"/").unwrap_or(key).into(),
            _ => self.key(key),
        }
    }

    fn name(self, key: &[u8]) -> String {
        let text = self.key(key);
        let text = String::from_utf8_lossy(&text);
        match self {
            Self::Prefix | Self::PathPrefix => format!("{text}…"),
            Self::Suffix => format!("…{text}"),
        }
    }
}
