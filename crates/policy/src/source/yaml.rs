//! Parses YAML into a tree. The only file that uses the YAML library.
//!
//! YAML features that change the meaning of a text are rejected: anchors, aliases, tags, merge keys, a second document.
//! Must not know: fields.

use std::ops::Range;

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span, StructureStyle};

use super::diagnostic::Diagnostic;
use super::line_index::LineIndex;
use super::node::{Located, MapEntry, SourceLocation, SourceNode, SourceValue};
use super::{MAX_DEPTH, MAX_NODES, empty_file, too_deep, too_many, yaml_errors};

/// Parses a text. A syntax error ends parsing; rejected features are all reported.
pub(super) fn parse(text: &str, lines: &LineIndex<'_>) -> Result<SourceNode, Vec<Diagnostic>> {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_anchor_events: true,
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
    inside: CollectionItems,
}

enum CollectionItems {
    List(Vec<SourceNode>),
    /// The entries, and a name that still lacks its value.
    Map(Vec<MapEntry>, Option<Located<Box<str>>>),
}

struct TreeBuilder<'a> {
    text: &'a str,
    lines: &'a LineIndex<'a>,
    open: Vec<OpenCollection>,
    root: Option<SourceNode>,
    documents: usize,
    nodes: usize,
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
            Event::Anchor(_, name) => self.reject(
                location,
                format!("`&{name}` is an anchor, and policies do not support anchors"),
                "write the fields out where they apply; quote a text that begins with `&`",
            ),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let source = self.text.get(bytes).unwrap_or_default().to_owned();
                self.reject(
                    location,
                    format!(
                        "YAML reads `{source}` as an alias, and policies do not support aliases"
                    ),
                    &format!(
                        "quote a text that begins with `*`: \"{source}\"; write repeated fields out"
                    ),
                );
                self.add(location, SourceValue::Null);
            }
            Event::Scalar(text, style, ..) => self.scalar(&text, style, &bytes, location),
            Event::SequenceStart(style, ..) => {
                self.begin(CollectionItems::List(Vec::new()), style, &bytes)?;
            }
            Event::MappingStart(style, ..) => {
                self.begin(CollectionItems::Map(Vec::new(), None), style, &bytes)?;
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
    ) {
        let quoted = style != ScalarStyle::Plain;
        if self.name_is_next() {
            if text == "<<" && !quoted {
                self.reject(
                    location,
                    "`<<` is a merge key, and policies do not support merge keys".to_owned(),
                    "write the fields out where they apply",
                );
            } else if bytes.is_empty() {
                self.reject(
                    location,
                    "a name is missing before this `:`".to_owned(),
                    "write `name: value`",
                );
            }
            self.name(text, location);
            return;
        }
        if !quoted && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
            // For an empty value the library reports the next token; the name is a better location.
            let location = match self.open.last() {
                Some(OpenCollection {
                    inside: CollectionItems::Map(_, Some(name)),
                    ..
                }) if bytes.is_empty() => name.location,
                _ => location,
            };
            self.add(location, SourceValue::Null);
            return;
        }
        self.add(
            location,
            SourceValue::Scalar {
                text: text.into(),
                quoted,
            },
        );
    }

    fn begin(
        &mut self,
        inside: CollectionItems,
        style: StructureStyle,
        bytes: &Range<usize>,
    ) -> Result<(), Diagnostic> {
        let location = self.lines.locate(bytes.start..bytes.start + 1);
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(location));
        }
        let bracket = (style == StructureStyle::Flow).then_some(bytes.start);
        self.open.push(OpenCollection {
            location,
            bracket,
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
            CollectionItems::Map(entries, _) => {
                // The location of a map without brackets is its first name.
                if let (None, Some(first)) = (ended.bracket, entries.first()) {
                    location = first.name.location;
                }
                SourceValue::Map(entries)
            }
        };
        if self.name_is_next() {
            self.reject(
                location,
                "a list or a map cannot be a name".to_owned(),
                "a name is a plain text; quote a text that begins with `[` or `{`",
            );
            self.name("", location);
            return;
        }
        self.add(location, value);
    }

    /// Whether the next value is a name.
    fn name_is_next(&self) -> bool {
        matches!(
            self.open.last(),
            Some(OpenCollection {
                inside: CollectionItems::Map(_, None),
                ..
            })
        )
    }

    fn name(&mut self, name: &str, location: SourceLocation) {
        if let Some(OpenCollection {
            inside: CollectionItems::Map(_, next),
            ..
        }) = self.open.last_mut()
        {
            *next = Some(Located::new(name.into(), location));
        }
    }

    /// Adds a finished value to the open collection.
    fn add(&mut self, location: SourceLocation, value: SourceValue) {
        let node = SourceNode { location, value };
        match self.open.last_mut().map(|open| &mut open.inside) {
            None => self.root = Some(node),
            Some(CollectionItems::List(values)) => values.push(node),
            Some(CollectionItems::Map(entries, name)) => match name.take() {
                Some(name) => entries.push(MapEntry { name, value: node }),
                // An alias instead of a name, which is already reported.
                None => *name = Some(Located::new(Box::from(""), location)),
            },
        }
    }
}
