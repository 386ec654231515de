//! The rules that match a request, in a buffer that is reused.
//!
//! Must not know: how requests are matched.

/// The maximum number of meters of enforced limits for one request: they are one batch. A policy with which a request
/// could reach more does not compile.
pub const MAX_METERS: usize = 128;

/// The rules that match a request. [`Rules::match_rules`](super::Rules::match_rules) fills it; it can be reused.
#[derive(Clone)]
pub struct MatchedRules {
    pub(super) list_verdict: ListVerdict,
    pub(super) rules: Vec<usize>,
    pub(super) route: Option<usize>,
    pub(super) is_uri_too_long: bool,
}

/// The result of the `deny` and `exempt` lists. `deny` comes before `exempt`, so that an address can be denied even
/// where others are exempt. `exempt` comes before every limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ListVerdict {
    /// Neither list matches: the limits decide.
    #[default]
    Limits,
    /// No limit applies.
    Exempt,
    /// Denied by this entry of [`Rules::denials`](super::Rules::denials), the first that matches.
    Denied(usize),
}

impl MatchedRules {
    /// An empty match.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            list_verdict: ListVerdict::Limits,
            rules: Vec::new(),
            route: None,
            is_uri_too_long: false,
        }
    }

    /// The result of the lists.
    #[must_use]
    pub const fn list_verdict(&self) -> ListVerdict {
        self.list_verdict
    }

    /// The indexes of the matching limits, ascending, after groups have selected their narrowest. Empty if a list
    /// decides.
    #[must_use]
    pub fn rules(&self) -> &[usize] {
        &self.rules
    }

    /// Whether the path (8 KiB) or the host (1 KiB) is too long to normalize. Then only templates that end in `{*rest}`
    /// and conditions on other attributes are reliable. The caller should refuse such a request, regardless of the
    /// lists.
    #[must_use]
    pub const fn is_uri_too_long(&self) -> bool {
        self.is_uri_too_long
    }

    /// Inserts an index in order, once.
    pub(super) fn insert(&mut self, index: usize) {
        if let Err(position) = self.rules.binary_search(&index) {
            self.rules.insert(position, index);
        }
    }

    pub(super) fn remove(&mut self, index: usize) {
        if let Ok(position) = self.rules.binary_search(&index) {
            self.rules.remove(position);
        }
    }

    pub(super) fn clear(&mut self) {
        self.list_verdict = ListVerdict::Limits;
        self.rules.clear();
        self.route = None;
        self.is_uri_too_long = false;
    }
}

impl Default for MatchedRules {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MatchedRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MatchedRules")
            .field("listed", &self.list_verdict)
            .field("rules", &self.rules())
            .field("route", &self.route)
            .field("unreadable", &self.is_uri_too_long)
            .finish()
    }
}
