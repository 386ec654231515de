//! The OpenAPI document is correct: every operation answers as documented, with exactly the documented fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tollgate_store::ManualClock;

use crate::harness::{HttpClient, HttpReply, TestServer, serve_policy};

async fn demonstration() -> (TestServer<ManualClock>, Value) {
    let server = serve_policy(include_str!("../../../../policies/demo.yaml")).await;
    let document = server.get("/openapi.json").await;
    assert_eq!(document.field("content-type"), Some("application/json"));
    let document = document.json();
    (server, document)
}

/// Validates values against schemas and records which properties of which schema were seen.
struct Checker<'a> {
    document: &'a Value,
    seen: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Checker<'a> {
    fn new(document: &'a Value) -> Self {
        let seen = BTreeMap::new();
        Self { document, seen }
    }

    /// The error of a value.
    fn check(&mut self, schema: &Value, value: &Value, name: &str) -> Result<(), String> {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap();
            let schema = &self.document["components"]["schemas"][name];
            assert!(schema.is_object(), "{reference} is not there");
            return self.check(schema, value, name);
        }
        if let Some(either) = schema["anyOf"].as_array() {
            let mut wrong = Vec::new();
            for one in either {
                match self.check(one, value, name) {
                    Ok(()) => return Ok(()),
                    Err(why) => wrong.push(why),
                }
            }
            return Err(wrong.join(", and "));
        }
        if !has_type(&schema["type"], value) {
            return Err(format!("{name}: {value} is not {}", schema["type"]));
        }
        if let Some(choices) = schema["enum"].as_array()
            && !choices.contains(value)
        {
            return Err(format!("{name}: {value} is none of {choices:?}"));
        }
        match value {
            Value::Array(items) => items
                .iter()
                .try_for_each(|item| self.check(&schema["items"], item, name)),
            Value::Object(fields) => self.check_fields(schema, fields, name),
            _ => Ok(()),
        }
    }

    fn check_fields(
        &mut self,
        schema: &Value,
        fields: &Map<String, Value>,
        name: &str,
    ) -> Result<(), String> {
        let Some(properties) = schema["properties"].as_object() else {
            return Ok(());
        };
        for required in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(required.as_str().unwrap()) {
                return Err(format!("{name}: {required} is missing"));
            }
        }
        for (field, value) in fields {
            let Some(schema) = properties.get(field) else {
                return Err(format!("{name}: {field} is not documented"));
            };
            self.check(schema, value, &format!("{name}.{field}"))?;
        }
        let seen = self.seen.entry(name.to_owned()).or_default();
        seen.extend(fields.keys().cloned());
        Ok(())
    }

    /// Validates a response against the documented status of an operation.
    fn check_answer(&mut self, operation: &Value, answer: &HttpReply) {
        let responses = &operation["responses"];
        let documented = responses
            .get(answer.status.to_string())
            .unwrap_or(&responses["default"]);
        let what = format!("{} {}", operation["operationId"], answer.status);
        assert!(documented.is_object(), "{what} is not documented");
        for (field, _) in documented["headers"].as_object().into_iter().flatten() {
            let optional = ["Retry-After", "X-RateLimit-Reason"].contains(&field.as_str());
            let is_there = answer.field(&field.to_lowercase()).is_some();
            assert!(is_there || optional, "{what}: {field}");
        }
        let Some(content) = documented["content"].as_object() else {
            assert_eq!(answer.body, "", "{what}");
            return;
        };
        let kind = answer.field("content-type").unwrap();
        let kind = kind.split(';').next().unwrap();
        let schema = &content[kind]["schema"];
        let value = match kind {
            "text/plain" => json!(answer.body),
            _ => answer.json(),
        };
        let checked = self.check(schema, &value, &what);
        assert_eq!(checked, Ok(()), "{}", answer.body);
    }
}

fn has_type(types: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    };
    types
        .as_array()
        .map_or_else(|| is(types), |all| all.iter().any(is))
}

/// Sends the requests of an operation's own examples.
async fn ask_as_documented(
    client: &mut HttpClient,
    (path, method, operation): (&str, &str, &Value),
) -> HttpReply {
    let mut query = Vec::new();
    let mut fields = Vec::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap();
        let example = match &parameter["example"] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match parameter["in"].as_str() {
            Some("query") => query.push(format!("{name}={example}")),
            _ => fields.push((name.to_owned(), example)),
        }
    }
    let mut body = operation["requestBody"]["content"]["application/json"]["example"].clone();
    if body.get("ticket").is_some() {
        body["ticket"] = ticket(client).await;
    }
    let target = match query.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", query.join("&")),
    };
    let fields: Vec<_> = fields
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    client
        .request_with(&method.to_uppercase(), &target, &fields, &body)
        .await
}

