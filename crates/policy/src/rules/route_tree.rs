//! A tree of route templates by segment: finds all templates that match a path, most specific first.
//!
//! A literal segment comes before `{x}`, and both before `{*x}`. `{*x}` matches the rest of a path, which may be empty.
//! Must not know: what routes are used for.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::draft::MAX_SEGMENTS;
use super::path::{self, NormalizedPath};

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RoutePattern {
    segments: Box<[Segment]>,
    /// It ends in `{*x}`.
    has_catch_all: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Segment {
    Literal(Box<[u8]>),
    /// `{x}`; the name does not matter.
    Any,
}

impl RoutePattern {
    /// Parses a template; `None` if it has too many segments. `fold` makes it match paths in lower case.
    pub(super) fn new(template: &str, fold: bool) -> Option<Self> {
        let mut segments = Vec::new();
        let mut is_open = false;
        for segment in template.split('/').filter(|segment| !segment.is_empty()) {
            let inner = segment
                .strip_prefix('{')
                .and_then(|rest| rest.strip_suffix('}'));
            match inner {
                Some(name) if name.starts_with('*') => {
                    is_open = true;
                    break;
                }
                Some(_) => segments.push(Segment::Any),
                None => {
                    let mut literal = path::decode_escapes(segment.as_bytes());
                    if fold {
                        literal.make_ascii_lowercase();
                    }
                    segments.push(Segment::Literal(literal.into()));
                }
            }
        }
        (segments.len() <= MAX_SEGMENTS).then(|| Self {
            segments: segments.into(),
            has_catch_all: is_open,
        })
    }

    /// Whether a literal segment has an upper-case letter.
    pub(super) fn has_uppercase(&self) -> bool {
        self.segments.iter().any(|segment| match segment {
            Segment::Literal(literal) => literal.iter().any(u8::is_ascii_uppercase),
            Segment::Any => false,
        })
    }

    /// Orders patterns as [`RouteTree::visit`] does those that match one path: the most specific first.
    pub(super) fn specificity(&self) -> Vec<u8> {
        let segments = self.segments.iter().map(|segment| match segment {
            Segment::Literal(_) => 0,
            Segment::Any => 1,
        });
        segments
            .chain([if self.has_catch_all { 3 } else { 2 }])
            .collect()
    }

    /// Whether a path matches.
    pub(super) fn matches(&self, path: NormalizedPath<'_>) -> bool {
        let mut rest = without_leading_slash(path);
        for segment in &self.segments {
            let Some((first, after)) = split_segment(rest) else {
                return false;
            };
            if let Segment::Literal(literal) = segment
                && **literal != *first
            {
                return false;
            }
            rest = after;
        }
        self.has_catch_all || rest.is_empty()
    }
}

/// Route patterns with values.
#[derive(Debug)]
pub(super) struct RouteTree<T> {
    nodes: Vec<RouteNode>,
    values: Vec<T>,
}

#[derive(Debug, Default)]
struct RouteNode {
    literals: HashMap<Box<[u8]>, usize, FixedState>,
    any_child: Option<usize>,
    /// The value of the pattern that ends here.
    exact_value: Option<usize>,
    /// The value of the pattern with a catch-all here.
    catch_all_value: Option<usize>,
}

impl<T> RouteTree<T> {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![RouteNode::default()],
            values: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    #[cfg(test)]
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut()
    }

    /// The value of a pattern, inserted if it is new.
    pub(super) fn value_mut(
        &mut self,
        route: &RoutePattern,
        make: impl FnOnce() -> T,
    ) -> Option<&mut T> {
        let mut at = 0;
        for segment in &route.segments {
            let fresh = self.nodes.len();
            let node = self.nodes.get_mut(at)?;
            at = match segment {
                Segment::Literal(literal) => *node.literals.entry(literal.clone()).or_insert(fresh),
                Segment::Any => *node.any_child.get_or_insert(fresh),
            };
            if at == fresh {
                self.nodes.push(RouteNode::default());
            }
        }
        let node = self.nodes.get_mut(at)?;
        let position = if route.has_catch_all {
            &mut node.catch_all_value
        } else {
            &mut node.exact_value
        };
        let index = *position.get_or_insert(self.values.len());
        if index == self.values.len() {
            self.values.push(make());
        }
        self.values.get_mut(index)
    }

    /// Visits the values of all patterns that match a path, most specific first.
    pub(super) fn visit<'a>(&'a self, path: NormalizedPath<'_>, visit: &mut dyn FnMut(&'a T)) {
        if let Some(root) = self.nodes.first() {
            self.visit_from(root, without_leading_slash(path), visit);
        }
    }

    /// The recursion is at most as deep as the longest template.
    fn visit_from<'a>(&'a self, node: &'a RouteNode, rest: &[u8], visit: &mut dyn FnMut(&'a T)) {
        let value = |index: Option<usize>| index.and_then(|index| self.values.get(index));
        if let Some((segment, after)) = split_segment(rest) {
            let child = |index: Option<usize>| index.and_then(|index| self.nodes.get(index));
            if !node.literals.is_empty()
                && let Some(next) = child(node.literals.get(segment).copied())
            {
                self.visit_from(next, after, visit);
            }
            if let Some(next) = child(node.any_child) {
                self.visit_from(next, after, visit);
            }
        } else if let Some(value) = value(node.exact_value) {
            visit(value);
        }
        if let Some(value) = value(node.catch_all_value) {
            visit(value);
        }
    }
}

