//! YAML into a tree: the one place that knows the YAML library.
//!
//! What makes YAML say other things than it seems to say is refused: anchors, aliases, tags, merge keys, a second
//! document. Must not know: fields.

use std::ops::Range;

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span, StructureStyle};

use super::diagnostic::Diagnostic;
use super::line_index::LineIndex;
use super::node::{Located, MapEntry, SourceLocation, SourceNode, SourceValue};
use super::{MAX_DEPTH, MAX_NODES, empty_file, too_deep, too_many, yaml_errors};

/// Reads a text. A syntax error ends the reading; what is refused is collected, all of it.
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
                if let Err(problem) = builder.take(event, span) {
                    builder.problems.push(problem);
                    return Err(builder.problems);
                }
            }
            Err(error) => {
                let at = offset(text, *error.marker());
                builder
                    .problems
                    .push(yaml_errors::syntax_error(error.kind(), text, at, lines));
                return Err(builder.problems);
            }
        }
    }
    if !builder.problems.is_empty() {
        return Err(builder.problems);
    }
    builder.root.ok_or_else(|| vec![empty_file()])
}

/// The library counts bytes for texts that lie in memory; where it should not, the end is the safest guess.
fn offset(text: &str, marker: Marker) -> usize {
    marker.byte_offset().unwrap_or(text.len())
}

/// A list or map whose end has not come yet.
struct OpenCollection {
    place: SourceLocation,
    /// Where it begins, if a bracket also tells where it ends.
    bracket: Option<usize>,
    inside: CollectionItems,
}

enum CollectionItems {
    List(Vec<SourceNode>),
    /// The entries, and a name whose value has not come yet.
    Map(Vec<MapEntry>, Option<Located<Box<str>>>),
}

struct TreeBuilder<'a> {
    text: &'a str,
    lines: &'a LineIndex<'a>,
    open: Vec<OpenCollection>,
    root: Option<SourceNode>,
    documents: usize,
    nodes: usize,
    problems: Vec<Diagnostic>,
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
            problems: Vec::new(),
        }
    }

    fn range(&self, span: &Span) -> Range<usize> {
        offset(self.text, span.start)..offset(self.text, span.end)
    }

    fn refuse(&mut self, place: SourceLocation, message: String, help: &str) {
        self.problems.push(Diagnostic::new(place, message, help));
    }

    /// Takes what the library found next. An error ends the reading.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Diagnostic> {
        let bytes = self.range(&span);
        let place = self.lines.locate(bytes.clone());
        if event.is_node() {
            self.nodes += 1;
            if self.nodes > MAX_NODES {
                return Err(too_many(place));
            }
        }
        self.refuse_tag(&event, &span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Diagnostic::new(
                        place,
                        "a second document begins here",
                        "a policy is one document; remove the `---`, or move this into a file of its own",
                    ));
                }
            }
            Event::Anchor(_, name) => self.refuse(
                place,
                format!("`&{name}` is an anchor, and a policy has none"),
                "write the fields out where they hold; quote a text that begins with `&`",
            ),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let said = self.text.get(bytes).unwrap_or_default().to_owned();
                self.refuse(
                    place,
                    format!("YAML reads `{said}` as an alias, and a policy has none"),
                    &format!(
                        "quote a text that begins with `*`: \"{said}\"; write repeated fields out"
                    ),
                );
                self.add(place, SourceValue::Null);
            }
            Event::Scalar(text, style, ..) => self.scalar(&text, style, &bytes, place),
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

    fn refuse_tag(&mut self, event: &Event<'_>, span: &Span) {
        if event.tag().is_none() {
            return;
        }
        let bytes = self.range(&span.tag_span().unwrap_or(*span));
        let said = self.text.get(bytes.clone()).unwrap_or_default();
        self.refuse(
            self.lines.locate(bytes),
            format!("YAML reads `{said}` as a tag, and a policy has none"),
            "remove it; quote a text that begins with `!`",
        );
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        bytes: &Range<usize>,
        place: SourceLocation,
    ) {
        let quoted = style != ScalarStyle::Plain;
        if self.name_is_next() {
            if text == "<<" && !quoted {
                self.refuse(
                    place,
                    "`<<` merges another map into this one, and a policy has no aliases".to_owned(),
                    "write the fields out where they hold",
                );
            } else if bytes.is_empty() {
                self.refuse(
                    place,
                    "a name is missing before this `:`".to_owned(),
                    "write `name: value`",
                );
            }
            self.name(text, place);
            return;
        }
        if !quoted && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
            // Where nothing is written, the library points at whatever comes next; the name says more.
            let place = match self.open.last() {
                Some(OpenCollection {
                    inside: CollectionItems::Map(_, Some(name)),
                    ..
                }) if bytes.is_empty() => name.location,
                _ => place,
            };
            self.add(place, SourceValue::Null);
            return;
        }
        self.add(
            place,
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
        let place = self.lines.locate(bytes.start..bytes.start + 1);
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(place));
        }
        let bracket = (style == StructureStyle::Flow).then_some(bytes.start);
        self.open.push(OpenCollection {
            place,
            bracket,
            inside,
        });
        Ok(())
    }

    /// A list or map has ended here.
    fn end(&mut self, here: usize) {
        let Some(ended) = self.open.pop() else {
            return;
        };
        let mut place = match ended.bracket {
            Some(start) => self.lines.locate(start..here),
            None => ended.place,
        };
        let value = match ended.inside {
            CollectionItems::List(values) => SourceValue::List(values),
            CollectionItems::Map(entries, _) => {
                // A map without brackets is pointed at by its first name.
                if let (None, Some(first)) = (ended.bracket, entries.first()) {
                    place = first.name.location;
                }
                SourceValue::Map(entries)
            }
        };
        if self.name_is_next() {
            self.refuse(
                place,
                "a list or a map stands here as a name".to_owned(),
                "a name is a plain text; quote a text that begins with `[` or `{`",
            );
            self.name("", place);
            return;
        }
        self.add(place, value);
    }

    /// Whether the next value is the name of one.
    fn name_is_next(&self) -> bool {
        matches!(
            self.open.last(),
            Some(OpenCollection {
                inside: CollectionItems::Map(_, None),
                ..
            })
        )
    }

    fn name(&mut self, name: &str, place: SourceLocation) {
        if let Some(OpenCollection {
            inside: CollectionItems::Map(_, next),
            ..
        }) = self.open.last_mut()
        {
            *next = Some(Located::new(name.into(), place));
        }
    }

    /// Puts a finished value where it belongs.
    fn add(&mut self, place: SourceLocation, value: SourceValue) {
        let node = SourceNode {
            location: place,
            value,
        };
        match self.open.last_mut().map(|open| &mut open.inside) {
            None => self.root = Some(node),
            Some(CollectionItems::List(values)) => values.push(node),
            Some(CollectionItems::Map(entries, name)) => match name.take() {
                Some(name) => entries.push(MapEntry { name, value: node }),
                // An alias where a name should stand: it is refused already.
                None => *name = Some(Located::new(Box::from(""), place)),
            },
        }
    }
}
