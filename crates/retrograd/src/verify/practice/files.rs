//! Files that users bring, from bytes and text that are written here by their formats' definitions: pixels of every
//! mode of MRC, NPY of either order, and tables, whose numbers are brought to one size by the training part alone.

use std::collections::BTreeMap;
use std::path::Path;

use super::{FEW, holds, row};
use crate::data::image::Rect;
use crate::data::mrc::MrcFile;
use crate::data::normalise::Normalisation;
use crate::data::{Data, DataSpec, Dataset, Targets, npy};
use crate::verify::report::{Link, Row};
use crate::{Error, Result, math};

pub fn files() -> Result<Vec<Row>> {
    let mut rows = arrays()?;
    rows.push(robust());
    let Ok(folder) = tempfile::tempdir() else {
        let why = "no folder for temporary files";
        rows.push(Row::unchecked("files", "tables and MRC", Link::Data, why));
        return Ok(rows);
    };
    rows.extend(micrographs(folder.path())?);
    rows.extend(tables(folder.path())?);
    Ok(rows)
}

/// Rows first, columns first, and bytes in the other order.
fn arrays() -> Result<Vec<Row>> {
    let file = |descr: &str, fortran: &str, data: &[u8]| {
        let text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': (2, 3), }}");
        // Ten bytes before it, and a length that is a multiple of 64 with the newline.
        let header = format!("{text:<117}\n");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    };
    let numbers = [1.5_f32, -2.0, 0.25, 4.0, -8.5, 3.0];
    let little: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
    let big: Vec<u8> = numbers
        .iter()
        .flat_map(|v| f64::from(*v).to_be_bytes())
        .collect();
    let short: Vec<u8> = [7_i16, -300, 2, 0, 5, -1]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let by_rows = numbers.map(f64::from);
    let by_columns = [0, 2, 4, 1, 3, 5].map(|i| by_rows[i]);
    let cases = [
        ("f32", file("<f4", "False", &little), by_rows),
        (
            "f32, columns first",
            file("<f4", "True", &little),
            by_columns,
        ),
        ("f64, big end first", file(">f8", "False", &big), by_rows),
        (
            "i16",
            file("<i2", "False", &short),
            [7.0, -300.0, 2.0, 0.0, 5.0, -1.0],
        ),
    ];
    let mut rows = Vec::new();
    for (name, bytes, is) in cases {
        let array = npy::decode(Path::new("verify.npy"), &bytes)?;
        let got: Vec<f64> = array
            .values
            .to_f32()
            .iter()
            .map(|&v| f64::from(v))
            .collect();
        rows.push(row(
            "files",
            format!("npy, {name}"),
            Link::Data,
            &got,
            &is,
            0.0,
        ));
    }
    Ok(rows)
}

/// Median and deviation of numbers with outliers, and the way back.
fn robust() -> Row {
    // 1 … 9 and two that are far off: the median 6, of 5, 4, 3, 2, 1, 0, 1, 2, 3, 94, 194 the median 3.
    let all = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 100.0, 200.0];
    let of = |pixels: &[f32]| Normalisation::of(&mut pixels.to_vec());
    let (usual, flat) = (of(&all), of(&[4.0, 4.0, 4.0, 4.0, 8.0]));
    let mut there = [3.0, 12.0];
    usual.apply(&mut there);
    let scaled = there;
    usual.undo(&mut there);
    let scale = 3.0 * 1.482_602_218_505_602;
    // Mostly equal: the standard deviation of 0, 0, 0, 0, 4 is 1.6.
    let is = [
        6.0,
        scale,
        4.0,
        1.6,
        -3.0 / scale,
        6.0 / scale,
        3.0,
        12.0,
        1.0,
    ];
    let got = [
        usual.centre,
        usual.scale,
        flat.centre,
        flat.scale,
        scaled[0],
        scaled[1],
        there[0],
        there[1],
        of(&[5.0; 3]).scale,
    ];
    let bound = 16.0 * f64::from(f32::EPSILON) * 4.0;
    row(
        "files",
        "normalised pixels",
        Link::Data,
        &got.map(f64::from),
        &is,
        bound,
    )
}

