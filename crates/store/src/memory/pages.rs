//! Memory of a table: zeroed pages of fixed size, mapped at once and unmapped on drop.
//!
//! Untouched pages are not resident. The mapping asks for huge pages, because lookups in a large table otherwise miss
//! the TLB. Must not know: what is kept in it.
#![allow(
    unsafe_code,
    reason = "a mapping of bytes is read as groups of atomics, which safe code cannot say"
)]

use std::io;

#[cfg(not(loom))]
use memmap2::MmapMut;

use super::group::SlotGroup;

/// Loom's atomics are not plain words, so they are made one by one.
#[cfg(loom)]
pub(super) struct Pages(Box<[SlotGroup]>);

#[cfg(loom)]
impl Pages {
    pub(super) fn zeroed(count: usize) -> io::Result<Self> {
        Ok(Self((0..count).map(|_| SlotGroup::empty()).collect()))
    }

    pub(super) fn groups(&self) -> &[SlotGroup] {
        &self.0
    }
}

/// Pages with `count` zeroed groups.
#[cfg(not(loom))]
pub(super) struct Pages {
    // Owns the memory that `groups` returns. Never resized or remapped.
    map: MmapMut,
    count: usize,
}

#[cfg(not(loom))]
impl Pages {
    pub(super) fn zeroed(count: usize) -> io::Result<Self> {
        let bytes = count
            .checked_mul(size_of::<SlotGroup>())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(bytes.max(1))?;
        // Huge pages are optional.
        #[cfg(target_os = "linux")]
        map.advise(memmap2::Advice::HugePage).ok();
        Ok(Self { map, count })
    }

    #[inline]
    pub(super) fn groups(&self) -> &[SlotGroup] {
        // SAFETY: the mapping is page-aligned, which is more than a group needs; it is `count` groups long; every bit
        // pattern, zero included, is a valid group of atomics; nothing else ever refers to the mapping's bytes, and
        // atomics may be changed through a shared reference.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<SlotGroup>(), self.count) }
    }
}
