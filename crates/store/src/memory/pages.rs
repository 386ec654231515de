//! Memory for a table: zeroed, fixed in size, asked of the system at once and given back when dropped.
//!
//! Pages that nobody has touched cost nothing. Huge pages are asked for where the system has them, because a lookup in a
//! large table otherwise pays for the page before it pays for the slot. Must not know: what is kept in it.
#![allow(
    unsafe_code,
    reason = "a mapping of bytes is read as groups of atomics, which safe code cannot say"
)]

use std::io;

#[cfg(not(loom))]
use memmap2::MmapMut;

use super::group::SlotGroup;

/// A model checker's atomics are not just words: they have to be made one by one.
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

/// So many groups, all zero at first.
#[cfg(not(loom))]
pub(super) struct Pages {
    // Owns the memory that `groups` hands out. Never resized or remapped.
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
        // Without huge pages everything works, only slower.
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