/// A pixel's bytes, and the pixel, by section, row and column.
type Pixel = fn(usize) -> (Vec<u8>, f64);

/// Two sections of 4 × 3 pixels in every mode, one with the big end first; windows of them.
fn micrographs(folder: &Path) -> Result<Vec<Row>> {
    const SIZE: [usize; 3] = [4, 3, 2];
    let modes: [(&str, i32, bool, Pixel); 5] = [
        ("signed bytes", 0, false, |i| {
            (vec![(i as i8 * 9 - 100) as u8], (i as f64) * 9.0 - 100.0)
        }),
        ("16-bit integers", 1, false, |i| {
            let v = 500 * i as i16 - 6000;
            (v.to_le_bytes().to_vec(), f64::from(v))
        }),
        ("floats, big end first", 2, true, |i| {
            let v = 0.25 * i as f32 - 2.0;
            (v.to_be_bytes().to_vec(), f64::from(v))
        }),
        ("16-bit unsigned", 6, false, |i| {
            let v = 40_000 + i as u16 * 1000;
            (v.to_le_bytes().to_vec(), f64::from(v))
        }),
        ("16-bit floats", 12, false, |i| {
            let v = half::f16::from_f32(i as f32 * 0.5 - 3.0);
            (v.to_le_bytes().to_vec(), f64::from(v))
        }),
    ];
    let mut rows = Vec::new();
    for (name, mode, big, pixel) in modes {
        let word = |v: i32| {
            if big {
                v.to_be_bytes()
            } else {
                v.to_le_bytes()
            }
        };
        let mut bytes = vec![0; 1024];
        let mut put = |at: usize, v: [u8; 4]| bytes[4 * at..4 * at + 4].copy_from_slice(&v);
        for (at, v) in SIZE.into_iter().enumerate() {
            put(at, word(v as i32));
            put(7 + at, word(v as i32));
        }
        put(3, word(mode));
        for (at, v) in [1, 2, 3].into_iter().enumerate() {
            put(16 + at, word(v));
        }
        put(52, *b"MAP ");
        put(
            53,
            if big {
                [0x11, 0x11, 0, 0]
            } else {
                [0x44, 0x44, 0, 0]
            },
        );
        bytes.extend((0..24).flat_map(|i| pixel(i).0));
        let path = folder.join(format!("{mode}.mrc"));
        std::fs::write(&path, &bytes).map_err(Error::io(&path, "write"))?;
        let file = MrcFile::open(&path)?;
        let (mut got, mut is) = (Vec::new(), Vec::new());
        for (section, [x, y, width, height]) in
            [(0, [0, 0, 4, 3]), (1, [1, 1, 2, 2]), (1, [0, 2, 4, 1])]
        {
            let mut out = vec![0.0; width * height];
            let window = Rect {
                x,
                y,
                width,
                height,
            };
            file.read_window(section, window, &mut out)?;
            got.extend(out.into_iter().map(f64::from));
            let places = (y..y + height).flat_map(|r| (x..x + width).map(move |c| (r, c)));
            is.extend(places.map(|(r, c)| pixel((section * 3 + r) * 4 + c).1));
        }
        rows.push(row(
            "files",
            format!("mrc, {name}"),
            Link::Data,
            &got,
            &is,
            0.0,
        ));
    }
    Ok(rows)
}

