//! A tree of values that know their places.
//!
//! Must not know: formats, fields.

/// Where something stands in a file. Lines and columns count from one; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SourceLocation {
    /// The line.
    pub line: u32,
    /// The column of its first character.
    pub column: u32,
    /// How many characters of the line it covers, at least one.
    pub width: u32,
}

impl SourceLocation {
    /// The beginning of a file, for what is wrong with all of it.
    pub const START: Self = Self {
        line: 1,
        column: 1,
        width: 1,
    };
}

/// A value and where it stands. Two are equal if their values are, wherever they stand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Located<T> {
    /// What was said.
    pub value: T,
    /// Where.
    pub location: SourceLocation,
}

impl<T> Located<T> {
    /// A value at a place.
    #[must_use]
    pub const fn new(value: T, place: SourceLocation) -> Self {
        Self {
            value,
            location: place,
        }
    }

    /// Another value at the same place.
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
    /// A value that stands nowhere, such as a default.
    fn from(value: T) -> Self {
        Self::new(value, SourceLocation::default())
    }
}

/// A value in a file and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNode {
    /// Where it begins.
    pub location: SourceLocation,
    /// What it is.
    pub value: SourceValue,
}

/// What can stand in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceValue {
    /// Nothing was said (`null`, `~`, or an empty place).
    Null,
    /// A number, a truth value or a text: kept as written, because only the reader of a field knows what it should be.
    Scalar {
        /// As written, without quotes and with escapes resolved.
        text: Box<str>,
        /// Whether it was in quotes, and so can only be a text.
        quoted: bool,
    },
    /// Values in order.
    List(Vec<SourceNode>),
    /// Values by name, in order; a name may stand there twice, which readers report.
    Map(Vec<MapEntry>),
}

/// One name of a map and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// The name, and where it stands.
    pub name: Located<Box<str>>,
    /// What it names.
    pub value: SourceNode,
}
