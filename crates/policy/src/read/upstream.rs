//! Reads an upstream of the gateway: addresses, timeouts, bounds, retries, health checks, ejection and TLS.
//!
//! Must not know: routes, how requests are forwarded.

use serde_json::{Value as Json, json};
use tollgate_core::Nanos;

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs, set_if_some};
use crate::grammar::{self, GrammarError, quote};
use crate::model::{
    EjectionSpec, HealthCheckSpec, Located, UpstreamAddress, UpstreamSpec, UpstreamTlsSpec,
    WeightedAddress,
};
use crate::schema::{definition_ref, lax_object, object, one_or_list};
use crate::source::{SourceNode, SourceValue};

/// The most addresses of one upstream.
const MAX_ADDRESSES: usize = 100;

fn duration() -> Json {
    definition_ref("duration")
}

fn count() -> Json {
    json!({ "type": "integer", "minimum": 1 })
}

fn file() -> Json {
    json!({ "type": "string" })
}

impl TreeReader {
    fn set_duration(&mut self, node: &SourceNode, name: &str, target: &mut Nanos) {
        set_if_some(target, self.parse(node, name, grammar::parse_duration));
    }

    fn set_count(&mut self, node: &SourceNode, name: &str, max: u32, target: &mut u32) {
        let number = self.number(node, name, 1, u64::from(max));
        set_if_some(target, number.and_then(|number| u32::try_from(number).ok()));
    }
}

/// The fields of an upstream.
pub(crate) const UPSTREAM: [Field<UpstreamSpec>; 13] = [
    Field::new(
        "addresses",
        FieldDefault::Required("[http://127.0.0.1:3000]"),
        "Its servers: `http://HOST:PORT`, `https://HOST`, `h2c://HOST:PORT` (HTTP/2 without TLS) or `unix:/PATH`; or a map with a weight.",
        || one_or_list(&address_schema()),
        |reader, node, _, upstream| upstream.addresses = read_addresses(reader, node),
    ),
    Field::new(
        "connect_timeout",
        FieldDefault::Value("2s"),
        "Time to connect, with the TLS handshake.",
        duration,
        |reader, node, name, upstream| {
            reader.set_duration(node, name, &mut upstream.connect_timeout);
        },
    ),
    Field::new(
        "first_byte_timeout",
        FieldDefault::Value("1m"),
        "Time from sending the request to the head of the response. After it the client gets 504.",
        duration,
        |reader, node, name, upstream| {
            reader.set_duration(node, name, &mut upstream.first_byte_timeout);
        },
    ),
    Field::new(
        "idle_timeout",
        FieldDefault::Value("1m"),
        "Time in which a body, or an upgraded connection, transfers no byte.",
        duration,
        |reader, node, name, upstream| reader.set_duration(node, name, &mut upstream.idle_timeout),
    ),
    Field::new(
        "total_timeout",
        FieldDefault::None,
        "Time for the whole exchange, from the request's head to the last byte of the response.",
        duration,
        |reader, node, name, upstream| {
            upstream.total_timeout = reader.parse(node, name, grammar::parse_duration);
        },
    ),
    Field::new(
        "max_connections",
        FieldDefault::Value("1000"),
        "Connections to each address. Further requests get 503.",
        count,
        |reader, node, name, upstream| {
            reader.set_count(node, name, 100_000, &mut upstream.max_connections);
        },
    ),
    Field::new(
        "max_idle_connections",
        FieldDefault::Value("100"),
        "Connections to each address that are kept open without a request.",
        count,
        |reader, node, name, upstream| {
            reader.set_count(node, name, 100_000, &mut upstream.max_idle_connections);
        },
    ),
    Field::new(
        "keepalive_timeout",
        FieldDefault::Value("30s"),
        "How long a connection is kept open without a request. It should be shorter than the upstream's own time.",
        duration,
        |reader, node, name, upstream| {
            reader.set_duration(node, name, &mut upstream.keepalive_timeout);
        },
    ),
    Field::new(
        "retries",
        FieldDefault::Value("1"),
        "How often a request is sent again: only if nothing of it was sent, or if it has no body and its method is idempotent.",
        || json!({ "type": "integer", "minimum": 0, "maximum": 10 }),
        |reader, node, name, upstream| {
            let number = reader.number(node, name, 0, 10);
            set_if_some(
                &mut upstream.retries,
                number.and_then(|number| u32::try_from(number).ok()),
            );
        },
    ),
    Field::new(
        "retry_budget",
        FieldDefault::Value("20%"),
        "The share of requests that may be sent again, so that retries do not multiply the load of an outage.",
        || definition_ref("percent"),
        |reader, node, name, upstream| {
            set_if_some(
                &mut upstream.retry_budget,
                reader.parse(node, name, grammar::parse_percent),
            );
        },
    ),
    Field::new(
        "health_check",
        FieldDefault::None,
        "Requests that test whether each address is healthy.",
        || object(field_specs(&HEALTH_CHECK)),
        |reader, node, _, upstream| upstream.health_check = read_health_check(reader, node),
    ),
    Field::new(
        "ejection",
        FieldDefault::Description("after 5 failures for 30 s"),
        "When an address that fails gets no requests for a while. If all addresses are out, all are used.",
        || lax_object(field_specs(&EJECTION)),
        |reader, node, _, upstream| upstream.ejection = read_ejection(reader, node),
    ),
    Field::new(
        "tls",
        FieldDefault::None,
        "TLS to `https` addresses.",
        || lax_object(field_specs(&TLS)),
        |reader, node, _, upstream| upstream.tls = read_tls(reader, node),
    ),
];

