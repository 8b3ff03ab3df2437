//! An example of each format, and an error of each kind.

use std::path::Path;

use super::{says, table};
use crate::data::csv::{ColumnSummary, Kind, Reading, Table};
use crate::data::safetensors::{NamedTensor, TensorFile, Tensors};
use crate::data::{Array, DataSpec, Values, idx, npy};

#[test]
fn csv_with_quotes_blanks_line_ends_and_a_byte_order_mark() {
    let text = "\u{feff}name , \"a \"\"b\"\"\",c\r\n\r\nx,\"1, 2\nmore\" ,3\r \n\n y z ,,\"\"";
    let t = table(text).unwrap();
    assert_eq!(t.columns(), ["name", "a \"b\"", "c"]);
    assert_eq!(t.rows(), 2);
    let rows: Vec<Vec<&str>> = (0..2)
        .map(|r| (0..3).map(|c| t.cell(r, c)).collect())
        .collect();
    assert_eq!(rows, [["x", "1, 2\nmore", "3"], ["y z", "", ""]]);
    // The second row starts after the header, an empty line, the two lines of the first row, a
    // line of blanks and an empty one.
    assert_eq!(t.line(0), "line 3");
    assert_eq!(t.line(1), "line 7");
    assert_eq!(t.separator(), ',');
}

#[test]
fn separators_are_found_out() {
    for (text, separator) in [
        ("a;b\n1,5;2\n", ';'),
        ("a\tb\n1\t2\n", '\t'),
        ("a|b\n1|2\n", '|'),
        ("\"a;x\",b\n1,2\n", ','),
        ("only\n1\n", ','),
        ("one name\n1\n", ','),
        ("a b  c\n 1   2 3 \n\n4 \t5 6\n", ' '),
    ] {
        let t = table(text).unwrap();
        assert_eq!(t.separator(), separator, "{text:?}");
    }
    // Tabs around nothing are empty fields, not blanks.
    assert_eq!(table("a\tb\tc\n\t\t1\n").unwrap().cell(0, 2), "1");
    let given = Reading {
        separator: Some(' '),
        ..Reading::default()
    };
    let t = Table::decode(Path::new("t"), b"a b\n1 2\n", &given).unwrap();
    assert_eq!(t.cell(0, 1), "2");
    let blanks = table("a  b \"c d\"\n 1   2 \"3 4\" \n5 6 7\n").unwrap();
    assert_eq!(blanks.columns(), ["a", "b", "c d"]);
    let row = |r| [0, 1, 2].map(|c| blanks.cell(r, c));
    assert_eq!((row(0), row(1)), (["1", "2", "3 4"], ["5", "6", "7"]));
    says(
        table("a b\n1 2\n1 2 3\n"),
        &["line 3", "got 3 fields", "blanks"],
    );
}

/// A table's cells take two bytes each beside its text; long rows take four.
#[test]
fn long_rows_and_many_quotes_keep_their_cells() {
    let long = "x".repeat(70_000);
    let text = format!("a,b,c\n1,2,3\n{long},\"say \"\"hi\"\"\",\"\"\"\"\n4,\"\",\" 5 \"\n");
    let t = table(&text).unwrap();
    let row = |r| [0, 1, 2].map(|c| t.cell(r, c));
    assert_eq!(row(0), ["1", "2", "3"]);
    assert_eq!(row(1), [long.as_str(), "say \"hi\"", "\""]);
    assert_eq!(row(2), ["4", "", " 5 "]);
    assert_eq!((t.line(0), t.line(2)), ("line 2".into(), "line 4".into()));
}

#[test]
fn percentages_currencies_and_thousands_are_numbers_and_dates_are_not() {
    let t =
        table("p,m,k,d\n12%,\"$1,200.50\",\"1,000\",2024-01-05\n3.5 %,$7,20,2024-02-05\n").unwrap();
    let numbers = |c| [0, 1].map(|r| t.number(r, c).unwrap().unwrap());
    assert_eq!(numbers(0), [12.0, 3.5]);
    assert_eq!(numbers(1), [1200.5, 7.0]);
    assert_eq!(numbers(2), [1000.0, 20.0]);
    assert_eq!(t.kind(3, 0..2), Kind::Text);
    // Where commas don't separate, 1,234 could be a fraction.
    let t = table("k;x\n1,234;1\n").unwrap();
    assert_eq!(t.kind(0, 0..1), Kind::Text);
}

