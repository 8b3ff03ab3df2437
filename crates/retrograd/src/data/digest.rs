//! A digest of what a safetensors file of ours holds, in its metadata: a bit that flipped on a disk or
//! on the way is noticed when the file is read.
//!
//! `digest` = `xxh64:` and 16 hexadecimal digits: XXH64 (seed 0) of a list of numbers of 64 bits,
//! little-endian. Those are XXH64 of every key and text of the metadata but this one, sorted by key,
//! and then of every tensor, sorted by name: its name, its type (`F32`, `F64`, `I64`, `U8`), its shape
//! (numbers of 64 bits) and its bytes.

use std::path::Path;

use super::Values;
use super::safetensors::{NamedTensor, TensorFile};
use crate::{Error, Result};

/// The digest's key in the metadata.
pub(super) const KEY: &str = "digest";
const KIND: &str = "xxh64:";

/// The digest of a file's content.
pub(super) fn of(file: &TensorFile) -> String {
    let mut parts = Vec::new();
    let mut add = |bytes: &[u8]| parts.extend(xxh64(bytes).to_le_bytes());
    for (key, text) in file.metadata.iter().filter(|(key, _)| *key != KEY) {
        add(key.as_bytes());
        add(text.as_bytes());
    }
    let mut tensors: Vec<&NamedTensor> = file.tensors.iter().collect();
    tensors.sort_by_key(|tensor| &tensor.name);
    for tensor in tensors {
        let kind = match tensor.values {
            Values::F32(_) => "F32",
            Values::F64(_) => "F64",
            Values::I64(_) => "I64",
            Values::U8(_) => "U8",
        };
        let shape = tensor.shape.iter().flat_map(|&n| (n as u64).to_le_bytes());
        add(tensor.name.as_bytes());
        add(kind.as_bytes());
        add(&shape.collect::<Vec<_>>());
        add(tensor.values.bytes());
    }
    format!("{KIND}{:016x}", xxh64(&parts))
}

/// That a file holds what its digest says, where it has one of ours. The digest is taken out: it says
/// nothing about what is made of the content.
pub(super) fn check(file: &mut TensorFile, path: &Path) -> Result<()> {
    let Some(said) = file.metadata.get(KEY) else {
        return Ok(());
    };
    if !said.starts_with(KIND) {
        return Ok(());
    }
    let got = of(file);
    if *said != got {
        return Err(Error::file(
            path,
            format!("metadata {KEY:?}"),
            format!(
                "the file is damaged: it holds {got} and was written as {said:?}; take it from a \
                 copy, or remove it (`retrograd check RUN` says what a run can go on from)"
            ),
        ));
    }
    file.metadata.remove(KEY);
    Ok(())
}

const P1: u64 = 0x9E37_79B1_85EB_CA87;
const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const P3: u64 = 0x1656_67B1_9E37_79F9;
const P4: u64 = 0x85EB_CA77_C2B2_AE63;
const P5: u64 = 0x27D4_EB2F_1656_67C5;

/// XXH64 of some bytes, seed 0 (Y. Collet's specification of xxHash).
fn xxh64(bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let mut stripes = bytes.chunks_exact(32);
    let mut hash = if bytes.len() >= 32 {
        let mut lanes = [P1.wrapping_add(P2), P2, 0, P1.wrapping_neg()];
        for stripe in &mut stripes {
            for (lane, bytes) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, word(bytes));
            }
        }
        let turns = lanes.iter().zip([1, 7, 12, 18]);
        let sum = turns.fold(0, |sum: u64, (lane, turn)| {
            sum.wrapping_add(lane.rotate_left(turn))
        });
        lanes.iter().fold(sum, |sum, &lane| {
            (sum ^ round(0, lane)).wrapping_mul(P1).wrapping_add(P4)
        })
    } else {
        P5
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    let mut words = stripes.remainder().chunks_exact(8);
    for bytes in &mut words {
        let mixed = (hash ^ round(0, word(bytes))).rotate_left(27);
        hash = mixed.wrapping_mul(P1).wrapping_add(P4);
    }
    let mut rest = words.remainder();
    if let Some((half, last)) = rest.split_at_checked(4) {
        let half = u64::from(u32::from_le_bytes(half.try_into().expect("4 bytes")));
        let mixed = (hash ^ half.wrapping_mul(P1)).rotate_left(23);
        hash = mixed.wrapping_mul(P2).wrapping_add(P3);
        rest = last;
    }
    for &byte in rest {
        let mixed = (hash ^ u64::from(byte).wrapping_mul(P5)).rotate_left(11);
        hash = mixed.wrapping_mul(P1);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(P2);
    hash = (hash ^ hash >> 29).wrapping_mul(P3);
    hash ^ hash >> 32
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2))
        .rotate_left(31)
        .wrapping_mul(P1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the reference implementation (`xxhsum -H1`, and Python's `xxhash.xxh64`).
    #[test]
    fn hashes_are_those_of_the_specification() {
        for (text, expected) in [
            ("", 0xef46_db37_51d8_e999),
            ("a", 0xd24e_c4f1_a98c_6e5b),
            ("abc", 0x44bc_2cf5_ad77_0999),
            (
                "Nobody inspects the spammish repetition",
                0xfbce_a83c_8a37_8bf1,
            ),
        ] {
            assert_eq!(xxh64(text.as_bytes()), expected, "{text:?}");
        }
    }

    fn file() -> TensorFile {
        let metadata = [("format", "retrograd-model-1"), ("task/columns", "a,b")];
        TensorFile {
            metadata: metadata.map(|(k, v)| (k.into(), v.into())).into(),
            tensors: vec![
                NamedTensor {
                    name: "0.weight".into(),
                    shape: vec![2, 3],
                    values: Values::F32(vec![0.5, -1.0, 2.0, 0.0, 1e-3, 7.0]),
                },
                NamedTensor {
                    name: "0.bias".into(),
                    shape: vec![2],
                    values: Values::F64(vec![0.1, 0.2]),
                },
            ],
        }
    }

    /// Whatever bit flips, in header or values: the file is refused, or holds what it held.
    #[test]
    fn no_flipped_bit_changes_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        let mut written = file();
        written.write(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let again = TensorFile::decode(&path, &bytes).unwrap();
        written.tensors.sort_by_key(|t| t.name.clone());
        assert_eq!(again, written);
        let mut refused = 0;
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match TensorFile::decode(&path, &damaged) {
                Err(error) => {
                    assert!(error.to_string().contains("a.safetensors"), "{error}");
                    refused += 1;
                }
                Ok(mut read) => {
                    // The key or the kind of the digest itself.
                    read.metadata
                        .retain(|key, _| written.metadata.contains_key(key));
                    assert_eq!(read, written, "bit {bit}");
                }
            }
        }
        assert!(refused > 8 * bytes.len() * 9 / 10, "{refused}");
    }

    #[test]
    fn a_file_without_a_digest_or_with_anothers_is_taken() {
        let path = Path::new("a.safetensors");
        let mut other = file();
        check(&mut other, path).unwrap();
        other.metadata.insert(KEY.into(), "sha256:00".into());
        check(&mut other, path).unwrap();
        other
            .metadata
            .insert(KEY.into(), format!("{KIND}{:016x}", 0));
        let message = check(&mut other, path).unwrap_err().to_string();
        for part in ["a.safetensors", "damaged", "copy", "retrograd check"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
