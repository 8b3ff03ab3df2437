//! Sets and maps of cells: millions of short texts, each looked up once.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Different cells.
pub(crate) type Words<'t> = HashSet<&'t str, Quick>;
/// Something for every different cell.
pub(crate) type ByWord<'t, V> = HashMap<&'t str, V, Quick>;

/// Hashes of short texts in a few multiplications. The key is drawn for every set, so that no table can
/// be made whose cells all fall together; nothing depends on the order of the entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quick(u64);

impl Default for Quick {
    fn default() -> Self {
        Quick(RandomState::new().hash_one(0_u64))
    }
}

impl BuildHasher for Quick {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed(self.0)
    }
}

/// A hash on its way.
pub(crate) struct Mixed(u64);

impl Mixed {
    /// Both halves of a product of 128 bits: every bit of the word reaches many of the hash.
    fn mix(&mut self, word: u64) {
        const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.0 ^ word) * FACTOR;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        // Beside the last word, the length could be taken for one of its letters.
        self.0 ^= (bytes.len() as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            self.mix(u64::from_le_bytes(*eight));
        }
        // What is left, in one word: the first and the last four bytes, or each by itself.
        let word = match (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                let [first, last] = [first, last].map(|four| u64::from(u32::from_le_bytes(*four)));
                first | last << 32
            }
            _ => rest.iter().fold(0, |word, &b| word << 8 | u64::from(b)),
        };
        self.mix(word);
    }

    /// The end of a text, whose length is in its hash already.
    fn write_u8(&mut self, _: u8) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_every_length_are_told_apart_and_spread() {
        let texts: Vec<String> = (0..40)
            .flat_map(|length| (0..50).map(move |i| format!("{}{i}", "a".repeat(length))))
            .collect();
        let words: Words<'_> = texts.iter().map(String::as_str).collect();
        assert_eq!(words.len(), texts.len());
        // Some two of 2,000 in 2²⁰ places fall together by chance: 2000² / 2 / 2²⁰ = 1.9.
        let quick = Quick::default();
        for shift in [0, 22, 44] {
            let places = texts
                .iter()
                .map(|t| quick.hash_one(t.as_str()) >> shift & 0xf_ffff);
            let places: HashSet<u64> = places.collect();
            assert!(places.len() > texts.len() - 20, "{}", places.len());
        }
    }
}
