//! Batch norm of a batch that is cut into shards: every shard's own sums, added in the order of the
//! tree, so that all shards have the statistics of the whole batch.
//!
//! Forward exchanges counts n, means μ and squared deviations M = Σ (x − μ)² of every channel. Two
//! parts a and b make one (Chan, Golub and LeVeque 1979), with δ = μ_b − μ_a:
//!
//! n = n_a + n_b, μ = μ_a + δ·n_b/n, M = M_a + M_b + δ²·n_a·n_b/n.
//!
//! Backward exchanges Σ d_y and Σ d_y·x̂ of every channel, which are added.

use crate::group;

/// The moments of a batch, or of one shard of it.
pub(super) struct Moments {
    pub count: f64,
    /// Mean and squared deviations of every channel.
    pub channels: Vec<[f64; 2]>,
}

/// Those of the whole batch, from those of this shard; none where the batch isn't cut.
pub(super) fn whole(own: impl FnOnce() -> Moments) -> Option<Moments> {
    let shared = group::exchange(|| {
        let Moments { count, channels } = own();
        let mut values = vec![count];
        values.extend(channels.as_flattened());
        values
    })?;
    let values = group::sum(&shared, merge)?;
    Some(Moments {
        count: values[0],
        channels: values[1..].as_chunks().0.to_vec(),
    })
}

fn merge(mut a: Vec<f64>, b: Vec<f64>) -> Vec<f64> {
    let (in_a, in_b) = (a[0], b[0]);
    let n = in_a + in_b;
    let channels = a[1..].as_chunks_mut::<2>().0.iter_mut();
    for ([mean, squares], [mean_b, squares_b]) in channels.zip(b[1..].as_chunks::<2>().0) {
        let apart = mean_b - *mean;
        *mean += apart * in_b / n;
        *squares += squares_b + apart * apart * in_a * in_b / n;
    }
    a[0] = n;
    a
}

/// Sums over the whole batch, from those of this shard, with the elements of the batch in a channel;
/// none where it isn't cut.
pub(super) fn sums(count: usize, own: impl FnOnce() -> Vec<f64>) -> Option<(f64, Vec<f64>)> {
    let shared = group::exchange(|| {
        let mut values = own();
        values.push(count as f64);
        values
    })?;
    let mut values = group::sum(&shared, |mut a, b| {
        for (a, b) in a.iter_mut().zip(b) {
            *a += b;
        }
        a
    })?;
    let count = values.pop()?;
    Some((count, values))
}