/// The path without its leading slash.
fn without_leading_slash(path: NormalizedPath<'_>) -> &[u8] {
    let bare = path.without_trailing_slash();
    bare.strip_prefix(b"/").unwrap_or(bare)
}

/// The first segment and the part after its slash. Normalized paths have no empty segments.
fn split_segment(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    if rest.is_empty() {
        return None;
    }
    match rest.iter().position(|byte| *byte == b'/') {
        Some(slash) => {
            let (segment, after) = rest.split_at_checked(slash)?;
            Some((segment, after.get(1..).unwrap_or_default()))
        }
        None => Some((rest, &[])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under(templates: &[&'static str], path: &str) -> Vec<&'static str> {
        let mut tree = RouteTree::new();
        for template in templates {
            tree.value_mut(&RoutePattern::new(template, false).unwrap(), || *template);
        }
        let path = path::plain(path.as_bytes()).unwrap().0;
        let mut matched = Vec::new();
        tree.visit(path, &mut |template| matched.push(*template));
        let mut alone = matched.clone();
        alone.retain(|template| RoutePattern::new(template, false).unwrap().matches(path));
        assert_eq!(alone, matched);
        for template in templates
            .iter()
            .filter(|template| !matched.contains(template))
        {
            assert!(
                !RoutePattern::new(template, false).unwrap().matches(path),
                "{template}"
            );
        }
        matched
    }

    const ALL: [&str; 8] = [
        "/{*rest}",
        "/v1/{*rest}",
        "/v1/items",
        "/v1/items/{id}",
        "/v1/items/mine",
        "/v1/{kind}/mine",
        "/{version}/items/{id}",
        "/",
    ];

    #[test]
    fn all_templates_that_match_a_path_are_found_most_specific_first() {
        assert_eq!(
            under(&ALL, "/v1/items/mine"),
            [
                "/v1/items/mine",
                "/v1/items/{id}",
                "/v1/{kind}/mine",
                "/v1/{*rest}",
                "/{version}/items/{id}",
                "/{*rest}"
            ]
        );
        assert_eq!(
            under(&ALL, "/v1/items/"),
            ["/v1/items", "/v1/{*rest}", "/{*rest}"]
        );
        assert_eq!(
            under(&ALL, "/v2/items/7"),
            ["/{version}/items/{id}", "/{*rest}"]
        );
        assert_eq!(under(&ALL, "/"), ["/", "/{*rest}"]);
        assert_eq!(under(&ALL, "/v1"), ["/v1/{*rest}", "/{*rest}"]);
        assert_eq!(under(&["/a/b", "/a/{x}/c"], "/a"), [""; 0]);
        assert_eq!(under(&["/A"], "/a"), [""; 0]);
    }

    #[test]
    fn templates_are_normalized_like_paths() {
        assert_eq!(
            RoutePattern::new("/%61//b/", false),
            RoutePattern::new("/a/b", false)
        );
        assert_eq!(
            RoutePattern::new("/a%2fb", false),
            RoutePattern::new("/a%2Fb", false)
        );
        assert_eq!(
            RoutePattern::new("/{x}", false),
            RoutePattern::new("/{y}", false)
        );
    }

    #[test]
    fn the_deepest_template_matches_and_a_deeper_one_is_rejected() {
        let deepest = "/{x}".repeat(MAX_SEGMENTS);
        let path = "/1".repeat(MAX_SEGMENTS);
        let route = RoutePattern::new(&deepest, false).unwrap();
        assert!(route.matches(path::plain(path.as_bytes()).unwrap().0));
        assert_eq!(RoutePattern::new(&(deepest + "/{x}"), false), None);
    }
}
