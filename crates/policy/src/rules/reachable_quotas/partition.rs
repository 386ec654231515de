//! Requests divided by one attribute: which items of a search apply under which values.
//!
//! Must not know: how values are compared.

/// The classes of one attribute's values. Every request is in one of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Partition {
    /// The items that apply only in classes that add them. All others apply in every class that does not remove them.
    pub(super) outside: Vec<usize>,
    pub(super) classes: Vec<ValueClass>,
    /// A class that excludes no item, if there is one. Then the others need not be searched.
    pub(super) keeps_all: Option<usize>,
}

/// Some values of an attribute.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueClass {
    /// The values, for messages. `None`: any value that no condition names.
    pub(super) name: Option<String>,
    /// Sorted, each once.
    pub(super) added: Vec<usize>,
    pub(super) removed: Vec<usize>,
    /// For a class of path segments: whether the path ends here.
    pub(super) is_end: bool,
    /// For a class of path segments: the segment; `None` for one that no template names.
    pub(super) segment: Option<Box<[u8]>>,
}

impl Partition {
    pub(super) fn new(mut outside: Vec<usize>, mut classes: Vec<ValueClass>) -> Self {
        sort_once(&mut outside);
        for class in &mut classes {
            sort_once(&mut class.added);
            sort_once(&mut class.removed);
        }
        Self {
            outside,
            classes,
            keeps_all: None,
        }
    }

    /// The first class that excludes no item.
    pub(super) fn class_with_all(&self) -> Option<usize> {
        let is_whole = |class: &ValueClass| {
            class.removed.is_empty() && class.added.len() == self.outside.len()
        };
        self.classes.iter().position(is_whole)
    }
}

fn sort_once(items: &mut Vec<usize>) {
    items.sort_unstable();
    items.dedup();
}
