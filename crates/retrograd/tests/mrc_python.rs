//! MRC files exchanged with PyPI's `mrcfile`, in both directions.
//!
//! Needs a Python that can import `mrcfile` and `numpy`: `python3`, or the one that the
//! environment variable `RETROGRAD_PYTHON` names (`tests/python-environment` makes one).

use std::path::Path;
use std::process::Command;

use retrograd::data::image::Image;
use retrograd::data::mrc::{self, Header, MrcFile, MrcMode};

fn python() -> String {
    let python = std::env::var("RETROGRAD_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let found = Command::new(&python)
        .args(["-c", "import mrcfile, numpy"])
        .output();
    assert!(
        found.is_ok_and(|output| output.status.success()),
        "{python} can't import mrcfile and numpy: set RETROGRAD_PYTHON to what \
         tests/python-environment prints"
    );
    python
}

fn run(python: &str, folder: &Path, script: &str) -> String {
    let output = Command::new(python)
        .current_dir(folder)
        .args(["-c", script])
        .output()
        .expect("python starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "python failed:\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A ramp that all modes hold, −8 … 100 where the mode is signed.
fn image(mode: MrcMode) -> Image {
    let low = if mode == MrcMode::U16 { 0.0 } else { -8.0 };
    Image {
        width: 11,
        height: 6,
        pixels: (0..66).map(|i| low + ((i * 29) % 109) as f32).collect(),
    }
}

/// mrcfile knows no mode 101.
const MODES: [(MrcMode, &str); 5] = [
    (MrcMode::I8, "int8"),
    (MrcMode::I16, "int16"),
    (MrcMode::F32, "float32"),
    (MrcMode::U16, "uint16"),
    (MrcMode::F16, "float16"),
];

#[test]
fn mrc_files_go_to_mrcfile_and_come_back() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    for (mode, name) in MODES {
        for ending in ["mrc", "mrcs.gz"] {
            let sections = if ending == "mrc" { 1 } else { 3 };
            let image = image(mode);
            // From here to Python.
            let mut header = Header::new(11, 6, sections, mode);
            header.set_voxel_size([1.5, 1.25, 2.0]);
            header.set_origin([10.0, -20.0, 30.0]);
            header.set_extended(*b"MRCO", (0..=255).collect());
            header.add_label("written by the test");
            let path = folder.path().join(format!("ours.{ending}"));
            mrc::write(&path, header, &vec![&image; sections]).unwrap();
            let script = format!(
                "
import mrcfile, numpy as np
low = 0 if '{name}' == 'uint16' else -8
expected = np.array([low + (i * 29) % 109 for i in range(66)], dtype='{name}').reshape(6, 11)
if {sections} > 1: expected = np.stack([expected] * {sections})
# Its validation computes the deviation of float16 data in float16, which overflows.
if '{ending}' == 'mrc' and '{name}' != 'float16': assert mrcfile.validate('ours.{ending}')
with mrcfile.open('ours.{ending}') as m:
    assert m.data.dtype == expected.dtype, m.data.dtype
    assert np.array_equal(m.data, expected), m.data
    v = m.voxel_size
    assert (float(v.x), float(v.y), float(v.z)) == (1.5, 1.25, 2.0), v
    o = m.header.origin
    assert (float(o.x), float(o.y), float(o.z)) == (10, -20, 30), o
    assert bytes(m.extended_header.tobytes()) == bytes(range(256))
    assert [l.rstrip() for l in m.get_labels()] == ['written by the test'], m.get_labels()
    d = expected.astype('float64')
    h = m.header
    assert abs(h.dmin - d.min()) == 0 and abs(h.dmax - d.max()) == 0
    assert abs(h.dmean - d.mean()) < 1e-5 and abs(h.rms - d.std()) < 1e-5
    # From Python to here, in the other byte order.
    with mrcfile.new('theirs.{ending}', overwrite=True, compression={compression}) as n:
        n.set_data(expected.astype(expected.dtype.newbyteorder('>')))
        n.set_extended_header(np.arange(100, dtype='u1').view('V4'))
        n.header.exttyp = 'MRCO'
        n.voxel_size = (1.5, 1.25, 2.0)
        n.header.origin = (1, 2, 3)
        n.add_label('from python')
        stats = (float(n.header.dmean), float(n.header.rms))
        assert n.header.mode == {number}
        print(n.header.machst[0])
",
                compression = if ending == "mrc" { "None" } else { "'gzip'" },
                number = mode.number(),
            );
            let stamp = run(&python, folder.path(), &script);
            let file = MrcFile::open(folder.path().join(format!("theirs.{ending}"))).unwrap();
            assert!(file.warnings.is_empty(), "{:?}", file.warnings);
            let header = file.header();
            assert_eq!(header.mode(), mode);
            // 17 = 0x11: big-endian, except for bytes, which have no order.
            assert_eq!(header.big_endian(), stamp.lines().last() == Some("17"));
            assert!(mode == MrcMode::I8 || header.big_endian());
            assert_eq!(header.size(), [11, 6, sections]);
            assert_eq!(file.read_section(sections - 1).unwrap(), image);
            assert_eq!(header.voxel_size(), [1.5, 1.25, 2.0]);
            assert_eq!(header.origin(), [1.0, 2.0, 3.0]);
            assert_eq!(&header.extended_kind(), b"MRCO");
            assert_eq!(header.extended, (0..100).collect::<Vec<u8>>());
            assert!(header.labels().iter().any(|l| l.starts_with("from python")));
            // And once more through here, header and all, to Python's validation.
            let path = folder.path().join("again.mrc");
            mrc::write(&path, header.with_data(1, MrcMode::F32), &[&image]).unwrap();
            let script = "
import mrcfile
assert mrcfile.validate('again.mrc')
with mrcfile.open('again.mrc') as m:
    assert float(m.voxel_size.y) == 1.25 and len(m.extended_header.tobytes()) == 100
";
            run(&python, folder.path(), script);
        }
    }
}
