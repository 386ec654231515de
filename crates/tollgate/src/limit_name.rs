//! What a limit is called: by this its denials name it, and by this a replacement finds its state.
//!
//! Must not know: quotas, keys, stores.

use std::fmt;
use std::sync::Arc;

/// A limit's name. A literal costs nothing to pass around; a name made at run time is shared.
///
/// ```
/// use tollgate::LimitName;
///
/// let literal = LimitName::from("per-user");
/// let made = LimitName::from(format!("per-{}", "user"));
/// assert_eq!(literal, made);
/// ```
#[derive(Clone)]
pub struct LimitName(NameText);

#[derive(Clone)]
enum NameText {
    // A denial copies the name. Of a literal that is two words, and no counter that threads would fight over.
    Literal(&'static str),
    Shared(Arc<str>),
}

impl LimitName {
    /// A name that is written in the program.
    #[must_use]
    pub const fn literal(name: &'static str) -> Self {
        Self(NameText::Literal(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            NameText::Literal(name) => name,
            NameText::Shared(name) => name,
        }
    }
}

impl From<&'static str> for LimitName {
    fn from(name: &'static str) -> Self {
        Self::literal(name)
    }
}

impl From<String> for LimitName {
    fn from(name: String) -> Self {
        Self(NameText::Shared(name.into()))
    }
}

impl PartialEq for LimitName {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for LimitName {}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
