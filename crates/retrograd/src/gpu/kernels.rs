//! WGSL files as kernels: the shared functions before each, and the numbers that it reads by name.
//!
//! A layer's file is declared beside the layer; here are the device's own.

use std::sync::OnceLock;

use super::precision::with_f16;
use crate::{Error, Result};

/// A WGSL file.
pub(crate) struct Kernel {
    /// Its path below `src`.
    pub name: &'static str,
    source: &'static str,
    /// The fields of its `struct Sizes`, in order.
    fields: OnceLock<Vec<&'static str>>,
}

/// The most fields of a `struct Sizes`.
const MAX_SIZES: usize = 16;

impl Kernel {
    pub const fn new(name: &'static str, source: &'static str) -> Self {
        let fields = OnceLock::new();
        Kernel {
            name,
            source,
            fields,
        }
    }

    /// The file, without what is shared.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// What is compiled: the shared functions, then the file; with 16-bit activations where asked.
    pub fn text(&self, half: bool) -> String {
        let text = format!("{COMMON}\n{}", self.source);
        if half { with_f16(&text) } else { text }
    }

    /// The words of the file's `struct Sizes`: named fields with their numbers, the others 0. A batch
    /// whose indices don't fit 32 bits was refused before.
    pub fn sizes(&self, named: &[(&'static str, usize)]) -> Result<[u32; MAX_SIZES]> {
        let fields = self.fields.get_or_init(|| fields(self.source));
        let mut words = [0; MAX_SIZES];
        for &(name, size) in named {
            let place = fields.iter().position(|&field| field == name);
            let word = place.and_then(|place| words.get_mut(place));
            *word.ok_or_else(|| self.no_size(name, fields))? = size as u32;
        }
        Ok(words)
    }

    /// A name that the file doesn't have: a mistake in the code that records it.
    fn no_size(&self, name: &str, fields: &[&str]) -> Error {
        Error::Gpu {
            what: format!("{} has no size {name:?}", self.name),
            advice: format!(
                "name one of the first {MAX_SIZES} fields of its struct Sizes: {}",
                fields.join(", ")
            ),
        }
    }
}

/// The names of the fields of `struct Sizes`, which are all u32; none where there is no such struct.
fn fields(source: &'static str) -> Vec<&'static str> {
    let body = source.split_once("struct Sizes {").map_or("", |s| s.1);
    let body = body.split_once("\n}").map_or(body, |s| s.0);
    let lines = body.lines().map(|line| line.split("//").next());
    lines
        .flatten()
        .flat_map(|line| line.split(','))
        .filter_map(|field| Some(field.split_once(':')?.0.trim()))
        .collect()
}

pub(crate) const COMMON: &str = include_str!("common.wgsl");

pub(crate) static CAST: Kernel = Kernel::new("gpu/cast.wgsl", include_str!("cast.wgsl"));
pub(crate) static COMPRESS: Kernel =
    Kernel::new("gpu/compress.wgsl", include_str!("compress.wgsl"));
pub(crate) static ELEMENTWISE: Kernel =
    Kernel::new("gpu/elementwise.wgsl", include_str!("elementwise.wgsl"));
pub(crate) static LOSS: Kernel = Kernel::new("gpu/loss.wgsl", include_str!("loss.wgsl"));
pub(crate) static LOSS_IMAGE: Kernel =
    Kernel::new("gpu/loss_image.wgsl", include_str!("loss_image.wgsl"));
pub(crate) static OPTIMIZER: Kernel =
    Kernel::new("gpu/optimizer.wgsl", include_str!("optimizer.wgsl"));

/// Every file that is part of the program.
pub(crate) fn all() -> Vec<&'static Kernel> {
    use crate::{graph, layer, logic};
    vec![
        &CAST,
        &COMPRESS,
        &ELEMENTWISE,
        &LOSS,
        &LOSS_IMAGE,
        &OPTIMIZER,
        &super::product::PRODUCT,
        &graph::dag::gpu::DAG,
        &layer::activation::gpu::ACTIVATION,
        &layer::conv2d::gpu::CONV2D,
        &layer::conv_transpose2d::gpu::CONV_TRANSPOSE2D,
        &layer::dense::gpu::FUSED,
        &layer::dropout::gpu::DROPOUT,
        &layer::gat::gpu::ATTENTION,
        &layer::gat::gpu::GAT,
        &layer::gatv2::gpu::GATV2,
        &layer::gine::gpu::GINE,
        &layer::graph::gpu::GATHER,
        &layer::graph::gpu::SUMS,
        &layer::graph_conv::gpu::NORMALISE,
        &layer::graph_pool::gpu::POOL,
        &layer::kan::gpu::KAN,
        &layer::kan::gpu::FUSED,
        &layer::kan::gpu::PENALTY,
        &layer::kan::input::INPUT,
        &layer::norm::gpu::NORM,
        &layer::normalize::gpu::NORMALIZE,
        &layer::pair_dot::gpu::PAIR_DOT,
        &layer::pool::gpu::POOL,
        &layer::self_attention::gpu::SELF_ATTENTION,
        &layer::upsample::gpu::UPSAMPLE,
        &logic::gpu::AUTOMATON,
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::gpu::{
        BackwardForm, Choice, Gpu, GpuNetwork, GpuOptimizer, GpuTrainOptions, LossScale, Recorded,
    };
    use crate::graph::{DagNN, DagSpec};
    use crate::logic::{LogicBatch, LogicCa};
    use crate::loss_image::{ImageLoss, ImageTerms};
    use crate::network::Network;
    use crate::optim::OptimizerSpec;
    use crate::rng::Key;
    use crate::train::MicroBatch;
    use crate::{Loss, Model, Pass, Target};

    static LITTLE: Kernel = Kernel::new(
        "gpu/little.wgsl",
        "struct Other {\n    left: f32,\n}\nstruct Sizes {\n    rows: u32, // first: of x\n    \
         // a line of its own\n    weight: u32, bias: u32\n}\nstruct Last {\n    right: u32,\n}\n",
    );

    #[test]
    fn sizes_lie_where_the_file_declares_them() {
        let words = LITTLE.sizes(&[("bias", 7), ("rows", 5)]).unwrap();
        assert_eq!(words[..4], [5, 0, 7, 0]);
    }

    #[test]
    fn a_size_that_the_file_has_not_is_an_error_with_both_names() {
        for name in ["wieght", "left", "right", "first"] {
            let error = LITTLE.sizes(&[(name, 1)]).unwrap_err().to_string();
            assert!(
                error.contains("gpu/little.wgsl") && error.contains(name),
                "{error}"
            );
            assert!(error.contains("rows, weight, bias"), "{error}");
        }
    }

    /// The entry points of the WGSL files in a folder and below.
    fn entries(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                entries(&path, found);
            } else if path.extension().is_some_and(|e| e == "wgsl") {
                let text = std::fs::read_to_string(&path).unwrap();
                for kernel in text.split("@compute").skip(1) {
                    let name = kernel.split_once("fn ").unwrap().1.split('(').next();
                    found.push(name.unwrap().to_string());
                }
            }
        }
    }

    /// Native steps on one batch and on two, and one with gradients sent to the CPU, of two samples.
    fn step(on_gpu: &mut GpuNetwork, target: &Target<f32>, loss: Loss) {
        let x = vec![0.25; 2 * on_gpu.network().input_len()];
        step_on(on_gpu, &x, target, loss);
    }

    fn step_on<M: Recorded>(
        on_gpu: &mut GpuNetwork<M>,
        x: &M::Given,
        target: &Target<f32>,
        loss: Loss,
    ) {
        let mut adam = GpuOptimizer::new(on_gpu, OptimizerSpec::adam(1e-3)).unwrap();
        for micro in [(0, 1), (0, 2), (1, 2)] {
            let options = GpuTrainOptions {
                micro: MicroBatch {
                    index: micro.0,
                    of: micro.1,
                },
                ..Default::default()
            };
            on_gpu
                .train_step_gpu_native_with_options(x, target, loss, &mut adam, &options)
                .unwrap();
        }
        let options = GpuTrainOptions::default();
        on_gpu
            .loss_and_gradients(x, target, loss, &options)
            .unwrap();
        on_gpu.gradients_f16().unwrap();
    }

    /// Networks whose sums go in pieces, and whose tiles have 256 invocations.
    fn step_on_large(gpu: &Arc<Gpu>) {
        let many = r#"{"input":[2],"layers":[{"kind":"dense","out":2},{"kind":"kan","out":1,"grid":3,"degree":2}]}"#;
        let many = Network::new(&serde_json::from_str(many).unwrap()).unwrap();
        let mut in_pieces = GpuNetwork::new(gpu, &many, &many.init(0)).unwrap();
        let target = Target::values(vec![0.5; 300]);
        step_on(&mut in_pieces, &[0.25; 600], &target, Loss::Mse);
        // Tiles of 256 invocations.
        for (spec, samples) in [
            (
                r#"{"input":[130],"layers":[{"kind":"dense","out":130},{"kind":"dense","out":130}]}"#,
                130,
            ),
            (
                r#"{"input":[30],"layers":[{"kind":"dense","out":30},{"kind":"kan","out":64,"grid":5,"degree":3}]}"#,
                130,
            ),
            (
                r#"{"input":[1,32,32],"layers":[{"kind":"conv2d","out":64,"kernel":1},{"kind":"conv2d","out":64,"kernel":3,"padding":1}]}"#,
                1,
            ),
            (
                r#"{"input":[1,6,6],"layers":[{"kind":"conv2d","out":2,"kernel":1},{"kind":"conv2d","out":2,"kernel":3,"padding":1,"padding_mode":"reflect"}]}"#,
                1,
            ),
        ] {
            let wide = Network::new(&serde_json::from_str(spec).unwrap()).unwrap();
            gpu.set_backward_form(BackwardForm::Separate);
            let mut on_wide = GpuNetwork::new(gpu, &wide, &wide.init(0)).unwrap();
            let target = Target::values(vec![0.5; samples * wide.output_len()]);
            step_on(
                &mut on_wide,
                &vec![0.25; samples * wide.input_len()],
                &target,
                Loss::Mse,
            );
            gpu.set_backward_form(BackwardForm::FewestBytes);
        }
    }

    /// Graphs of every layer kind, a DAG and automata.
    fn step_on_families(gpu: &Arc<Gpu>) {
        for small in crate::layer::small_graphs() {
            let (case, loss) = crate::verify::builtin::graph::case(small).unwrap();
            let params: Vec<f32> = crate::scalar::cast(&case.params);
            let mut on_graph = GpuNetwork::new(gpu, &case.model, &params).unwrap();
            step_on(&mut on_graph, &case.input.cast(), &case.target.cast(), loss);
        }
        let dag = DagNN::new(&DagSpec::new(2, 1, 1, "tanh"), &[0, 1, 2], &[2, 2, 3]).unwrap();
        let mut on_dag = GpuNetwork::new(gpu, &dag, &dag.init(0)).unwrap();
        step_on(
            &mut on_dag,
            &[0.25; 4],
            &Target::values(vec![0.5; 2]),
            Loss::Mse,
        );
        // A step needs no gradient of its input; who calls backward may.
        let pass = Pass::training(Key::new(0).purpose("step"));
        let outputs = on_dag.forward_batch_training(&[0.25; 4], &pass);
        let outputs = outputs.unwrap();
        on_dag.backward_batch(&outputs).unwrap();
        let gates = r#"{"channels":2,"kernels":3,"perception":[9,8,4,2],"update":[14,8,4,2],"steps":3,"gate_penalty":0.1}"#;
        let gates = LogicCa::new(serde_json::from_str(gates).unwrap(), 5).unwrap();
        let mut on_cells = GpuNetwork::new(gpu, &gates, &gates.init(0)).unwrap();
        for fire in [None, Some(vec![true; 3 * 35])] {
            let cells = LogicBatch::new(&gates, vec![0.5; 2 * 70], [2, 5, 7], fire).unwrap();
            let target = Target::values(vec![0.5; 2 * 70]);
            step_on(&mut on_cells, &cells, &target, Loss::SumSquares);
        }
    }

    #[test]
    fn every_kernel_is_recorded_with_sizes_that_its_file_has() {
        let spec = r#"{"input":[2,8,8],"layers":[
            {"kind":"conv2d","out":4,"kernel":3,"padding":1},{"kind":"batch_norm2d"},
            {"kind":"relu"},{"kind":"max_pool2d","kernel":2},{"kind":"upsample","scale":2},
            {"kind":"add","with":2},{"kind":"concat","with":0},
            {"kind":"conv_transpose2d","out":2,"kernel":2,"stride":2},{"kind":"flatten"},
            {"kind":"dropout","p":0.5},{"kind":"dense","out":6},{"kind":"normalize"},
            {"kind":"kan","out":3,"grid":5,"degree":3}],"sparsity":{"l1":0.1,"entropy":0.1}}"#;
        let network = Network::new(&serde_json::from_str(spec).unwrap()).unwrap();
        let params = network.init(0);
        let gpu = Gpu::open(&Choice::Auto).unwrap();
        let scale = LossScale::default();
        let mut in_f32 = GpuNetwork::new(&gpu, &network, &params).unwrap();
        step(&mut in_f32, &Target::values(vec![0.5; 6]), Loss::Mse);
        gpu.set_backward_form(BackwardForm::Separate);
        let mut separate = GpuNetwork::new(&gpu, &network, &params).unwrap();
        step(&mut separate, &Target::values(vec![0.5; 6]), Loss::Mse);
        gpu.set_backward_form(BackwardForm::FewestBytes);
        step_on_large(&gpu);
        let mut mixed = GpuNetwork::mixed(&gpu, &network, &params, scale).unwrap();
        step(&mut mixed, &Target::classes(vec![0, 2]), Loss::CrossEntropy);
        let images = r#"{"input":[1,11,12],"layers":[
            {"kind":"conv2d","out":1,"kernel":3,"padding":1}]}"#;
        let images = Network::new(&serde_json::from_str(images).unwrap()).unwrap();
        let mut on_images = GpuNetwork::new(&gpu, &images, &images.init(0)).unwrap();
        let terms = ImageTerms {
            ssim: 0.5,
            ..ImageTerms::default()
        };
        on_images
            .set_image_loss(&ImageLoss::new(terms, 12, 11).unwrap())
            .unwrap();
        step(&mut on_images, &Target::values(vec![0.5; 264]), Loss::Mse);
        step_on_families(&gpu);
        let recorded = gpu.recorded();
        let mut wanted = Vec::new();
        entries(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut wanted,
        );
        assert!(wanted.len() >= 30, "{wanted:?}");
        for entry in wanted {
            assert!(recorded.contains(&&entry[..]), "{entry} is never recorded");
        }
    }
}
