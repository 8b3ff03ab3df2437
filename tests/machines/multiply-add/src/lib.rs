//! Digests of very many multiply-adds, by the processor and by the library's emulation.

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[path = "../../../../crates/retrograd/src/simd/chains_simd128.rs"]
mod chains_simd128;
#[path = "../../../../crates/retrograd/src/simd/fused.rs"]
#[allow(dead_code, unexpected_cfgs, reason = "the library's file, alone")]
mod fused;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[path = "../../../../crates/retrograd/src/simd/fused_simd128.rs"]
mod fused_simd128;

use fearless_simd::{Level, f32x8, f32x16, prelude::*};
use fused::Fused;

/// A stream of numbers (xorshift64*).
struct Stream(u64);

impl Stream {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// A number with few or many digits and an exponent of that range.
    fn number(&mut self, least: u32, range: u32) -> f32 {
        let bits = self.next();
        let digits = match bits & 3 {
            0 => bits >> 9,
            1 => (bits >> 9) & 0x7f_f000,
            2 => (bits >> 9) & 0xfff,
            _ => 0x7f_ffff ^ (bits >> 27),
        };
        let exponent = (least + self.next() % range).min(255);
        f32::from_bits((bits & 4) << 29 | exponent << 23 | digits)
    }

    /// Sums that are half way between two f32 or nearly, large and small ones, all kinds, any bits.
    fn triple(&mut self) -> [f32; 3] {
        let kind = self.next() % 6;
        self.triple_of(kind)
    }

    fn triple_of(&mut self, kind: u32) -> [f32; 3] {
        match kind {
            0 => [(120, 14), (120, 14), (110, 30)].map(|(l, r)| self.number(l, r)),
            1 => [(50, 30), (60, 30), (0, 40)].map(|(l, r)| self.number(l, r)),
            2 => [(180, 30), (190, 30), (230, 25)].map(|(l, r)| self.number(l, r)),
            3 => [(0, 256), (0, 256), (0, 256)].map(|(l, r)| self.number(l, r)),
            4 => {
                // A subnormal number and about half the distance to the next one.
                let first = 20 + self.next() % 64;
                let c = f32::from_bits(self.next() & 0x807f_ffff);
                let near = |bits: u32| {
                    if bits & 8 == 0 {
                        bits & 7
                    } else {
                        0x7f_ffff ^ (bits & 7)
                    }
                };
                let (a, b) = (near(self.next()), near(self.next()));
                let second = 104 - first - self.next() % 2;
                [
                    f32::from_bits(first << 23 | a),
                    f32::from_bits(second << 23 | b),
                    c,
                ]
            }
            _ => [0; 3].map(|_| f32::from_bits(self.next())),
        }
    }
}

/// Order and bits of results count; a NaN is a NaN.
fn add(digest: u64, result: f32) -> u64 {
    let bits = if result.is_nan() {
        0x7fc0_0000
    } else {
        result.to_bits()
    };
    (digest ^ u64::from(bits))
        .wrapping_mul(0x0100_0000_01b3)
        .rotate_left(17)
}

/// Of 16 multiply-adds, so many times.
fn digest(seed: u32, rounds: u32, sixteen: impl Fn([[f32; 16]; 3]) -> [f32; 16]) -> u64 {
    let mut stream = Stream(u64::from(seed) << 1 | 1);
    let mut digest = 0xcbf2_9ce4_8422_2325;
    for _ in 0..rounds {
        let mut operands = [[0.0; 16]; 3];
        for lane in 0..16 {
            let [a, b, c] = stream.triple();
            [operands[0][lane], operands[1][lane], operands[2][lane]] = [a, b, c];
        }
        digest = sixteen(operands).into_iter().fold(digest, add);
    }
    digest
}

/// By the standard library: the processor's instruction, or the C library's function, one as exact as the
/// other.
pub fn by_the_machine(seed: u32, rounds: u32) -> u64 {
    digest(seed, rounds, |[a, b, c]| {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    })
}

/// By the library, on the best instruction set without the fused instruction: vectors of sixteen, and of
/// eight in their place for every other round.
#[unsafe(no_mangle)]
pub extern "C" fn emulated(seed: u32, rounds: u32) -> u64 {
    #[cfg(target_arch = "x86_64")]
    let level = Level::new()
        .as_sse2()
        .map_or(Level::fallback(), Level::Sse2);
    #[cfg(not(target_arch = "x86_64"))]
    let level = Level::new();
    let halves = std::cell::Cell::new(false);
    digest(seed, rounds, |[a, b, c]| {
        halves.set(!halves.get());
        fearless_simd::dispatch!(level, simd => if halves.get() {
            let half = |i: usize| -> [f32; 8] {
                let of = |x: &[f32; 16]| f32x8::from_slice(simd, &x[i..i + 8]);
                of(&a).fma(of(&b), of(&c)).into()
            };
            let both = [half(0), half(8)];
            std::array::from_fn(|i| both[i / 8][i % 8])
        } else {
            let of = |x: &[f32; 16]| f32x16::from_slice(simd, x);
            of(&a).fma(of(&b), of(&c)).into()
        })
    })
}

