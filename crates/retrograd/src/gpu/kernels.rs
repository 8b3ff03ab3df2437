//! The WGSL files, each with the shared functions before it.

use super::precision::with_f16;

/// A WGSL file.
pub(crate) struct Kernel {
    pub name: &'static str,
    pub source: &'static str,
}

impl Kernel {
    /// What is compiled: the shared functions, then the file; with 16-bit activations where asked.
    pub fn text(&self, half: bool) -> String {
        let text = format!("{COMMON}\n{}", self.source);
        if half { with_f16(&text) } else { text }
    }
}

const COMMON: &str = include_str!("common.wgsl");

macro_rules! kernels {
    ($($name:ident = $path:literal;)*) => {
        $(pub(crate) static $name: Kernel = Kernel { name: $path, source: include_str!($path) };)*
    };
}

kernels! {
    ACTIVATION = "../nn/activation/activation.wgsl";
    CONV2D = "../nn/conv2d/conv2d.wgsl";
    CONV_TRANSPOSE2D = "../nn/conv_transpose2d/conv_transpose2d.wgsl";
    DENSE = "../nn/dense/dense.wgsl";
    DROPOUT = "../nn/dropout/dropout.wgsl";
    KAN = "../nn/kan/kan.wgsl";
    NORM = "../nn/norm/norm.wgsl";
    POOL = "../nn/pool/pool.wgsl";
    UPSAMPLE = "../nn/upsample/upsample.wgsl";
    CAST = "cast.wgsl";
    COMPRESS = "compress.wgsl";
    ELEMENTWISE = "elementwise.wgsl";
    LOSS = "loss.wgsl";
    OPTIMIZER = "optimizer.wgsl";
}
