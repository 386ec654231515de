//! Reads `gateway`: routes and their changes of header fields.
//!
//! Must not know: the fields of an upstream, how requests are forwarded.

use serde_json::{Value as Json, json};
use tollgate_core::QuotaUnit;

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs, set_if_some};
use super::upstream;
use crate::grammar::{self, GrammarError, quote};
use crate::model::{GatewaySpec, HeaderEdits, Located, RouteSpec};
use crate::schema::{
    definition_ref, lax_object, map_of, name_pattern, non_empty_list_of, object, one_or_list,
};
use crate::source::{SourceNode, SourceValue};

/// The most routes, upstreams, and header changes of one route. Routes and upstreams are metric labels.
const MAX_ROUTES: usize = 1_000;
const MAX_UPSTREAMS: usize = 200;
const MAX_EDITS: usize = 50;

/// Fields that the gateway itself writes: they frame a message or belong to one connection.
const OWN_FIELDS: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// The fields of `gateway`.
pub(crate) const GATEWAY: [Field<GatewaySpec>; 3] = [
    Field::new(
        "upstreams",
        FieldDefault::Required("{ app: http://127.0.0.1:3000 }"),
        "The servers behind the gateway by their names: addresses, or a map with more fields.",
        || {
            map_of(
                &json!({ "anyOf": [one_or_list(&upstream::address_schema()), upstream::schema()] }),
            )
        },
        |reader, node, _, gateway| read_upstreams(reader, node, gateway),
    ),
    Field::new(
        "routes",
        FieldDefault::Required("[{ upstream: app }]"),
        "Which requests go to which upstream. The most specific host decides, then the longest path.",
        || non_empty_list_of(&definition_ref("gateway_route")),
        |reader, node, _, gateway| read_routes(reader, node, gateway),
    ),
    Field::new(
        "max_body_size",
        FieldDefault::None,
        "The most bytes of a request's body, such as `10MiB`. A larger request gets 413. For routes without one of their own.",
        || definition_ref("number"),
        |reader, node, name, gateway| gateway.max_body_size = read_bytes(reader, node, name),
    ),
];

/// A route while it is read.
#[derive(Default)]
pub(crate) struct RouteDraft {
    host: Option<Box<str>>,
    path: Option<Box<str>>,
    upstream: Option<Located<Box<str>>>,
    strip_prefix: bool,
    max_body_size: Option<u64>,
    request_headers: HeaderEdits,
    response_headers: HeaderEdits,
}

/// The fields of a route.
pub(crate) const ROUTE: [Field<RouteDraft>; 7] = [
    Field::new(
        "host",
        FieldDefault::Description("every host"),
        "The host of the request: a name, or `*.example.com` for all names below it.",
        || json!({ "type": "string" }),
        |reader, node, name, route| {
            route.host = reader.parse(node, name, grammar::parse_route_host);
        },
    ),
    Field::new(
        "path",
        FieldDefault::Value("/"),
        "The prefix of the path in whole segments: `/api` is for `/api` and `/api/x`, not for `/apis`.",
        || json!({ "type": "string", "pattern": "^/" }),
        |reader, node, name, route| {
            route.path = reader.parse(node, name, grammar::parse_route_path);
        },
    ),
    Field::new(
        "upstream",
        FieldDefault::Required("app"),
        "The name of the upstream.",
        name_pattern,
        |reader, node, name, route| route.upstream = reader.name(node, name),
    ),
    Field::new(
        "strip_prefix",
        FieldDefault::Value("false"),
        "Whether `path` is removed from the path that the upstream gets.",
        || json!({ "type": "boolean" }),
        |reader, node, name, route| {
            set_if_some(&mut route.strip_prefix, reader.boolean(node, name));
        },
    ),
    Field::new(
        "max_body_size",
        FieldDefault::Description("that of `gateway`"),
        "The most bytes of a request's body, such as `1GiB`. A larger request gets 413.",
        || definition_ref("number"),
        |reader, node, name, route| route.max_body_size = read_bytes(reader, node, name),
    ),
    Field::new(
        "request_headers",
        FieldDefault::None,
        "Changes of the header fields that the upstream gets.",
        edits_schema,
        |reader, node, name, route| route.request_headers = read_edits(reader, node, name),
    ),
    Field::new(
        "response_headers",
        FieldDefault::None,
        "Changes of the header fields that the client gets.",
        edits_schema,
        |reader, node, name, route| route.response_headers = read_edits(reader, node, name),
    ),
];

/// The fields of `request_headers` and `response_headers`.
pub(crate) const EDITS: [Field<HeaderEdits>; 2] = [
    Field::new(
        "remove",
        FieldDefault::None,
        "Names of fields that are removed.",
        || one_or_list(&json!({ "type": "string" })),
        read_removed,
    ),
    Field::new(
        "add",
        FieldDefault::None,
        "Fields that are added after that, by their names.",
        || map_of(&definition_ref("scalar")),
        read_added,
    ),
];

/// The schema of a route.
pub(super) fn route_schema() -> Json {
    object(field_specs(&ROUTE))
}

fn edits_schema() -> Json {
    lax_object(field_specs(&EDITS))
}

