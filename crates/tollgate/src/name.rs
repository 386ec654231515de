//! What a limit is called: by this its denials name it, and by this a replacement finds its state.
//!
//! Must not know: quotas, keys, stores.

use std::fmt;
use std::sync::Arc;

/// A limit's name. A literal costs nothing to pass around; a name made at run time is shared.
///
/// ```
/// use tollgate::Name;
///
/// let literal = Name::from("per-user");
/// let made = Name::from(format!("per-{}", "user"));
/// assert_eq!(literal, made);
/// ```
#[derive(Clone)]
pub struct Name(Kind);

#[derive(Clone)]
enum Kind {
    // A denial copies the name. Of a literal that is two words, and no counter that threads would fight over.
    Literal(&'static str),
    Made(Arc<str>),
}

impl Name {
    /// A name that is written in the program.
    #[must_use]
    pub const fn literal(name: &'static str) -> Self {
        Self(Kind::Literal(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Kind::Literal(name) => name,
            Kind::Made(name) => name,
        }
    }
}

impl From<&'static str> for Name {
    fn from(name: &'static str) -> Self {
        Self::literal(name)
    }
}

impl From<String> for Name {
    fn from(name: String) -> Self {
        Self(Kind::Made(name.into()))
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Name {}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
