//! A tree of values with locations.
//!
//! Must not know: formats, fields.

/// A location in a file. Lines and columns begin at 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SourceLocation {
    /// The line.
    pub line: u32,
    /// The column of its first character.
    pub column: u32,
    /// The number of characters in the line, at least one.
    pub width: u32,
}

impl SourceLocation {
    /// The begin of a file, for diagnostics about the whole file.
    pub const START: Self = Self {
        line: 1,
        column: 1,
        width: 1,
    };
}

/// A value and its location. Equality ignores the location.
#[derive(Clone, Copy, Debug, Default)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The location.
    pub location: SourceLocation,
}

impl<T> Located<T> {
    /// A value at a location.
    #[must_use]
    pub const fn new(value: T, location: SourceLocation) -> Self {
        Self { value, location }
    }

    /// Another value at the same location.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Located<U> {
        Located::new(f(self.value), self.location)
    }
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Located<T> {}

impl<T> From<T> for Located<T> {
    /// A value without a location, such as a default.
    fn from(value: T) -> Self {
        Self::new(value, SourceLocation::default())
    }
}

/// A value in a file and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNode {
    /// Its location.
    pub location: SourceLocation,
    /// The value.
    pub value: SourceValue,
}

/// A value in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceValue {
    /// `null`, `~`, or no value.
    Null,
    /// A number, boolean or text, as written, because only the reader of a field knows the type.
    Scalar {
        /// As written, without quotes and with escapes resolved.
        text: Box<str>,
        /// Whether it was in quotes, so that it can only be a text.
        quoted: bool,
    },
    /// Values in order.
    List(Vec<SourceNode>),
    /// Entries in file order. Duplicate names are kept; readers report them.
    Map(Vec<MapEntry>),
}

/// One name of a map and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// The name and its location.
    pub name: Located<Box<str>>,
    /// The value.
    pub value: SourceNode,
}
