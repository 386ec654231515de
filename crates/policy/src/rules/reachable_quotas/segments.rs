//! Divides requests by the next segment of their path, for conditions on `route`.
//!
//! Must not know: other attributes.

use std::collections::BTreeMap;

use super::ItemRequirement;
use super::conditions::{Requirement, RouteTemplate};
use super::partition::{Partition, ValueClass};

/// The segments of the path that are chosen so far; `None` for one that no template names.
#[derive(Clone, Debug, Default)]
pub(super) struct PathChoice {
    segments: Vec<Option<Box<[u8]>>>,
    is_complete: bool,
}

impl PathChoice {
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn push(&mut self, class: &ValueClass) {
        if class.is_end {
            self.is_complete = true;
        } else {
            self.segments.push(class.segment.clone());
        }
    }

    /// The path for messages, if anything is known about it.
    pub(super) fn name(&self) -> Option<String> {
        let mut text = String::from("path ");
        for segment in &self.segments {
            text.push('/');
            match segment {
                Some(segment) => text.push_str(&String::from_utf8_lossy(segment)),
                None => text.push('…'),
            }
        }
        self.segments.iter().any(Option::is_some).then_some(text)
    }

    /// Whether a template matches the chosen segments, as far as it goes.
    fn fits(&self, template: &RouteTemplate) -> bool {
        let is_long_enough =
            template.has_catch_all || self.segments.len() <= template.segments.len();
        let mut pairs = template.segments.iter().zip(&self.segments);
        is_long_enough
            && pairs.all(|(wanted, chosen)| match (wanted, chosen) {
                (None, _) => true,
                (Some(wanted), Some(chosen)) => wanted == chosen,
                (Some(_), None) => false,
            })
    }
}

/// What a template that fits says about the next segment.
enum NextSegment<'a> {
    Literal(&'a [u8]),
    /// `{x}`: any, but there must be one.
    Any,
    /// The template ends: there must be none.
    End,
    /// `{*x}`: any or none.
    CatchAll,
}

impl RouteTemplate {
    fn next_segment(&self, position: usize) -> NextSegment<'_> {
        match self.segments.get(position) {
            Some(Some(literal)) => NextSegment::Literal(literal),
            Some(None) => NextSegment::Any,
            None if self.has_catch_all => NextSegment::CatchAll,
            None => NextSegment::End,
        }
    }
}

/// The classes of one item: the segments that it names, and whether it applies otherwise.
#[derive(Default)]
struct ItemSegments<'a> {
    literals: Vec<&'a [u8]>,
    has_any: bool,
    has_end: bool,
    has_catch_all: bool,
}

impl<'a> ItemSegments<'a> {
    fn new(templates: &'a [RouteTemplate], path: &PathChoice) -> Self {
        let mut segments = Self::default();
        for template in templates.iter().filter(|template| path.fits(template)) {
            match template.next_segment(path.segments.len()) {
                NextSegment::Literal(literal) => segments.literals.push(literal),
                NextSegment::Any => segments.has_any = true,
                NextSegment::End => segments.has_end = true,
                NextSegment::CatchAll => segments.has_catch_all = true,
            }
        }
        segments
    }
}

/// The kinds of templates at this position, over all items.
#[derive(Default)]
struct TemplateKinds {
    has_any: bool,
    has_end: bool,
    /// An excluded template could still match.
    has_excluded: bool,
}

pub(super) fn partition(requirements: &[ItemRequirement<'_>], path: &PathChoice) -> Partition {
    let mut outside = Vec::new();
    let mut by_literal: BTreeMap<&[u8], ValueClass> = BTreeMap::new();
    let mut end = ValueClass {
        is_end: true,
        ..ValueClass::default()
    };
    let mut kinds = TemplateKinds::default();
    for (item, requirement) in requirements {
        match requirement {
            Requirement::Route(templates) => {
                let segments = ItemSegments::new(templates, path);
                let is_default = segments.has_any || segments.has_catch_all;
                if !is_default {
                    outside.push(*item);
                }
                for literal in &segments.literals {
                    let class = by_literal.entry(*literal).or_default();
                    if !is_default {
                        class.added.push(*item);
                    }
                }
                let matches_end = segments.has_end || segments.has_catch_all;
                match (is_default, matches_end) {
                    (true, false) => end.removed.push(*item),
                    (false, true) => end.added.push(*item),
                    _ => {}
                }
                kinds.has_any |= segments.has_any;
                kinds.has_end |= segments.has_end;
            }
            Requirement::NotRoute(templates) => {
                let segments = ItemSegments::new(templates, path);
                if segments.has_catch_all {
                    // The excluded template matches, however the path goes on.
                    outside.push(*item);
                } else if segments.has_end {
                    end.removed.push(*item);
                }
                kinds.has_excluded |=
                    segments.has_any || segments.has_end || !segments.literals.is_empty();
            }
            _ => {}
        }
    }
    let literals = by_literal.into_iter().map(|(segment, class)| ValueClass {
        segment: Some(segment.into()),
        ..class
    });
    let mut classes: Vec<ValueClass> = literals.collect();
    let named = classes.len();
    classes.push(ValueClass::default());
    classes.push(end);
    let mut partition = Partition::new(outside, classes);
    partition.keeps_all = class_with_all_templates(&partition, &kinds, named);
    partition
}

/// A class in which every template still matches. That every item does is not enough: an item may have several
/// templates, and another class may keep the one that goes on like those of other items.
fn class_with_all_templates(
    partition: &Partition,
    kinds: &TemplateKinds,
    literals: usize,
) -> Option<usize> {
    if kinds.has_excluded || partition.class_with_all().is_none() {
        return None;
    }
    let (other, end) = (literals, literals + 1);
    match (literals, kinds.has_any, kinds.has_end) {
        // Only `{*x}` is left: the path may end.
        (0, false, _) => Some(end),
        (0, true, false) => Some(other),
        (1, _, false) => Some(0),
        _ => None,
    }
}
