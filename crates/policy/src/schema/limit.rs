//! The schema of a limit and of the quotas in it.
//!
//! Must not know: the rest of the file.

use serde_json::{Map, Value, json};

use super::parts::{Field, list_of, object, of, one_or_list, some_of};

/// The definitions of this file by their names.
pub(super) fn definitions() -> Map<String, Value> {
    let all = [
        ("limit", limit()),
        ("level", level()),
        ("key", key()),
        ("rates", rates()),
        ("quota", quota()),
        ("tiers", tiers()),
        ("override", overriding()),
        ("cost", cost()),
        ("count", count()),
    ];
    all.into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn name() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" })
}

fn missing() -> Value {
    json!({ "enum": ["shared", "skip", "deny"] })
}

/// The fields that say how much. They are the same for limits, levels, tiers, overrides and candidates.
fn quota_fields() -> Vec<Field<'static>> {
    let algorithms = json!({ "enum": [
        "token_bucket", "leaky_bucket", "leaky_queue", "fixed_window", "sliding_window", "sliding_log",
    ] });
    vec![
        (
            "rate",
            "So many per period; several rates all hold. Or computed: `5000/h + 50/h × claim.repos, at most 12500/h`.",
            of("rates"),
        ),
        (
            "concurrency",
            "So many at once, instead of a rate.",
            of("number"),
        ),
        (
            "lease",
            "How long a place is held without being renewed (default 60s).",
            of("duration"),
        ),
        (
            "algorithm",
            "How the rate is counted (default token_bucket).",
            algorithms,
        ),
        (
            "burst",
            "The most at once, where it is not the rate's own number; `auto` is ten seconds' worth.",
            json!({ "anyOf": [{ "const": "auto" }, of("number")] }),
        ),
        (
            "unit",
            "What is counted (default requests).",
            json!({ "enum": ["requests", "bytes", "tokens"] }),
        ),
        (
            "utc_offset",
            "The offset from UTC at which calendar windows turn, such as \"+02:00\".",
            text(),
        ),
    ]
}

fn with_quota_fields(mut fields: Vec<Field<'static>>, required: &[&str]) -> Value {
    fields.extend(quota_fields());
    object(&fields, required)
}

fn unlimited() -> Field<'static> {
    ("unlimited", "No limit at all.", json!({ "const": true }))
}

fn limit() -> Value {
    let mut fields = own_fields();
    fields.extend(action_fields());
    let mut limit = with_quota_fields(fields, &["name"]);
    if let Some(limit) = limit.as_object_mut() {
        let one = |field: &str| json!({ "required": [field] });
        limit.insert(
            "anyOf".into(),
            json!([one("rate"), one("concurrency"), one("levels")]),
        );
    }
    limit
}

/// The fields that say which requests, whose quota and what is counted.
fn own_fields() -> Vec<Field<'static>> {
    vec![
        (
            "name",
            "Unique in the file. State is kept by it, unless there is an `id`.",
            name(),
        ),
        (
            "id",
            "A stable number for the state, so that the name may change.",
            json!({ "type": "integer", "minimum": 1, "maximum": 60_000 }),
        ),
        (
            "match",
            "Which requests it is about. Left out: all.",
            of("match"),
        ),
        ("group", "The group it belongs to; see `groups`.", name()),
        (
            "bucket",
            "Limits that name the same bucket share its state.",
            name(),
        ),
        (
            "key",
            "Whose quota it is: attributes that together make up the key. Left out: everyone's together.",
            of("key"),
        ),
        (
            "missing",
            "What it means if an attribute of the key is absent: `shared` (default), `skip` or `deny`.",
            missing(),
        ),
        (
            "tiers",
            "Other quotas by the value of an attribute.",
            of("tiers"),
        ),
        (
            "overrides",
            "Other quotas for single keys.",
            list_of(&of("override")),
        ),
        (
            "levels",
            "A hierarchy, widest first; each level adds to the key of the one above. Instead of `key` and `rate`.",
            some_of(&of("level")),
        ),
        ("cost", "What a request costs (default 1).", of("cost")),
        (
            "count",
            "What is counted: `requests`, `denials`, or chosen responses.",
            of("count"),
        ),
        (
            "distinct",
            "Counts how many different values this attribute has, not requests.",
            of("attribute"),
        ),
        (
            "local",
            "A permissive bucket in this process, asked first.",
            of("quota"),
        ),
        (
            "candidate",
            "A quota that is tried beside the enforced one and never enforced.",
            of("quota"),
        ),
    ]
}

