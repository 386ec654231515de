//! The parts of a JSON Schema validator that our schema needs. An unknown keyword is an error, so that no part of the
//! schema is ignored.
//!
//! Must not know: policies.

use std::cell::RefCell;
use std::collections::HashMap;

use regex_lite::Regex;
use serde_json::{Map, Value};

/// The errors of a value, each with its path.
pub(super) fn errors(schema: &Value, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    Validator { root: schema }.check(schema, value, "", &mut errors);
    errors
}

struct Validator<'a> {
    root: &'a Value,
}

impl Validator<'_> {
    fn holds(&self, schema: &Value, value: &Value) -> bool {
        let mut errors = Vec::new();
        self.check(schema, value, "", &mut errors);
        errors.is_empty()
    }

    fn check(&self, schema: &Value, value: &Value, path: &str, errors: &mut Vec<String>) {
        if schema == &Value::Bool(false) {
            errors.push(format!("{path}: no value is allowed here"));
            return;
        }
        let keywords = schema.as_object().expect("a schema is a map or `false`");
        for (keyword, rule) in keywords {
            let is_valid = match keyword.as_str() {
                "$schema" | "$id" | "$defs" | "title" | "description" | "examples" => true,
                "$ref" => {
                    let pointer = rule
                        .as_str()
                        .and_then(|name| name.strip_prefix('#'))
                        .unwrap();
                    let definition = self.root.pointer(pointer).expect("it is defined");
                    self.check(definition, value, path, errors);
                    true
                }
                "anyOf" => list(rule).iter().any(|schema| self.holds(schema, value)),
                "properties" | "additionalProperties" => {
                    if keyword == "properties" || !keywords.contains_key("properties") {
                        self.members(keywords, value, path, errors);
                    }
                    true
                }
                // Handled together with `properties`.
                "patternProperties" => keywords.contains_key("properties"),
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{path}/{index}"), errors);
                    }
                    true
                }
                _ => simple(keyword, rule, value),
            };
            if !is_valid {
                errors.push(format!("{path}: {keyword} {rule} does not hold of {value}"));
            }
        }
    }

    fn members(
        &self,
        keywords: &Map<String, Value>,
        value: &Value,
        path: &str,
        errors: &mut Vec<String>,
    ) {
        for (name, member) in value.as_object().into_iter().flatten() {
            let path = format!("{path}/{name}");
            let named = keywords
                .get("properties")
                .and_then(|fields| fields.get(name));
            let like = keywords.get("patternProperties").and_then(Value::as_object);
            let like: Vec<_> = like
                .into_iter()
                .flatten()
                .filter(|(pattern, _)| fits(pattern, name))
                .map(|(_, schema)| schema)
                .collect();
            let rest = keywords.get("additionalProperties");
            let rest = rest.filter(|_| named.is_none() && like.is_empty());
            for schema in named.into_iter().chain(like).chain(rest) {
                self.check(schema, member, &path, errors);
            }
        }
    }
}

thread_local! {
    /// There are few patterns; each is compiled once.
    static PATTERNS: RefCell<HashMap<String, Regex>> = RefCell::default();
}

fn fits(pattern: &str, text: &str) -> bool {
    PATTERNS.with_borrow_mut(|patterns| {
        let compiled = patterns
            .entry(pattern.to_owned())
            .or_insert_with(|| Regex::new(pattern).unwrap());
        compiled.is_match(text)
    })
}

fn list(rule: &Value) -> &[Value] {
    rule.as_array().expect("a list")
}

/// The keywords without subschemas.
fn simple(keyword: &str, rule: &Value, value: &Value) -> bool {
    let count = |list: Option<usize>, at_least: bool| {
        let bound = usize::try_from(rule.as_u64().unwrap()).unwrap();
        list.is_none_or(|length| {
            if at_least {
                length >= bound
            } else {
                length <= bound
            }
        })
    };
    let members = value.as_object().map(Map::len);
    match keyword {
        "type" => match rule {
            Value::Array(types) => types.iter().any(|one| is(one, value)),
            one => is(one, value),
        },
        "enum" => list(rule).contains(value),
        "const" => rule == value,
        "pattern" => value
            .as_str()
            .is_none_or(|text| fits(rule.as_str().unwrap(), text)),
        "required" => value.as_object().is_none_or(|members| {
            list(rule)
                .iter()
                .all(|name| members.contains_key(name.as_str().unwrap()))
        }),
        "minimum" => value
            .as_f64()
            .is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => value
            .as_f64()
            .is_none_or(|number| number <= rule.as_f64().unwrap()),
        "minItems" => count(value.as_array().map(Vec::len), true),
        "minProperties" => count(members, true),
        "maxProperties" => count(members, false),
        other => panic!("the schema uses `{other}`, which this validator does not know"),
    }
}

fn is(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        other => panic!("`{other}` is not a type of our schema"),
    }
}
