//! Envoy's messages as protobuf: reads the request in slot and writes the response to a buffer.
//!
//! Field numbers are those of `envoy.service.ratelimit.v3`, as `grpc/schema.rs` lists them. Must not know: how requests are
//! decided, gRPC.

use std::fmt;

use crate::config::{
    Descriptor, DescriptorEntry, LimitOverride, MAX_DESCRIPTORS, MAX_ENTRIES, Metadata, RlsRequest,
    WindowUnit,
};

use super::rls_response::{RlsLimit, RlsResponse, RlsStatus};
use crate::protobuf::{MessageFields, MessageWriter, WireError, WireValue, text};

/// The longest key of an entry, in bytes.
pub const MAX_KEY_LEN: usize = 1_024;
/// The longest value of an entry, in bytes.
pub const MAX_VALUE_LEN: usize = 16_384;

/// Requests up to this size need no heap allocation.
const INLINE_DESCRIPTORS: usize = 4;
const INLINE_ENTRIES: usize = 12;

/// A buffer with a few elements inline and more on the heap.
#[derive(Debug)]
pub struct InlineBuffer<T, const FEW: usize> {
    inline: [T; FEW],
    heap: Vec<T>,
}

/// A buffer for entries.
pub type EntryBuffer<'a> = InlineBuffer<DescriptorEntry<'a>, INLINE_ENTRIES>;
/// A buffer for descriptors.
pub type DescriptorBuffer<'a> = InlineBuffer<Descriptor<'a>, INLINE_DESCRIPTORS>;

impl EntryBuffer<'_> {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            inline: [DescriptorEntry::new("", ""); INLINE_ENTRIES],
            heap: Vec::new(),
        }
    }
}

impl DescriptorBuffer<'_> {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self {
            inline: [Descriptor::default(); INLINE_DESCRIPTORS],
            heap: Vec::new(),
        }
    }
}

impl Default for EntryBuffer<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for DescriptorBuffer<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy, const FEW: usize> InlineBuffer<T, FEW> {
    /// A slice of `len` elements.
    fn slice(&mut self, len: usize, blank: T) -> &mut [T] {
        if len > FEW {
            self.heap.resize(len, blank);
            return &mut self.heap;
        }
        self.inline.get_mut(..len).unwrap_or_default()
    }
}

/// Why a request cannot be read. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadableRequest {
    /// It is not a message.
    Malformed(WireError),
    /// It has too many of something: the name, the number, and the most.
    TooMany(&'static str, usize, usize),
    /// An override has an unknown unit, of this number.
    Unit(u64),
}

impl From<WireError> for UnreadableRequest {
    fn from(malformed: WireError) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for UnreadableRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::TooMany(what, is, most) => {
                write!(f, "{what}: {is} are too many, there may be {most}")
            }
            Self::Unit(number) => {
                write!(
                    f,
                    "limit.unit: {number} is not a unit; units are 1 (second) to 7 (week)"
                )
            }
        }
    }
}

/// The size of a request.
#[derive(Clone, Copy, Default)]
struct RequestSize {
    descriptors: usize,
    entries: usize,
}

/// Reads a `RateLimitRequest`, which borrows from the bytes and the buffers.
pub fn read_request<'a, 'buf>(
    bytes: &'a [u8],
    entries: &'buf mut EntryBuffer<'a>,
    descriptors: &'buf mut DescriptorBuffer<'buf>,
) -> Result<RlsRequest<'buf>, UnreadableRequest>
where
    'a: 'buf,
{
    let size = measure(bytes)?;
    let entries = entries.slice(size.entries, DescriptorEntry::new("", ""));
    let descriptors = descriptors.slice(size.descriptors, Descriptor::default());
    fill(bytes, entries, descriptors)
}

/// Counts descriptors and entries, and refuses too many before allocating.
fn measure(bytes: &[u8]) -> Result<RequestSize, UnreadableRequest> {
    let mut size = RequestSize::default();
    let mut fields = MessageFields::new(bytes);
    while let Some(field) = fields.next_field()? {
        let (2, WireValue::Bytes(descriptor)) = field else {
            continue;
        };
        size.descriptors += 1;
        let mut entries = 0;
        let mut fields = MessageFields::new(descriptor);
        while let Some(field) = fields.next_field()? {
            entries += usize::from(matches!(field, (1, WireValue::Bytes(_))));
        }
        check_at_most("entries", entries, MAX_ENTRIES)?;
        size.entries += entries;
    }
    check_at_most("descriptors", size.descriptors, MAX_DESCRIPTORS)?;
    Ok(size)
}

fn check_at_most(what: &'static str, is: usize, most: usize) -> Result<(), UnreadableRequest> {
    if is > most {
        return Err(UnreadableRequest::TooMany(what, is, most));
    }
    Ok(())
}

fn fill<'a, 'buf>(
    bytes: &'a [u8],
    buffer: &'buf mut [DescriptorEntry<'a>],
    list: &'buf mut [Descriptor<'buf>],
) -> Result<RlsRequest<'buf>, UnreadableRequest>
where
    'a: 'buf,
{
    let (mut domain, mut hits_addend) = ("", 0);
    let mut slots = list.iter_mut();
    let mut buffer = buffer;
    let mut fields = MessageFields::new(bytes);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, WireValue::Bytes(bytes)) => domain = text(bytes, "domain")?,
            (2, WireValue::Bytes(bytes)) => {
                let (descriptor, used) = read_descriptor(bytes, buffer)?;
                let (own, rest) = std::mem::take(&mut buffer).split_at_mut(used);
                buffer = rest;
                if let Some(slot) = slots.next() {
                    *slot = Descriptor {
                        entries: own,
                        ..descriptor
                    };
                }
            }
            (3, WireValue::Number(number)) => hits_addend = low_32_bits(number),
            _ => {}
        }
    }
    Ok(RlsRequest {
        domain,
        descriptors: list,
        hits_addend,
    })
}

