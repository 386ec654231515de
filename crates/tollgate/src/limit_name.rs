//! The name of a limit. Denials report it, and a replacement finds its state by it.
//!
//! Must not know: quotas, keys, stores.

use std::fmt;
use std::sync::Arc;

/// The name of a limit. A literal is copied without allocation; a name made at run time is reference-counted.
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
    // Every denial copies the name. Copying a literal avoids contention on a reference count.
    Literal(&'static str),
    Shared(Arc<str>),
}

impl LimitName {
    /// A name from a literal.
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
