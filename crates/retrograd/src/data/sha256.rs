//! SHA-256 (FIPS 180-4), by which two machines can say that they have the same.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::{Error, Result};

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
const K: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

/// The digest of what is written into it.
pub struct Sha256 {
    state: [u32; 8],
    /// Bytes that don't fill a block yet.
    block: [u8; 64],
    filled: usize,
    bytes: u64,
}

impl Default for Sha256 {
    fn default() -> Self {
        Sha256 {
            // The same of the square roots of the first eight primes.
            state: [
                0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                0x5be0cd19,
            ],
            block: [0; 64],
            filled: 0,
            bytes: 0,
        }
    }
}

impl Sha256 {
    /// Adds bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if self.filled > 0 {
            let n = bytes.len().min(64 - self.filled);
            self.block[self.filled..self.filled + n].copy_from_slice(&bytes[..n]);
            self.filled += n;
            bytes = &bytes[n..];
            if self.filled < 64 {
                return;
            }
            compress(&mut self.state, &self.block);
            self.filled = 0;
        }
        let (blocks, rest) = bytes.as_chunks::<64>();
        for block in blocks {
            compress(&mut self.state, block);
        }
        self.block[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }

    /// The digest, as 64 hexadecimal digits.
    pub fn finish(mut self) -> String {
        let bits = self.bytes * 8;
        let zeros = (119 - self.filled) % 64;
        let mut end = [0; 72];
        end[0] = 0x80;
        end[1 + zeros..9 + zeros].copy_from_slice(&bits.to_be_bytes());
        self.update(&end[..9 + zeros]);
        let mut text = String::new();
        for word in self.state {
            let _ = write!(text, "{word:08x}");
        }
        text
    }
}

impl Write for Sha256 {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn compress(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut w = [0; 64];
    for (w, bytes) in w.iter_mut().zip(block.as_chunks::<4>().0) {
        *w = u32::from_be_bytes(*bytes);
    }
    for i in 16..64 {
        let (a, b) = (w[i - 15], w[i - 2]);
        let low = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let high = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        w[i] = low
            .wrapping_add(high)
            .wrapping_add(w[i - 16])
            .wrapping_add(w[i - 7]);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (k, w) in K.into_iter().zip(w) {
        let sum = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = h
            .wrapping_add(sum)
            .wrapping_add(choice)
            .wrapping_add(k)
            .wrapping_add(w);
        let sum = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = sum.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (state, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *state = state.wrapping_add(new);
    }
}

/// The digest of a file, as `sha256sum` prints it.
pub fn of_file(path: &Path) -> Result<String> {
    // A device may have no end, and a pipe's writer may never come; the name may be anybody's.
    let about = std::fs::metadata(path).map_err(Error::io(path, "read"))?;
    if !about.is_file() {
        return Err(Error::refused(path.display(), "is no file; needs one"));
    }
    let mut file = File::open(path).map_err(Error::io(path, "read"))?;
    let mut digest = Sha256::default();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(Error::io(path, "read"))? {
            0 => return Ok(digest.finish()),
            n => digest.update(&buffer[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> String {
        let mut digest = Sha256::default();
        digest.update(bytes);
        digest.finish()
    }

    #[cfg(unix)]
    #[test]
    fn what_has_no_end_has_no_digest() {
        let error = of_file(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(
            error.contains("/dev/zero") && error.contains("is no file"),
            "{error}"
        );
    }

    /// The examples of FIPS 180-4's companion, and its million of the letter a.
    #[test]
    fn digests_are_those_of_the_standard() {
        for (text, digest) in [
            (
                "",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            (
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            assert_eq!(of(text.as_bytes()), digest);
        }
        let digest = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
        assert_eq!(of(&vec![b'a'; 1_000_000]), digest);
    }

    #[test]
    fn pieces_of_any_length_make_the_same_digest() {
        let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * i % 251) as u8).collect();
        for piece in [1, 3, 55, 56, 63, 64, 65, 119, 500] {
            let mut digest = Sha256::default();
            bytes.chunks(piece).for_each(|piece| digest.update(piece));
            assert_eq!(digest.finish(), of(&bytes), "{piece}");
        }
    }
}