#[test]
fn csv_errors_name_file_line_got_and_needed() {
    says(
        table("a,b\n1,2\n3\n"),
        &["t.csv", "line 3", "got 1 fields", "needs 2"],
    );
    says(table("a,b\n1,2,3\n"), &["line 2", "got 3 fields", "','"]);
    says(table("a,b,a\n1,2,3\n"), &["fields 1 and 3", "\"a\""]);
    says(table(""), &["t.csv", "line 1", "needs a table"]);
    says(table("\n \n"), &["needs a table"]);
    says(table("a,b\n"), &["no rows", "at least one"]);
    says(
        table("a,b\n1,\"2\n3,4\n"),
        &["line 2, field 2", "never closed"],
    );
    says(table("a,b\n1,\"2\"x\n"), &["line 2, field 2", "\"x"]);
    says(table("1.5,2\n3,4\n"), &["line 1", "header = false"]);
    assert!(table("0,1\n3,4\n").is_ok(), "columns that are numbered");
    let read = |bytes: &[u8]| Table::decode(Path::new("t.csv"), bytes, &Reading::default());
    says(read(b"a,b\n1,\0\n"), &["byte 6", "0x00", "as text"]);
    says(read(b"\xff\xfea\0b"), &["byte 4", "UTF-16"]);
    let missing = Table::read("no/such/file.csv", &Reading::default());
    says(missing, &["no/such/file.csv", "cannot read"]);
    let t = table("age,Height,weight\n1,2,3\n").unwrap();
    says(
        t.column("heigth"),
        &[
            "\"heigth\"",
            "\"age\", \"Height\", \"weight\"",
            "did you mean \"Height\"?",
        ],
    );
}

#[test]
fn csv_without_a_header_and_with_decimal_commas() {
    let reading = Reading {
        header: false,
        decimal: ',',
        ..Reading::default()
    };
    let t = Table::decode(Path::new("t"), b"1,5;-2\n3;4,25\n", &reading).unwrap();
    assert_eq!(t.columns(), ["0", "1"]);
    assert_eq!(t.number(0, 0).unwrap(), Some(1.5));
    assert_eq!(t.number(1, 1).unwrap(), Some(4.25));
    let one = Table::decode(Path::new("t"), b"1,5\n3,4\n", &reading).unwrap();
    assert_eq!(
        (one.columns().len(), one.number(1, 0).unwrap()),
        (1, Some(3.4))
    );
    let bad = Reading {
        separator: Some('x'),
        ..Reading::default()
    };
    says(bad.check(), &["separator", "'x'"]);
}

#[test]
fn the_kind_of_a_column_is_seen() {
    let t = table("n,t,m,e\n1,x,2,\n-2e3,y,z,NA\n,,,nan\n").unwrap();
    let kind = |c| t.kind(c, 0..t.rows());
    assert_eq!(kind(0), Kind::Numbers);
    assert_eq!(kind(1), Kind::Text);
    let mixed = Kind::Mixed {
        number_row: 0,
        text_row: 1,
    };
    assert_eq!(kind(2), mixed);
    assert_eq!(kind(3), Kind::Empty);
    let expected = ColumnSummary {
        kind: Kind::Numbers,
        missing: 1,
        distinct: 2,
        range: Some((-2000.0, 1.0)),
    };
    assert_eq!(t.summary(0), expected);
    assert_eq!((t.summary(1).distinct, t.summary(3).missing), (2, 3));
}

