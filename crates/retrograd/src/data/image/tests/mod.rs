use std::sync::Arc;

use super::*;
use crate::data::mrc::MrcMode;

fn spool() -> Arc<Spool> {
    Spool::new().unwrap()
}

fn whole(width: usize, height: usize, seed: usize) -> Image {
    Image {
        width,
        height,
        pixels: (0..width * height)
            .map(|i| ((i * 37 + seed * 11) % 251) as f32)
            .collect(),
    }
}

#[test]
fn every_format_gives_back_what_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let image = whole(13, 7, 1);
    let mrc = Format::Mrc(Box::new(Header::new(13, 7, 1, MrcMode::I16)));
    let formats = [
        Format::Png { bits: 8 },
        Format::Png { bits: 16 },
        Format::Tiff { bits: 8 },
        Format::Tiff { bits: 16 },
        Format::Tiff { bits: 32 },
        Format::Npy,
        mrc,
    ];
    for (i, format) in formats.iter().enumerate() {
        let scale = match format {
            Format::Png { bits: 16 } | Format::Tiff { bits: 16 } => 257.0,
            Format::Tiff { bits: 32 } | Format::Npy => -0.37,
            _ => 1.0,
        };
        let mut image = image.clone();
        image.pixels.iter_mut().for_each(|p| *p *= scale);
        let path = folder.path().join(format!("{i}.img"));
        image.write(&path, format).unwrap();
        let file = ImageFile::open(&path, &spool()).unwrap();
        assert_eq!(file.read_section(0).unwrap(), image, "{format:?}");
        if !matches!(format, Format::Mrc(_)) {
            assert_eq!(&file.format, format);
        }
        let window = Rect {
            x: 3,
            y: 2,
            width: 9,
            height: 4,
        };
        let mut expected = vec![0.0; 36];
        image.window(window, &mut expected);
        let mut got = vec![0.0; 36];
        file.read_window(0, window, &mut got).unwrap();
        assert_eq!(got, expected, "{format:?}");
        // Integers are rounded and cut, never wrapped.
        if format.white().is_some() {
            image.pixels[0] = -5.0;
            image.pixels[1] = 1e6;
            image.pixels[2] = 2.6;
            image.write(&path, format).unwrap();
            let file = ImageFile::open(&path, &spool()).unwrap();
            let pixels = file.read_section(0).unwrap().pixels;
            assert_eq!(pixels[..3], [0.0, format.white().unwrap(), 3.0]);
        }
    }
}

#[test]
fn stacks_keep_their_sections_apart() {
    let folder = tempfile::tempdir().unwrap();
    let images: Vec<Image> = (0..3).map(|k| whole(6, 5, k)).collect();
    for format in [Format::Npy, Format::Tiff { bits: 32 }, Format::Memory] {
        let path = folder.path().join("stack");
        let mut writer = ImageWriter::create(&path, 6, 5, 3, &format).unwrap();
        for image in &images {
            writer.write_rows(&image.pixels).unwrap();
        }
        writer.finish().unwrap();
        // Two files in one spool don't mix.
        let spool = spool();
        let first = ImageFile::open(&path, &spool).unwrap();
        let second = ImageFile::open(&path, &spool).unwrap();
        for (k, image) in images.iter().enumerate() {
            assert_eq!(&first.read_section(k).unwrap(), image, "{format:?}");
            assert_eq!(&second.read_section(k).unwrap(), image, "{format:?}");
        }
        let error = first.read_window(3, Rect::whole(6, 5), &mut [0.0; 30]);
        assert!(error.unwrap_err().to_string().contains("below 3"));
    }
}

#[test]
fn colours_become_luminance() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("colour.png");
    let samples = [10, 20, 30, 200, 200, 200];
    let png = encode_png([2, 1], png::ColorType::Rgb, png::BitDepth::Eight, &samples);
    std::fs::write(&path, png.unwrap()).unwrap();
    let file = ImageFile::open(&path, &spool()).unwrap();
    let pixels = file.read_section(0).unwrap().pixels;
    assert_eq!(
        pixels,
        [0.2126 * 10.0 + 0.7152 * 20.0 + 0.0722 * 30.0, 200.0]
    );
}

