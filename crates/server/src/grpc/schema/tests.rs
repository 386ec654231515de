//! The descriptor set is complete and matches the `.proto` files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;

/// Every type that a message, at any depth, or a service refers to, with a leading dot.
fn used_types(kind: DescriptorKind, bytes: &'static [u8], found: &mut BTreeSet<&'static str>) {
    for (number, inner) in members(bytes) {
        match (kind, number) {
            (DescriptorKind::Message, 2) => drop(found.insert(text(inner, 6))),
            (DescriptorKind::Message, 3) => used_types(DescriptorKind::Message, inner, found),
            (DescriptorKind::Service, 2) => found.extend([text(inner, 2), text(inner, 3)]),
            _ => {}
        }
    }
    found.remove("");
}

#[test]
fn every_type_is_defined_in_the_file_or_in_one_that_it_imports() {
    for file in files() {
        let mut used = BTreeSet::new();
        for (number, bytes) in members(file.bytes) {
            match number {
                3 => {
                    let imported = std::str::from_utf8(bytes).unwrap();
                    assert!(files().any(|other| other.name() == imported), "{imported}");
                }
                4 => used_types(DescriptorKind::Message, bytes, &mut used),
                6 => used_types(DescriptorKind::Service, bytes, &mut used),
                _ => {}
            }
        }
        for name in used {
            let symbol = name.strip_prefix('.').unwrap();
            let is_seen = |other: &FileDescriptor| *other == file || file.imports(other.name());
            let defined = files().filter(is_seen).any(|file| file.defines(symbol));
            assert!(defined, "{name} in {}", file.name());
        }
    }
}

#[test]
fn symbols_are_found_in_one_file_only() {
    for symbol in [
        "envoy.service.ratelimit.v3.RateLimitService",
        "envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit",
        "envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit",
        "envoy.service.ratelimit.v3.RateLimitRequest.domain",
        "google.protobuf.Struct.FieldsEntry",
        "grpc.health.v1.Health",
        "envoy.service.rate_limit_quota.v3.RateLimitQuotaService.StreamRateLimitQuotas",
        "envoy.type.v3.RateLimitStrategy.BlanketRule",
    ] {
        assert_eq!(files().filter(|file| file.defines(symbol)).count(), 1);
    }
    for symbol in [
        "",
        "envoy",
        "envoy.service.ratelimit.v3",
        "grpc.health.v1.Heal",
    ] {
        assert!(!files().any(|file| file.defines(symbol)), "{symbol}");
    }
}

/// A name and a number. The number is in field 3 of a field descriptor and in field 2 of an enum value.
fn numbered(bytes: &'static [u8], under: u64) -> String {
    let mut fields = MessageFields::new(bytes);
    let mut found = 0;
    while let Some((number, value)) = fields.next_field().unwrap() {
        if let WireValue::Number(it) = value
            && number == under
        {
            found = it;
        }
    }
    format!("{} = {found}", text(bytes, 1))
}

/// The names that a descriptor defines, at any depth. Map entries are skipped, because sources do not spell them out.
fn defined(kind: u64, bytes: &'static [u8], found: &mut Vec<String>) {
    if kind == 3 && members(bytes).any(|(number, options)| number == 7 && !options.is_empty()) {
        return;
    }
    found.push(text(bytes, 1).to_owned());
    for (number, inner) in members(bytes) {
        match (kind, number) {
            (3, 8) | (6, 2) => found.push(text(inner, 1).to_owned()),
            (3, 2) => found.push(numbered(inner, 3)),
            (5, 2) => found.push(numbered(inner, 2)),
            (3, 3) => defined(3, inner, found),
            (3, 4) => defined(5, inner, found),
            _ => {}
        }
    }
}

/// The names that a source defines: those after `message`, `enum`, `service`, `oneof` and `rpc`, and names with numbers.
fn spelt(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in source.lines() {
        let line = line.split("//").next().unwrap().trim();
        let mut words = line.split([' ', '(', '{']).filter(|word| !word.is_empty());
        match (words.next(), words.next()) {
            (Some("message" | "enum" | "service" | "oneof" | "rpc"), Some(name)) => {
                found.push(name.to_owned());
            }
            (Some("syntax"), _) => {}
            _ => {
                if let Some((before, number)) = line.split_once(" = ") {
                    let name = before.rsplit(' ').next().unwrap();
                    found.push(format!("{name} = {}", number.trim_end_matches(';')));
                }
            }
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "proto") {
            found.push(path);
        }
    }
}

/// Fails if a `.proto` file was changed without running `cargo xtask protos`.
#[test]
fn the_descriptor_set_names_exactly_what_the_sources_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    assert_eq!(paths.len(), files().count());
    for path in paths {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        let file = files().find(|file| file.name() == name).unwrap();
        let source = std::fs::read_to_string(&path).unwrap();
        let mut found = Vec::new();
        for (number, bytes) in members(file.bytes) {
            match number {
                4 => defined(3, bytes, &mut found),
                5 => defined(5, bytes, &mut found),
                6 => defined(6, bytes, &mut found),
                3 => assert!(source.contains(std::str::from_utf8(bytes).unwrap())),
                _ => {}
            }
        }
        let mut spelt = spelt(&source);
        found.sort();
        spelt.sort();
        assert_eq!(found, spelt, "{name}: run `cargo xtask protos`");
    }
}
