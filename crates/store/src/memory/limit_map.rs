//! One entry for each limit number, in pages that are allocated when a limit of theirs first needs one.
//!
//! Limit numbers have two bytes and are spread by a hash, so a plain array would make memory resident for 65,536 limits
//! where a policy has ten. Must not know: what an entry holds.

use std::sync::OnceLock;

/// How many limits there can be. A model makes thousands of stores and needs few.
const LIMITS: usize = if cfg!(loom) { 16 } else { 1 << 16 };
/// Entries of one page.
const PAGE: usize = 16;

/// Entries by limit number. An entry that was never changed is the default one.
#[derive(Debug)]
pub(super) struct LimitMap<T> {
    pages: Box<[OnceLock<Box<[T]>>]>,
}

impl<T: Default> LimitMap<T> {
    pub(super) fn new() -> Self {
        let mut pages = Vec::new();
        pages.resize_with(LIMITS / PAGE, OnceLock::new);
        Self {
            pages: pages.into_boxed_slice(),
        }
    }

    /// The limit's entry. `None` if nothing was ever kept about it.
    pub(super) fn get(&self, limit: u16) -> Option<&T> {
        let limit = usize::from(limit);
        self.pages.get(limit / PAGE)?.get()?.get(limit % PAGE)
    }

    /// The limit's entry, to change it. `None` only for a number that a model checker's map does not have.
    pub(super) fn get_or_default(&self, limit: u16) -> Option<&T> {
        let limit = usize::from(limit);
        let page = self.pages.get(limit / PAGE)?.get_or_init(|| {
            let mut page = Vec::new();
            page.resize_with(PAGE, T::default);
            page.into_boxed_slice()
        });
        page.get(limit % PAGE)
    }

    /// Every entry of the pages that there are, by ascending number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        let pages = self.pages.iter().enumerate();
        let pages = pages.filter_map(|(page, entries)| Some((page, entries.get()?)));
        pages.flat_map(|(page, entries)| {
            let numbers = page.saturating_mul(PAGE)..;
            numbers
                .zip(entries.iter())
                .filter_map(|(number, entry)| Some((u16::try_from(number).ok()?, entry)))
        })
    }
}
