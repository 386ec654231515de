//! The rules that match a request, in a fixed buffer that is reused.
//!
//! Must not know: how requests are matched.

/// The maximum number of meters of enforced limits for one request: they are one batch.
pub const MAX_METERS: usize = 32;

/// The maximum number of limits for one request, enforced or not.
pub const MAX_LIMITS: usize = 64;

/// The rules that match a request. [`Rules::match_rules`](super::Rules::match_rules) fills it; it can be reused.
#[derive(Clone)]
pub struct MatchedRules {
    pub(super) list_verdict: ListVerdict,
    pub(super) rules: [usize; MAX_LIMITS],
    pub(super) len: usize,
    pub(super) route: Option<usize>,
    pub(super) is_truncated: bool,
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
            rules: [0; MAX_LIMITS],
            len: 0,
            route: None,
            is_truncated: false,
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
        self.rules.get(..self.len).unwrap_or_default()
    }

    /// Whether more limits match than [`MAX_LIMITS`] or [`MAX_METERS`]. The listed limits do apply, but admitting the
    /// request by them alone would bypass the others.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.is_truncated
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
        let Err(position) = self.rules().binary_search(&index) else {
            return;
        };
        if self.len == MAX_LIMITS {
            self.is_truncated = true;
        }
        let end = (self.len + 1).min(MAX_LIMITS);
        // If there are too many, the last in the file is dropped, which may be this one.
        if let Some(from) = self.rules.get_mut(position..end)
            && !from.is_empty()
        {
            from.rotate_right(1);
            if let Some(first) = from.first_mut() {
                *first = index;
            }
            self.len = end;
        }
    }

    pub(super) fn remove(&mut self, index: usize) {
        if let Ok(position) = self.rules().binary_search(&index)
            && let Some(from) = self.rules.get_mut(position..self.len)
        {
            from.rotate_left(1);
            self.len -= 1;
        }
    }

    pub(super) fn clear(&mut self) {
        self.list_verdict = ListVerdict::Limits;
        self.len = 0;
        self.route = None;
        self.is_truncated = false;
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
        f.debug_struct("Found")
            .field("listed", &self.list_verdict)
            .field("rules", &self.rules())
            .field("route", &self.route)
            .field("more_than_fit", &self.is_truncated)
            .field("unreadable", &self.is_uri_too_long)
            .finish()
    }
}
