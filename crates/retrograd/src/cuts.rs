//! Cuts: the sizes at which a kernel takes another path.
//!
//! A kernel that works in blocks, runs, tiles or pieces has other code for the last of them, and none of
//! it runs on a small model. So it says beside its code where it cuts, and the verifier draws its sizes
//! from there ([`crate::verify::sizes`]): one less, just so many, one more.
//!
//! ```ignore
//! const RUN: usize = 256;
//! cuts!(RUN);            // makes CUTS, that the layer's `Spec::sizes` hands on
//! ```
//!
//! A test reads the kernels' sources: a constant that is neither declared nor in the list of those that
//! cut nothing fails it, and so does one that is declared and that no size is drawn from.

/// A constant that cuts work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The source file.
    pub file: &'static str,
    /// The constant's name.
    pub name: &'static str,
    /// Its value, in the unit of the axis that it is on.
    pub size: usize,
}

impl Cut {
    /// On an axis whose steps are `n` units of the constant each: rows of n elements.
    pub fn over(self, n: usize) -> Self {
        let size = self.size.div_ceil(n.max(1)).max(1);
        Cut { size, ..self }
    }

    /// On an axis that is so much shorter than what the constant counts.
    pub fn less(self, n: usize) -> Self {
        let size = self.size.saturating_sub(n).max(1);
        Cut { size, ..self }
    }

    /// Where the code takes so many times the constant.
    pub fn times(self, n: usize) -> Self {
        let size = self.size * n;
        Cut { size, ..self }
    }
}

/// One of a file's cuts, by its name.
///
/// # Panics
/// Where the file has none of that name.
pub(crate) fn cut(cuts: &[Cut], name: &str) -> Cut {
    let found = cuts.iter().find(|c| c.name == name);
    *found.unwrap_or_else(|| panic!("no cut {name} among {cuts:?}"))
}

/// Declares the constants of this file that cut work, as `CUTS`.
macro_rules! cuts {
    ($($name:ident),+ $(,)?) => {
        /// Where work is cut in this file.
        pub(crate) const CUTS: &[$crate::cuts::Cut] = &[$($crate::cuts::Cut {
            file: file!(),
            name: stringify!($name),
            size: $name as usize,
        }),+];
    };
}
pub(crate) use cuts;
