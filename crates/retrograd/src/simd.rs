//! SIMD through `fearless_simd`: `f32x16` everywhere, chosen at run time, the same lane count on
//! every instruction set.
//!
//! A kernel is an `#[inline(always)]` function generic over [`Simd`], entered through
//! [`dispatch!`](fearless_simd::dispatch) with [`level`].

pub use fearless_simd::{Level, Simd, dispatch, f32x16, prelude};

/// The best instruction set of this machine.
pub fn level() -> Level {
    Level::new()
}

/// The name of that instruction set, for reports.
pub fn level_name() -> String {
    let debug = format!("{:?}", level());
    debug.split('(').next().unwrap_or_default().to_string()
}