#[test]
fn columns_looked_at_in_parts_are_as_those_looked_at_alone() {
    // More rows than a part has, and something that only the second part holds.
    let mut text = String::from("number,class,mixed,many,late\n");
    for row in 0..270_000_i64 {
        let class = ["a", "b", "NA"][row as usize % 3];
        let mixed = if row == 265_000 { "word" } else { "1" };
        let late = if row < 263_000 { "" } else { "7" };
        text += &format!("{},{class},{mixed},{row},{late}\n", row % 700 - 350);
    }
    let t = table(&text).unwrap();
    let whole = t.summaries();
    for (c, column) in whole.iter().enumerate() {
        assert_eq!(*column, t.summary(c), "{c}");
    }
    let row = |at| Kind::Mixed {
        number_row: 0,
        text_row: at,
    };
    let figures = |c: usize| (whole[c].kind, whole[c].missing, whole[c].distinct);
    assert_eq!(figures(0), (Kind::Numbers, 0, 700));
    assert_eq!(whole[0].range, Some((-350.0, 349.0)));
    assert_eq!(figures(1), (Kind::Text, 90_000, 2));
    assert_eq!(figures(2), (row(265_000), 0, 2));
    assert_eq!(figures(3), (Kind::Numbers, 0, 10_001));
    assert_eq!(figures(4), (Kind::Numbers, 263_000, 1));
}

/// A file as NumPy writes it, spelled out: np.save of np.array([[1, 2, 3], [4, 5, 6]], dtype).
fn numpy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    let header =
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(data);
    bytes
}

fn npy(bytes: &[u8]) -> crate::Result<Array> {
    npy::decode(Path::new("a.npy"), bytes)
}

#[test]
fn npy_of_every_type_and_order() {
    let numbers = [1_i8, 2, 3, 4, 5, 6];
    macro_rules! check {
        ($($t:ty, $descr:literal, $kind:ident, $as:ty;)*) => {$(
            let expected = Values::$kind(numbers.iter().map(|&n| n as $as).collect());
            let little: Vec<u8> = numbers.iter().flat_map(|&n| (n as $t).to_le_bytes()).collect();
            let big: Vec<u8> = numbers.iter().flat_map(|&n| (n as $t).to_be_bytes()).collect();
            for (order, bytes) in [('<', &little), ('>', &big)] {
                let array = npy(&numpy(&format!("{order}{}", $descr), false, "(2, 3)", bytes)).unwrap();
                assert_eq!(array, Array::new(vec![2, 3], expected.clone()).unwrap(), "{order}{}", $descr);
            }
        )*};
    }
    check! {
        f32, "f4", F32, f32; f64, "f8", F64, f64;
        i8, "i1", I64, i64; i16, "i2", I64, i64; i32, "i4", I64, i64; i64, "i8", I64, i64;
        u8, "u1", U8, u8; u16, "u2", I64, i64; u32, "u4", I64, i64; u64, "u8", I64, i64;
    }
    let halves: Vec<u8> = [1.0, -0.5]
        .map(|x| half::f16::from_f32(x).to_le_bytes())
        .concat();
    let array = npy(&numpy("<f2", false, "(2,)", &halves)).unwrap();
    assert_eq!(array.values, Values::F32(vec![1.0, -0.5]));
    let bools = npy(&numpy("|b1", false, "(3,)", &[0, 1, 1])).unwrap();
    assert_eq!(bools.values, Values::U8(vec![0, 1, 1]));
    // The first axis fastest: columns 1 4, 2 5, 3 6.
    let array = npy(&numpy("|u1", true, "(2, 3)", &[1, 4, 2, 5, 3, 6])).unwrap();
    assert_eq!(array.values, Values::U8(vec![1, 2, 3, 4, 5, 6]));
    // Three axes: element (i, j, k) of shape (2, 3, 2) is stored at i + 2j + 6k.
    let array = npy(&numpy(
        "|u1",
        true,
        "(2, 3, 2)",
        &(0..12).collect::<Vec<u8>>(),
    ))
    .unwrap();
    let expected = (0..12).map(|n| {
        let (i, j, k) = (n / 6, n / 2 % 3, n % 2);
        i + 2 * j + 6 * k
    });
    assert_eq!(array.values, Values::U8(expected.collect()));
    // A single number.
    let scalar = npy(&numpy("<f4", false, "()", &1.5_f32.to_le_bytes())).unwrap();
    assert_eq!((scalar.shape.len(), scalar.get(0)), (0, 1.5));
}

#[test]
fn npy_files_that_we_write_start_their_data_at_a_multiple_of_64_bytes() {
    for n in 0..40 {
        let array = Array::new(vec![n], Values::F32(vec![1.0; n])).unwrap();
        let bytes = npy::encode(&array);
        assert_eq!((bytes.len() - 4 * n) % 64, 0);
        assert_eq!(npy(&bytes).unwrap(), array);
    }
}

