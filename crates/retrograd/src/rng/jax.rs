//! The random numbers of JAX, for what was published with its seeds: keys of two words, split in
//! a chain, and permutations (Threefry-2x32 of 20 rounds; Salmon et al., "Parallel random numbers:
//! as easy as 1, 2, 3", 2011). As JAX drew up to version 0.4.36, where
//! `jax_threefry_partitionable` is off by default.

use crate::math;

/// A key of JAX's generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JaxKey([u32; 2]);

impl JaxKey {
    /// `jax.random.PRNGKey(seed)`, for seeds below 2³².
    pub fn new(seed: u32) -> Self {
        JaxKey([0, seed])
    }

    /// `jax.random.split(key)`.
    pub fn split(self) -> [JaxKey; 2] {
        let bits = self.bits(4);
        [JaxKey([bits[0], bits[1]]), JaxKey([bits[2], bits[3]])]
    }

    /// The key becomes the first half of its split; returns the second.
    pub fn branch(&mut self) -> JaxKey {
        let [rest, key] = self.split();
        *self = rest;
        key
    }

    /// `jax.random.bits(key, (n,))`.
    pub fn bits(self, n: usize) -> Vec<u32> {
        // The counters' first half goes with the second; an odd one goes with 0.
        let half = n.div_ceil(2);
        let count = |i: usize| if i < n { i as u32 } else { 0 };
        let pairs: Vec<[u32; 2]> = (0..half)
            .map(|i| threefry(self.0, [count(i), count(half + i)]))
            .collect();
        let (low, high) = (pairs.iter().map(|p| p[0]), pairs.iter().map(|p| p[1]));
        low.chain(high).take(n).collect()
    }

    /// `jax.random.permutation(key, n)`: sorted by random words, so often that equal words hardly
    /// matter.
    pub fn permutation(self, n: usize) -> Vec<usize> {
        let mut key = self;
        let mut order: Vec<usize> = (0..n).collect();
        let rounds = 3.0 * math::ln(n.max(1) as f64) / math::ln(f64::from(u32::MAX));
        for _ in 0..rounds.ceil() as usize {
            let words = key.branch().bits(n);
            let mut sorted: Vec<usize> = (0..n).collect();
            sorted.sort_by_key(|&i| words[i]);
            order = sorted.into_iter().map(|i| order[i]).collect();
        }
        order
    }
}

/// One block of Threefry-2x32.
fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd1_1bda];
    let mut x = counter[0].wrapping_add(keys[0]);
    let mut y = counter[1].wrapping_add(keys[1]);
    for round in 0..5 {
        for rotation in ROTATIONS[round % 2] {
            x = x.wrapping_add(y);
            y = y.rotate_left(rotation) ^ x;
        }
        x = x.wrapping_add(keys[(round + 1) % 3]);
        y = y
            .wrapping_add(keys[(round + 2) % 3])
            .wrapping_add(round as u32 + 1);
    }
    [x, y]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of the generator's authors (Random123, `kat_vectors`).
    #[test]
    fn threefry_gives_the_published_vectors() {
        assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        let ones = [u32::MAX; 2];
        assert_eq!(threefry(ones, ones), [0x1cb9_96fc, 0xbb00_2be7]);
        let pi = threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]);
        assert_eq!(pi, [0xc492_3a9c, 0x483d_f7a0]);
    }

    /// JAX 0.10.2 with `jax_threefry_partitionable` off, on a CPU.
    #[test]
    fn keys_and_permutations_are_those_of_jax() {
        let key = JaxKey::new(23);
        let split = [[2160167688, 2892722152], [4285582716, 3027254904]];
        assert_eq!(key.split(), split.map(JaxKey));
        assert_eq!(key.permutation(9), [8, 1, 0, 2, 4, 5, 3, 7, 6]);
        // Two rounds.
        let long = key.permutation(3000);
        assert_eq!(long[..6], [2549, 2214, 2547, 2751, 430, 721]);
    }
}
