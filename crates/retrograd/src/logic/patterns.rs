//! What an automaton starts from and what it should become.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::grid::NEIGHBOURS;
use super::rule::Rule;
use super::{BoundaryCondition, NGrid, from_png};
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
    /// A picture, [`LogicData::start_bitmap`], in its channels; zeros in the others.
    Bitmap,
}

/// What the first channels should be after the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// One step of Conway's Game of Life, or of another [`LogicData::rule`].
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
    /// Rows and columns; those of the picture where there is one.
    #[serde(default)]
    pub grid: [usize; 2],
    /// What the cells are at first.
    pub start: StartState,
    /// What they should become.
    pub target: Goal,
    /// For `bitmap`: for each channel that is looked at, a hexadecimal number for every row, the
    /// most significant bit leftmost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bitmap: Vec<Vec<String>>,
    /// For `bitmap`: a PNG file instead, whose colours become channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<PathBuf>,
    /// For `start = "bitmap"`: what the cells are at first, as in `bitmap`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start_bitmap: Vec<Vec<String>>,
    /// For `start = "bitmap"`: a PNG file instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_picture: Option<PathBuf>,
    /// For `life`: the rule in B/S notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
}

impl LogicData {
    /// From random bits to a goal, on a grid of that many rows and columns.
    pub fn of(target: Goal, grid: [usize; 2]) -> Self {
        LogicData {
            grid,
            start: StartState::Random,
            target,
            bitmap: Vec::new(),
            picture: None,
            start_bitmap: Vec::new(),
            start_picture: None,
            rule: None,
        }
    }

    /// Pictures in the place of their files, in the middle of the grid; what was understood is noted.
    pub(super) fn resolve(
        &mut self,
        path: impl Fn(&Path) -> PathBuf,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let both = |name: &str, bitmap: &Vec<Vec<String>>| {
            let needed = "one of the two";
            match bitmap.is_empty() {
                true => Ok(()),
                false => Err(Error::invalid(
                    format!("data.{name}"),
                    "a bitmap beside it",
                    needed,
                )),
            }
        };
        if let Some(file) = self.picture.take() {
            both("picture", &self.bitmap)?;
            let png = from_png::read(&path(&file))?;
            if self.grid == [0, 0] {
                self.grid = png.size;
            }
            self.bitmap = png.bitmap(self.grid)?;
            notes.push(png.note);
        }
        if let Some(file) = self.start_picture.take() {
            both("start_picture", &self.start_bitmap)?;
            let png = from_png::read(&path(&file))?;
            self.start_bitmap = png.bitmap(self.grid)?;
            notes.push(format!("start: {}", png.note));
        }
        Ok(())
    }

    /// The rule of `life`.
    pub fn rule(&self) -> Rule {
        self.rule.unwrap_or_default()
    }

    /// Everything fits a model of that many channels.
    pub fn check(&self, channels: usize) -> Result<()> {
        let [height, width] = self.grid;
        if self.grid == [0, 0] {
            let needed = "rows and columns, or a picture";
            return Err(Error::invalid("data.grid", "none", needed));
        }
        super::grid::check_shape(height, width, channels)?;
        if self.rule.is_some() && self.target != Goal::Life {
            let needed = "target = \"life\" to use it";
            return Err(Error::invalid("data.rule", "a rule", needed));
        }
        if (self.start == StartState::Bitmap) == self.start_bitmap.is_empty() {
            return Err(Error::invalid(
                "data.start",
                format!("{} pictures", self.start_bitmap.len()),
                "start = \"bitmap\" with start_picture or start_bitmap, or neither",
            ));
        }
        if self.start_bitmap.len() > channels {
            return Err(Error::invalid(
                "data.start_bitmap",
                format!("{} pictures", self.start_bitmap.len()),
                format!("at most {channels}, the channels"),
            ));
        }
        if !self.start_bitmap.is_empty() {
            bits_of("data.start_bitmap", &self.start_bitmap, self.grid)?;
        }
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
        bits_of("data.bitmap", &self.bitmap, self.grid)
    }

    /// Whether a channel of a cell is set at first, where the start is a picture: in the middle of a
    /// grid of any size.
    pub(super) fn start_bits(&self, [height, width]: [usize; 2]) -> Vec<[usize; 3]> {
        let bits = bits_of("data.start_bitmap", &self.start_bitmap, self.grid).unwrap_or_default();
        let (own, channels) = (self.grid, self.start_bitmap.len().max(1));
        let set = (0..bits.len()).filter(|&i| bits[i]);
        let place = |i: usize| {
            let (cell, channel) = (i / channels, i % channels);
            let centred = |at: usize, own: usize, all: usize| {
                (at + all / 2).checked_sub(own / 2).filter(|&a| a < all)
            };
            let y = centred(cell / own[1], own[0], height)?;
            Some([y, centred(cell % own[1], own[1], width)?, channel])
        };
        set.filter_map(place).collect()
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
            StartState::Bitmap => {
                state.fill(0.0);
                let set = self.start_bits(self.grid);
                for grid in state.chunks_exact_mut(height * width * channels) {
                    for [y, x, channel] in &set {
                        grid[(y * width + x) * channels + channel] = 1.0;
                    }
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
                    *goal = number(self.rule().lives(alive(place.0, place.1), neighbours));
                }
            }
        }
    }
}

/// Squares of 2×2 cells, alternating.
pub fn checkerboard(y: usize, x: usize) -> bool {
    (x / 2 + y / 2) % 2 == 1
}

