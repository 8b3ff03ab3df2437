//! The clock: `std`'s, or none where the target has none (WebAssembly without a system), where every
//! duration is 0. Nothing but times depends on it.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use std::time::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use none::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod none {
    use std::time::Duration;

    /// A moment like every other.
    #[derive(Clone, Copy, Debug)]
    pub struct Instant;

    impl Instant {
        pub fn now() -> Self {
            Instant
        }
        pub fn elapsed(&self) -> Duration {
            Duration::ZERO
        }
    }
}
