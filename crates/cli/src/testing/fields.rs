//! Small tools to read a tree of values: fields asked for one by one, and mistakes that are collected with their places.
//!
//! Must not know: which fields there are.

use tollgate_policy::source::{At, Entry, Node, Place, Problem, Value};
use tollgate_policy::words::{self, Wrong, nearest, quoted};

/// What is wrong so far.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) problems: Vec<Problem>,
}

/// The fields of one map while it is read.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    /// What the map is, in messages.
    of: &'static str,
    place: Place,
    entries: &'a [Entry],
    asked: Vec<&'static str>,
    /// Names that were reported already.
    elsewhere: Vec<&'static str>,
}

impl Reader {
    pub(super) fn say(
        &mut self,
        place: Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.problems.push(Problem::new(place, message, help));
    }

    /// The fields of a map.
    pub(super) fn fields<'a>(&mut self, node: &'a Node, of: &'static str) -> Option<Fields<'a>> {
        if let Value::Map(entries) = &node.value {
            return Some(Fields {
                of,
                place: node.place,
                entries,
                asked: Vec::new(),
                elsewhere: Vec::new(),
            });
        }
        let message = format!("{of} must be a map, found {}", found(node));
        self.say(node.place, message, "write it as `{ name: value }`");
        None
    }

    /// The values of a list. A single value is a list of one.
    pub(super) fn list<'a>(&mut self, node: &'a Node) -> &'a [Node] {
        match &node.value {
            Value::List(values) => values,
            Value::Nothing => &[],
            _ => std::slice::from_ref(node),
        }
    }

    pub(super) fn text<'a>(&mut self, node: &'a Node, field: &str) -> Option<&'a str> {
        if let Value::Scalar { text, .. } = &node.value {
            return Some(text);
        }
        self.say(
            node.place,
            format!("`{field}` must be a single value, found {}", found(node)),
            format!("write one value after `{field}:`"),
        );
        None
    }

    /// What a small language makes of a single value, and where it stands.
    pub(super) fn parse<T>(
        &mut self,
        node: &Node,
        field: &str,
        grammar: impl FnOnce(&str) -> Result<T, Wrong>,
    ) -> Option<At<T>> {
        let text = self.text(node, field)?;
        match grammar(text) {
            Ok(value) => Some(At::new(value, node.place)),
            Err(wrong) => {
                self.problems.push(Problem {
                    place: node.place,
                    message: format!("`{field}`: {}", wrong.message).into(),
                    help: wrong.help,
                });
                None
            }
        }
    }

    /// A whole number up to a bound.
    pub(super) fn number(&mut self, node: &Node, field: &str, most: u64) -> Option<At<u64>> {
        let number = self.parse(node, field, words::count)?;
        if number.value <= most {
            return Some(number);
        }
        self.say(
            node.place,
            format!("`{field}` cannot be {}", number.value),
            format!("write a number up to {most}"),
        );
        None
    }

    /// One of a few words.
    pub(super) fn word(
        &mut self,
        node: &Node,
        field: &str,
        known: &[&'static str],
    ) -> Option<At<&'static str>> {
        let text = self.text(node, field)?;
        if let Some(word) = known.iter().find(|word| **word == text) {
            return Some(At::new(word, node.place));
        }
        let help = match nearest(text, known.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("it may be {}", listed(known)),
        };
        let message = format!("`{field}` cannot be {}", quoted(text));
        self.say(node.place, message, help);
        None
    }
}

impl<'a> Fields<'a> {
    /// The value of a field, if it is given. Nothing is given by a name without a value.
    pub(super) fn take(&mut self, name: &'static str) -> Option<&'a Node> {
        self.asked.push(name);
        let entry = self
            .entries
            .iter()
            .find(|entry| &*entry.name.value == name)?;
        Some(&entry.value)
    }

    /// The value of a field that must be given.
    pub(super) fn require(
        &mut self,
        reader: &mut Reader,
        name: &'static str,
        example: &str,
    ) -> Option<&'a Node> {
        let value = self.take(name);
        if value.is_none_or(|node| matches!(node.value, Value::Nothing)) {
            let message = format!("{} has no `{name}`", self.of);
            reader.say(self.place, message, format!("add `{name}: {example}`"));
            return None;
        }
        value
    }

    /// Reports names that belong elsewhere.
    pub(super) fn belong_in(
        &mut self,
        reader: &mut Reader,
        names: &[&'static str],
        where_to: &str,
    ) {
        for entry in self.entries {
            let Some(name) = names.iter().find(|name| **name == &*entry.name.value) else {
                continue;
            };
            self.elsewhere.push(name);
            reader.say(
                entry.name.place,
                format!("{}: there is no field `{name}`", self.of),
                format!("write it in `{where_to}`"),
            );
        }
    }

    /// Reports every name that was not asked for.
    pub(super) fn finish(self, reader: &mut Reader) {
        for entry in self.entries {
            let name = &*entry.name.value;
            if self.asked.contains(&name) || self.elsewhere.contains(&name) {
                continue;
            }
            let help = match nearest(name, self.asked.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("there are {}", listed(&self.asked)),
            };
            let message = format!("{}: there is no field {}", self.of, quoted(name));
            reader.say(entry.name.place, message, help);
        }
    }
}

/// What stands there, in messages.
pub(super) fn found(node: &Node) -> String {
    match &node.value {
        Value::Nothing => "nothing".to_owned(),
        Value::Scalar { text, .. } => quoted(text),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
    }
}

/// Names in backquotes with commas between them.
pub(super) fn listed(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
