//! Which requests a rule matches: conditions on attributes, all of which must hold.
//!
//! Must not know: how rules are indexed.

use ipnet::IpNet;

use crate::attributes::Attribute;
use crate::source::Located;

/// Conditions, all of which must hold. If there are none, every request matches.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Match {
    /// The conditions, at most one per attribute.
    pub conditions: Vec<Located<Condition>>,
}

/// A condition on one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The attribute.
    pub attribute: Attribute,
    /// The test of its value.
    pub test: Test,
}

/// A test of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Test {
    /// The value is one of these (at least one).
    OneOf(Vec<Box<str>>),
    /// The value matches one of these globs (at least one).
    Glob(Vec<Glob>),
    /// The path matches one of these templates (only for `route`).
    Route(Vec<Template>),
    /// The address is in one of these networks (only for `ip`).
    Within(Vec<IpNet>),
    /// The attribute is present.
    Present,
    /// The attribute is absent.
    Absent,
    /// The attribute is present and the inner test does not match.
    Not(Box<Test>),
}

/// A glob: `*` matches any run without `/`, `**` any run, `?` one character except `/`. A segment `**` may match
/// nothing: `/a/**/b` matches `/a/b`. A trailing slash of a path is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob(pub Box<str>);

/// A valid route template: begins with `/`; a segment is literal, `{name}`, or at the end `{*name}`. `{*name}` matches
/// the rest of a path, which may be empty: `/api/{*rest}` matches `/api`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Template(pub Box<str>);

/// A network: an address and how many of its leading bits count.
#[deprecated(note = "use `IpNet`")]
pub type Network = IpNet;