/// A PNG file of 2 × 2 pixels, chunk by chunk: its last four header bytes before the interlacing
/// are its bits, its kind of colours and twice 0.
fn png_file(bits: u8, colours: u8, interlaced: u8, chunks: &[(&str, &[u8])]) -> Vec<u8> {
    let header = [0, 0, 0, 2, 0, 0, 0, 2, bits, colours, 0, 0, interlaced];
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &str, data: &[u8]| {
        let start = bytes.len() + 4;
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(kind.as_bytes());
        bytes.extend(data);
        let mut sum = flate2::Crc::new();
        sum.update(&bytes[start..]);
        bytes.extend(sum.sum().to_be_bytes());
    };
    chunk("IHDR", &header);
    for (kind, data) in chunks {
        if *kind == "IDAT" {
            let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
            std::io::Write::write_all(&mut packed, data).unwrap();
            chunk(kind, &packed.finish().unwrap());
        } else {
            chunk(kind, data);
        }
    }
    chunk("IEND", &[]);
    bytes
}

#[test]
fn every_kind_of_png_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kind.png");
    let read = |bytes: Vec<u8>| {
        std::fs::write(&path, bytes).unwrap();
        let file = ImageFile::open(&path, &spool()).unwrap();
        (file.format.clone(), file.read_section(0).unwrap().pixels)
    };
    let (eight, sixteen) = (Format::Png { bits: 8 }, Format::Png { bits: 16 });
    // Every row starts with its filter, 0.
    let one_bit = [0, 0x40, 0, 0x80];
    assert_eq!(
        read(png_file(1, 0, 0, &[("IDAT", &one_bit)])),
        (eight.clone(), vec![0.0, 255.0, 255.0, 0.0])
    );
    // Adam7: the first pixel; the second of the first row; the second row.
    let passes = [0, 10, 0, 20, 0, 30, 40];
    assert_eq!(
        read(png_file(8, 0, 1, &[("IDAT", &passes)])),
        (eight.clone(), vec![10.0, 20.0, 30.0, 40.0])
    );
    let words = [0, 1, 2, 0, 3, 0, 255, 255, 4, 0];
    assert_eq!(
        read(png_file(16, 0, 0, &[("IDAT", &words)])),
        (sixteen.clone(), vec![258.0, 3.0, 65535.0, 1024.0])
    );
    // What is transparent counts like the rest.
    let grey_alpha = [0, 9, 0, 8, 255, 0, 7, 128, 6, 1];
    assert_eq!(
        read(png_file(8, 4, 0, &[("IDAT", &grey_alpha)])),
        (eight.clone(), vec![9.0, 8.0, 7.0, 6.0])
    );
    let wide = |v: u8| [v, v, v, v, v, v, 0, 77];
    let rows = [[wide(1), wide(2)].concat(), [wide(3), wide(4)].concat()];
    let rgba = [&[0][..], &rows[0], &[0], &rows[1]].concat();
    assert_eq!(
        read(png_file(16, 6, 0, &[("IDAT", &rgba)])),
        (sixteen, [1, 2, 3, 4].map(|v| f32::from(v * 257_u16)).into())
    );
    let palette: &[u8] = &[5, 5, 5, 10, 20, 30, 0, 0, 100];
    let [mixed, blue] = [0.2126 * 10.0 + 0.7152 * 20.0 + 0.0722 * 30.0, 7.22_f64];
    for alpha in [None, Some(("tRNS", &[0, 9][..]))] {
        let chunks: Vec<_> = [("PLTE", palette)]
            .into_iter()
            .chain(alpha)
            .chain([("IDAT", &[0, 0x10, 0, 0x21][..])])
            .collect();
        assert_eq!(
            read(png_file(4, 3, 0, &chunks)),
            (
                eight.clone(),
                vec![mixed as f32, 5.0, blue as f32, mixed as f32]
            )
        );
    }
}

/// The crate that decodes PNG panics at this one: an error that names the file all the same.
#[test]
fn a_palette_of_half_a_colour_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("half.png");
    for palette in [&[1, 2, 3, 4][..], &[1, 2, 3, 4, 5]] {
        for alpha in [None, Some(("tRNS", &[7, 7][..]))] {
            let chunks: Vec<_> = [("PLTE", palette)]
                .into_iter()
                .chain(alpha)
                .chain([("IDAT", &[0, 0x10, 0, 0x10][..])])
                .collect();
            std::fs::write(&path, png_file(4, 3, 0, &chunks)).unwrap();
            let error = ImageFile::open(&path, &spool()).unwrap_err().to_string();
            assert!(
                error.contains("half.png: PNG: its decoder gave up"),
                "{error}"
            );
        }
    }
    let panics = || -> Result<()> { panic!("at {}", 7) };
    let error = file::guarded(&path, "PNG", panics).unwrap_err().to_string();
    assert!(
        error.contains("half.png: PNG") && error.contains("at 7"),
        "{error}"
    );
}

