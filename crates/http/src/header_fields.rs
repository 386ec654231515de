//! The buffer that header fields are written into: kept by the caller, filled anew for each answer.
//!
//! Must not know: dialects, or which header library takes the fields over.

/// Header fields, in the order in which they were written. Names are lowercase, as HTTP/2 wants them and HTTP/1 allows.
///
/// Once it has grown to the size of an answer, filling it again allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct HeaderFields {
    text: Vec<u8>,
    fields: Vec<FieldSpan>,
}

#[derive(Clone, Copy, Debug)]
struct FieldSpan {
    name: &'static str,
    /// Where the value ends in the text. It begins where the one before ends.
    end: usize,
    merge: Merge,
}

/// What to do with a field that the response already has, from whoever is behind us. It is never replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Merge {
    /// Add another line: the field is a list, and both are true.
    Append,
    /// Leave theirs alone: two lines of this field would be misread, and theirs may be the stricter.
    KeepExisting,
}

/// One header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderField<'a> {
    /// Its name, in lowercase.
    pub name: &'static str,
    /// Its value: printable ASCII.
    pub value: &'a [u8],
    /// What to do where the response has it already.
    pub merge: Merge,
}

impl HeaderFields {
    /// An empty buffer, which has not allocated anything yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            text: Vec::new(),
            fields: Vec::new(),
        }
    }

    /// A buffer with room for this many bytes of values, and for the fields of every dialect at once.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            text: Vec::with_capacity(bytes),
            fields: Vec::with_capacity(16),
        }
    }

    /// Forgets the fields and keeps the room.
    pub fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.fields().map(|word| (word.name, word.value))
    }

    /// Names and values, and what to do with those that are there already.
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

    /// The value of a field, by its name in lowercase.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find_map(|(other, value)| (other == name).then_some(value))
    }

    /// How many fields there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Adds a field with what `value` writes; none if it writes nothing.
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