#[test]
fn npy_errors_name_file_byte_got_and_needed() {
    let valid = numpy("<f4", false, "(2, 3)", &[0; 24]);
    says(
        npy(&valid[..valid.len() - 1]),
        &["a.npy", "byte 70", "needs 24 bytes, 23 are left"],
    );
    let mut longer = valid.clone();
    longer.push(0);
    says(npy(&longer), &["byte 94", "1 bytes follow"]);
    says(
        npy(b"PK\x03\x04 zipped npz"),
        &["byte 0", "NPY file starts with"],
    );
    says(npy(b"\x93NUMPY\x09\x00"), &["byte 6", "version 9.0"]);
    says(
        npy(&numpy("<c8", false, "(1,)", &[0; 8])),
        &["'descr'", "\"<c8\"", "'<f4'"],
    );
    says(npy(&numpy("|O", false, "(1,)", &[0; 8])), &["\"|O\""]);
    says(
        npy(&numpy("<f4", false, "(2, 3]", &[0; 24])),
        &["byte 65", "needs \")\""],
    );
    says(
        npy(&numpy("|b1", false, "(2,)", &[0, 2])),
        &["a boolean needs 0 or 1", "got 2"],
    );
    says(
        npy(&numpy("<u8", false, "(1,)", &u64::MAX.to_le_bytes())),
        &["18446744073709551615", "below 2⁶³"],
    );
    let records = b"\x93NUMPY\x01\x00\x1c\x00{'descr': [('a', '<f4')], }\n";
    says(npy(records), &["records", "plain numbers"]);
    let none = b"\x93NUMPY\x01\x00\x12\x00{'descr': '<f4', }";
    says(npy(none), &["no 'fortran_order'"]);
}

fn idx_file(kind: u8, sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, sizes.len() as u8];
    bytes.extend(sizes.iter().flat_map(|s| s.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, bytes).unwrap();
    packed.finish().unwrap()
}

fn read_idx(bytes: &[u8]) -> crate::Result<Array> {
    idx::decode(Path::new("i.idx"), bytes)
}

#[test]
fn idx_plain_and_gzip_of_every_type() {
    let images = idx_file(8, &[2, 1, 3], &[1, 2, 3, 4, 5, 255]);
    let expected = Array::new(vec![2, 1, 3], Values::U8(vec![1, 2, 3, 4, 5, 255])).unwrap();
    assert_eq!(read_idx(&images).unwrap(), expected);
    assert_eq!(read_idx(&gzip(&images)).unwrap(), expected);
    let values = |kind, data: &[u8]| read_idx(&idx_file(kind, &[1], data)).unwrap().get(0);
    assert_eq!(values(9, &[0xfe]), -2.0);
    assert_eq!(values(0x0b, &(-300_i16).to_be_bytes()), -300.0);
    assert_eq!(values(0x0c, &(-70_000_i32).to_be_bytes()), -70_000.0);
    assert_eq!(values(0x0d, &1.5_f32.to_be_bytes()), 1.5);
    assert_eq!(values(0x0e, &1.25_f64.to_be_bytes()), 1.25);
}

#[test]
fn idx_errors_name_file_byte_got_and_needed() {
    let images = idx_file(8, &[2, 3], &[0; 5]);
    says(
        read_idx(&images),
        &["i.idx", "byte 12", "needs 6 bytes, 5 are left"],
    );
    says(
        read_idx(&gzip(&images)),
        &["byte 12 of the unpacked data", "5 are left"],
    );
    says(read_idx(&idx_file(7, &[1], &[0])), &["byte 2", "type 0x07"]);
    says(read_idx(&idx_file(8, &[], &[])), &["byte 3", "0 axes"]);
    says(read_idx(b"\x89PNG"), &["byte 0", "two zero bytes"]);
    let packed = gzip(&idx_file(8, &[6], &[0; 6]));
    says(read_idx(&packed[..packed.len() - 3]), &["broken gzip data"]);
    let mut wrong_sum = packed.clone();
    let at = wrong_sum.len() - 8;
    wrong_sum[at] ^= 1;
    says(read_idx(&wrong_sum), &["broken gzip data"]);
}

