//! Kolmogorov–Arnold networks as their users want them: training in a few calls, grids that follow
//! the data and grow finer, sparsity and pruning, formulas, pictures, files of other libraries, and
//! frozen networks for deployment.
//!
//! The layer itself is in [`crate::network`]; everything here works on a
//! [`Network`](crate::network::Network) whose layers are
//! KAN layers, and its flat parameters.
//!
//! ```
//! use retrograd::kan::{KanConfig, KanNetwork, TrainOptions};
//! use retrograd::Target;
//!
//! let mut kan = KanNetwork::new(&KanConfig::new(&[2, 5, 1]), 0).unwrap();
//! let x: Vec<f32> = (0..64).map(|n| (n as f32 * 0.37).sin()).collect();
//! let target = Target::values(x.chunks(2).map(|x| x[0] * x[1]).collect());
//! let first = kan.train_step_with_options(&x, &target, &TrainOptions::default()).unwrap();
//! for _ in 0..100 {
//!     kan.train_step_with_options(&x, &target, &TrainOptions::default()).unwrap();
//! }
//! let last = kan.train_step_with_options(&x, &target, &TrainOptions::default()).unwrap();
//! assert!(last < first);
//! ```

mod bench;
#[cfg(feature = "gpu")]
mod bench_gpu;
mod discover;
mod edges;
mod exchange;
pub(crate) mod explain;
mod expression;
mod family;
mod frozen;
mod grid;
mod network;
mod plot;
mod prune;
mod symbolic;
mod symbolic_network;
mod task;
#[cfg(test)]
mod tests;

#[cfg(feature = "gpu")]
pub use bench_gpu::profile;
pub use discover::{Discover, Discovery, discover};
pub use edges::{Edge, EdgeImportance, Layers, edge_curve};
pub use exchange::{Exchange, read_state, write_state};
pub use expression::Expression;
pub use family::FAMILY;
pub use frozen::{FrozenKan, FrozenPrecision};
pub use grid::{GridSchedule, GridUpdate, Refit, extend_grid, update_grid};
pub use network::{KanConfig, KanNetwork, TrainOptions};
pub use plot::{PlotOptions, plot_png, plot_svg};
pub use prune::{EdgeMask, Pruned, prune};
pub use symbolic::{Candidate, Function, LIBRARY, fit_all, fit_function};
pub use symbolic_network::{SymbolicEdge, SymbolicNetwork, SymbolicOptions};
pub(crate) use task::network_figure;
pub use task::{task, task_of_run, trained_kan, write_pictures};
