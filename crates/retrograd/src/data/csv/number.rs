//! Numbers as people write them: `$1,234.50`, `12.5 %`, `1 234,5 €`.

/// Powers of ten that are exact in f64, as many as a plain number has digits after its point.
const POWERS: [f64; 18] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17,
];

/// A number of digits and perhaps a point and a minus: what most cells hold, several times as fast as
/// the general way and to the same bits: both whole number and power of ten are exact, so the
/// division rounds once. None for everything else, numbers among it.
pub(super) fn plain(cell: &str) -> Option<f64> {
    let (negative, digits) = match cell.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.len() > POWERS.len() {
        return None;
    }
    let (mut whole, mut point) = (0_u64, None);
    for (i, &b) in digits.iter().enumerate() {
        match b {
            b'0'..=b'9' => whole = whole * 10 + u64::from(b - b'0'),
            b'.' if point.is_none() => point = Some(i),
            _ => return None,
        }
    }
    let after = point.map_or(0, |at| digits.len() - 1 - at);
    let none = digits.len() == usize::from(point.is_some());
    if none || whole > 1 << 53 {
        return None;
    }
    let value = whole as f64 / POWERS[after];
    Some(if negative { -value } else { value })
}

const SIGNS: [char; 10] = ['$', '€', '£', '¥', '₹', '₽', '₩', '¢', '%', '‰'];

/// The number in a cell with a sign of currency or of per cent, or with marks between thousands; none
/// where it is text. Thousands have groups of three digits, between `,` (or `.` where the comma is
/// the decimal mark), `'`, or a narrow or fixed space. One group alone could be a fraction, so it
/// counts where a sign or the other mark stands beside it, or where `grouped` says so.
pub(super) fn decorated(cell: &str, decimal: char, grouped: bool) -> Option<f64> {
    // What begins with a letter is text: the usual case, decided at once.
    if cell.len() > 40 || cell.starts_with(|c: char| c.is_alphabetic()) {
        return None;
    }
    let (mut rest, mut sign, mut negative) = (cell.trim(), false, false);
    if let Some(inner) = rest.strip_prefix('(').and_then(|r| r.strip_suffix(')')) {
        // As accountants write losses.
        (rest, negative) = (inner.trim(), true);
    }
    loop {
        let before = rest;
        if let Some(inner) = rest.strip_prefix('-').or(rest.strip_prefix('−')) {
            if negative {
                return None;
            }
            (rest, negative) = (inner.trim_start(), true);
        }
        if let Some(inner) = rest.strip_prefix(SIGNS).or(rest.strip_suffix(SIGNS)) {
            if sign {
                return None;
            }
            (rest, sign) = (inner.trim(), true);
        }
        if rest == before {
            break;
        }
    }
    let (whole, fraction) = match rest.split_once(decimal) {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (rest, None),
    };
    let mark = match decimal {
        ',' => '.',
        _ => ',',
    };
    let marks = [mark, '\'', '\u{2019}', '\u{a0}', '\u{202f}'];
    let groups: Vec<&str> = whole.split(marks).collect();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (first, others) = groups.split_first()?;
    if !digits(first) || (fraction.is_some_and(|f| !f.is_empty() && !digits(f))) {
        return None;
    }
    if !others.is_empty() {
        let threes = first.len() <= 3 && others.iter().all(|g| g.len() == 3 && digits(g));
        let sure = sign || fraction.is_some() || others.len() > 1 || grouped || decimal == ',';
        if !threes || !sure {
            return None;
        }
    } else if !sign && !negative {
        // A plain number would have been one already.
        return None;
    }
    let text = format!("{}.{}", groups.concat(), fraction.unwrap_or("0"));
    let number: f64 = text.parse().ok()?;
    Some(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::{decorated, plain};

    #[test]
    fn plain_numbers_have_the_bits_of_the_general_way() {
        let mut stream = crate::rng::Key::new(0).purpose("plain numbers").stream();
        let mut seen = 0;
        for _ in 0..200_000 {
            let bits = stream.u64();
            let whole = bits >> (bits % 60);
            let digits = (bits >> 7) as usize % 18;
            let text = match bits % 4 {
                0 => whole.to_string(),
                1 => format!("-{}.{}", whole % 1000, whole),
                2 => format!("{:.digits$}", whole as f64 / 1e9),
                _ => format!(".{whole}"),
            };
            if let Some(value) = plain(&text) {
                seen += 1;
                let exact: f64 = text.parse().unwrap();
                assert_eq!(value.to_bits(), exact.to_bits(), "{text}");
            }
        }
        assert!(seen > 50_000, "{seen}");
        for text in ["5.", ".5", "-0", "007", "9007199254740992"] {
            let exact: f64 = text.parse().unwrap();
            assert_eq!(
                plain(text).map(f64::to_bits),
                Some(exact.to_bits()),
                "{text}"
            );
        }
        for text in [
            "",
            "-",
            ".",
            "-.",
            "+5",
            "1e5",
            "1.2.3",
            " 1",
            "1,5",
            "9007199254740993",
            "٣",
        ] {
            assert_eq!(plain(text), None, "{text}");
        }
    }

    #[test]
    fn currencies_percentages_and_thousands_are_numbers() {
        for (cell, expected) in [
            ("$1,234.50", 1234.5),
            ("-$5", -5.0),
            ("$-5", -5.0),
            ("($1,000)", -1000.0),
            ("12%", 12.0),
            ("12.5 %", 12.5),
            ("€ 3", 3.0),
            ("3 €", 3.0),
            ("1,234,567", 1_234_567.0),
            ("1,234.5", 1234.5),
            ("1'234'567.25", 1_234_567.25),
            ("−7 %", -7.0),
            ("1\u{a0}234\u{a0}567", 1_234_567.0),
        ] {
            assert_eq!(decorated(cell, '.', false), Some(expected), "{cell}");
        }
        assert_eq!(decorated("1.234,50 €", ',', false), Some(1234.5));
        assert_eq!(decorated("12,5 %", ',', false), Some(12.5));
        assert_eq!(decorated("1,234", '.', true), Some(1234.0));
    }

    #[test]
    fn what_could_be_something_else_is_text() {
        for cell in [
            "1,234", "1,5", "1,23,456", "1,2345", "", "%", "$", "$$5", "5%%", "1 2", "a%", "1-2",
            "--5", "12:30", "1.2.3", "($5", "5 kg", "1,234,56", "-", "()", "1,,234", "١",
        ] {
            assert_eq!(decorated(cell, '.', false), None, "{cell:?}");
        }
    }
}
