//! Dates and times of day in the cells of a table.
//!
//! A cell is read as seconds since 1970-01-01 00:00 in the proleptic Gregorian calendar; a time zone
//! is subtracted, and without one the clock is taken as it is. A time of day alone counts from
//! midnight. Which of day and month comes first in `3/4/2024` can't be seen in a cell: the column
//! decides (`DateForm::of`).

use serde::{Deserialize, Serialize};

/// How the dates of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DateForm {
    /// `2024-05-31`, `2024/5/31`, `2024.05.31`.
    YearMonthDay,
    /// `31.5.2024`, `31/05/2024`, `31-05-2024`.
    DayMonthYear,
    /// `5/31/2024`.
    MonthDayYear,
    /// `31 May 2024`, `31-May-2024`, `May 31, 2024`.
    Named,
    /// `23:59`, `23:59:59.5`, `11:59 PM`, without a date.
    Clock,
}

const FORMS: [DateForm; 5] = [
    DateForm::YearMonthDay,
    DateForm::DayMonthYear,
    DateForm::MonthDayYear,
    DateForm::Named,
    DateForm::Clock,
];

/// A second's share of a day.
pub(crate) const DAY: f64 = 86_400.0;

impl DateForm {
    /// The form in which every one of the cells is a date; none where there is no such form. Where
    /// day and month could be either, points mean day first and slashes month first.
    pub(crate) fn of<'a>(cells: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut possible = FORMS.to_vec();
        let mut dots = true;
        let mut any = false;
        for cell in cells {
            possible.retain(|form| form.seconds(cell).is_some());
            if possible.is_empty() {
                return None;
            }
            dots &= cell.contains('.');
            any = true;
        }
        let either = possible.contains(&DateForm::DayMonthYear)
            && possible.contains(&DateForm::MonthDayYear);
        match any {
            false => None,
            true if either && !dots => Some(DateForm::MonthDayYear),
            true => possible.first().copied(),
        }
    }

    /// The form in words, for notes.
    pub(crate) fn words(self) -> &'static str {
        match self {
            DateForm::YearMonthDay => "year, month, day",
            DateForm::DayMonthYear => "day, month, year",
            DateForm::MonthDayYear => "month, day, year",
            DateForm::Named => "the month by its name",
            DateForm::Clock => "the time of day",
        }
    }

    /// Seconds since 1970, or since midnight; none where the cell is not of this form.
    pub(crate) fn seconds(self, cell: &str) -> Option<f64> {
        let cell = cell.trim();
        if cell.len() > 64 || !cell.bytes().any(|b| b.is_ascii_digit()) {
            return None;
        }
        if self == DateForm::Clock {
            return clock(cell);
        }
        let (date, rest) = match self {
            DateForm::Named => split_named(cell)?,
            _ => {
                let end = cell.find([' ', 'T', 't']).unwrap_or(cell.len());
                (cell[..end].to_string(), cell[end..].get(1..).unwrap_or(""))
            }
        };
        let time = match rest.trim() {
            "" => 0.0,
            rest => clock(rest)?,
        };
        Some(self.days(&date)? as f64 * DAY + time)
    }

    /// Days since 1970-01-01.
    fn days(self, date: &str) -> Option<i64> {
        let parts: Vec<&str> = date.split(['-', '/', '.', ' ']).collect();
        let [a, b, c] = parts.as_slice() else {
            return None;
        };
        let number = |text: &str, digits: std::ops::RangeInclusive<usize>| -> Option<i64> {
            let plain = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| text.parse().ok()).flatten()
        };
        let (year, month, day) = match self {
            DateForm::YearMonthDay => (number(a, 4..=4)?, number(b, 1..=2)?, number(c, 1..=2)?),
            DateForm::DayMonthYear => (number(c, 4..=4)?, number(b, 1..=2)?, number(a, 1..=2)?),
            DateForm::MonthDayYear if !date.contains('/') => return None,
            DateForm::MonthDayYear => (number(c, 4..=4)?, number(a, 1..=2)?, number(b, 1..=2)?),
            DateForm::Named => match month_named(b) {
                Some(month) => (number(c, 4..=4)?, month, number(a, 1..=2)?),
                None => (number(c, 4..=4)?, month_named(a)?, number(b, 1..=2)?),
            },
            DateForm::Clock => return None,
        };
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let length = match month {
            2 => 28 + i64::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        (1..=length)
            .contains(&day)
            .then(|| days_from_civil(year, month, day))
    }
}

/// `31 May 2024 10:00` in its date, with blanks between its parts, and the rest.
fn split_named(cell: &str) -> Option<(String, &str)> {
    let separator = |c: char| c == ' ' || c == '-' || c == ',';
    let mut parts = Vec::new();
    let mut rest = cell;
    while parts.len() < 3 {
        rest = rest.trim_start_matches(separator);
        let end = rest.find(separator).unwrap_or(rest.len());
        if end == 0 {
            return None;
        }
        parts.push(&rest[..end]);
        rest = &rest[end..];
    }
    Some((parts.join(" "), rest))
}

fn month_named(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let text = text.trim_end_matches('.').to_ascii_lowercase();
    let long_enough = text.len() >= 3;
    let month = MONTHS
        .iter()
        .position(|m| long_enough && m.starts_with(&text))?;
    Some(month as i64 + 1)
}