/// The fields of an address in its long form.
pub(crate) const ADDRESS: [Field<AddressDraft>; 2] = [
    Field::new(
        "url",
        FieldDefault::Required("http://127.0.0.1:3000"),
        "The address.",
        || json!({ "type": "string" }),
        |reader, node, name, draft| {
            draft.0 = reader.parse(node, name, grammar::parse_upstream_address);
        },
    ),
    Field::new(
        "weight",
        FieldDefault::Value("1"),
        "An address with weight 2 gets twice as many requests as one with weight 1.",
        count,
        |reader, node, name, draft| reader.set_count(node, name, 1_000, &mut draft.1),
    ),
];

/// An address while it is read, and its weight.
pub(crate) struct AddressDraft(Option<UpstreamAddress>, u32);

/// The fields of `health_check`.
pub(crate) const HEALTH_CHECK: [Field<HealthCheckSpec>; 5] = [
    Field::new(
        "path",
        FieldDefault::Required("/healthz"),
        "The path of the request. A status from 200 to 299 is healthy.",
        || json!({ "type": "string", "pattern": "^/" }),
        |reader, node, name, check| {
            set_if_some(&mut check.path, reader.parse(node, name, check_path));
        },
    ),
    Field::new(
        "interval",
        FieldDefault::Value("5s"),
        "The time between two requests.",
        duration,
        |reader, node, name, check| reader.set_duration(node, name, &mut check.interval),
    ),
    Field::new(
        "timeout",
        FieldDefault::Value("1s"),
        "Time for the answer.",
        duration,
        |reader, node, name, check| reader.set_duration(node, name, &mut check.timeout),
    ),
    Field::new(
        "unhealthy_after",
        FieldDefault::Value("3"),
        "An address is unhealthy after this many failures in a row.",
        count,
        |reader, node, name, check| reader.set_count(node, name, 1_000, &mut check.unhealthy_after),
    ),
    Field::new(
        "healthy_after",
        FieldDefault::Value("2"),
        "An address is healthy again after this many successes in a row.",
        count,
        |reader, node, name, check| reader.set_count(node, name, 1_000, &mut check.healthy_after),
    ),
];

/// The fields of `ejection`.
pub(crate) const EJECTION: [Field<EjectionSpec>; 2] = [
    Field::new(
        "failures",
        FieldDefault::Value("5"),
        "After this many failures in a row: no connection, no response in time, or a status of 502, 503 or 504.",
        count,
        |reader, node, name, ejection| {
            reader.set_count(node, name, 1_000_000, &mut ejection.failures);
        },
    ),
    Field::new(
        "duration",
        FieldDefault::Value("30s"),
        "For this long.",
        duration,
        |reader, node, name, ejection| reader.set_duration(node, name, &mut ejection.duration),
    ),
];

/// The fields of `tls`.
pub(crate) const TLS: [Field<UpstreamTlsSpec>; 4] = [
    Field::new(
        "ca",
        FieldDefault::Description("those of the operating system"),
        "A PEM file of certificate authorities.",
        file,
        |reader, node, name, tls| tls.ca = reader.text(node, name).map(Into::into),
    ),
    Field::new(
        "server_name",
        FieldDefault::Description("the host of the address"),
        "The name that the upstream's certificate must have.",
        file,
        |reader, node, name, tls| {
            tls.server_name = reader.parse(node, name, grammar::parse_route_host);
        },
    ),
    Field::new(
        "certificate",
        FieldDefault::None,
        "A PEM file of the gateway's own certificate, for upstreams that require one.",
        file,
        |reader, node, name, tls| tls.certificate = reader.text(node, name).map(Into::into),
    ),
    Field::new(
        "key",
        FieldDefault::None,
        "A PEM file of the key of `certificate`.",
        file,
        |reader, node, name, tls| tls.key = reader.text(node, name).map(Into::into),
    ),
];