/// Rows of hexadecimal numbers as bits, (y, x, channel).
fn bits_of(name: &str, bitmap: &[Vec<String>], [height, width]: [usize; 2]) -> Result<Vec<bool>> {
    let channels = bitmap.len();
    if let Some(c) = (0..channels).find(|&c| bitmap[c].len() != height) {
        return Err(Error::invalid(
            format!("{name}[{c}]"),
            format!("{} rows", bitmap[c].len()),
            format!("{height}, as the grid has"),
        ));
    }
    if width > MAX_WIDTH {
        let needed = format!("at most {MAX_WIDTH} columns for a bitmap");
        return Err(Error::invalid("data.grid[1]", width, needed));
    }
    let mut bits = vec![false; height * width * channels];
    for (c, rows) in bitmap.iter().enumerate() {
        for (y, row) in rows.iter().enumerate() {
            let digits = width.div_ceil(4);
            let bad = |_| {
                Error::invalid(
                    format!("{name}[{c}][{y}]"),
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

/// One step of Conway's Game of Life.
pub fn life(grid: &NGrid<bool>) -> NGrid<bool> {
    step_by(Rule::LIFE, grid)
}

/// One step of a rule.
pub fn step_by(rule: Rule, grid: &NGrid<bool>) -> NGrid<bool> {
    let mut next = grid.clone();
    for y in 0..grid.height() {
        for x in 0..grid.width() {
            let around = grid.neighbourhood(y, x, 0);
            let alive = around[4];
            let neighbours = around.iter().filter(|&&n| n).count() - usize::from(alive);
            next.cell_mut(y, x)[0] = rule.lives(alive, neighbours);
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
            start: StartState::Centre,
            bitmap: vec![bitmap.iter().map(|s| s.to_string()).collect()],
            ..LogicData::of(Goal::Bitmap, [2, 6])
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
            start: StartState::Random,
            ..LogicData::of(Goal::Life, [5, 7])
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

    fn write_png(path: &Path, width: u32, pixels: &[[u8; 3]]) {
        let file = std::fs::File::create(path).unwrap();
        let mut encoder = png::Encoder::new(file, width, pixels.len() as u32 / width);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&pixels.concat()).unwrap();
    }

    #[test]
    fn a_picture_becomes_channels_in_the_middle_of_the_grid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.png");
        let (white, black) = ([255; 3], [0; 3]);
        let mut pixels = vec![white; 5 * 3];
        pixels[7] = black;
        write_png(&path, 5, &pixels);
        let read = |grid: [usize; 2]| {
            let mut data = LogicData {
                picture: Some("p.png".into()),
                ..LogicData::of(Goal::Bitmap, grid)
            };
            let mut notes = Vec::new();
            data.resolve(|file| folder.path().join(file), &mut notes)?;
            data.check(4)?;
            Ok::<_, Error>((data, notes))
        };
        let (data, notes) = read([0, 0]).unwrap();
        assert_eq!(data.grid, [3, 5]);
        let goal = data.goal(4, BoundaryCondition::Zero, &[]);
        assert_eq!(goal.iter().position(|&g| g == 1.0), Some(7));
        assert_eq!(goal.iter().sum::<f32>(), 1.0);
        assert!(notes[0].contains("#000000 is 1, #ffffff is 0"), "{notes:?}");
        let (data, _) = read([7, 9]).unwrap();
        let goal = data.goal(4, BoundaryCondition::Zero, &[]);
        assert_eq!(goal.iter().position(|&g| g == 1.0), Some(3 * 9 + 4));
        assert!(read([2, 9]).unwrap_err().to_string().contains("9 × 2"));
        // More colours are red, green and blue.
        let colours = [
            [250, 10, 10],
            [10, 250, 10],
            [10, 10, 250],
            [250, 250, 10],
            [250, 10, 11],
        ];
        write_png(&path, 5, &colours.repeat(3));
        let (data, notes) = read([0, 0]).unwrap();
        assert_eq!(data.read_channels(), 3);
        let goal = data.goal(4, BoundaryCondition::Zero, &[]);
        assert_eq!(
            goal[..15],
            [1., 0., 0., 0., 1., 0., 0., 0., 1., 1., 1., 0., 1., 0., 0.]
        );
        assert!(notes[0].contains("1 of them fall together"), "{notes:?}");
        write_png(&path, 5, &[white; 15]);
        assert!(read([0, 0]).unwrap_err().to_string().contains("one colour"));
        std::fs::write(&path, b"no picture").unwrap();
        assert!(read([0, 0]).unwrap_err().to_string().contains("PNG"));
    }

    #[test]
    fn an_own_start_is_in_the_middle_of_grids_of_any_size() {
        let data = LogicData {
            start: StartState::Bitmap,
            start_bitmap: vec![vec!["80".into(), "04".into()]],
            ..LogicData::of(Goal::Checkerboard, [2, 6])
        };
        data.check(2).unwrap();
        let mut state = vec![0.5; 2 * 6 * 2];
        data.fill_start(2, &mut Key::new(1).stream(), &mut state);
        let set: Vec<usize> = (0..24).filter(|&i| state[i] == 1.0).collect();
        assert_eq!(set, [0, 22]);
        assert_eq!(data.start_bits([4, 8]), [[1, 1, 0], [2, 6, 0]]);
        let missing = LogicData {
            start: StartState::Bitmap,
            ..LogicData::of(Goal::Checkerboard, [2, 6])
        };
        assert!(
            missing
                .check(2)
                .unwrap_err()
                .to_string()
                .contains("start_picture")
        );
    }
}