#[test]
fn safetensors_by_name() {
    let header = r#"{"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"label":{"dtype":"I64","shape":[1],"data_offsets":[8,16]},"m":{"dtype":"BOOL","shape":[1],"data_offsets":[16,17]},"h":{"dtype":"BF16","shape":[1],"data_offsets":[17,19]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend([1.5_f32, -2.0].iter().flat_map(|x| x.to_le_bytes()));
    bytes.extend(7_i64.to_le_bytes());
    bytes.push(1);
    bytes.extend([0x80, 0x3f]);
    let path = Path::new("d.safetensors");
    let tensors = Tensors::new(path, &bytes).unwrap();
    assert_eq!(tensors.names(), ["h", "label", "m", "x"]);
    let x = Array::new(vec![1, 2], Values::F32(vec![1.5, -2.0])).unwrap();
    assert_eq!(tensors.array("x").unwrap(), x);
    assert_eq!(tensors.array("label").unwrap().values, Values::I64(vec![7]));
    assert_eq!(tensors.array("m").unwrap().values, Values::U8(vec![1]));
    assert_eq!(tensors.array("h").unwrap().values, Values::F32(vec![1.0]));
    assert!(tensors.contains("m") && !tensors.contains("y"));
    says(
        tensors.array("lable"),
        &[
            "d.safetensors",
            "\"lable\"",
            "\"h\", \"label\"",
            "did you mean \"label\"?",
        ],
    );
    says(
        Tensors::new(path, &bytes[..bytes.len() - 1]).map(|_| ()),
        &["d.safetensors", "byte 8"],
    );
    says(
        Tensors::new(path, &bytes[..30]).map(|_| ()),
        &["byte 0", "the file has 22 more"],
    );
    says(
        Tensors::new(path, &bytes[..5]).map(|_| ()),
        &["byte 0", "5 are left"],
    );
}

fn tensor_file() -> TensorFile {
    TensorFile {
        metadata: [("format".to_string(), "test".to_string())].into(),
        tensors: vec![
            NamedTensor {
                name: "0.weight".into(),
                shape: vec![3],
                values: Values::F32(vec![1.0, -2.5, f32::MIN_POSITIVE]),
            },
            NamedTensor {
                name: "0.knots".into(),
                shape: vec![1, 2],
                values: Values::F64(vec![0.1, 1e-300]),
            },
        ],
    }
}

#[test]
fn tensors_come_back_as_they_were_written_and_twice_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let file = tensor_file();
    file.write(&path).unwrap();
    let first = std::fs::read(&path).unwrap();
    let again = TensorFile::read(&path).unwrap();
    assert_eq!(again.metadata, file.metadata);
    assert_eq!(again.get("0.weight"), file.get("0.weight"));
    assert_eq!(again.get("0.knots"), file.get("0.knots"));
    again.write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "the temporary file is gone");
}

#[test]
fn every_truncation_of_tensors_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    tensor_file().write(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for len in 0..whole.len() {
        std::fs::write(&path, &whole[..len]).unwrap();
        let message = TensorFile::read(&path).unwrap_err().to_string();
        assert!(message.contains("a.safetensors"), "{message}");
    }
}

/// Names were once compared with all before them: minutes.
#[test]
fn a_hundred_thousand_columns_are_read_and_prepared_in_seconds() {
    const COLUMNS: usize = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.csv");
    let mut text = String::new();
    for c in 0..COLUMNS {
        text += &format!("column_{c},");
    }
    text += "y\n";
    for row in 0..100 {
        text += &format!("{},", row % 7).repeat(COLUMNS);
        text += &format!("{row}\n");
    }
    std::fs::write(&path, text).unwrap();
    let begun = std::time::Instant::now();
    let spec: DataSpec = toml::from_str("file = 'wide.csv'\ntargets = 'y'").unwrap();
    let data = spec.load(folder.path(), 0).unwrap();
    assert_eq!(data.train.sample_len(), COLUMNS);
    let new = data.preparation.read(&path).unwrap();
    assert_eq!(new.dataset.len(), 100);
    // Some three seconds on one core; comparing every two names takes five billion comparisons.
    let limit = if cfg!(debug_assertions) { 400 } else { 40 };
    assert!(begun.elapsed().as_secs() < limit, "{:?}", begun.elapsed());
}
