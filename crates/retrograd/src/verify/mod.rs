//! Verification.

mod bundle;
mod rounded;

pub use bundle::{Array, Bundle, BundleOptimizer, Case, FromBundle};
pub use rounded::Rounded;
