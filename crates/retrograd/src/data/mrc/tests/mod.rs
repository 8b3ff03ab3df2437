use super::*;
use proptest::prelude::*;

/// Values that every mode but the floats can hold only in part.
fn image(width: usize, height: usize) -> Image {
    Image {
        width,
        height,
        pixels: (0..width * height)
            .map(|i| ((i * 7919) % 13) as f32)
            .collect(),
    }
}

fn swapped(header: &Header) -> Header {
    // The same header in the other byte order, as another machine would write it.
    let mut bytes = header.to_bytes();
    for at in (0..208).step_by(4).chain([216, 220]) {
        bytes[at..at + 4].reverse();
    }
    let stamp = if header.big_endian() { 0x44 } else { 0x11 };
    bytes[212..214].fill(stamp);
    let (mut other, warnings) = Header::parse(&bytes).map_err(|p| p.problem).unwrap();
    assert!(warnings.is_empty());
    other.extended = header.extended.clone();
    other
}

#[test]
fn every_mode_round_trips_in_both_byte_orders_packed_and_not() {
    let folder = tempfile::tempdir().unwrap();
    for mode in MrcMode::ALL {
        for big_endian in [false, true] {
            for name in ["a.mrc", "a.mrcs.gz"] {
                let path = folder.path().join(name);
                let mut header = Header::new(7, 5, 2, mode);
                header.set_voxel_size([1.25, 1.5, 2.0]);
                header.set_origin([3.0, -4.0, 5.5]);
                header.extended = (0..100).collect();
                header.add_label("first");
                if big_endian {
                    header = swapped(&header);
                }
                let first = image(7, 5);
                let mut second = image(7, 5);
                second.pixels.reverse();
                write(&path, header.clone(), &[&first, &second]).unwrap();
                let file = MrcFile::open(&path).unwrap();
                assert!(file.warnings.is_empty(), "{:?}", file.warnings);
                assert_eq!(file.read_section(0).unwrap(), first, "{mode:?}");
                assert_eq!(file.read_section(1).unwrap(), second, "{mode:?}");
                let back = file.header();
                assert_eq!(back.big_endian(), big_endian);
                assert_eq!(back.voxel_size(), [1.25, 1.5, 2.0]);
                assert_eq!(back.origin(), [3.0, -4.0, 5.5]);
                assert_eq!(back.extended, header.extended);
                assert_eq!(back.labels(), ["first"]);
                // Any window, odd columns of packed rows among them.
                let window = Rect {
                    x: 3,
                    y: 1,
                    width: 4,
                    height: 3,
                };
                let (mut got, mut expected) = ([0.0; 12], [0.0; 12]);
                file.read_window(1, window, &mut got).unwrap();
                second.window(window, &mut expected);
                assert_eq!(got, expected, "{mode:?}");
            }
        }
    }
}

#[test]
fn statistics_are_those_of_the_pixels_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mrc");
    // 300 saturates at 127, 0.4 becomes 0: the statistics are of −3, 0, 127, 4.
    let image = Image {
        width: 2,
        height: 2,
        pixels: vec![-3.0, 0.4, 300.0, 4.0],
    };
    write(&path, Header::new(2, 2, 1, MrcMode::I8), &[&image]).unwrap();
    let file = MrcFile::open(&path).unwrap();
    let pixels = file.read_section(0).unwrap().pixels;
    assert_eq!(pixels, [-3.0, 0.0, 127.0, 4.0]);
    // Mean 32; deviations −35, −32, 95, −28; mean of squares 3014.5.
    let expected = [-3.0, 127.0, 32.0, 3014.5_f32.sqrt()];
    assert_eq!(file.header().statistics(), expected);
}

#[test]
fn a_file_too_short_names_the_byte_and_one_too_long_is_forgiven() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.mrc", "a.mrc.gz"] {
        let path = folder.path().join(name);
        let mut header = Header::new(7, 5, 1, MrcMode::F32);
        header.extended = vec![1; 10];
        write(&path, header, &[&image(7, 5)]).unwrap();
        let rewrite = |bytes: &[u8]| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            let packed = encoder.finish().unwrap();
            let packed = if name.ends_with("gz") { &packed } else { bytes };
            std::fs::write(&path, packed).unwrap();
        };
        let mut bytes = Vec::new();
        let file = File::open(&path).unwrap();
        if name.ends_with("gz") {
            flate2::read::GzDecoder::new(file)
                .read_to_end(&mut bytes)
                .unwrap();
        } else {
            bytes = std::fs::read(&path).unwrap();
        }
        assert_eq!(bytes.len(), 1024 + 10 + 7 * 5 * 4);
        for cut in [0, 1, 500, 1023, 1024, 1030, 1034, 1100, 1173] {
            rewrite(&bytes[..cut]);
            let text = MrcFile::open(&path).unwrap_err().to_string();
            assert!(text.contains(&format!("byte {cut}:")), "{text}");
            assert!(text.contains("a.mrc"), "{text}");
        }
        bytes.push(0);
        rewrite(&bytes);
        let file = MrcFile::open(&path).unwrap();
        assert_eq!(file.warnings.len(), 1, "{:?}", file.warnings);
        assert_eq!(file.read_section(0).unwrap(), image(7, 5));
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mrc");
    write(&path, Header::new(7, 5, 1, MrcMode::I16), &[&image(7, 5)]).unwrap();
    let file = MrcFile::open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..1050]).unwrap();
    let text = file.read_section(0).unwrap_err().to_string();
    assert!(text.contains("byte 1050:"), "{text}");
}

