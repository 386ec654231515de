//! A limit written in code, with the fields of a policy file.
//!
//! It is read by the reader of policies, so every field and every message is the same. Must not know: what fields mean.

use serde_json::{Map, Value, json};

/// A limit of a policy, written in code. Its quota is stated once; header fields and `Retry-After` come from it.
///
/// ```
/// use tollgate_tower::LimitSpec;
///
/// let login = LimitSpec::rate("login", "5/min")
///     .match_route("/login")
///     .match_method("POST")
///     .key("ip");
/// let uploads = LimitSpec::concurrency("uploads", 10).key("header.x-api-key");
/// let paced = LimitSpec::rate("paced", "10/s").burst(1).wait("2s");
/// let failures = LimitSpec::rate("failures", "20/min").field("count", serde_json::json!({ "responses": ["4xx"] }));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "give it to the layer's builder"]
pub struct LimitSpec(Value);

impl LimitSpec {
    /// A limit of a rate: `100/min`, `5/s`, `10MB/h`.
    pub fn rate(name: &str, rate: &str) -> Self {
        Self(json!({ "name": name, "rate": rate }))
    }

    /// A limit of requests at the same time. A permit is held until the response has ended.
    pub fn concurrency(name: &str, most: u64) -> Self {
        Self(json!({ "name": name, "concurrency": most }))
    }

    /// Adds an attribute to the key: each key has its own quota. Without a key, all requests share one.
    pub fn key(mut self, attribute: &str) -> Self {
        if let Some(fields) = self.0.as_object_mut() {
            let parts = fields.entry("key").or_insert_with(|| json!([]));
            if let Some(parts) = parts.as_array_mut() {
                parts.push(attribute.into());
            }
        }
        self
    }

    /// Sets the most at once, if it is not the number of the rate.
    pub fn burst(self, burst: u64) -> Self {
        self.field("burst", burst.into())
    }

    /// Lets a request wait that would be admitted within this time: `2s`, `500ms`.
    pub fn wait(self, longest: &str) -> Self {
        self.field("wait", longest.into())
    }

    /// Matches only requests whose path has this template: `/items/{id}`, `/api/{*rest}`.
    pub fn match_route(self, template: &str) -> Self {
        self.matching("route", template)
    }

    /// Matches only requests with this method.
    pub fn match_method(self, method: &str) -> Self {
        self.matching("method", method)
    }

    /// Sets any field of a limit: see the policy reference.
    pub fn field(mut self, name: &str, value: Value) -> Self {
        if let Some(fields) = self.0.as_object_mut() {
            fields.insert(name.to_owned(), value);
        }
        self
    }

    fn matching(mut self, attribute: &str, value: &str) -> Self {
        if let Some(fields) = self.0.as_object_mut() {
            let conditions = fields
                .entry("match")
                .or_insert_with(|| Value::Object(Map::new()));
            if let Some(conditions) = conditions.as_object_mut() {
                conditions.insert(attribute.to_owned(), value.into());
            }
        }
        self
    }

    pub(crate) const fn as_json(&self) -> &Value {
        &self.0
    }
}