/// `gateway`: routes and upstreams.
pub(super) fn read_gateway(reader: &mut TreeReader, node: &SourceNode) -> Option<GatewaySpec> {
    let example =
        "gateway: { upstreams: { app: http://127.0.0.1:3000 }, routes: [{ upstream: app }] }";
    let mut fields = FieldReader::open(reader, node, "`gateway`", example)?;
    let mut gateway = GatewaySpec::default();
    fields.read(reader, &GATEWAY, &mut gateway);
    fields.finish(reader);
    Some(gateway)
}

fn read_upstreams(reader: &mut TreeReader, node: &SourceNode, gateway: &mut GatewaySpec) {
    let example = "upstreams: { app: http://127.0.0.1:3000 }";
    let Some(fields) = FieldReader::open(reader, node, "`upstreams`", example) else {
        return;
    };
    if !reader.is_within(node, "upstreams", fields.entries.len(), MAX_UPSTREAMS) {
        return;
    }
    for entry in fields.entries {
        let location = entry.name.location;
        let name = reader.ok_or_report(
            location,
            "upstreams",
            grammar::parse_name(&entry.name.value),
        );
        // An invalid upstream is still known by its name, so that its routes are not reported too.
        if let Some(name) = name {
            let name = Located::new(name, location);
            gateway
                .upstreams
                .push(upstream::read_upstream(reader, &entry.value, name));
        }
    }
}

fn read_routes(reader: &mut TreeReader, node: &SourceNode, gateway: &mut GatewaySpec) {
    let nodes = reader.list(node, "routes").unwrap_or_default();
    if !reader.is_within(node, "routes", nodes.len(), MAX_ROUTES) {
        return;
    }
    for node in nodes {
        let example = "{ path: /api, upstream: app }";
        let Some(mut fields) = FieldReader::open(reader, node, "a route", example) else {
            continue;
        };
        let mut draft = RouteDraft::default();
        fields.read(reader, &ROUTE, &mut draft);
        fields.finish(reader);
        if let Some(upstream) = draft.upstream {
            gateway.routes.push(RouteSpec {
                host: draft.host,
                path: draft.path.unwrap_or_else(|| "/".into()),
                upstream,
                strip_prefix: draft.strip_prefix,
                max_body_size: draft.max_body_size,
                request_headers: draft.request_headers,
                response_headers: draft.response_headers,
            });
        }
    }
}

fn read_bytes(reader: &mut TreeReader, node: &SourceNode, name: &str) -> Option<u64> {
    reader.units(node, name, QuotaUnit::Bytes)
}

fn read_edits(reader: &mut TreeReader, node: &SourceNode, name: &str) -> HeaderEdits {
    let mut edits = HeaderEdits::default();
    let example = format!("{name}: {{ remove: [x-debug], add: {{ x-from: gateway }} }}");
    if let Some(mut fields) = FieldReader::open(reader, node, format!("`{name}`"), &example) {
        fields.read(reader, &EDITS, &mut edits);
        fields.finish(reader);
    }
    edits
}

fn read_removed(
    reader: &mut TreeReader,
    node: &SourceNode,
    name: &'static str,
    edits: &mut HeaderEdits,
) {
    let nodes = match &node.value {
        SourceValue::List(nodes) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if reader.is_within(node, name, nodes.len(), MAX_EDITS) {
        let names = nodes
            .iter()
            .filter_map(|node| reader.parse(node, name, field_name));
        edits.remove = names.collect();
    }
}

fn read_added(
    reader: &mut TreeReader,
    node: &SourceNode,
    name: &'static str,
    edits: &mut HeaderEdits,
) {
    let example = "add: { x-from: gateway }";
    let Some(fields) = FieldReader::open(reader, node, "`add`", example) else {
        return;
    };
    if !reader.is_within(node, name, fields.entries.len(), MAX_EDITS) {
        return;
    }
    for entry in fields.entries {
        let field = field_name(&entry.name.value);
        let field = reader.ok_or_report(entry.name.location, name, field);
        let value = reader.parse(&entry.value, &entry.name.value, field_value);
        if let (Some(field), Some(value)) = (field, value) {
            edits.add.push((field, value));
        }
    }
}

/// The name of a field that a policy may change.
fn field_name(text: &str) -> Result<Box<str>, GrammarError> {
    let name = grammar::parse_header_name(text)?;
    if OWN_FIELDS.contains(&&*name) {
        return Err(GrammarError::with_help(
            format!("{} is written by the gateway itself", quote(&name)),
            "leave it out",
        ));
    }
    Ok(name)
}

fn field_value(text: &str) -> Result<Box<str>, GrammarError> {
    let is_value_byte = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    if text.len() > 1_024 || !text.bytes().all(is_value_byte) || text.trim() != text {
        return Err(GrammarError::with_help(
            format!("{} is not the value of a header field", quote(text)),
            "write at most 1024 printable ASCII characters, without spaces around them",
        ));
    }
    Ok(text.into())
}

impl TreeReader {
    /// Whether a list or map is not too long. If it is, that is reported.
    pub(super) fn is_within(
        &mut self,
        node: &SourceNode,
        field: &str,
        len: usize,
        max: usize,
    ) -> bool {
        if len > max {
            self.diagnostics.add(
                node.location,
                format!("`{field}` has {len} entries"),
                format!("write at most {max}"),
            );
        }
        len <= max
    }
}
