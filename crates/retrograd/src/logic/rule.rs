//! Rules of life-like automata in B/S notation.
//!
//! `B36/S23` (HighLife): a cell is born with 3 or 6 living neighbours of its eight, and survives with
//! 2 or 3. Conway's Game of Life is `B3/S23`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;

/// With how many living neighbours a cell is born, and survives: bit n for n neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    born: u16,
    survive: u16,
}

impl Rule {
    /// Conway's Game of Life.
    pub const LIFE: Rule = Rule {
        born: 1 << 3,
        survive: 1 << 2 | 1 << 3,
    };

    /// Whether a cell lives in the next step.
    pub fn lives(self, alive: bool, neighbours: usize) -> bool {
        let counts = if alive { self.survive } else { self.born };
        counts >> neighbours & 1 == 1
    }
}

impl Default for Rule {
    fn default() -> Self {
        Rule::LIFE
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || {
            let needed = "B and S with numbers of neighbours from 0 to 8, as in \"B36/S23\"";
            Error::invalid("data.rule", format!("{text:?}"), needed)
        };
        let (born, survive) = text.split_once('/').ok_or_else(bad)?;
        let counts = |part: &str, letter: char| {
            let rest = part
                .trim()
                .strip_prefix([letter, letter.to_ascii_lowercase()])?;
            rest.chars().try_fold(0, |counts, c| {
                let n = c.to_digit(9)?;
                // Each once: a slip otherwise.
                (counts >> n & 1 == 0).then_some(counts | 1 << n)
            })
        };
        match (counts(born, 'B'), counts(survive, 'S')) {
            (Some(born), Some(survive)) => Ok(Rule { born, survive }),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = |counts: u16| -> String {
            let set = (0..9).filter(|n| counts >> n & 1 == 1);
            set.map(|n| n.to_string()).collect()
        };
        write!(f, "B{}/S{}", digits(self.born), digits(self.survive))
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_written() {
        assert_eq!("B3/S23".parse::<Rule>().unwrap(), Rule::LIFE);
        let high: Rule = "b36/s23".parse().unwrap();
        assert_eq!(high.to_string(), "B36/S23");
        assert!(high.lives(false, 6) && !Rule::LIFE.lives(false, 6));
        assert!(high.lives(true, 2) && !high.lives(false, 2) && !high.lives(true, 4));
        let seeds: Rule = "B2/S".parse().unwrap();
        assert!((0..9).all(|n| !seeds.lives(true, n)));
        for bad in ["", "B3S23", "B9/S2", "B33/S2", "S23/B3", "3/23", "Bx/S2"] {
            let error = bad.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains("B36/S23"), "{error}");
        }
    }
}
