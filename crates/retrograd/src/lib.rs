//! retrograd trains small and unusual networks, on the CPU and on any GPU that wgpu reaches:
//! Kolmogorov–Arnold networks, convolutional denoisers, graph networks and cellular automata of
//! logic gates. Its three promises, in this order:
//!
//! 1. **Right.** Every gradient is checked against an independent oracle, and every check is shown
//!    to fail on a wrong gradient ([`verify`]).
//! 2. **The same.** The same seed gives the same bits, whatever the number of threads
//!    ([`parallel`], [`rng`]).
//! 3. **Fast.** f32 kernels with SIMD beside a plain reference of the same name.
//!
//! # A tour
//!
//! A [`Model`] is a set of pure functions over one flat parameter vector, whose tensors are named
//! by a [`Layout`], with PyTorch's names. [`network::Network`] is the model that a list of layers makes:
//!
//! ```
//! use retrograd::network::{LayerSpec, Network, NetworkSpec};
//! use retrograd::{Model, Pass};
//!
//! let layers = vec![LayerSpec::dense(16), LayerSpec::gelu(), LayerSpec::dense(1)];
//! let network = Network::new(&NetworkSpec::new(&[2], layers))?;
//! let names: Vec<_> = network.layout().tensors().iter().map(|t| t.name.as_str()).collect();
//! assert_eq!(names, ["0.weight", "0.bias", "2.weight", "2.bias"]);
//!
//! let params = network.init(0); // the seed
//! let mut tape = Default::default(); // kept and reused: later calls allocate nothing
//! let x = vec![0.1, 0.2, 0.3, 0.4]; // two samples of two numbers
//! network.forward(&params, &x, &Pass::inference(), &mut tape)?;
//! assert_eq!(network.output(&tape).len(), 2);
//! # Ok::<(), retrograd::Error>(())
//! ```
//!
//! Because parameters, gradients and optimizer state are flat slices, everything else is written
//! once, for every model. [`train::Stepper`] makes whole training steps:
//!
//! ```
//! # use retrograd::network::{LayerSpec, Network, NetworkSpec};
//! use retrograd::optim::OptimizerSpec;
//! use retrograd::rng::Key;
//! use retrograd::train::{Example, Stepper};
//! use retrograd::{Loss, Model, Pass, Target};
//! # let layers = vec![LayerSpec::dense(16), LayerSpec::gelu(), LayerSpec::dense(1)];
//! # let network = Network::new(&NetworkSpec::new(&[2], layers))?;
//!
//! let x: Vec<f32> = (0..128).map(|k| (k as f32 * 0.7).sin()).collect();
//! let target = Target::values(x.chunks(2).map(|x| x[0] * x[1]).collect());
//! let example = Example { input: x, target };
//! let mut stepper = Stepper::new(&network, network.init(0), OptimizerSpec::adam(0.01));
//! let mut losses = Vec::new();
//! for step in 0..200 {
//!     let pass = Pass::training(Key::new(0).step(step)); // what dropout would draw from
//!     losses.push(stepper.step(&network, Loss::Mse, &example, &pass)?);
//! }
//! assert!(losses[199] < 0.1 * losses[0]);
//! # Ok::<(), retrograd::Error>(())
//! ```
//!
//! The same model can be checked: its gradients against central differences in f64, its f32
//! kernels against the f64 reference within a bound predicted from rounding alone, one thread
//! against many, fresh memory against used, trajectories of five optimizers. [`verify::check`] takes
//! any model, your own too (`examples/02_own_layer.rs`):
//!
//! ```
//! # use retrograd::network::{LayerSpec, Network, NetworkSpec};
//! use retrograd::{Loss, Model, Target, verify};
//! # let network = Network::new(&NetworkSpec::new(&[2], vec![LayerSpec::dense(3)]))?;
//!
//! let (x, target) = (vec![0.25, -0.5, 1.0, 0.75], Target::values(vec![0.5; 6]));
//! let report = verify::check(
//!     "mine", &network, &network.init(0), &x, &target, Loss::Mse, &Default::default(),
//! )?;
//! assert!(report.passed(), "{}", report.table());
//! # Ok::<(), retrograd::Error>(())
//! ```
//!
//! A whole run, with batches, validation, schedules, checkpoints that resume bit for bit, and a
//! report, is a [`train::Session`] over a [`train::Task`], described by an [`train::Experiment`]:
//! the same TOML file that the `retrograd` command takes.
//!
//! ```
//! use retrograd::train::{Experiment, NetworkTask, Session};
//!
//! let experiment = Experiment::parse(r#"
//!     name = "moons"
//!     [model]
//!     family = "network"
//!     layers = [{ kind = "dense", out = 16 }, { kind = "silu" }, { kind = "dense", out = 2 }]
//!     [data]
//!     generate = { name = "two_moons", samples = 200 }
//!     validation = 0.2
//!     [train]
//!     epochs = 20
//!     batch = 16
//!     optimizer = { kind = "adam", lr = 0.02 }
//! "#, "moons.toml")?;
//! let mut task = NetworkTask::new(&experiment)?;
//! let summary = Session::new(experiment).fit(&mut task)?; // .in_folder("runs/moons") keeps files
//! assert!(summary.validation_loss.unwrap() < 0.4);
//! # Ok::<(), retrograd::Error>(())
//! ```
//!
//! # Where to go
//!
//! | to | see |
//! |---|---|
//! | build networks of dense, KAN, convolution, pooling, norm … layers | [`network`] |
//! | train, prune, refine, draw and explain Kolmogorov–Arnold networks | [`kan`] |
//! | denoise micrographs and photographs, tile by tile | [`denoise`], [`data::mrc`] |
//! | learn on graphs, from nodes to whole DAGs | [`graph`] |
//! | learn circuits of logic gates and run them on bits | [`logic`] |
//! | run and train networks on a GPU | `gpu`, with the feature of that name |
//! | read CSV, NPY, IDX, MRC, images, safetensors | [`data`] |
//! | check a gradient, or compare with another framework | [`verify`] |
//!
//! The numbered programs in `examples/` are short and complete.
//!
//! # Features
//!
//! `gpu` (on by default) brings the GPU through wgpu. Without it neither wgpu nor any of its
//! dependencies is built.

