//! Where large arrays begin, and on which pages.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, with arrays of a kilobyte and more at the start of a cache line, and
/// those of 8 MB and more on huge pages where Linux has them.
///
/// glibc puts a large array 16 bytes after the start of a page: every vector of 16 floats then
/// spans two cache lines, and a row of 64 floats in five of them instead of four. Reading
/// random rows of a matrix that no cache holds took half as long again for it (`graph-large`), and
/// a fifth more on pages of 4 kB.
pub struct Aligned;

const LINE: usize = 64;
const LARGE: usize = 1 << 10;
const PAGE: usize = 2 << 20;
const HUGE: usize = 8 << 20;

/// What is asked of the system.
fn aligned(layout: Layout) -> Layout {
    let align = match layout.size() {
        ..LARGE => return layout,
        LARGE..HUGE => LINE,
        HUGE.. => PAGE,
    };
    layout.align_to(align).unwrap_or(layout)
}

/// Asks for huge pages, before anything is written to the block. What comes of it changes the time
/// alone.
fn on_huge_pages(block: *mut u8, size: usize) {
    #[cfg(target_os = "linux")]
    if size >= HUGE && !block.is_null() {
        const MADV_HUGEPAGE: i32 = 14;
        #[allow(unsafe_code, reason = "a function of the C library")]
        unsafe extern "C" {
            fn madvise(address: *mut u8, length: usize, advice: i32) -> i32;
        }
        #[allow(unsafe_code, reason = "a function of the C library")]
        // SAFETY: whole pages within a block that was just got; the advice keeps their content.
        unsafe {
            madvise(block, size / PAGE * PAGE, MADV_HUGEPAGE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (block, size);
}

#[allow(unsafe_code, reason = "the trait is unsafe")]
// SAFETY: everything goes to `System`. A block's layout is a function of the size and alignment
// that its owner knows it by, so it is given back and grown with the layout that it was got with;
// where growing changes that layout, the block is got anew and copied.
unsafe impl GlobalAlloc for Aligned {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; `aligned` keeps the size.
        let block = unsafe { System.alloc(aligned(layout)) };
        on_huge_pages(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() < HUGE {
            // SAFETY: as above.
            return unsafe { System.alloc_zeroed(aligned(layout)) };
        }
        // SAFETY: as above, and the block is that large.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block was got with the same layout.
        unsafe { System.dealloc(block, aligned(layout)) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that makes a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if size < HUGE && aligned(layout).align() == aligned(new).align() {
            // SAFETY: the block was got with this layout.
            return unsafe { System.realloc(block, aligned(layout), size) };
        }
        // SAFETY: the new block has room for the smaller of both sizes, and is another one.
        unsafe {
            let to = self.alloc(new);
            if !to.is_null() {
                to.copy_from_nonoverlapping(block, size.min(layout.size()));
                self.dealloc(block, layout);
            }
            to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "calls the allocator itself")]
    fn large_blocks_begin_at_a_line_and_keep_their_content_as_they_grow_and_shrink() {
        let of = |size| Layout::from_size_align(size, 4).expect("a layout");
        let mut size = 40;
        // SAFETY: every block is used within its size and given back with its own layout.
        unsafe {
            let mut block = Aligned.alloc(of(size));
            for k in 0..size {
                *block.add(k) = k as u8;
            }
            for next in [900, 5000, 2_000_000, 9 << 20, 17 << 20, 8 << 20, 1024, 40] {
                block = Aligned.realloc(block, of(size), next);
                assert!(next < LARGE || block.addr().is_multiple_of(LINE), "{next}");
                assert!((0..40).all(|k| *block.add(k) == k as u8), "{next}");
                size = next;
            }
            Aligned.dealloc(block, of(size));
            for size in [4096, 9 << 20] {
                let zeros = Aligned.alloc_zeroed(of(size));
                assert!(zeros.addr().is_multiple_of(LINE));
                assert!((0..size).all(|k| *zeros.add(k) == 0), "{size}");
                Aligned.dealloc(zeros, of(size));
            }
        }
    }
}
