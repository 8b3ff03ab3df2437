//! Random bytes, lying headers, truncations and flipped bytes at every reader of data: an error or
//! a value, never a panic, and never much more memory than the file is long.

#![allow(unsafe_code, reason = "a counting allocator has to be one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use proptest::prelude::*;
use retrograd::data::csv::{Reading, Table};
use retrograd::data::{Array, DataSpec, Preparation, Values, idx, npy, safetensors};

thread_local! {
    /// Bytes that this thread holds, and the most it held since `measured` started.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MAX: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    // A thread that is ending has no locals any more; it measures nothing either.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MAX.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is the one that System asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs a reader; the memory it needed at once must be in proportion to the file. The largest
/// honest factor is CSV's: one byte and its separator become a cell with an 8-byte end, twice over
/// while a vector grows. The fixed part is gzip's window and an error's text.
fn measured<X>(file_len: usize, read: impl FnOnce() -> X) -> X {
    HELD.with(|held| held.set(0));
    MAX.with(|most| most.set(0));
    let result = read();
    let most = MAX.with(Cell::get);
    let allowed = 64 * file_len as isize + (1 << 18);
    assert!(most <= allowed, "{most} bytes for a file of {file_len}");
    result
}

fn path() -> &'static Path {
    Path::new("hostile.file")
}

fn read_npy(bytes: &[u8]) -> bool {
    measured(bytes.len(), || npy::decode(path(), bytes).is_ok())
}

fn read_idx(bytes: &[u8]) -> bool {
    measured(bytes.len(), || idx::decode(path(), bytes).is_ok())
}

fn read_safetensors(bytes: &[u8]) -> bool {
    measured(bytes.len(), || {
        let Ok(tensors) = safetensors::Tensors::new(path(), bytes) else {
            return false;
        };
        let names: Vec<String> = tensors.names().iter().map(|n| n.to_string()).collect();
        names.iter().all(|name| tensors.array(name).is_ok())
    })
}

fn read_csv(bytes: &[u8]) -> bool {
    measured(bytes.len(), || {
        Table::decode(path(), bytes, &Reading::default()).is_ok()
    })
}

/// Valid files of each kind, and their readers.
type Reader = fn(&[u8]) -> bool;
fn valid() -> Vec<(&'static str, Vec<u8>, Reader)> {
    let array = |values| Array::new(vec![3, 4], values).unwrap();
    let floats = array(Values::F32((0..12).map(|i| i as f32 / 7.0).collect()));
    let doubles = array(Values::F64((0..12).map(|i| f64::from(i) / 7.0).collect()));
    let mut plain = vec![0, 0, 0x0d, 2, 0, 0, 0, 3, 0, 0, 0, 4];
    plain.extend((0..12).flat_map(|i| (i as f32).to_be_bytes()));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut packed, &plain).unwrap();
    let packed = packed.finish().unwrap();
    let data: Vec<u8> = (0..48).collect();
    let view = |dtype| ::safetensors::tensor::TensorView::new(dtype, vec![3, 4], &data[..]);
    let tensors = [("x", view(::safetensors::Dtype::F32).unwrap())];
    let tensors = ::safetensors::serialize(tensors, None).unwrap();
    let table = "a,\"b \"\"c\"\"\",d\r\n1,2.5,x\r\n-3e4,\"0\",\"y,\nz\"\r\n";
    vec![
        ("npy f32", npy::encode(&floats), read_npy),
        ("npy f64", npy::encode(&doubles), read_npy),
        ("idx", plain, read_idx),
        ("idx.gz", packed, read_idx),
        ("safetensors", tensors, read_safetensors),
        ("csv", table.as_bytes().to_vec(), read_csv),
    ]
}

#[test]
fn every_truncation_of_a_binary_file_is_an_error() {
    for (name, bytes, read) in valid() {
        assert!(read(&bytes), "{name} is valid");
        for length in 0..bytes.len() {
            let ok = read(&bytes[..length]);
            assert!(
                !ok || name == "csv",
                "{name} cut to {length} bytes was taken"
            );
        }
        // And a byte too many.
        let mut longer = bytes.clone();
        longer.push(7);
        assert!(!read(&longer) || name == "csv", "{name} with a byte more");
    }
}

/// An NPY file of a header and 64 zero bytes.
fn npy_file(header: &str) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend([0; 64]);
    bytes
}