#![deny(missing_docs)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod bench;
pub mod budget;
mod clock;
pub(crate) mod cuts;
pub mod data;
pub mod denoise;
mod disk;
mod error;
pub mod family;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod graph;
pub mod group;
pub mod kan;
pub mod layer;
pub mod layout;
mod linalg;
pub mod logic;
pub mod loss;
pub mod loss_image;
mod math;
pub mod model;
pub mod network;
pub mod onnx;
pub mod optim;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the one module that calls rayon and starts threads"
)]
pub mod parallel;
pub(crate) mod plan;
pub mod rng;
pub mod scalar;
mod simd;
mod suggest;
pub mod train;
pub mod verify;

/// What the `retrograd` command needs of the inside; nothing here is promised to anyone else.
#[doc(hidden)]
pub mod command {
    pub use crate::disk::{Halted, halt};
    pub use crate::error::{plain, shortened};
    pub use crate::simd::{InstructionSet, asked as asked_simd, instruction_set};
    pub use crate::suggest::did_you_mean;

    /// Whether a panic of this thread comes back as an error, so that no hook need print it.
    pub fn panic_is_caught() -> bool {
        crate::data::image::panic_is_caught()
    }
}

pub use error::{Error, Result};
pub use family::{FAMILIES, Family};
pub use layout::{Layout, Tensor};
pub use loss::{Loss, Target};
pub use model::{Batch, Buffer, Grads, Kernels, Model, Pass, Ready, Reported, Told};
pub use scalar::Scalar;

/// The programs in the README, which are compiled and run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
