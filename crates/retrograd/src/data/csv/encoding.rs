//! From the bytes of a table to text.
//!
//! gzip is known by its first bytes and unpacked within the memory that is free. UTF-16 is known by
//! its byte-order mark, or by a zero in every second byte of the beginning. What is neither that nor
//! UTF-8 is read as Windows-1252, which agrees with Latin-1 wherever that has letters; bytes that
//! text never has (zeros) are an error.

use std::io::Read;
use std::path::Path;

use crate::{Error, Result, budget};

/// The text of a file; what was found out about it is noted.
pub(super) fn text(path: &Path, mut bytes: Vec<u8>, notes: &mut Vec<String>) -> Result<String> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        bytes = unpacked(path, &bytes)?;
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    if let Some(big) = utf16(&bytes) {
        notes.push("the text is UTF-16".into());
        return from_utf16(path, &bytes, big);
    }
    let error = match String::from_utf8(bytes) {
        Ok(text) => return no_zeros(path, text),
        Err(error) => error,
    };
    let at = error.utf8_error().valid_up_to();
    let bytes = error.into_bytes();
    let line = 1 + bytes[..at].iter().filter(|&&b| b == b'\n').count();
    notes.push(format!(
        "the text is not UTF-8 (line {line}): read as Latin-1, as Windows writes it"
    ));
    no_zeros(path, bytes.iter().map(|&b| windows_1252(b)).collect())
}

/// Text has no zeros; a file of numbers has.
fn no_zeros(path: &Path, text: String) -> Result<String> {
    match text.find('\0') {
        None => Ok(text),
        Some(at) => Err(Error::file(
            path,
            format!("byte {at}"),
            "got the byte 0x00, needs a table as text",
        )),
    }
}

/// All that is packed, as far as a quarter of the memory that is free.
fn unpacked(path: &Path, bytes: &[u8]) -> Result<Vec<u8>> {
    let most = budget::free() / 4;
    let mut unpacked = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(bytes).take(most.saturating_add(1));
    decoder.read_to_end(&mut unpacked).map_err(|e| {
        let at = format!("byte {} of the unpacked data", unpacked.len());
        Error::file(path, at, format!("broken gzip data: {e}"))
    })?;
    if unpacked.len() as u64 > most {
        let problem = format!("unpacks to more than {most} bytes, more than memory is kept for");
        return Err(Error::refused(path.display(), problem));
    }
    Ok(unpacked)
}

/// Whether the bytes are UTF-16, and if so whether the larger byte comes first.
fn utf16(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [0xff, 0xfe, ..] => return Some(false),
        [0xfe, 0xff, ..] => return Some(true),
        _ => {}
    }
    const LOOKED_AT: usize = 64;
    let start = &bytes[..bytes.len().min(LOOKED_AT) & !1];
    let zeros = |odd: usize| {
        start
            .chunks_exact(2)
            .all(|pair| pair[odd] == 0 && pair[1 - odd] != 0)
    };
    match start.len() >= 4 {
        true if zeros(1) => Some(false),
        true if zeros(0) => Some(true),
        _ => None,
    }
}

fn from_utf16(path: &Path, bytes: &[u8], big: bool) -> Result<String> {
    let units = bytes.chunks_exact(2).map(|pair| match big {
        true => u16::from_be_bytes([pair[0], pair[1]]),
        false => u16::from_le_bytes([pair[0], pair[1]]),
    });
    let mut text = String::with_capacity(bytes.len() / 2);
    let mut at = 0;
    for unit in char::decode_utf16(units) {
        let c = unit.map_err(|e| {
            let problem = format!("got {e}, needs UTF-16 as the file begins");
            Error::file(path, format!("byte {at}"), problem)
        })?;
        at += 2 * c.len_utf16();
        text.push(c);
    }
    if bytes.len() % 2 == 1 {
        let problem = "half a character at the end, needs UTF-16 as the file begins";
        return Err(Error::file(
            path,
            format!("byte {}", bytes.len() - 1),
            problem,
        ));
    }
    let text = text
        .strip_prefix('\u{feff}')
        .map(String::from)
        .unwrap_or(text);
    no_zeros(path, text)
}

/// A character of Windows-1252: Latin-1, with letters and signs in the place of control characters.
fn windows_1252(byte: u8) -> char {
    const OWN: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž',
        '\u{8f}', '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}',
        'ž', 'Ÿ',
    ];
    match byte {
        0x80..=0x9f => OWN[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(bytes: &[u8]) -> Result<(String, Vec<String>)> {
        let mut notes = Vec::new();
        let text = text(Path::new("t.csv"), bytes.to_vec(), &mut notes)?;
        Ok((text, notes))
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_encoding_gives_the_same_text() {
        let meant = "größe,naïve\n1,2\n";
        let latin: Vec<u8> = meant.chars().map(|c| c as u8).collect();
        let units = || meant.encode_utf16();
        let little: Vec<u8> = units().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = units().flat_map(u16::to_be_bytes).collect();
        let marked = |mark: &[u8], rest: &[u8]| [mark, rest].concat();
        for (bytes, note) in [
            (meant.as_bytes().to_vec(), None),
            (marked(b"\xef\xbb\xbf", meant.as_bytes()), None),
            (packed(meant.as_bytes()), None),
            (latin.clone(), Some("Latin-1")),
            (packed(&latin), Some("Latin-1")),
            (marked(&[0xff, 0xfe], &little), Some("UTF-16")),
            (marked(&[0xfe, 0xff], &big), Some("UTF-16")),
        ] {
            let (text, notes) = read(&bytes).unwrap();
            assert_eq!(text, meant);
            assert_eq!(notes.len(), usize::from(note.is_some()), "{notes:?}");
            assert!(note.is_none_or(|n| notes[0].contains(n)), "{notes:?}");
        }
        // Without a mark only where every second byte is zero.
        let plain: Vec<u8> = "a,b\n1,2\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(read(&plain).unwrap().0, "a,b\n1,2\n");
        assert_eq!(read(b"a\n5 \x80\n").unwrap().0, "a\n5 €\n");
    }

    #[test]
    fn what_is_no_text_is_refused_with_the_byte() {
        for (bytes, part) in [
            (&b"a,b\n1,\0\n"[..], "byte 6"),
            (&b"\xff\xfea\0b"[..], "half a character"),
            (&b"\xff\xfe\x00\xd8a\0"[..], "unpaired surrogate"),
            (&packed(b"a,b\n1,2\n")[..20], "broken gzip"),
        ] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
