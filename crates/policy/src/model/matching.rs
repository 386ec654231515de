//! Which requests a rule is about: conditions on attributes, all of which must hold.
//!
//! Must not know: how many rules there are and how they are indexed.

use ipnet::IpNet;

use crate::attributes::Attribute;
use crate::source::Located;

/// Conditions that must all hold. None: every request.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Match {
    /// The conditions, at most one per attribute.
    pub conditions: Vec<Located<Condition>>,
}

/// What one attribute must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which attribute.
    pub attribute: Attribute,
    /// What is asked of it.
    pub test: Test,
}

/// What is asked of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Test {
    /// Its value is one of these (at least one).
    OneOf(Vec<Box<str>>),
    /// Its value looks like one of these (at least one).
    Glob(Vec<Glob>),
    /// Its path lies under one of these templates (only of `route`).
    Route(Vec<Template>),
    /// Its address lies in one of these networks (only of `ip`).
    Within(Vec<IpNet>),
    /// It is there, whatever its value.
    Present,
    /// It is not there.
    Absent,
    /// It is there, and the inner test does not hold.
    Not(Box<Test>),
}

/// A pattern: `*` stands for any run without `/`, `**` for any run, `?` for one character that is not `/`. A segment `**` may
/// also stand for none: `/a/**/b` is like `/a/b`. A slash at the end of a path does not count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob(pub Box<str>);

/// A checked route template: begins with `/`; a segment is literal, `{name}`, or at the end `{*name}`, which stands for the
/// rest of a path, even if nothing is left: `/api` lies under `/api/{*rest}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Template(pub Box<str>);

/// A network: an address and how many of its leading bits count.
#[deprecated(note = "use `IpNet`")]
pub type Network = IpNet;
