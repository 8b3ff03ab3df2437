//! The layer in ONNX: a resize whose every pixel is the one above and to the left of it.

use super::Upsample;
use crate::onnx::{Attribute, Site, ToOnnx};

impl ToOnnx for Upsample {
    fn write(&self, to: &mut Site<'_>) -> String {
        let scale = self.scale as f32;
        let scales = to.graph.f32s("scales", &[4], &[1.0, 1.0, scale, scale]);
        let options = [
            ("mode", Attribute::Text("nearest")),
            (
                "coordinate_transformation_mode",
                Attribute::Text("asymmetric"),
            ),
            ("nearest_mode", Attribute::Text("floor")),
        ];
        // No region of interest.
        to.graph.node_with("Resize", &[to.x, "", &scales], &options)
    }
}
