//! What an automaton starts from and what it should become.

use serde::{Deserialize, Serialize};

use super::grid::NEIGHBOURS;
use super::{BoundaryCondition, NGrid};
use crate::rng::Stream;
use crate::{Error, Result};

/// What the cells are before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartState {
    /// Random bits in all channels, new ones for every batch.
    Random,
    /// Zeros.
    Zeros,
    /// Zeros, and ones in all channels of the cell in the middle.
    Centre,
}

/// What the first channels should be after the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// One step of Conway's Game of Life.
    Life,
    /// Squares of 2×2 cells, alternating.
    Checkerboard,
    /// A picture, [`LogicData::bitmap`].
    Bitmap,
}

/// The widest bitmap: a row is one number.
const MAX_WIDTH: usize = 128;

/// The `[data]` table of an automaton's experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogicData {
    /// Rows and columns.
    pub grid: [usize; 2],
    /// What the cells are at first.
    pub start: StartState,
    /// What they should become.
    pub target: Goal,
    /// For `bitmap`: for each channel that is looked at, a hexadecimal number for every row, the
    /// most significant bit leftmost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bitmap: Vec<Vec<String>>,
}

impl LogicData {
    /// Everything fits a model of that many channels.
    pub fn check(&self, channels: usize) -> Result<()> {
        let [height, width] = self.grid;
        super::grid::check_shape(height, width, channels)?;
        if self.target == Goal::Bitmap {
            if self.bitmap.is_empty() || self.bitmap.len() > channels {
                return Err(Error::invalid(
                    "data.bitmap",
                    format!("{} pictures", self.bitmap.len()),
                    format!("1 to {channels}, one for each channel that is looked at"),
                ));
            }
            self.picture().map(|_| ())
        } else if self.bitmap.is_empty() {
            Ok(())
        } else {
            Err(Error::invalid(
                "data.bitmap",
                "a bitmap",
                "target = \"bitmap\" to use it",
            ))
        }
    }

    /// The channels that the loss reads.
    pub fn read_channels(&self) -> usize {
        match self.target {
            Goal::Bitmap => self.bitmap.len(),
            _ => 1,
        }
    }

    /// The bitmap as bits, (y, x, channel).
    fn picture(&self) -> Result<Vec<bool>> {
        let [height, width] = self.grid;
        let channels = self.bitmap.len();
        if let Some(c) = (0..channels).find(|&c| self.bitmap[c].len() != height) {
            return Err(Error::invalid(
                format!("data.bitmap[{c}]"),
                format!("{} rows", self.bitmap[c].len()),
                format!("{height}, as the grid has"),
            ));
        }
        if width > MAX_WIDTH {
            let needed = format!("at most {MAX_WIDTH} columns for a bitmap");
            return Err(Error::invalid("data.grid[1]", width, needed));
        }
        let mut bits = vec![false; height * width * channels];
        for (c, rows) in self.bitmap.iter().enumerate() {
            for (y, row) in rows.iter().enumerate() {
                let digits = width.div_ceil(4);
                let bad = |_| {
                    Error::invalid(
                        format!("data.bitmap[{c}][{y}]"),
                        format!("{row:?}"),
                        format!("{digits} hexadecimal digits for {width} cells"),
                    )
                };
                if row.len() != digits {
                    return Err(bad(()));
                }
                let number = u128::from_str_radix(row, 16).map_err(|_| bad(()))?;
                // The last digit's spare bits, where the width is not a multiple of 4, are on the
                // right.
                for x in 0..width {
                    bits[(y * width + x) * channels + c] = number >> (digits * 4 - 1 - x) & 1 == 1;
                }
            }
        }
        Ok(bits)
    }

    /// Fills a state of (batch, y, x, channel) with what the cells are at first.
    pub fn fill_start(&self, channels: usize, stream: &mut Stream, state: &mut [f32]) {
        let [height, width] = self.grid;
        match self.start {
            StartState::Random => {
                for bits in state.chunks_mut(32) {
                    let word = stream.u32();
                    for (i, v) in bits.iter_mut().enumerate() {
                        *v = (word >> i & 1) as f32;
                    }
                }
            }
            StartState::Zeros => state.fill(0.0),
            StartState::Centre => {
                state.fill(0.0);
                for grid in state.chunks_exact_mut(height * width * channels) {
                    let first = (height / 2 * width + width / 2) * channels;
                    grid[first..first + channels].fill(1.0);
                }
            }
        }
    }

    /// What the read channels of one grid should become, (y, x, read channel), from the start's
    /// state (y, x, channel).
    pub fn goal(&self, channels: usize, boundary: BoundaryCondition, start: &[f32]) -> Vec<f32> {
        let [height, width] = self.grid;
        let mut goal = vec![0.0; height * width * self.read_channels()];
        self.fill_goal(channels, boundary, start, &mut goal);
        goal
    }