/// Reads a descriptor without its entries, which go into `buffer`, and returns their number.
fn read_descriptor<'a>(
    bytes: &'a [u8],
    buffer: &mut [DescriptorEntry<'a>],
) -> Result<(Descriptor<'static>, usize), UnreadableRequest> {
    let mut read = Descriptor::default();
    let mut limit: Option<(u32, u64)> = None;
    let mut used = 0;
    let mut fields = MessageFields::new(bytes);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, WireValue::Bytes(bytes)) => {
                if let Some(slot) = buffer.get_mut(used) {
                    *slot = read_entry(bytes)?;
                    used += 1;
                }
            }
            // A repeated message field is merged.
            (2, WireValue::Bytes(bytes)) => read_limit(bytes, limit.get_or_insert_default())?,
            (3, WireValue::Bytes(bytes)) => {
                let hits = read.hits_addend.get_or_insert_default();
                let mut fields = MessageFields::new(bytes);
                while let Some(field) = fields.next_field()? {
                    if let (1, WireValue::Number(number)) = field {
                        *hits = number;
                    }
                }
            }
            (4, WireValue::Number(number)) => read.is_negative_hits = number != 0,
            _ => {}
        }
    }
    if let Some((requests_per_unit, unit)) = limit {
        let known = i32::try_from(unit).ok().and_then(WindowUnit::from_number);
        read.limit = Some(LimitOverride {
            requests_per_unit,
            unit: known.ok_or(UnreadableRequest::Unit(unit))?,
        });
    }
    Ok((read, used))
}

fn read_entry(bytes: &[u8]) -> Result<DescriptorEntry<'_>, UnreadableRequest> {
    let mut entry = DescriptorEntry::new("", "");
    let mut fields = MessageFields::new(bytes);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, WireValue::Bytes(bytes)) => {
                check_at_most("bytes of a key", bytes.len(), MAX_KEY_LEN)?;
                entry.key = text(bytes, "key")?;
            }
            (2, WireValue::Bytes(bytes)) => {
                check_at_most("bytes of a value", bytes.len(), MAX_VALUE_LEN)?;
                entry.value = text(bytes, "value")?;
            }
            _ => {}
        }
    }
    Ok(entry)
}

fn read_limit(bytes: &[u8], (requests, unit): &mut (u32, u64)) -> Result<(), WireError> {
    let mut fields = MessageFields::new(bytes);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, WireValue::Number(number)) => *requests = low_32_bits(number),
            (2, WireValue::Number(number)) => *unit = number,
            _ => {}
        }
    }
    Ok(())
}

/// Truncates a number to 32 bits, as the format requires.
fn low_32_bits(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Writes a `RateLimitResponse`.
pub fn write_response(response: &RlsResponse<'_>, out: &mut Vec<u8>) {
    let mut writer = MessageWriter::new(out);
    writer.number(1, response.overall as u64);
    for status in response.statuses {
        writer.message(2, |writer| write_status(status, writer));
    }
    for (name, value) in response.fields.iter() {
        writer.message(3, |writer| {
            writer.text(1, name.as_bytes());
            writer.text(2, value);
        });
    }
    if let Some(metadata) = response.metadata {
        writer.message(6, |writer| write_struct(metadata, writer));
    }
}

fn write_status(status: &RlsStatus<'_>, writer: &mut MessageWriter<'_>) {
    writer.number(1, status.code as u64);
    if let Some(limit) = status.limit {
        writer.message(2, |writer| write_limit(&limit, writer));
    }
    writer.number(3, status.remaining.into());
    if let Some(seconds) = status.until_reset {
        writer.message(4, |writer| writer.number(1, seconds));
    }
}

fn write_limit(limit: &RlsLimit<'_>, writer: &mut MessageWriter<'_>) {
    writer.number(1, limit.requests_per_unit.into());
    writer.number(2, u64::try_from(limit.unit).unwrap_or(0));
    writer.text(3, limit.name.as_bytes());
}

/// Writes a `google.protobuf.Struct`; other values than a map write nothing.
fn write_struct(metadata: &Metadata, writer: &mut MessageWriter<'_>) {
    let Metadata::Map(map) = metadata else {
        return;
    };
    for (name, value) in map {
        writer.message(1, |writer| {
            writer.text(1, name.as_bytes());
            writer.message(2, |writer| write_value(value, writer));
        });
    }
}

fn write_value(value: &Metadata, writer: &mut MessageWriter<'_>) {
    match value {
        Metadata::Null => writer.oneof_number(1, 0),
        Metadata::Number(number) => writer.double(2, *number),
        Metadata::Text(text) => writer.bytes(3, text.as_bytes()),
        Metadata::Bool(truth) => writer.oneof_number(4, u64::from(*truth)),
        Metadata::Map(_) => writer.message(5, |writer| write_struct(value, writer)),
        Metadata::List(list) => writer.message(6, |writer| {
            for one in list {
                writer.message(1, |writer| write_value(one, writer));
            }
        }),
    }
}