/// A table of 40 rows: a number, a larger one with holes, a category, a weight, and a target that tells the row.
fn tables(folder: &Path) -> Result<Vec<Row>> {
    let cells = |i: usize| {
        let a = 0.5 * i as f64 - 3.0 + f64::from(u8::from(i % 7 == 0));
        let b = (i % 6 != 2).then(|| 1000.0 + (i * i % 37) as f64 * 50.0);
        (
            a,
            b,
            ["red", "green", "blue"][i * i % 3],
            0.5 + (i % 4) as f64,
        )
    };
    let mut text = "a,b,colour,w,y\n".to_string();
    for i in 0..40 {
        let (a, b, colour, w) = cells(i);
        let b = b.map_or_else(String::new, |b| b.to_string());
        text += &format!("{a},{b},{colour},{w},{i}\n");
    }
    let path = folder.join("table.csv");
    std::fs::write(&path, text).map_err(Error::io(&path, "write"))?;
    let mut rows = Vec::new();
    for normalise in ["none", "standard", "minmax"] {
        let spec = format!(
            "file = \"table.csv\"\ntargets = \"y\"\nweights = \"w\"\nvalidation = 0.25\ntest = 0.2\n\
             missing = \"mean\"\nnormalise = \"{normalise}\"\n"
        );
        let spec: DataSpec = toml::from_str(&spec)
            .map_err(|e| Error::invalid("the verifier's table", e.message(), "a [data] table"))?;
        let data = spec.load(folder, 4)?;
        let (mut got, mut is) = (Vec::new(), Vec::new());
        let wrong = told(&data, &cells, normalise, &mut got, &mut is);
        rows.push(row(
            "files",
            format!("a table, {normalise}"),
            Link::Data,
            &got,
            &is,
            64.0 * 6e-8 + FEW,
        ));
        rows.push(holds(
            "files",
            format!("a table's rows, {normalise}"),
            Link::Data,
            40,
            wrong,
        ));
    }
    Ok(rows)
}

/// What every part should hold, told from its targets; counts rows that are lost or twice.
fn told(
    data: &Data,
    cells: &dyn Fn(usize) -> (f64, Option<f64>, &'static str, f64),
    normalise: &str,
    got: &mut Vec<f64>,
    is: &mut Vec<f64>,
) -> usize {
    let numbers = |part: &Dataset| -> Vec<usize> {
        match part.targets() {
            Targets::Values { values, .. } => values.iter().map(|&v| v as usize).collect(),
            _ => Vec::new(),
        }
    };
    let train = numbers(&data.train);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let known: Vec<f64> = train.iter().filter_map(|&i| cells(i).1).collect();
    let fill = mean(&known);
    let columns: [Vec<f64>; 2] = [
        train.iter().map(|&i| cells(i).0).collect(),
        train.iter().map(|&i| cells(i).1.unwrap_or(fill)).collect(),
    ];
    let scaled = |column: usize, value: f64| {
        // A hole is the mean of what is there; the deviation is that of what is there, too.
        let own = if column == 1 { &known } else { &columns[0] };
        let centre = mean(own);
        let squares: Vec<f64> = own.iter().map(|v| math::powi(v - centre, 2)).collect();
        let least = own.iter().copied().fold(f64::INFINITY, math::min);
        let most = own.iter().copied().fold(f64::NEG_INFINITY, math::max);
        match normalise {
            "standard" => (value - centre) / mean(&squares).sqrt(),
            "minmax" => (value - least) / (most - least),
            _ => value,
        }
    };
    // Values by the name of their input.
    let names = data.preparation.input_names();
    let mut seen = BTreeMap::new();
    for part in [
        Some(&data.train),
        data.validation.as_ref(),
        data.test.as_ref(),
    ]
    .into_iter()
    .flatten()
    {
        let width = part.sample_len();
        for (k, i) in numbers(part).into_iter().enumerate() {
            *seen.entry(i).or_insert(0) += 1;
            let (a, b, colour, w) = cells(i);
            let own = &part.inputs()[k * width..(k + 1) * width];
            for (name, &value) in names.iter().zip(own) {
                got.push(f64::from(value));
                is.push(match name.as_str() {
                    "a" => scaled(0, a),
                    "b" => scaled(1, b.unwrap_or(fill)),
                    other => f64::from(u8::from(other.ends_with(colour))),
                });
            }
            got.push(part.weights().map_or(f64::NAN, |w| f64::from(w[k])));
            is.push(w);
        }
    }
    usize::from(names.len() != 5) + (0..40).filter(|i| seen.get(i) != Some(&1)).count()
}