/// A new ticket with a lease.
async fn ticket(client: &mut HttpClient) -> Value {
    let body = r#"{"attributes": {"path": "/exports", "header.x-api-key": "other"}}"#;
    let ticket = client.post("/v1/acquire", body).await.json()["ticket"].clone();
    assert!(ticket.is_string());
    ticket
}

#[tokio::test]
async fn every_operation_answers_as_documented_with_every_field() {
    let (server, document) = demonstration().await;
    let mut client = server.connect().await;
    let mut checker = Checker::new(&document);
    let mut tested = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let answer = ask_as_documented(&mut client, (path, method, operation)).await;
            assert!(answer.status < 300, "{method} {path}: {}", answer.body);
            checker.check_answer(operation, &answer);
            tested += 1;
            // The example must not hold a lease that the next one needs.
            server.clock.advance(tollgate_core::Nanos::MINUTE);
        }
    }
    assert_eq!(tested, 22);
    let check = &document["paths"]["/v1/check"]["post"];
    for (body, status) in [
        (r#"{"key": "a", "cost": 21}"#, 429),
        (r#"{"cost": -1}"#, 400),
    ] {
        let answer = client.post("/v1/check", body).await;
        assert_eq!(answer.status, status);
        checker.check_answer(check, &answer);
    }
    let nginx = &document["paths"]["/auth/nginx"]["get"];
    for _ in 0..5 {
        client
            .get("/v1/check?ip=192.0.2.9&path=/login&method=POST")
            .await;
    }
    let fields = [
        ("x-original-method", "POST"),
        ("x-original-uri", "/login"),
        ("x-original-host", "a"),
        ("x-real-ip", "192.0.2.9"),
    ];
    let denied = client.request_with("GET", "/auth/nginx", &fields, "").await;
    assert_eq!(denied.status, 403);
    checker.check_answer(nginx, &denied);

    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let is_said_by_callers = [
            "Question",
            "Held",
            "Questions",
            "Ticket",
            "Response",
            "Cost",
        ];
        if is_said_by_callers.contains(&name.as_str()) {
            continue;
        }
        let documented: BTreeSet<String> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        assert_eq!(checker.seen.get(name), Some(&documented), "{name}");
    }
}

#[tokio::test]
async fn every_documented_field_of_a_request_is_accepted() {
    let (server, document) = demonstration().await;
    let mut client = server.connect().await;
    let schemas = &document["components"]["schemas"];
    for (schema, targets) in [
        ("Question", &["/v1/check"][..]),
        ("Held", &["/v1/acquire", "/v1/reserve"]),
        ("Ticket", &["/v1/cancel", "/v1/renew", "/v1/release"]),
        ("Response", &["/v1/respond"]),
        ("Cost", &["/v1/settle"]),
    ] {
        let example = |schema: &Value| match schema["type"].as_str() {
            Some("object") => json!({}),
            Some("boolean") => json!(false),
            Some("integer") => json!(200),
            _ => match &schema["example"] {
                Value::Null => json!("0123456789abcdef0123456789abcdef"),
                example => example.clone(),
            },
        };
        let properties = schemas[schema]["properties"].as_object().unwrap();
        let body: Map<_, _> = properties
            .iter()
            .map(|(name, schema)| (name.clone(), example(schema)))
            .collect();
        for target in targets {
            let answer = client.post(target, &json!(body).to_string()).await;
            assert_ne!(answer.status, 400, "{target}: {}", answer.body);
        }
    }
}

#[tokio::test]
async fn control_an_undocumented_response_is_detected() {
    let (_server, document) = demonstration().await;
    let mut checker = Checker::new(&document);
    let schema = json!({ "$ref": "#/components/schemas/Done" });
    let right = json!({ "ticket": "a", "settled": true });
    assert_eq!(checker.check(&schema, &right, ""), Ok(()));
    for wrong in [
        json!({ "ticket": "a" }),
        json!({ "ticket": "a", "settled": 1 }),
        json!({ "ticket": "a", "settled": true, "more": 1 }),
        json!([]),
    ] {
        assert!(checker.check(&schema, &wrong, "").is_err(), "{wrong}");
    }
    let verdict = json!({ "$ref": "#/components/schemas/Standing" });
    assert!(checker.check(&verdict, &json!({}), "").is_err());
    assert!(!checker.seen.contains_key("Standing"));
}