#[test]
fn broken_files_are_errors_that_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken");
    let image = whole(40, 30, 2);
    for format in [
        Format::Png { bits: 8 },
        Format::Tiff { bits: 32 },
        Format::Npy,
    ] {
        image.write(&path, &format).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        // 30 bytes before the end is before the end of the pixels in all of them.
        for keep in [9, 60, bytes.len() / 2, bytes.len() - 30] {
            std::fs::write(&path, &bytes[..keep]).unwrap();
            let result = ImageFile::open(&path, &spool());
            let text = result
                .expect_err(&format!("{format:?} cut at {keep}"))
                .to_string();
            assert!(text.contains("broken"), "{text}");
        }
        // A flipped byte anywhere is read or refused, but nothing panics.
        for i in 0..bytes.len().min(400) {
            let mut bytes = bytes.clone();
            bytes[i] ^= 0x55;
            std::fs::write(&path, &bytes).unwrap();
            let _ = ImageFile::open(&path, &spool());
        }
    }
    // A header that promises more than any machine has, in front of one pixel.
    for shape in [
        "(1, 288230376151711744)",
        "(4294967296, 4294967296)",
        "(7, 9999)",
    ] {
        let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        header.extend(std::iter::repeat_n(' ', 117 - header.len()));
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16 + 1).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(b"\n\0\0\0\0");
        std::fs::write(&path, &bytes).unwrap();
        let text = ImageFile::open(&path, &spool()).unwrap_err().to_string();
        assert!(text.contains("promises"), "{text}");
    }
    // Braces in braces: the error names the first that has no place.
    let mut bytes = b"\x93NUMPY\x01\x00\xff\xff".to_vec();
    bytes.resize(10 + 65_535, b'{');
    std::fs::write(&path, &bytes).unwrap();
    let text = ImageFile::open(&path, &spool()).unwrap_err().to_string();
    assert!(text.contains("broken: byte 11"), "{text}");
    let nan = Image {
        pixels: vec![1.0, f32::NAN],
        width: 2,
        height: 1,
    };
    nan.write(&path, &Format::Npy).unwrap();
    let text = ImageFile::open(&path, &spool()).unwrap_err().to_string();
    assert!(text.contains("x = 1, y = 0"), "{text}");
}

#[test]
fn windows_outside_the_image_are_refused() {
    let file = ImageFile::from_images("memory", vec![whole(4, 4, 0)]).unwrap();
    for (x, y, width, height) in [
        (1, 0, 4, 1),
        (0, 4, 1, 1),
        (0, 0, 0, 1),
        (usize::MAX, 0, 2, 1),
    ] {
        let window = Rect {
            x,
            y,
            width,
            height,
        };
        assert!(file.read_window(0, window, &mut []).is_err());
    }
    assert!(ImageFile::from_images("none", Vec::new()).is_err());
    assert!(ImageFile::from_images("two", vec![whole(4, 4, 0), whole(4, 5, 0)]).is_err());
}

#[test]
fn the_mean_of_images_is_their_mean() {
    let mean = Image::mean(&[whole(3, 2, 0), whole(3, 2, 4)]).unwrap();
    for (i, &p) in mean.pixels.iter().enumerate() {
        assert_eq!(
            p,
            (whole(3, 2, 0).pixels[i] + whole(3, 2, 4).pixels[i]) / 2.0
        );
    }
    assert!(Image::mean(&[]).is_err());
}

/// Images of `sections` × 6 × 5 pixels, each its own number.
fn numbered(sections: usize) -> ImageFile {
    let image = |s: usize| Image {
        width: 5,
        height: 6,
        pixels: (0..30).map(|i| (100 * s + i) as f32).collect(),
    };
    ImageFile::from_images("numbered", (0..sections).map(image).collect()).unwrap()
}

