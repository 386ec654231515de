//! What matching found: a fixed amount of room, used again for every request.
//!
//! Must not know: how requests are matched.

/// The most meters of enforced limits that one request may fall under: they are asked in one step.
pub const MAX_METERS: usize = 32;

/// The most limits, enforced or not, that one request may fall under.
pub const MAX_LIMITS: usize = 64;

/// What a request falls under. Filled by [`Rules::find`](super::Rules::find), as often as one likes.
#[derive(Clone)]
pub struct MatchedRules {
    pub(super) list_verdict: ListVerdict,
    pub(super) rules: [usize; MAX_LIMITS],
    pub(super) len: usize,
    pub(super) route: Option<usize>,
    pub(super) is_truncated: bool,
    pub(super) is_uri_too_long: bool,
}

/// What the `deny` and `exempt` lists say. Being refused comes before being exempt, so that an address can be shut out
/// of what is free for everyone; being exempt comes before every limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ListVerdict {
    /// Nothing: the limits decide.
    #[default]
    Limits,
    /// No limit applies.
    Exempt,
    /// Refused by this entry of [`Rules::denials`](super::Rules::denials), the first that matches.
    Denied(usize),
}

impl MatchedRules {
    /// Nothing found yet.
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

    /// What the lists say.
    #[must_use]
    pub const fn list_verdict(&self) -> ListVerdict {
        self.list_verdict
    }

    /// The indexes of the limits that apply, ascending, after groups have kept their narrowest. Empty where a list
    /// has decided.
    #[must_use]
    pub fn rules(&self) -> &[usize] {
        self.rules.get(..self.len).unwrap_or_default()
    }

    /// More limits apply than [`MOST_LIMITS`] or [`MOST_METERS`] has room for. Those that are listed do apply; admitting a request by them alone
    /// would let it out of the others.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// The path or the host is spelled in a way that needs rewriting and is too long to be rewritten (8 KiB, 1 KiB). Only
    /// templates that end in `{*rest}` and conditions on other attributes were sure to be matched. Nobody sends this in
    /// good faith: a request like this should be refused, whatever the lists say.
    #[must_use]
    pub const fn is_uri_too_long(&self) -> bool {
        self.is_uri_too_long
    }

    /// Adds an index in its place, once.
    pub(super) fn insert(&mut self, index: usize) {
        let Err(place) = self.rules().binary_search(&index) else {
            return;
        };
        if self.len == MAX_LIMITS {
            self.is_truncated = true;
        }
        let end = (self.len + 1).min(MAX_LIMITS);
        // Of too many, the last in the file has to go, which may be this one.
        if let Some(from) = self.rules.get_mut(place..end)
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
        if let Ok(place) = self.rules().binary_search(&index)
            && let Some(from) = self.rules.get_mut(place..self.len)
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
