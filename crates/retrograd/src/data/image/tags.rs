//! What a TIFF says about its image, kept from the file that was read for the one that is written:
//! resolution, description (where ImageJ and OME keep sizes of pixels), date, maker.

use std::borrow::Cow;
use std::io::{Read, Seek, Write};

use tiff::TiffResult;
use tiff::decoder::Decoder;
use tiff::decoder::ifd::Value;
use tiff::encoder::{DirectoryEncoder, Rational, TiffKind, TiffValue};
use tiff::tags::{Tag, Type};

/// Texts that say nothing about how the pixels are stored.
const TEXTS: [Tag; 8] = [
    Tag::ImageDescription,
    Tag::Make,
    Tag::Model,
    Tag::Software,
    Tag::DateTime,
    Tag::Artist,
    Tag::HostComputer,
    Tag::Copyright,
];

/// A text as it came: OME writes µ in UTF-8, which the encoder's own texts refuse.
struct Text<'a>(&'a str);

impl TiffValue for Text<'_> {
    const BYTE_LEN: u8 = 1;
    const FIELD_TYPE: Type = Type::ASCII;

    fn count(&self) -> usize {
        self.0.len() + 1
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned([self.0.as_bytes(), &[0]].concat())
    }
}

/// What is kept of a TIFF beside its pixels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TiffTags {
    /// Pixels per unit across and down, as fractions.
    resolution: [Option<(u32, u32)>; 2],
    /// 1: none, 2: inch, 3: centimetre.
    unit: Option<u16>,
    texts: Vec<(u16, String)>,
}

impl TiffTags {
    /// Those of the current image. One that can't be understood is left out: the pixels are there.
    pub(super) fn read(decoder: &mut Decoder<impl Read + Seek>) -> Self {
        let mut find = |tag| decoder.find_tag(tag).ok().flatten();
        let mut fraction = |tag| match find(tag) {
            Some(Value::Rational(n, d)) => Some((n, d)),
            _ => None,
        };
        let resolution = [Tag::XResolution, Tag::YResolution].map(&mut fraction);
        let unit = find(Tag::ResolutionUnit).and_then(|unit| unit.into_u16().ok());
        let texts = TEXTS.iter().filter_map(|&tag| {
            let text = find(tag)?.into_string().ok()?;
            Some((tag.to_u16(), text.replace('\0', "")))
        });
        let texts = texts.collect();
        TiffTags {
            resolution,
            unit,
            texts,
        }
    }

    /// For an image whose pixels are that many times as wide and high.
    pub(super) fn binned(&self, by: usize) -> Self {
        let coarser = |(n, d): (u32, u32)| match d.checked_mul(by as u32) {
            Some(d) => (n, d),
            None => (n / by as u32, d),
        };
        TiffTags {
            resolution: self.resolution.map(|r| r.map(coarser)),
            ..self.clone()
        }
    }

    /// Pixels per unit across and down, where the file says them.
    pub fn resolution(&self) -> [Option<f64>; 2] {
        let value = |(n, d): (u32, u32)| f64::from(n) / f64::from(d);
        self.resolution.map(|r| r.filter(|r| r.1 > 0).map(value))
    }

    /// The description.
    pub fn description(&self) -> Option<&str> {
        let wanted = Tag::ImageDescription.to_u16();
        let found = self.texts.iter().find(|(tag, _)| *tag == wanted);
        found.map(|(_, text)| text.as_str())
    }

    pub(super) fn write<W: Write + Seek, K: TiffKind>(
        &self,
        directory: &mut DirectoryEncoder<'_, W, K>,
    ) -> TiffResult<()> {
        for (tag, fraction) in [Tag::XResolution, Tag::YResolution]
            .iter()
            .zip(self.resolution)
        {
            if let Some((n, d)) = fraction {
                directory.write_tag(*tag, Rational { n, d })?;
            }
        }
        if let Some(unit) = self.unit {
            directory.write_tag(Tag::ResolutionUnit, unit)?;
        }
        for (tag, text) in &self.texts {
            directory.write_tag(Tag::from_u16_exhaustive(*tag), Text(text))?;
        }
        Ok(())
    }
}
