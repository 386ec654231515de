//! Parses YAML into a tree. The only file that uses the YAML library.
//!
//! An alias becomes a copy of the value with its anchor, and a merge key (`<<`) adds the entries of other maps. Tags and a second
//! document are rejected, because they change the meaning of a text. Must not know: fields.

use std::ops::Range;

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span, StructureStyle};

use super::diagnostic::Diagnostic;
use super::line_index::LineIndex;
use super::node::{Located, MapEntry, SourceLocation, SourceNode, SourceValue};
use super::yaml_anchors::{Anchors, merge, merged_entries};
use super::{MAX_DEPTH, MAX_NODES, empty_file, too_deep, too_many, yaml_errors};

/// Parses a text. A syntax error ends parsing; rejected features are all reported.
pub(super) fn parse(text: &str, lines: &LineIndex<'_>) -> Result<SourceNode, Vec<Diagnostic>> {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_anchor_events: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: 2 * MAX_DEPTH,
        block_nesting_limit: 2 * MAX_DEPTH,
    };
    let mut builder = TreeBuilder::new(text, lines);
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((event, span)) => {
                if let Err(diagnostic) = builder.take(event, span) {
                    builder.diagnostics.push(diagnostic);
                    return Err(builder.diagnostics);
                }
            }
            Err(error) => {
                let at = offset(text, *error.marker());
                builder
                    .diagnostics
                    .push(yaml_errors::syntax_error(error.kind(), text, at, lines));
                return Err(builder.diagnostics);
            }
        }
    }
    if !builder.diagnostics.is_empty() {
        return Err(builder.diagnostics);
    }
    builder.root.ok_or_else(|| vec![empty_file()])
}

/// The library provides byte offsets for texts in memory; the end of the text is the fallback.
fn offset(text: &str, marker: Marker) -> usize {
    marker.byte_offset().unwrap_or(text.len())
}

/// A list or map that is still open.
struct OpenCollection {
    location: SourceLocation,
    /// The start offset, if it has brackets.
    bracket: Option<usize>,
    /// The number of its anchor, if it has one.
    anchor: Option<usize>,
    inside: CollectionItems,
}

enum CollectionItems {
    List(Vec<SourceNode>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<MapEntry>,
    /// A name that still lacks its value.
    name: Option<MapName>,
    /// The entries of merge keys.
    merged: Vec<MapEntry>,
}

struct MapName {
    text: Located<Box<str>>,
    is_merge_key: bool,
}

struct TreeBuilder<'a> {
    text: &'a str,
    lines: &'a LineIndex<'a>,
    open: Vec<OpenCollection>,
    root: Option<SourceNode>,
    documents: usize,
    nodes: usize,
    anchors: Anchors,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> TreeBuilder<'a> {
    fn new(text: &'a str, lines: &'a LineIndex<'a>) -> Self {
        Self {
            text,
            lines,
            open: Vec::new(),
            root: None,
            documents: 0,
            nodes: 0,
            anchors: Anchors::default(),
            diagnostics: Vec::new(),
        }
    }

    fn range(&self, span: &Span) -> Range<usize> {
        offset(self.text, span.start)..offset(self.text, span.end)
    }

    fn reject(&mut self, location: SourceLocation, message: String, help: &str) {
        self.diagnostics
            .push(Diagnostic::new(location, message, help));
    }

