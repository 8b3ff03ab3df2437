//! What `crew` is synchronised with: the standard library's types, or under `--cfg loom` those of
//! loom, which tries every order that the memory model allows (`tests/loom.rs` here).

#[cfg(not(all(loom, test)))]
pub(super) use {
    std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    std::sync::{Arc, Mutex},
};

#[cfg(all(loom, test))]
pub(super) use {
    loom::cell::UnsafeCell,
    loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    loom::sync::{Arc, Mutex},
};

/// The standard library's, with loom's methods.
#[cfg(not(all(loom, test)))]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(all(loom, test)))]
impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline(always)]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Between a write and a read that are both `SeqCst`. There it is nothing: such operations have one
/// order already. loom takes them for acquire and release, and has that one order for fences alone.
#[inline(always)]
pub(super) fn one_order() {
    #[cfg(all(loom, test))]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A turn of a loop that waits for another thread, whose core may have another process on it.
#[inline(always)]
pub(super) fn wait(turn: u32) {
    #[cfg(all(loom, test))]
    {
        let _ = turn;
        loom::thread::yield_now();
    }
    #[cfg(not(all(loom, test)))]
    if turn.is_multiple_of(1 << 12) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
