//! The rules that match a request, in a buffer that is reused.
//!
//! Must not know: how requests are matched.

use super::path::{ReadingSet, Unreadable};

/// The maximum number of meters of enforced limits for one request: they are one batch. A policy with which a request
/// could reach more does not compile.
pub const MAX_METERS: usize = 128;

/// The rules that match a request. [`Rules::match_rules`](super::Rules::match_rules) fills it; it can be reused.
#[derive(Clone)]
pub struct MatchedRules {
    pub(super) list_verdict: ListVerdict,
    pub(super) rules: Vec<usize>,
    pub(super) route: Option<usize>,
    /// Whether nothing is unreadable and there are no readings.
    pub(super) is_plain: bool,
    pub(super) unreadable: Option<Unreadable>,
    pub(super) readings: Readings,
}

/// How an ambiguous request was read. Empty if path and host are plain.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    /// The path as servers that tell upper from lower case read it; as all servers do, if the policy says so.
    pub(super) paths: ReadingSet,
    /// The path in lower case, as other servers read it.
    pub(super) folded: ReadingSet,
    /// The path for keys, without a trailing slash.
    pub(super) canonical: Vec<u8>,
    pub(super) host: Vec<u8>,
    /// The route of each reading.
    pub(super) routes: Vec<Option<usize>>,
    /// The limits of earlier readings.
    pub(super) rules: Vec<usize>,
}

impl Readings {
    const fn new() -> Self {
        Self {
            paths: ReadingSet::new(),
            folded: ReadingSet::new(),
            canonical: Vec::new(),
            host: Vec::new(),
            routes: Vec::new(),
            rules: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.paths.clear();
        self.folded.clear();
        self.canonical.clear();
        self.host.clear();
        self.routes.clear();
        self.rules.clear();
    }
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
            is_plain: true,
            unreadable: None,
            readings: Readings::new(),
        }
    }

    /// Reserves capacity for this many limits, so that matching them does not allocate.
    pub fn reserve(&mut self, limits: usize) {
        self.rules.reserve(limits);
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

    /// Why path or host cannot be read. Then nothing is matched, and the caller refuses the request, regardless of the
    /// lists.
    #[must_use]
    pub const fn unreadable(&self) -> Option<&Unreadable> {
        self.unreadable.as_ref()
    }

    /// Sets why the request cannot be read, if its transport or the engine finds a reason.
    pub fn set_unreadable(&mut self, reason: Unreadable) {
        self.is_plain = false;
        self.unreadable = Some(reason);
    }

    /// The different ways in which servers may read the path, if there is more than one.
    pub fn path_readings(&self) -> impl Iterator<Item = &[u8]> {
        let Readings { paths, folded, .. } = &self.readings;
        let is_ambiguous = self.is_ambiguous();
        paths
            .iter()
            .chain(
                folded
                    .iter()
                    .filter(|path| paths.iter().all(|known| known != *path)),
            )
            .filter(move |_| is_ambiguous)
    }

    /// Whether servers may read the path in different ways.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.readings.routes.len() > 1
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

    /// No limit matches, and neither list.
    #[inline]
    pub fn clear(&mut self) {
        self.list_verdict = ListVerdict::Limits;
        self.rules.clear();
        self.route = None;
        if !self.is_plain {
            self.is_plain = true;
            self.unreadable = None;
            self.readings.clear();
        }
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
            .field("unreadable", &self.unreadable)
            .finish_non_exhaustive()
    }
}