#[test]
fn what_the_field_writes_wrongly_is_forgiven_and_put_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mrc");
    let original = image(7, 5);
    for big_endian in [false, true] {
        let mut header = Header::new(7, 5, 1, MrcMode::I16);
        if big_endian {
            header = swapped(&header);
        }
        write(&path, header, &[&original]).unwrap();
        let good = std::fs::read(&path).unwrap();
        let open = |change: &dyn Fn(&mut [u8])| {
            let mut bytes = good.clone();
            change(&mut bytes);
            std::fs::write(&path, &bytes).unwrap();
            let file = MrcFile::open(&path).unwrap();
            assert_eq!(file.read_section(0).unwrap(), original);
            assert_eq!(file.header().big_endian(), big_endian);
            file
        };
        assert_eq!(open(&|b| b[211] = 0).warnings.len(), 1);
        assert_eq!(open(&|b| b[108..112].fill(0)).warnings.len(), 0);
        assert_eq!(open(&|b| b[212..216].fill(0)).warnings.len(), 1);
        let wrong = if big_endian { 0x44 } else { 0x11 };
        let file = open(&|b| b[212..214].fill(wrong));
        assert_eq!(file.warnings.len(), 1);
        assert_eq!(
            open(&|b| b[213] = 0x41).warnings.len(),
            usize::from(big_endian)
        );
        // Written again, the header is a right one.
        write(&path, file.header().clone(), &[&original]).unwrap();
        let again = MrcFile::open(&path).unwrap();
        assert!(again.warnings.is_empty());
        assert_eq!(again.header().i32(108), 20141);
    }
}

#[test]
fn headers_that_lie_are_refused_with_their_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mrc");
    write(&path, Header::new(7, 5, 1, MrcMode::I16), &[&image(7, 5)]).unwrap();
    let good = std::fs::read(&path).unwrap();
    let refuse = |changes: &[(usize, i32)], expected: &[&str]| {
        let mut bytes = good.clone();
        for &(at, value) in changes {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        std::fs::write(&path, &bytes).unwrap();
        let text = MrcFile::open(&path).unwrap_err().to_string();
        for word in expected {
            assert!(text.contains(word), "{text}");
        }
    };
    refuse(&[(0, 0)], &["byte 0:", "nx is 0"]);
    refuse(&[(4, -5)], &["byte 4:", "ny is -5"]);
    refuse(&[(12, 4)], &["byte 12:", "complex"]);
    refuse(&[(12, 77)], &["byte 12:", "mode 77"]);
    refuse(&[(64, 2)], &["byte 64:", "[2, 2, 3]"]);
    refuse(&[(92, -1)], &["byte 92:"]);
    refuse(&[(208, 0)], &["byte 208:", "not an MRC file"]);
    // 2 × (2³¹ − 1)³ bytes overflow 64 bits; 2³¹ rows don't, but no such file is here.
    let most = i32::MAX;
    refuse(&[(0, most), (4, most), (8, most)], &["byte 0:", "overflow"]);
    refuse(&[(4, most)], &["byte 1094:", "promises"]);
    refuse(&[(92, most)], &["byte 1094:", "promises"]);
}

#[test]
fn labels_are_added_and_the_oldest_makes_room() {
    let mut header = Header::new(1, 1, 1, MrcMode::F32);
    for i in 0..12 {
        header.add_label(&format!("label {i} é{}", "x".repeat(100)));
    }
    let labels = header.labels();
    assert_eq!(labels.len(), 10);
    assert!(labels[0].starts_with("label 2 ?x"));
    assert!(labels[9].starts_with("label 11 ?"));
    assert!(labels.iter().all(|l| l.len() == 80));
}

#[test]
fn a_stack_averaged_to_one_section_keeps_its_voxel_size() {
    let mut header = Header::new(4, 4, 10, MrcMode::U16);
    header.set_i32(36, 10);
    header.set_voxel_size([1.1, 1.1, 3.0]);
    let one = header.with_data(1, MrcMode::F32);
    assert_eq!(one.size(), [4, 4, 1]);
    assert_eq!(one.mode(), MrcMode::F32);
    assert_eq!(one.voxel_size(), header.voxel_size());
}

#[test]
fn unfinished_and_unfit_writing_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mrc");
    let header = Header::new(4, 4, 1, MrcMode::F32);
    let mut writer = MrcWriter::create(&path, header.clone()).unwrap();
    writer.write_rows(&[0.0; 8]).unwrap();
    assert!(writer.write_rows(&[0.0; 3]).is_err());
    assert!(writer.write_rows(&[0.0; 12]).is_err());
    let text = writer.write_rows(&[f32::NAN; 4]).unwrap_err().to_string();
    assert!(text.contains("row 2"), "{text}");
    assert!(writer.finish().is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

proptest! {
    /// No header panics, whatever its bytes; what opens can be read, and is as large as its file
    /// says, so nothing is allocated that isn't there.
    #[test]
    fn a_fuzzed_header_never_panics(
        changes in prop::collection::vec((0_usize..1024, any::<u8>()), 0..40),
        length in 0_usize..1300,
        packed in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fuzzed.mrc");
        let mut header = Header::new(7, 5, 2, MrcMode::I16);
        header.extended = vec![7; 20];
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(1300, 3);
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(length);
        if packed {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&bytes).unwrap();
            bytes = encoder.finish().unwrap();
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(file) = MrcFile::open(&path) {
            let [width, height, sections] = file.header().size();
            prop_assert!(width * height * sections <= 2 * 1300);
            prop_assert!(file.header().extended.len() <= 1300);
            let _ = (file.header().labels(), file.header().voxel_size());
            let section = file.read_section(sections - 1).unwrap();
            prop_assert_eq!(section.pixels.len(), width * height);
            write(&path, file.header().with_data(1, MrcMode::F32), &[&section]).unwrap();
        }
    }
}