/// Rows of chains, and the most terms of one: more than the library computes before it looks back.
const ROWS: usize = 4;
const MOST: usize = 40;

/// Chains of a matrix product: row r of `a`, [`MOST`] numbers, by 16 columns of `b`, so many terms.
type Chains = dyn Fn(&[f32], &[f32], usize) -> [[f32; 16]; ROWS];
/// A polynomial at 16 places.
type Polynomial = dyn Fn(&[f32; 16], &[f32; 5]) -> [f32; 16];

/// Of [`ROWS`] times 16 chains of up to [`MOST`] terms, and of as many polynomials, so many times. The first term is a
/// number alone, so that sums are what [`Stream::triple`] makes of three.
fn digest_of_chains(seed: u32, rounds: u32, chains: &Chains, polynomial: &Polynomial) -> u64 {
    let mut stream = Stream(u64::from(seed) << 1 | 1);
    let mut digest = 0xcbf2_9ce4_8422_2325;
    for _ in 0..rounds {
        // Mostly the sums of three numbers of one kind, whichever row and column they are of.
        let (kind, terms) = match stream.next() % 4 {
            0 => (stream.next() % 2, 2 + stream.next() as usize % (MOST - 1)),
            _ => (stream.next() % 6, 2),
        };
        let mut a = [1.0_f32; ROWS * MOST];
        let mut b = [1.0_f32; 16 * MOST];
        for lane in 0..16 {
            b[lane] = stream.triple_of(kind)[2];
        }
        for k in 1..terms {
            for lane in 0..16 {
                let [x, y, _] = stream.triple_of(kind);
                b[k * 16 + lane] = y;
                // The row's factor is that of one of the columns.
                if lane % 4 == 0 {
                    a[lane / 4 * MOST + k] = x;
                }
            }
        }
        digest = chains(&a, &b, terms)
            .into_iter()
            .flatten()
            .fold(digest, add);
        for _ in 1..terms {
            let (mut x, mut c) = ([0.0; 16], [0.0; 5]);
            for lane in 0..16 {
                let triple = stream.triple();
                x[lane] = triple[0];
                [c[lane % 5], c[(lane + 1) % 5]] = [triple[1], triple[2]];
            }
            digest = polynomial(&x, &c).into_iter().fold(digest, add);
        }
    }
    digest
}

/// One multiply-add after the other.
fn one_by_one(a: &[f32], b: &[f32], terms: usize) -> [[f32; 16]; ROWS] {
    let mut sums = [[0.0_f32; 16]; ROWS];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = (0..terms).fold(0.0, |sum, k| a[r * MOST + k].mul_add(b[k * 16 + lane], sum));
        }
    }
    sums
}

fn by_horner(x: &[f32; 16], c: &[f32; 5]) -> [f32; 16] {
    x.map(|x| c[..4].iter().rev().fold(c[4], |sum, &c| sum.mul_add(x, c)))
}

/// By the standard library.
pub fn chains_by_the_machine(seed: u32, rounds: u32) -> u64 {
    digest_of_chains(seed, rounds, &one_by_one, &by_horner)
}

/// As the library's matrix products and polynomials do; only WebAssembly's vectors have a way of their own.
#[unsafe(no_mangle)]
pub extern "C" fn chains(seed: u32, rounds: u32) -> u64 {
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    let chains = |a: &[f32], b: &[f32], terms: usize| -> [[f32; 16]; ROWS] {
        let factors = chains_simd128::Factors {
            a,
            stride: [MOST, 1],
            b,
            step: 16,
            terms,
        };
        fearless_simd::dispatch!(Level::new(), simd =>
            chains_simd128::chains::<_, ROWS>(simd, factors, 16).map(Into::into))
    };
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    let polynomial = |x: &[f32; 16], c: &[f32; 5]| -> [f32; 16] {
        fearless_simd::dispatch!(Level::new(), simd =>
            chains_simd128::polynomial(simd, f32x16::from_slice(simd, x), c).into())
    };
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    let (chains, polynomial) = (one_by_one, by_horner);
    digest_of_chains(seed, rounds, &chains, &polynomial)
}
