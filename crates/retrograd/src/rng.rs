//! Counter-based randomness: what is drawn depends on the key alone.
//!
//! A [`Key`] is the run's seed, a purpose ("init", "shuffle", "dropout") and two counters, usually
//! the step and the layer. It opens a [`Stream`] of ChaCha8. The order of work, the number of
//! threads and a resumed run cannot change what a key gives.

pub mod jax;

use crate::math;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The name of a stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    seed: u64,
    purpose: u64,
    step: u64,
    index: u64,
}

impl Key {
    /// The root key of a run.
    pub fn new(seed: u64) -> Self {
        Key {
            seed,
            purpose: 0,
            step: 0,
            index: 0,
        }
    }

    /// The key for a purpose: different words, different streams.
    pub fn purpose(self, name: &str) -> Self {
        let purpose = fnv(BASIS, name.as_bytes());
        Key { purpose, ..self }
    }

    /// The key of one of several that have steps and indices of their own. A step and an index take the
    /// place of those before; this one stays, and can be followed by others.
    pub fn among(self, which: u64) -> Self {
        let purpose = fnv(self.purpose ^ BASIS, &which.to_le_bytes());
        Key { purpose, ..self }
    }

    /// The key of a step; it takes the place of another step.
    pub fn step(self, step: u64) -> Self {
        Key { step, ..self }
    }

    /// The key of one of several of a kind: a layer, a tensor, an epoch's part; it takes the place of
    /// another index.
    pub fn index(self, index: u64) -> Self {
        Key { index, ..self }
    }

    /// The eight words that key the stream, for a kernel that draws it elsewhere.
    #[cfg(feature = "gpu")]
    pub(crate) fn words(self) -> [u32; 8] {
        let [a, b, c, d] = [self.seed, self.purpose, self.step, self.index];
        [a, b, c, d]
            .map(|word| [word as u32, (word >> 32) as u32])
            .as_flattened()
            .try_into()
            .expect("eight words")
    }

    /// The stream of this key, from its start.
    pub fn stream(self) -> Stream {
        let mut bytes = [0; 32];
        for (chunk, word) in
            bytes
                .chunks_exact_mut(8)
                .zip([self.seed, self.purpose, self.step, self.index])
        {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Stream {
            chacha: ChaCha8Rng::from_seed(bytes),
        }
    }
}

/// Random numbers of one key, in order.
#[derive(Clone, Debug)]
pub struct Stream {
    chacha: ChaCha8Rng,
}

impl Stream {
    /// Moves to the n-th 32-bit word of the stream: pieces of one array can be drawn in any order.
    pub fn seek(&mut self, word: u64) {
        self.chacha.set_word_pos(u128::from(word));
    }

    /// The next 32 bits.
    #[inline]
    pub fn u32(&mut self) -> u32 {
        self.chacha.next_u32()
    }

    /// The next bytes; words begin at every fourth, the lowest byte first. Drawn from a stream that
    /// stands at the start of a word, as many words as it takes.
    pub fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.chacha.fill_bytes(bytes);
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> u64 {
        self.chacha.next_u64()
    }

    /// Uniform in [0, 1), 24 bits, one word.
    pub fn uniform_f32(&mut self) -> f32 {
        (self.u32() >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    /// Uniform in [0, 1), 53 bits, two words.
    pub fn uniform(&mut self) -> f64 {
        (self.u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Uniform in [low, high).
    pub fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Standard normal (Box and Muller's cosine branch), four words.
    pub fn normal(&mut self) -> f64 {
        let u = 1.0 - self.uniform();
        let v = self.uniform();
        (-2.0 * math::ln(u)).sqrt() * math::cos(std::f64::consts::TAU * v)
    }

    /// Uniform among 0 … n−1, without bias. `n` must be positive.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "a choice among nothing");
        let n = n as u64;
        // Reject the last, incomplete run of n values.
        let zone = u64::MAX - u64::MAX % n;
        loop {
            let x = self.u64();
            if x < zone {
                return (x % n) as usize;
            }
        }
    }

    /// Fisher and Yates' shuffle.
    pub fn shuffle<X>(&mut self, items: &mut [X]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i + 1);
            items.swap(i, j);
        }
    }
}

/// What [`fnv`] starts from.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, so that the stream of a purpose never changes between versions.
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_the_same_stream_and_other_keys_give_others() {
        let key = Key::new(7).purpose("init");
        let words = |key: Key| -> Vec<u64> {
            let mut stream = key.stream();
            (0..8).map(|_| stream.u64()).collect()
        };
        assert_eq!(words(key), words(key));
        let others = [
            Key::new(8).purpose("init"),
            Key::new(7).purpose("shuffle"),
            key.step(1),
            key.index(1),
            key.among(0),
            key.among(1),
            key.among(1).among(1),
            key.among(1).index(1),
        ];
        for (i, one) in others.iter().enumerate() {
            for other in &others[..i] {
                assert_ne!(words(*one), words(*other));
            }
        }
        for other in others {
            assert_ne!(words(key), words(other));
        }
    }

    #[test]
    fn bytes_are_those_of_the_words() {
        let key = Key::new(5).purpose("dropout");
        let mut bytes = [0; 1002];
        let mut stream = key.stream();
        stream.seek(64);
        stream.fill_bytes(&mut bytes);
        stream.seek(64);
        for chunk in bytes.chunks(4) {
            assert_eq!(chunk, &stream.u32().to_le_bytes()[..chunk.len()]);
        }
    }

    #[test]
    fn seek_reaches_the_word_that_sequential_drawing_reaches() {
        let key = Key::new(3).purpose("dropout");
        let mut a = key.stream();
        let drawn: Vec<u32> = (0..100).map(|_| a.u32()).collect();
        let mut b = key.stream();
        b.seek(57);
        assert_eq!(b.u32(), drawn[57]);
    }

    #[test]
    fn moments_of_uniform_and_normal() {
        let mut stream = Key::new(1).stream();
        let n = 100_000;
        let (mut sum_u, mut sum_n, mut sum_n2) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            sum_u += stream.uniform();
            let x = stream.normal();
            sum_n += x;
            sum_n2 += x * x;
        }
        // Five standard errors of each estimate.
        let n = f64::from(n);
        assert!((sum_u / n - 0.5).abs() < 5.0 * (1.0 / 12.0 / n).sqrt());
        assert!((sum_n / n).abs() < 5.0 / n.sqrt());
        assert!((sum_n2 / n - 1.0).abs() < 5.0 * (2.0 / n).sqrt());
    }
}
