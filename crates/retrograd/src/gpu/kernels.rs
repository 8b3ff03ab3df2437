//! The WGSL files, each with the shared functions before it.

/// A WGSL file.
pub(crate) struct Kernel {
    pub name: &'static str,
    pub source: &'static str,
}

impl Kernel {
    /// What is compiled: the shared functions, then the file.
    pub fn text(&self) -> String {
        format!("{COMMON}\n{}", self.source)
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
    COMPRESS = "compress.wgsl";
    ELEMENTWISE = "elementwise.wgsl";
    LOSS = "loss.wgsl";
    OPTIMIZER = "optimizer.wgsl";
}
