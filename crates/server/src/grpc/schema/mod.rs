//! The descriptor set of everything that is spoken over gRPC, and how a file or a symbol is found in it.
//!
//! `descriptors.binpb` is a `FileDescriptorSet`, made from `crates/server/proto` by `cargo xtask protos`. It is read where it lies
//! whenever a tool asks: that is rare, and the set is small. Must not know: who asks, how messages are read or written.

use super::wire::{MessageFields, WireValue};

static DESCRIPTORS: &[u8] = include_bytes!("descriptors.binpb");

/// One `.proto` file: the bytes of its `FileDescriptorProto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileDescriptor {
    pub(super) bytes: &'static [u8],
}

/// Every file there is, each behind those that it imports.
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

    /// Its services by their full names.
    pub(super) fn services(self) -> impl Iterator<Item = String> {
        members(self.bytes)
            .filter(|(number, _)| *number == 6)
            .map(move |(_, service)| format!("{}.{}", self.package(), text(service, 1)))
    }

    /// Whether a symbol, with its package, is defined here: a message, an enumeration, a service, a method or a field.
    pub(super) fn defines(self, symbol: &str) -> bool {
        let inside = symbol.strip_prefix(self.package());
        let Some(symbol) = inside.and_then(|rest| rest.strip_prefix('.')) else {
            return false;
        };
        members(self.bytes).any(|(number, bytes)| match number {
            4 => is_defined_by(DescriptorKind::Message, bytes, symbol),
            5 => is_defined_by(DescriptorKind::Leaf, bytes, symbol),
            6 => is_defined_by(DescriptorKind::Service, bytes, symbol),
            _ => false,
        })
    }
}

/// What a descriptor describes, as far as that says which names lie inside.
#[derive(Clone, Copy)]
enum DescriptorKind {
    Message,
    Service,
    /// Enumerations, fields and methods: nothing inside them is asked for.
    Leaf,
}

/// Whether a symbol is this descriptor or lies inside it. Each begins with its name.
fn is_defined_by(kind: DescriptorKind, bytes: &'static [u8], symbol: &str) -> bool {
    let Some(rest) = symbol.strip_prefix(text(bytes, 1)) else {
        return false;
    };
    let Some(inner) = rest.strip_prefix('.') else {
        return rest.is_empty();
    };
    members(bytes).any(|(number, bytes)| match (kind, number) {
        (DescriptorKind::Message, 3) => is_defined_by(DescriptorKind::Message, bytes, inner),
        (DescriptorKind::Message, 2 | 4) | (DescriptorKind::Service, 2) => {
            is_defined_by(DescriptorKind::Leaf, bytes, inner)
        }
        _ => false,
    })
}

/// The first text of a message under this number.
fn text(message: &'static [u8], number: u64) -> &'static str {
    let found = members(message).find(|(other, _)| *other == number);
    found.map_or("", |(_, bytes)| std::str::from_utf8(bytes).unwrap_or(""))
}

/// Texts and messages inside a message, with their numbers. The set is well formed, as a test shows.
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
