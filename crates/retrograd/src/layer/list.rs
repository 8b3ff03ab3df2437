//! The layer kinds: one line for each.

use serde::{Deserialize, Serialize};

use super::*;

macro_rules! layers {
    ($($(#[$doc:meta])* $variant:ident($name:literal) = $spec:path;)*) => {
        /// One layer. Kinds, options and defaults are those of the reference bundles.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum LayerSpec {
            $($(#[$doc])* #[serde(rename = $name)] $variant($spec),)*
        }

        impl LayerSpec {
            /// The name of the kind, as in files.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(LayerSpec::$variant(_) => $name,)*
                }
            }

            /// What follows from its options.
            pub(crate) fn spec(&self) -> &dyn Spec {
                match self {
                    $(LayerSpec::$variant(spec) => spec,)*
                }
            }
        }

        /// The models that the kinds are verified on.
        pub(crate) fn small_models() -> Vec<spec::Small> {
            [$(<$spec as Spec>::small()),*].concat()
        }
    };
}

layers! {
    /// y = W·x + b.
    Dense("dense") = dense::DenseSpec;
    /// Kolmogorov–Arnold: a spline (and a base function) on every edge.
    Kan("kan") = kan::KanSpec;
    /// Cross-correlation over height and width.
    Conv2d("conv2d") = conv2d::Conv2dSpec;
    /// The adjoint of a convolution.
    ConvTranspose2d("conv_transpose2d") = conv_transpose2d::ConvTranspose2dSpec;
    /// The largest of every window.
    MaxPool2d("max_pool2d") = pool::MaxPool2dSpec;
    /// The mean of every window.
    AvgPool2d("avg_pool2d") = pool::AvgPool2dSpec;
    /// Every pixel repeated `scale` times in height and width.
    Upsample("upsample") = upsample::UpsampleSpec;
    /// Over the last axis.
    LayerNorm("layer_norm") = norm::LayerNormSpec;
    /// Over groups of channels.
    GroupNorm("group_norm") = norm::GroupNormSpec;
    /// Over batch, height and width.
    BatchNorm2d("batch_norm2d") = norm::BatchNorm2dSpec;
    /// Appends the channels of an earlier layer's output (−1: the network's input).
    Concat("concat") = concat::ConcatSpec;
    /// Adds an earlier layer's output (−1: the network's input).
    Add("add") = add::AddSpec;
    /// All axes of a sample into one.
    Flatten("flatten") = flatten::FlattenSpec;
    /// Each element dropped with probability `p` in training, the others scaled by 1/(1−p).
    Dropout("dropout") = dropout::DropoutSpec;
    /// (x − mean) / std, fixed statistics kept in the buffers `N.mean` and `N.std`.
    Normalize("normalize") = normalize::NormalizeSpec;
    /// max(x, 0).
    Relu("relu") = activation::ReluSpec;
    /// x where positive, else slope·x.
    LeakyRelu("leaky_relu") = activation::LeakyReluSpec;
    /// x where positive, else α·(eˣ − 1).
    Elu("elu") = activation::EluSpec;
    /// x·σ(x).
    Silu("silu") = activation::SiluSpec;
    /// x·Φ(x), exact.
    Gelu("gelu") = activation::GeluSpec;
    /// Hyperbolic tangent.
    Tanh("tanh") = activation::TanhSpec;
    /// Logistic function.
    Sigmoid("sigmoid") = activation::SigmoidSpec;
}