#[test]
fn pixels_are_binned_and_frames_averaged_by_whoever_reads() {
    let file = numbered(3).averaged().binned(2).unwrap();
    assert_eq!((file.width, file.height, file.sections), (2, 3, 1));
    // The first pixel is the mean of 0, 1, 5, 6 over frames that are 100 apart.
    let expected = [103.0, 105.0, 113.0, 115.0, 123.0, 125.0];
    assert_eq!(file.read_section(0).unwrap().pixels, expected);
    // A window is the same part of the whole.
    let window = Rect {
        x: 1,
        y: 1,
        width: 1,
        height: 2,
    };
    let mut part = [0.0; 2];
    file.read_window(0, window, &mut part).unwrap();
    assert_eq!(part, [115.0, 125.0]);
    assert!(file.read_section(1).is_err());
    // Frames that are not averaged stay apart.
    let stack = numbered(3).binned(3).unwrap();
    assert_eq!((stack.width, stack.height, stack.sections), (1, 2, 3));
    assert_eq!(stack.read_section(2).unwrap().pixels, [206.0, 221.0]);
    let error = numbered(1).binned(6).unwrap_err().to_string();
    assert!(error.contains("1 to 5"), "{error}");
    assert!(numbered(1).binned(0).is_err());
}

#[test]
fn spooled_and_mrc_files_are_binned_alike_and_say_their_new_size() {
    let folder = tempfile::tempdir().unwrap();
    let pixels = numbered(1).read_section(0).unwrap();
    let mut header = Header::new(5, 6, 1, MrcMode::F32);
    header.set_voxel_size([1.5, 1.5, 1.0]);
    for (name, format) in [
        ("a.mrc", Format::Mrc(Box::new(header))),
        ("a.tif", Format::Tiff { bits: 16 }),
    ] {
        let path = folder.path().join(name);
        pixels.write(&path, &format).unwrap();
        let file = ImageFile::open(&path, &Spool::new().unwrap()).unwrap();
        let file = file.binned(2).unwrap();
        let expected = [3.0, 5.0, 13.0, 15.0, 23.0, 25.0];
        assert_eq!(file.read_section(0).unwrap().pixels, expected, "{name}");
        if let Format::Mrc(header) = &file.format {
            assert_eq!(header.size(), [2, 3, 1]);
            assert_eq!(header.voxel_size()[..2], [3.0, 3.0]);
        }
    }
}

/// As a microscope's program writes one: tags of its own around the pixels.
#[test]
fn a_tiff_keeps_resolution_and_texts() {
    use tiff::encoder::{Rational, TiffEncoder, colortype::Gray16};
    use tiff::tags::Tag;
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("a.tif"), folder.path().join("b.tif"));
    let mut encoder = TiffEncoder::new(std::fs::File::create(&from).unwrap()).unwrap();
    let mut image = encoder.new_image::<Gray16>(4, 2).unwrap();
    let tags = image.encoder();
    tags.write_tag(Tag::XResolution, Rational { n: 254, d: 10 })
        .unwrap();
    tags.write_tag(Tag::YResolution, Rational { n: 127, d: 10 })
        .unwrap();
    tags.write_tag(Tag::ResolutionUnit, 3_u16).unwrap();
    tags.write_tag(Tag::ImageDescription, "ImageJ=1.54f\nunit=nm")
        .unwrap();
    tags.write_tag(Tag::DateTime, "2024:05:31 12:00:00")
        .unwrap();
    image.write_data(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let spool = Spool::new().unwrap();
    let file = ImageFile::open(&from, &spool).unwrap();
    assert_eq!(file.tags.resolution(), [Some(25.4), Some(12.7)]);
    assert_eq!(file.tags.description(), Some("ImageJ=1.54f\nunit=nm"));
    // Read and written as it came, and as floats.
    for bits in [16, 32] {
        let format = Format::Tiff { bits };
        let writer = ImageWriter::create(&to, 4, 2, 1, &format).unwrap();
        let mut writer = writer.with_tags(&file.tags);
        writer
            .write_rows(&file.read_section(0).unwrap().pixels)
            .unwrap();
        writer.finish().unwrap();
        let again = ImageFile::open(&to, &spool).unwrap();
        assert_eq!((&again.tags, &again.format), (&file.tags, &format));
    }
    // Pixels twice as wide are half as many a centimetre.
    let file = file.binned(2).unwrap();
    assert_eq!(file.tags.resolution(), [Some(12.7), Some(6.35)]);
}
