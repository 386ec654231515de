//! The descriptor set of all gRPC services, and lookups of files and symbols in it.
//!
//! `descriptors.binpb` is a `FileDescriptorSet`, generated from `crates/server/proto` by `cargo xtask protos`. It is parsed on
//! every reflection request: those are rare, and the set is small. Must not know: reflection messages.

use super::wire::{MessageFields, WireValue};

static DESCRIPTORS: &[u8] = include_bytes!("descriptors.binpb");

/// One `.proto` file: the bytes of its `FileDescriptorProto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileDescriptor {
    pub(super) bytes: &'static [u8],
}

/// All files, each after the files that it imports.
pub(super) fn files() -> impl Iterator<Item = FileDescriptor> {
    members(DESCRIPTORS).map(|(_, bytes)| FileDescriptor { bytes })
}

impl FileDescriptor {
    pub(super) fn name(self) -> &'static str {
        text(self.bytes, 1)
    }

    fn package(self) -> &'static str {
        text(self.bytes, 2)
    }

    /// Whether it imports a file.
    pub(super) fn imports(self, name: &str) -> bool {
        members(self.bytes).any(|member| member == (3, name.as_bytes()))
    }

    /// The full names of its services.
    pub(super) fn services(self) -> impl Iterator<Item = String> {
        members(self.bytes)
            .filter(|(number, _)| *number == 6)
            .map(move |(_, service)| format!("{}.{}", self.package(), text(service, 1)))
    }

    /// Whether it defines a fully qualified symbol: a message, an enum, a service, a method or a field.
    pub(super) fn defines(self, symbol: &str) -> bool {
        let inside = symbol.strip_prefix(self.package());
        let Some(symbol) = inside.and_then(|rest| rest.strip_prefix('.')) else {
            return false;
        };
        members(self.bytes).any(|(number, bytes)| match number {
            4 => defines_symbol(DescriptorKind::Message, bytes, symbol),
            5 => defines_symbol(DescriptorKind::Leaf, bytes, symbol),
            6 => defines_symbol(DescriptorKind::Service, bytes, symbol),
            _ => false,
        })
    }
}

/// The kind of a descriptor, which determines what names are nested in it.
#[derive(Clone, Copy)]
enum DescriptorKind {
    Message,
    Service,
    /// Enums, fields and methods. Names inside them are not looked up.
    Leaf,
}

/// Whether the symbol is this descriptor or is nested in it.
fn defines_symbol(kind: DescriptorKind, bytes: &'static [u8], symbol: &str) -> bool {
    let Some(rest) = symbol.strip_prefix(text(bytes, 1)) else {
        return false;
    };
    let Some(inner) = rest.strip_prefix('.') else {
        return rest.is_empty();
    };
    members(bytes).any(|(number, bytes)| match (kind, number) {
        (DescriptorKind::Message, 3) => defines_symbol(DescriptorKind::Message, bytes, inner),
        (DescriptorKind::Message, 2 | 4) | (DescriptorKind::Service, 2) => {
            defines_symbol(DescriptorKind::Leaf, bytes, inner)
        }
        _ => false,
    })
}

/// The first string field with this number.
fn text(message: &'static [u8], number: u64) -> &'static str {
    let found = members(message).find(|(other, _)| *other == number);
    found.map_or("", |(_, bytes)| std::str::from_utf8(bytes).unwrap_or(""))
}

/// The length-delimited fields of a message. A test checks that the set is well formed.
fn members(message: &'static [u8]) -> impl Iterator<Item = (u64, &'static [u8])> {
    let mut fields = MessageFields::new(message);
    std::iter::from_fn(move || fields.next_field().ok().flatten()).filter_map(|(number, value)| {
        match value {
            WireValue::Bytes(bytes) => Some((number, bytes)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests;