    /// [`LogicData::goal`] into memory that is there.
    pub fn fill_goal(
        &self,
        channels: usize,
        boundary: BoundaryCondition,
        start: &[f32],
        goal: &mut [f32],
    ) {
        let [height, width] = self.grid;
        let number = |b: bool| f32::from(u8::from(b));
        match self.target {
            Goal::Bitmap => {
                let picture = self.picture().unwrap_or_default();
                for (goal, bit) in goal.iter_mut().zip(picture) {
                    *goal = number(bit);
                }
            }
            Goal::Checkerboard => {
                for (i, goal) in goal.iter_mut().enumerate() {
                    *goal = number(checkerboard(i / width, i % width));
                }
            }
            Goal::Life => {
                let alive = |y: usize, x: usize| start[(y * width + x) * channels] > 0.5;
                for (i, goal) in goal.iter_mut().enumerate() {
                    let place = (i / width, i % width);
                    let around = NEIGHBOURS.iter().filter(|&&d| d != (0, 0));
                    let neighbours = around
                        .filter_map(|&d| boundary.neighbour((height, width), place, d))
                        .filter(|&(y, x)| alive(y, x))
                        .count();
                    *goal = number(lives(alive(place.0, place.1), neighbours));
                }
            }
        }
    }
}

/// Squares of 2×2 cells, alternating.
pub fn checkerboard(y: usize, x: usize) -> bool {
    (x / 2 + y / 2) % 2 == 1
}

/// Whether a cell lives on, or is born.
fn lives(alive: bool, neighbours: usize) -> bool {
    neighbours == 3 || alive && neighbours == 2
}

/// One step of Conway's Game of Life.
pub fn life(grid: &NGrid<bool>) -> NGrid<bool> {
    let mut next = grid.clone();
    for y in 0..grid.height() {
        for x in 0..grid.width() {
            let around = grid.neighbourhood(y, x, 0);
            let alive = around[4];
            let neighbours = around.iter().filter(|&&n| n).count() - usize::from(alive);
            next.cell_mut(y, x)[0] = lives(alive, neighbours);
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    fn data(bitmap: &[&str]) -> LogicData {
        LogicData {
            grid: [2, 6],
            start: StartState::Centre,
            target: Goal::Bitmap,
            bitmap: vec![bitmap.iter().map(|s| s.to_string()).collect()],
        }
    }

    #[test]
    fn bitmaps_of_the_wrong_size_are_refused() {
        data(&["84", "fc"]).check(3).unwrap();
        for bad in [&["84"][..], &["84", "f"], &["84", "fff"], &["84", "zz"]] {
            let error = data(bad).check(3).unwrap_err().to_string();
            assert!(error.contains("data.bitmap[0]"), "{error}");
        }
        let mut three = data(&["84", "fc"]);
        three.bitmap = vec![three.bitmap[0].clone(); 3];
        assert!(three.check(2).is_err());
        let goal = data(&["84", "fc"]).goal(3, BoundaryCondition::Zero, &[]);
        assert_eq!(goal, [1., 0., 0., 0., 0., 1., 1., 1., 1., 1., 1., 1.]);
    }

    #[test]
    fn starts_are_what_they_say() {
        let mut state = vec![0.5; 2 * 6 * 2];
        let stream = &mut Key::new(1).stream();
        data(&["84", "fc"]).fill_start(2, stream, &mut state);
        assert_eq!(state.iter().sum::<f32>(), 2.0);
        assert_eq!(state[(6 + 3) * 2..(6 + 3) * 2 + 2], [1.0, 1.0]);
    }

    #[test]
    fn the_goal_of_life_is_one_step_of_it_on_both_boundaries() {
        let life_data = LogicData {
            grid: [5, 7],
            start: StartState::Random,
            target: Goal::Life,
            bitmap: Vec::new(),
        };
        for boundary in [BoundaryCondition::Periodic, BoundaryCondition::Zero] {
            let mut state = vec![0.0; 5 * 7 * 2];
            life_data.fill_start(2, &mut Key::new(4).stream(), &mut state);
            let alive = state.iter().step_by(2).map(|&v| v > 0.5).collect();
            let grid = NGrid::from_values(5, 7, 1, boundary, alive).unwrap();
            let goal = life_data.goal(2, boundary, &state);
            let expected = life(&grid).values;
            assert!(goal.iter().zip(expected).all(|(&g, e)| (g == 1.0) == e));
        }
    }

    #[test]
    fn a_blinker_blinks() {
        let torus = BoundaryCondition::Periodic;
        let mut grid = NGrid::new(5, 5, 1, torus).unwrap();
        for x in 1..4 {
            grid.cell_mut(2, x)[0] = true;
        }
        let once = life(&grid);
        assert!(once.cell(1, 2)[0] && once.cell(3, 2)[0] && !once.cell(2, 1)[0]);
        assert_eq!(life(&once), grid);
    }
}