#[test]
fn lying_headers_cost_nothing() {
    // 2³² − 1 images of 2³² − 1 squared: beyond 64 bits. And 4 GB that are not there.
    let huge: &[u8] = &[
        0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
    ];
    assert!(!read_idx(huge));
    assert!(!read_idx(&[0, 0, 0x0e, 1, 0x1f, 255, 255, 255, 1, 2, 3]));
    assert!(!read_idx(&[0, 0, 8, 255, 0, 0]));
    // The header's own length, 4 GB.
    assert!(!read_npy(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{'descr'"));
    for shape in [
        "(99999999999,)",
        "(18446744073709551615, 18446744073709551615)",
        "(4294967296, 4294967296, 4294967296)",
        "(99999999999999999999999,)",
        "(-1,)",
        "(3",
    ] {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        assert!(!read_npy(&npy_file(&header)), "{shape}");
    }
    let axes = vec!["1"; 5000].join(",");
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({axes}), }}");
    assert!(!read_npy(&npy_file(&header)));
    // Braces in braces, as many as a header can have: an error at the first that has no place.
    let nested = "{".repeat(65_535);
    assert!(!read_npy(&npy_file(&nested)));
    let nested = format!("{{'descr': {}", &nested[..65_000]);
    let error = npy::decode(path(), &npy_file(&nested)).unwrap_err();
    assert!(
        error.to_string().contains("hostile.file: byte 20"),
        "{error}"
    );
    // A longer header than plain numbers can need, all of it there.
    let mut long = b"\x93NUMPY\x02\x00\x00\x00\x01\x00".to_vec();
    long.resize(long.len() + (1 << 16), b' ');
    let error = npy::decode(path(), &long).unwrap_err().to_string();
    assert!(
        error.contains("byte 8") && error.contains("65535"),
        "{error}"
    );
    let tensors = |length: u64, header: &str| {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes
    };
    assert!(!read_safetensors(&tensors(u64::MAX, "{}")));
    assert!(!read_safetensors(&tensors(99_000_000, "{}")));
    let lie = r#"{"x":{"dtype":"F32","shape":[99999999999],"data_offsets":[0,399999999996]}}"#;
    assert!(!read_safetensors(&tensors(lie.len() as u64, lie)));
    let lie =
        r#"{"x":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}"#;
    assert!(!read_safetensors(&tensors(lie.len() as u64, lie)));
}

#[test]
fn a_gzip_bomb_unpacks_no_more_than_its_header_announces() {
    // 64 MB of zeros after a header that announces ten bytes.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut packed, &[0, 0, 8, 1, 0, 0, 0, 10]).unwrap();
    std::io::Write::write_all(&mut packed, &vec![0; 64 << 20]).unwrap();
    let packed = packed.finish().unwrap();
    let error = measured(1000, || {
        idx::decode(path(), &packed).unwrap_err().to_string()
    });
    assert!(error.contains("goes on after the array"), "{error}");
}

proptest! {
    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        read_npy(&bytes);
        read_idx(&bytes);
        read_safetensors(&bytes);
        read_csv(&bytes);
    }

    #[test]
    fn random_bytes_behind_a_valid_start(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        keep in 1_usize..140,
    ) {
        for (_, file, read) in valid() {
            let mut start = file[..keep.min(file.len())].to_vec();
            start.extend(&bytes);
            read(&start);
        }
    }

    #[test]
    fn flipped_bytes_and_random_cuts(
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
        cut in any::<usize>(),
    ) {
        for (_, mut file, read) in valid() {
            for (at, byte) in &flips {
                let at = at % file.len();
                file[at] ^= byte;
            }
            read(&file);
            file.truncate(cut % file.len());
            read(&file);
        }
    }

    #[test]
    fn headers_of_random_python(header in "[{}()':, 0-9a-zA-Z<>|L]{0,80}") {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        read_npy(&bytes);
    }

    #[test]
    fn texts_that_look_like_tables(text in "[ab,;|\"\t\r\n 01.eN\u{e4}-]{0,120}") {
        read_csv(text.as_bytes());
    }

    /// Whatever a table holds, loading it and preparing it ends in data or in an error.
    #[test]
    fn tables_of_any_content_are_prepared_or_refused(
        cells in prop::collection::vec("[a-c0-9,.NAe\u{fc}+-]{0,4}", 3..40),
        missing in 0..3,
        normalise in 0..3,
        validation in 0.0..0.99,
        categories in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.csv");
        let mut text = String::from("a;b;y\n");
        for row in cells.chunks_exact(3) {
            text.push_str(&row.join(";"));
            text.push('\n');
        }
        std::fs::write(&file, &text).unwrap();
        let spec = format!(
            "file = 't.csv'\ntargets = 'y'\nmissing = '{}'\nnormalise = '{}'\nvalidation = {validation}\ncategories = [{}]",
            ["error", "mean", "drop"][missing as usize],
            ["none", "standard", "minmax"][normalise as usize],
            if categories { "'b'" } else { "" },
        );
        let spec: DataSpec = toml::from_str(&spec).unwrap();
        if let Ok(data) = spec.load(folder.path(), 3) {
            // What was learnt survives the checkpoint, and accepts the file it came from.
            let again = Preparation::from_json(&data.preparation.to_json()).unwrap();
            prop_assert_eq!(&again, &data.preparation);
            let parts = data.train.len() + data.validation.map_or(0, |v| v.len());
            match again.read(&file) {
                // Rows that were dropped for their target alone are rows to be predicted.
                Ok(new) if missing == 2 => prop_assert!(new.dataset.len() >= parts),
                Ok(new) => prop_assert_eq!(new.dataset.len(), parts),
                // And may hold what no row that was learnt from does.
                Err(error) => prop_assert!(missing == 2 && parts < cells.len() / 3, "{}", error),
            }
        }
    }

    #[test]
    fn what_is_written_as_csv_reads_back(
        cells in prop::collection::vec(any::<String>(), 2..20),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.csv");
        let rows = cells.len() / 2;
        let columns = [
            ("first".to_string(), cells[..rows].to_vec()),
            ("second, \"quoted\"".to_string(), cells[rows..2 * rows].to_vec()),
        ];
        retrograd::data::csv::write(&file, &columns).unwrap();
        let table = Table::read(&file, &Reading::default()).unwrap();
        prop_assert_eq!(table.columns(), &["first", "second, \"quoted\""]);
        for (c, (_, cells)) in columns.iter().enumerate() {
            for (r, cell) in cells.iter().enumerate() {
                prop_assert_eq!(table.cell(r, c), cell);
            }
        }
    }

    #[test]
    fn what_is_written_as_npy_reads_back(
        values in prop::collection::vec(any::<i64>(), 0..40),
        rows in 1_usize..5,
    ) {
        let columns = values.len() / rows;
        let values = values[..rows * columns].to_vec();
        let array = Array::new(vec![rows, columns], Values::I64(values)).unwrap();
        prop_assert_eq!(npy::decode(path(), &npy::encode(&array)).unwrap(), array);
    }
}
