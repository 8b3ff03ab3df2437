//! Built-in models out of the reference bundles: model, parameters and batch.

use std::path::Path;

use super::BuiltIn;
use crate::verify::bundle::{Bundle, FromBundle};

/// A built-in model from a bundle's bytes, with the faults that apply to any model.
pub fn from_bundle<M: FromBundle + 'static>(
    name: &'static str,
    bytes: &'static [u8],
    samples: usize,
) -> BuiltIn {
    let make = move || {
        let bundle = Bundle::from_bytes(Path::new(name), bytes)?;
        Ok((M::from_bundle(&bundle)?, bundle.loss))
    };
    BuiltIn::new(name, make, samples, None)
}

/// A built-in model from the bundle of that name in `tests/reference`.
macro_rules! bundled {
    ($model:ty, $samples:expr, $name:expr, $file:expr) => {
        $crate::verify::builtin::bundled::from_bundle::<$model>(
            $name,
            include_bytes!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/reference/",
                $file,
                ".safetensors"
            )),
            $samples,
        )
    };
}
pub(crate) use bundled;