    /// Handles one event of the library. An error ends parsing.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Diagnostic> {
        let bytes = self.range(&span);
        let location = self.lines.locate(bytes.clone());
        if event.is_node() {
            self.nodes += 1;
            if self.nodes > MAX_NODES {
                return Err(too_many(location));
            }
        }
        self.reject_tag(&event, &span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Diagnostic::new(
                        location,
                        "a second document begins here",
                        "a policy is one document; remove the `---`, or move this into a file of its own",
                    ));
                }
            }
            Event::Alias(anchor) => {
                let depth = self.open.len();
                let value = self
                    .anchors
                    .copy(anchor, location, &mut self.nodes, depth)?;
                self.alias(location, value);
            }
            Event::UnresolvedAlias(_) => {
                let source = self.text.get(bytes).unwrap_or_default().to_owned();
                self.reject(
                    location,
                    format!(
                        "YAML reads `{source}` as an alias, and no value above has that anchor"
                    ),
                    &format!("quote a text that begins with `*`: \"{source}\""),
                );
                self.add(location, SourceValue::Null, None);
            }
            Event::Scalar(text, style, anchor, _) => {
                self.scalar(&text, style, &bytes, location, anchor_number(anchor));
            }
            Event::SequenceStart(style, anchor, _) => {
                let inside = CollectionItems::List(Vec::new());
                self.begin(inside, style, &bytes, anchor_number(anchor))?;
            }
            Event::MappingStart(style, anchor, _) => {
                let inside = CollectionItems::Map(OpenMap::default());
                self.begin(inside, style, &bytes, anchor_number(anchor))?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(bytes.end),
            _ => {}
        }
        Ok(())
    }

    fn reject_tag(&mut self, event: &Event<'_>, span: &Span) {
        if event.tag().is_none() {
            return;
        }
        let bytes = self.range(&span.tag_span().unwrap_or(*span));
        let source = self.text.get(bytes.clone()).unwrap_or_default();
        self.reject(
            self.lines.locate(bytes),
            format!("YAML reads `{source}` as a tag, and policies do not support tags"),
            "remove it; quote a text that begins with `!`",
        );
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        bytes: &Range<usize>,
        location: SourceLocation,
        anchor: Option<usize>,
    ) {
        let quoted = style != ScalarStyle::Plain;
        if self.name_is_next() {
            if bytes.is_empty() && anchor.is_none() {
                self.reject(
                    location,
                    "a name is missing before this `:`".to_owned(),
                    "write `name: value`",
                );
            }
            let value = SourceValue::Scalar {
                text: text.into(),
                quoted,
            };
            self.keep(anchor, &SourceNode { location, value });
            self.name(text, location, text == "<<" && !quoted);
            return;
        }
        if !quoted && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
            // For an empty value the library reports the next token; the name is a better location.
            let location = match self.open.last() {
                Some(OpenCollection {
                    inside:
                        CollectionItems::Map(OpenMap {
                            name: Some(name), ..
                        }),
                    ..
                }) if bytes.is_empty() => name.text.location,
                _ => location,
            };
            if bytes.is_empty() && anchor.is_some() {
                // An author who meant a text would otherwise get no value.
                self.reject(
                    location,
                    "YAML reads a text that begins with `&` as an anchor, and no value follows it"
                        .to_owned(),
                    "quote a text that begins with `&`",
                );
            }
            self.add(location, SourceValue::Null, anchor);
            return;
        }
        let text = text.into();
        self.add(location, SourceValue::Scalar { text, quoted }, anchor);
    }

    /// Adds the copy that an alias stands for.
    fn alias(&mut self, location: SourceLocation, value: SourceValue) {
        if !self.name_is_next() {
            return self.add(location, value, None);
        }
        match value {
            SourceValue::Scalar { text, .. } => self.name(&text, location, false),
            _ => self.reject_name(location),
        }
    }

    /// Keeps a value for the aliases of its anchor.
    fn keep(&mut self, anchor: Option<usize>, node: &SourceNode) {
        let kept = anchor.map_or(Ok(()), |anchor| self.anchors.insert(anchor, node));
        self.diagnostics.extend(kept.err());
    }

    fn begin(
        &mut self,
        inside: CollectionItems,
        style: StructureStyle,
        bytes: &Range<usize>,
        anchor: Option<usize>,
    ) -> Result<(), Diagnostic> {
        let location = self.lines.locate(bytes.start..bytes.start + 1);
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(location));
        }
        let bracket = (style == StructureStyle::Flow).then_some(bytes.start);
        self.open.push(OpenCollection {
            location,
            bracket,
            anchor,
            inside,
        });
        Ok(())
    }

    /// Closes a list or map.
    fn end(&mut self, here: usize) {
        let Some(ended) = self.open.pop() else {
            return;
        };
        let mut location = match ended.bracket {
            Some(start) => self.lines.locate(start..here),
            None => ended.location,
        };
        let value = match ended.inside {
            CollectionItems::List(values) => SourceValue::List(values),
            CollectionItems::Map(mut map) => {
                // The location of a map without brackets is its first name.
                if let (None, Some(first)) = (ended.bracket, map.entries.first()) {
                    location = first.name.location;
                }
                merge(&mut map.entries, map.merged);
                SourceValue::Map(map.entries)
            }
        };
        if self.name_is_next() {
            return self.reject_name(location);
        }
        self.add(location, value, ended.anchor);
    }

    fn reject_name(&mut self, location: SourceLocation) {
        self.reject(
            location,
            "a list or a map cannot be a name".to_owned(),
            "a name is a plain text; quote a text that begins with `[` or `{`",
        );
        self.name("", location, false);
    }

    /// Whether the next value is a name.
    fn name_is_next(&self) -> bool {
        matches!(
            self.open.last(),
            Some(OpenCollection {
                inside: CollectionItems::Map(OpenMap { name: None, .. }),
                ..
            })
        )
    }

    fn name(&mut self, name: &str, location: SourceLocation, is_merge_key: bool) {
        if let Some(OpenCollection {
            inside: CollectionItems::Map(map),
            ..
        }) = self.open.last_mut()
        {
            map.name = Some(MapName {
                text: Located::new(name.into(), location),
                is_merge_key,
            });
        }
    }

    /// Adds a finished value to the open collection.
    fn add(&mut self, location: SourceLocation, value: SourceValue, anchor: Option<usize>) {
        let node = SourceNode { location, value };
        self.keep(anchor, &node);
        let map = match self.open.last_mut().map(|open| &mut open.inside) {
            None => {
                self.root = Some(node);
                return;
            }
            Some(CollectionItems::List(values)) => return values.push(node),
            Some(CollectionItems::Map(map)) => map,
        };
        match map.name.take() {
            Some(name) if name.is_merge_key => match merged_entries(node.value) {
                Some(entries) => map.merged.extend(entries),
                None => self.reject(
                    location,
                    "`<<` is a merge key, and its value is neither a map nor a list of maps"
                        .to_owned(),
                    "write `<<: *anchor`, where the anchor is that of a map; quote a name that is `<<`",
                ),
            },
            Some(name) => map.entries.push(MapEntry {
                name: name.text,
                value: node,
            }),
            // An alias instead of a name, which is already reported.
            None => self.name("", location, false),
        }
    }
}

/// The library numbers anchors from 1; 0 is none.
const fn anchor_number(number: usize) -> Option<usize> {
    if number == 0 { None } else { Some(number) }
}