/// The fields that say what happens then.
fn action_fields() -> Vec<Field<'static>> {
    vec![
        (
            "mode",
            "`enforce` (default), `shadow` (count and report only) or `off`.",
            of("mode"),
        ),
        (
            "enforce",
            "The share of keys that it is enforced for; the others are shadowed.",
            of("percent"),
        ),
        (
            "wait",
            "A denial that would be over sooner than this becomes a wait.",
            of("duration"),
        ),
        (
            "penalty",
            "What a denial costs: `none` (default), `count`, or `block 10m`.",
            json!({ "type": "string", "pattern": "^\\s*(none|count|block\\s.+)\\s*$", "examples": ["none", "count", "block 10m"] }),
        ),
        (
            "charge",
            "`always`: never denies and charges into debt down to the overdraft.",
            json!({ "enum": ["request", "always"] }),
        ),
        (
            "overdraft",
            "How far below zero later charges may go.",
            of("number"),
        ),
        (
            "on_store_failure",
            "While the shared store does not answer: `local` (default, a share of the quota), `open` or `closed`.",
            json!({ "enum": ["local", "open", "closed"] }),
        ),
        (
            "consistency",
            "How exactly a fleet shares the quota: `exact` (default), `leased`, or `async 1s`.",
            json!({ "type": "string", "pattern": "^\\s*(exact|leased|async\\s.+)\\s*$", "examples": ["exact", "leased", "async 1s"] }),
        ),
        (
            "colocate",
            "Limits with the same attribute here live in one slot of a cluster.",
            of("attribute"),
        ),
        (
            "status",
            "The status of a denial (default 429).",
            of("status"),
        ),
        ("message", "The message of a denial.", text()),
    ]
}

fn level() -> Value {
    with_quota_fields(
        vec![
            ("name", "As verdicts name it when it is violated.", name()),
            (
                "key",
                "What this level adds to the key of the level above.",
                of("key"),
            ),
        ],
        &["name"],
    )
}

fn key() -> Value {
    let bits = |most: u8| json!({ "type": "integer", "minimum": 0, "maximum": most });
    let part = object(
        &[
            ("attribute", "Which attribute.", of("attribute")),
            (
                "lower",
                "Letters A to Z count as a to z.",
                json!({ "type": "boolean" }),
            ),
            (
                "hash",
                "Only a keyed digest of the value is kept and shown.",
                json!({ "type": "boolean" }),
            ),
            (
                "v4",
                "How many leading bits of an IPv4 address count (default 32).",
                bits(32),
            ),
            (
                "v6",
                "How many leading bits of an IPv6 address count (default 64).",
                bits(128),
            ),
            (
                "missing",
                "What it means if the attribute is absent.",
                missing(),
            ),
        ],
        &["attribute"],
    );
    one_or_list(&json!({ "anyOf": [of("attribute"), part] }))
}

fn rates() -> Value {
    let computed = object(
        &[
            ("base", "What everyone gets.", of("rate")),
            ("each", "What each unit of the attribute adds.", of("rate")),
            (
                "times",
                "The attribute whose number is multiplied.",
                of("attribute"),
            ),
            ("at_most", "The most that anyone gets.", of("rate")),
        ],
        &["base", "each", "times", "at_most"],
    );
    json!({ "anyOf": [of("rate"), some_of(&of("rate")), computed] })
}

/// A quota beside a limit's own: a rate, `unlimited`, its fields, or how many at once where the limit says that.
fn quota() -> Value {
    let fields = with_quota_fields(vec![unlimited()], &[]);
    json!({ "anyOf": [of("rate"), { "const": "unlimited" }, some_of(&of("rate")), of("number"), fields] })
}

fn tiers() -> Value {
    json!({
        "type": "object",
        "properties": { "by": {
            "$ref": "#/$defs/attribute",
            "description": "The attribute whose value names the tier. A value that names none gets the limit's own quota.",
        } },
        "required": ["by"],
        "additionalProperties": of("quota"),
    })
}

fn overriding() -> Value {
    with_quota_fields(
        vec![
            (
                "key",
                "The values of the key's attributes, in the order of its parts.",
                one_or_list(&of("scalar")),
            ),
            unlimited(),
        ],
        &["key"],
    )
}

fn cost() -> Value {
    let by = json!({
        "type": "object",
        "properties": {
            "by": { "$ref": "#/$defs/attribute", "description": "The attribute whose value chooses the cost." },
            "otherwise": { "$ref": "#/$defs/number", "description": "The cost of any other value, or of none." },
        },
        "required": ["by"],
        "additionalProperties": of("number"),
    });
    let from = object(
        &[
            ("from", "The attribute that says the cost.", of("attribute")),
            ("at_least", "Never less than this.", of("number")),
            ("at_most", "Never more than this.", of("number")),
            ("otherwise", "Where there is no number.", of("number")),
        ],
        &["from"],
    );
    let response = object(
        &[
            (
                "response",
                "The header of the response that says the cost.",
                text(),
            ),
            (
                "estimate",
                "Charged when the request arrives.",
                of("number"),
            ),
            ("at_most", "Never more than this.", of("number")),
        ],
        &["response"],
    );
    json!({ "anyOf": [of("number"), by, from, response] })
}

fn count() -> Value {
    let whole = json!({ "type": "integer", "minimum": 100, "maximum": 599 });
    let status =
        json!({ "anyOf": [whole, { "type": "string", "pattern": "^[1-5]([0-9]{2}|xx)$" }] });
    let responses = object(
        &[(
            "responses",
            "Statuses such as 401, or classes such as 4xx.",
            one_or_list(&status),
        )],
        &["responses"],
    );
    json!({ "anyOf": [{ "enum": ["requests", "denials"] }, responses] })
}
