//! Two forms of a backward pass: kernels of their own for the gradients of parameters and of the input, or
//! one kernel for all. The plan takes the one that reads and writes fewer bytes of storage buffers for the
//! shape, whatever the adapter.

use std::sync::atomic::{AtomicU8, Ordering};

use super::Gpu;
use super::precision::real_bytes;

/// Which form is recorded for layers that have both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackwardForm {
    /// The one with fewer bytes.
    #[default]
    FewestBytes,
    /// Kernels of their own.
    Separate,
    /// One kernel.
    Fused,
}

/// The form that is asked for.
#[derive(Default)]
pub(super) struct Asked(AtomicU8);

impl Gpu {
    /// Asks for one form, of all that is recorded from here on: to compare them.
    pub fn set_backward_form(&self, form: BackwardForm) {
        self.form.0.store(form as u8, Ordering::Relaxed);
    }

    /// Whether the fused form is to be recorded, by the numbers that either reads and writes.
    pub(crate) fn fuses(&self, half: bool, separate: Numbers, fused: Numbers) -> bool {
        match self.form.0.load(Ordering::Relaxed) {
            n if n == BackwardForm::Separate as u8 => false,
            n if n == BackwardForm::Fused as u8 => true,
            _ => fused.bytes(half) < separate.bytes(half),
        }
    }
}

/// Numbers that kernels read and write in storage buffers, each as often as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Activations, their gradients and the weights that products read: 16 bits in mixed precision.
    pub reals: u64,
    /// Always 32 bits.
    pub floats: u64,
}

impl Numbers {
    pub fn bytes(self, half: bool) -> u64 {
        self.reals * real_bytes(half) + 4 * self.floats
    }
}

impl std::ops::AddAssign for Numbers {
    fn add_assign(&mut self, other: Self) {
        self.reals += other.reals;
        self.floats += other.floats;
    }
}

/// What a way to cut a kernel's work costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Read and written.
    pub bytes: u64,
    /// What invocations compute, with what lies beyond the edges.
    pub computed: usize,
    pub workgroups: usize,
}

/// Workgroups that are enough for any adapter: more of them are no better.
const ENOUGH: usize = 128;

/// The way to cut a kernel's work: of those that read and write at most twice the least, every operand and result
/// once, the one that computes least; among equals that with the most workgroups, then the one with the fewest
/// bytes. Where none is within twice, the one with the fewest bytes. It depends on the shape alone, not on the
/// adapter.
pub(crate) fn best<T>(least: u64, all: impl Iterator<Item = (T, Cost)>) -> Option<T> {
    let key = |(_, cost): &(T, Cost)| match cost.bytes <= 2 * least {
        true => {
            let fewer = ENOUGH - cost.workgroups.min(ENOUGH);
            (0, cost.computed, fewer, cost.bytes)
        }
        false => (1, 0, 0, cost.bytes),
    };
    all.min_by_key(key).map(|(cut, _)| cut)
}

/// Rows of a piece, where there are few.
pub(crate) const PIECE: usize = 256;

/// How the rows of a batch are cut among workgroups: rows of a piece, and pieces. Every piece has sums of its
/// own, so there are at most 16.
pub(crate) fn row_pieces(rows: usize) -> (usize, usize) {
    let piece = rows.div_ceil(16).next_multiple_of(64).max(PIECE);
    (piece, rows.div_ceil(piece))
}

/// What the kernels of a native step of a network count.
#[cfg(test)]
pub(crate) fn counted(
    gpu: &std::sync::Arc<Gpu>,
    spec: &str,
    samples: usize,
) -> Vec<super::KernelTraffic> {
    use super::{GpuNetwork, GpuOptimizer};
    use crate::network::Network;
    use crate::optim::OptimizerSpec;
    use crate::{Loss, Model, Target};

    let network = Network::new(&serde_json::from_str(spec).unwrap()).unwrap();
    let mut on_gpu = GpuNetwork::new(gpu, &network, &network.init(0)).unwrap();
    let mut sgd = GpuOptimizer::new(&on_gpu, OptimizerSpec::sgd(0.1)).unwrap();
    let values = samples * network.input_len();
    let x: Vec<f32> = (0..values).map(|i| (i % 7) as f32 / 8.0).collect();
    let target = Target::values(vec![0.5; samples * network.output_len()]);
    let options = Default::default();
    let traffic = on_gpu.traffic_of_native_step(&x, &target, Loss::Mse, &mut sgd, &options);
    traffic.unwrap().kernels
}

/// The bytes of those whose labels begin so and that are backward's.
#[cfg(test)]
pub(crate) fn counted_backward(
    gpu: &std::sync::Arc<Gpu>,
    (layers, inputs, rows): (&str, usize, usize),
    form: BackwardForm,
    label: &str,
) -> u64 {
    let spec = format!(r#"{{"input":[{inputs}],"layers":{layers}}}"#);
    gpu.set_backward_form(form);
    let kernels = counted(gpu, &spec, rows);
    gpu.set_backward_form(BackwardForm::FewestBytes);
    let is_backward = |label: &str| label.contains("backward") || label.contains("add_pieces");
    (kernels.iter())
        .filter(|kernel| kernel.label.starts_with(label) && is_backward(&kernel.label))
        .map(super::KernelTraffic::bytes)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_within_twice_the_least_that_computes_least_is_taken() {
        let cost = |bytes, computed, workgroups| Cost {
            bytes,
            computed,
            workgroups,
        };
        let taken = |costs: &[Cost]| best(10, costs.iter().copied().enumerate());
        assert_eq!(taken(&[cost(21, 1, 9), cost(20, 3, 1)]), Some(1));
        assert_eq!(taken(&[cost(20, 2, 1), cost(10, 3, 9)]), Some(0));
        assert_eq!(taken(&[cost(11, 2, 1), cost(20, 2, 2)]), Some(1));
        assert_eq!(taken(&[cost(12, 2, 500), cost(11, 2, 200)]), Some(1));
        assert_eq!(taken(&[cost(40, 1, 9), cost(30, 9, 1)]), Some(1));
        assert_eq!(taken(&[]), None);
    }

    #[test]
    fn pieces_cover_the_rows_and_are_few() {
        for rows in [1, 255, 256, 257, 4096, 4097, 1 << 20] {
            let (piece, pieces) = row_pieces(rows);
            assert!(
                piece * pieces >= rows && piece * (pieces - 1) < rows,
                "{rows}"
            );
            assert!(pieces <= 16 && piece % 64 == 0, "{rows}");
        }
        assert_eq!(row_pieces(256).1, 1);
        assert_eq!(row_pieces(257).1, 2);
    }
}
