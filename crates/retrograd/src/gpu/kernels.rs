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
    ACTIVATION = "../layer/activation/activation.wgsl";
    CONV2D = "../layer/conv2d/conv2d.wgsl";
    CONV_TRANSPOSE2D = "../layer/conv_transpose2d/conv_transpose2d.wgsl";
    DENSE = "../layer/dense/dense.wgsl";
    DROPOUT = "../layer/dropout/dropout.wgsl";
    KAN = "../layer/kan/kan.wgsl";
    NORM = "../layer/norm/norm.wgsl";
    POOL = "../layer/pool/pool.wgsl";
    UPSAMPLE = "../layer/upsample/upsample.wgsl";
    CAST = "cast.wgsl";
    COMPRESS = "compress.wgsl";
    ELEMENTWISE = "elementwise.wgsl";
    LOSS = "loss.wgsl";
    OPTIMIZER = "optimizer.wgsl";
}