/// Seconds after midnight of `10:30`, `10:30:15.25`, `10:30 PM`, with a time zone or without.
fn clock(text: &str) -> Option<f64> {
    let text = text.trim();
    let upper = text.to_ascii_uppercase();
    let (text, half) = if let Some(rest) = upper.strip_suffix("PM") {
        (rest.trim_end(), Some(12.0))
    } else if let Some(rest) = upper.strip_suffix("AM") {
        (rest.trim_end(), Some(0.0))
    } else {
        (upper.as_str(), None)
    };
    let (text, zone) = match text.find(['Z', '+', '-']) {
        None => (text, 0.0),
        Some(at) => (text[..at].trim_end(), zone(&text[at..])?),
    };
    let mut parts = text.split(':');
    let two = |part: Option<&str>| -> Option<f64> {
        let part = part?;
        let plain = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| part.parse().ok()).flatten()
    };
    let (hours, minutes) = (two(parts.next())?, two(parts.next())?);
    let seconds = match parts.next() {
        None => 0.0,
        Some(part) => {
            let plain = part.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            plain.then(|| part.parse::<f64>().ok()).flatten()?
        }
    };
    let hours = match half {
        Some(_) if !(1.0..=12.0).contains(&hours) => return None,
        Some(half) => hours % 12.0 + half,
        None => hours,
    };
    let fits = parts.next().is_none() && hours < 24.0 && minutes < 60.0 && seconds < 61.0;
    fits.then_some(hours * 3600.0 + minutes * 60.0 + seconds - zone)
}

/// The seconds of `Z`, `+02:00`, `-0530`, `+02`.
fn zone(text: &str) -> Option<f64> {
    let (sign, digits) = match text.split_at(1) {
        ("Z", "") => return Some(0.0),
        ("+", rest) => (1.0, rest.replace(':', "")),
        ("-", rest) => (-1.0, rest.replace(':', "")),
        _ => return None,
    };
    if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let hours: f64 = digits[..2].parse().ok()?;
    let minutes: f64 = digits.get(2..4).map_or(Some(0.0), |m| m.parse().ok())?;
    (hours < 19.0 && minutes < 60.0).then_some(sign * (hours * 3600.0 + minutes * 60.0))
}

/// Days since 1970-01-01 (Howard Hinnant's `days_from_civil`: years that begin in March).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds_since_1970() {
        // Python: datetime(…, tzinfo=timezone.utc).timestamp()
        for (form, text, seconds) in [
            (DateForm::YearMonthDay, "1970-01-01", 0.0),
            (DateForm::YearMonthDay, "2024-02-29", 1_709_164_800.0),
            (
                DateForm::YearMonthDay,
                "2024-02-29T12:30:15",
                1_709_209_815.0,
            ),
            (
                DateForm::YearMonthDay,
                "2024-02-29 12:30:15.5Z",
                1_709_209_815.5,
            ),
            (
                DateForm::YearMonthDay,
                "2024-02-29T12:30:15+02:00",
                1_709_202_615.0,
            ),
            (DateForm::YearMonthDay, "1900/3/1", -2_203_891_200.0),
            (DateForm::DayMonthYear, "31.12.1999", 946_598_400.0),
            (DateForm::MonthDayYear, "12/31/1999 11:59 PM", 946_684_740.0),
            (DateForm::Named, "31-Dec-1999", 946_598_400.0),
            (DateForm::Named, "December 31, 1999", 946_598_400.0),
            (DateForm::Named, "31 Dec 1999 12:00 AM", 946_598_400.0),
            (DateForm::Clock, "23:59:59.5", 86_399.5),
            (DateForm::Clock, "12:00 PM", 43_200.0),
        ] {
            assert_eq!(form.seconds(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "2023-02-29",
            "2024-13-01",
            "2024-00-10",
            "1-2",
            "2024-1-1-1",
            "24:00",
            "10:60",
            "13:00 PM",
            "a-b-c",
            "32.1.2024",
            "1.2.24",
            "99999999999-1-1",
            "–",
            "é1:00",
            "Z",
            "2024-01-01T",
            "2024-01-01 x",
        ] {
            for form in FORMS {
                let empty_time = text == "2024-01-01T" && form == DateForm::YearMonthDay;
                assert_eq!(
                    form.seconds(text).is_some(),
                    empty_time,
                    "{text:?} {form:?}"
                );
            }
        }
    }

    #[test]
    fn a_column_tells_whether_the_day_or_the_month_comes_first() {
        let of = |cells: &[&str]| DateForm::of(cells.iter().copied());
        assert_eq!(of(&["1/2/2024", "3/4/2024"]), Some(DateForm::MonthDayYear));
        assert_eq!(of(&["1/2/2024", "13/4/2024"]), Some(DateForm::DayMonthYear));
        assert_eq!(of(&["1.2.2024", "3.4.2024"]), Some(DateForm::DayMonthYear));
        assert_eq!(of(&["1/13/2024", "13/4/2024"]), None);
        assert_eq!(of(&["2024-01-01", "x"]), None);
        assert_eq!(of(&[]), None);
    }
}
