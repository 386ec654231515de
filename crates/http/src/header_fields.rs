//! A reusable buffer of header fields.
//!
//! Must not know: dialects, header libraries.

/// Header fields, in the order in which they were written. Names are lowercase, as HTTP/2 requires and HTTP/1 allows.
///
/// Once the buffer has grown to the size of a response, filling it again allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct HeaderFields {
    text: Vec<u8>,
    fields: Vec<FieldSpan>,
}

#[derive(Clone, Copy, Debug)]
struct FieldSpan {
    name: &'static str,
    /// The end of the value in `text`. It begins at the end of the field before.
    end: usize,
    merge: Merge,
}

/// How to merge a field into a response that already has it. The existing field is never replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Merge {
    /// Add another line: the field is a list.
    Append,
    /// Keep the existing field and drop ours: two lines would be misread, and the existing one may be stricter.
    KeepExisting,
}

/// One header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderField<'a> {
    /// Its name, in lowercase.
    pub name: &'static str,
    /// Its value: printable ASCII.
    pub value: &'a [u8],
    /// How to merge it into a response that already has it.
    pub merge: Merge,
}

impl HeaderFields {
    /// An empty buffer that has allocated nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            text: Vec::new(),
            fields: Vec::new(),
        }
    }

    /// A buffer with capacity for `bytes` of values and for the fields of every dialect.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            text: Vec::with_capacity(bytes),
            fields: Vec::with_capacity(16),
        }
    }

    /// Removes the fields and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
    }

    /// All values, one after the other.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.fields().map(|field| (field.name, field.value))
    }

    /// Names, values and merge rules.
    pub fn fields(&self) -> impl Iterator<Item = HeaderField<'_>> {
        let mut start = 0;
        self.fields.iter().map(move |field| {
            let value = self.text.get(start..field.end).unwrap_or_default();
            start = field.end;
            HeaderField {
                name: field.name,
                value,
                merge: field.merge,
            }
        })
    }

    /// The value of a field by its lowercase name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find_map(|(other, value)| (other == name).then_some(value))
    }

    /// The number of fields.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are no fields.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Adds a field with the value that `value` writes. If it writes nothing, no field is added.
    pub(crate) fn push(
        &mut self,
        name: &'static str,
        merge: Merge,
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.text.len();
        value(&mut self.text);
        let end = self.text.len();
        if end > start {
            self.fields.push(FieldSpan { name, end, merge });
        }
    }
}
