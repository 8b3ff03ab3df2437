//! Numbers as people write them: `$1,234.50`, `12.5 %`, `1 234,5 €`.

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
    use super::decorated;

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