/// The schema of an upstream in its long form.
pub(super) fn schema() -> Json {
    object(field_specs(&UPSTREAM))
}

/// The schema of one address.
pub(super) fn address_schema() -> Json {
    json!({ "anyOf": [{ "type": "string" }, object(field_specs(&ADDRESS))] })
}

/// An upstream: its addresses, or a map.
pub(super) fn read_upstream(
    reader: &mut TreeReader,
    node: &SourceNode,
    name: Located<Box<str>>,
) -> UpstreamSpec {
    let subject = format!("upstream `{}`", name.value);
    let mut upstream = UpstreamSpec::new(name);
    let is_long_form = matches!(&node.value, SourceValue::Map(entries) if entries.iter().all(|entry| &*entry.name.value != "url"));
    if !is_long_form {
        upstream.addresses = read_addresses(reader, node);
    } else if let Some(mut fields) = FieldReader::open(reader, node, subject, "{ addresses: … }")
    {
        fields.read(reader, &UPSTREAM, &mut upstream);
        fields.finish(reader);
    }
    upstream
}

fn read_addresses(reader: &mut TreeReader, node: &SourceNode) -> Vec<WeightedAddress> {
    let nodes = match &node.value {
        SourceValue::List(nodes) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if nodes.is_empty() {
        reader.diagnostics.add(
            node.location,
            "an upstream has no addresses",
            "add one such as `http://127.0.0.1:3000`",
        );
    }
    if !reader.is_within(node, "addresses", nodes.len(), MAX_ADDRESSES) {
        return Vec::new();
    }
    let addresses = nodes.iter().filter_map(|node| read_address(reader, node));
    addresses.collect()
}

fn read_address(reader: &mut TreeReader, node: &SourceNode) -> Option<WeightedAddress> {
    let mut draft = AddressDraft(None, 1);
    if let SourceValue::Map(_) = &node.value {
        let example = "{ url: http://127.0.0.1:3000, weight: 2 }";
        let mut fields = FieldReader::open(reader, node, "an address", example)?;
        fields.read(reader, &ADDRESS, &mut draft);
        fields.finish(reader);
    } else {
        draft.0 = reader.parse(node, "addresses", grammar::parse_upstream_address);
    }
    let AddressDraft(address, weight) = draft;
    Some(WeightedAddress {
        address: address?,
        weight,
    })
}

fn read_health_check(reader: &mut TreeReader, node: &SourceNode) -> Option<HealthCheckSpec> {
    let mut check = HealthCheckSpec::default();
    let example = "health_check: { path: /healthz }";
    let mut fields = FieldReader::open(reader, node, "`health_check`", example)?;
    fields.read(reader, &HEALTH_CHECK, &mut check);
    fields.finish(reader);
    Some(check)
}

fn read_ejection(reader: &mut TreeReader, node: &SourceNode) -> EjectionSpec {
    let mut ejection = EjectionSpec::default();
    let example = "ejection: { failures: 5, duration: 30s }";
    if let Some(mut fields) = FieldReader::open(reader, node, "`ejection`", example) {
        fields.read(reader, &EJECTION, &mut ejection);
        fields.finish(reader);
    }
    ejection
}

fn read_tls(reader: &mut TreeReader, node: &SourceNode) -> UpstreamTlsSpec {
    let mut tls = UpstreamTlsSpec::default();
    let Some(mut fields) = FieldReader::open(reader, node, "`tls`", "tls: { ca: ca.pem }") else {
        return tls;
    };
    fields.read(reader, &TLS, &mut tls);
    if fields.has("certificate") != fields.has("key") {
        reader.diagnostics.add(
            node.location,
            "`tls` has only one of `certificate` and `key`",
            "add the other one",
        );
    }
    fields.finish(reader);
    tls
}

/// The target of a health check.
fn check_path(text: &str) -> Result<Box<str>, GrammarError> {
    let is_target_byte = |byte: u8| (b'!'..=b'~').contains(&byte) && byte != b'#';
    if text.starts_with('/') && text.len() <= 255 && text.bytes().all(is_target_byte) {
        return Ok(text.into());
    }
    Err(GrammarError::with_help(
        format!("{} is not a path", quote(text)),
        "write one such as `/healthz`",
    ))
}
