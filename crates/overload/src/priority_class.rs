//! The priority class of a request: its place in the order of classes.
//!
//! Must not know: names of classes, how a request gets its class.

/// The most classes that a policy may have. Each has its own queue and metric series.
pub const MAX_CLASSES: usize = 8;

/// A priority class. The class with index 0 is the most important one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriorityClass(u8);

impl PriorityClass {
    /// The most important class.
    pub const CRITICAL: Self = Self(0);

    /// The class with this index. `None` from [`MAX_CLASSES`] on.
    ///
    /// ```
    /// use tollgate_overload::PriorityClass;
    ///
    /// assert_eq!(PriorityClass::new(0), Some(PriorityClass::CRITICAL));
    /// assert_eq!(PriorityClass::new(8), None);
    /// ```
    #[must_use]
    pub fn new(index: usize) -> Option<Self> {
        u8::try_from(index)
            .ok()
            .filter(|index| usize::from(*index) < MAX_CLASSES)
            .map(Self)
    }

    /// Whether this is the most important class.
    #[must_use]
    pub const fn is_critical(self) -> bool {
        self.0 == 0
    }

    /// The place in the order of classes.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
