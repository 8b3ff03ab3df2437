//! Grids of cells with several channels.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The largest number of channels.
pub const MAX_CHANNELS: usize = 128;

/// What a cell at the border sees beyond it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundaryCondition {
    /// The opposite border: the grid is a torus.
    #[default]
    Periodic,
    /// Zeros.
    Zero,
}

impl BoundaryCondition {
    /// The cell that (y + dy, x + dx) means, or none where that is outside.
    pub fn neighbour(
        self,
        (height, width): (usize, usize),
        (y, x): (usize, usize),
        (dy, dx): (isize, isize),
    ) -> Option<(usize, usize)> {
        let along = |i: usize, d: isize, n: usize| {
            let j = i as isize + d;
            match self {
                BoundaryCondition::Periodic => Some(j.rem_euclid(n as isize) as usize),
                BoundaryCondition::Zero => (0..n as isize).contains(&j).then_some(j as usize),
            }
        };
        Some((along(y, dy, height)?, along(x, dx, width)?))
    }
}

/// The offset (dy, dx) of each of the nine neighbours, row-major; the centre is 4.
pub const NEIGHBOURS: [(isize, isize); 9] = [
    (-1, -1),
    (-1, 0),
    (-1, 1),
    (0, -1),
    (0, 0),
    (0, 1),
    (1, -1),
    (1, 0),
    (1, 1),
];

/// A grid of cells, each with the same number of channels; values in the order (y, x, channel).
#[derive(Clone, Debug, PartialEq)]
pub struct NGrid<T> {
    height: usize,
    width: usize,
    channels: usize,
    /// What lies beyond the border.
    pub boundary: BoundaryCondition,
    /// The values, (height, width, channels).
    pub values: Vec<T>,
}

/// 1 to 128 channels, at least one cell.
pub(super) fn check_shape(height: usize, width: usize, channels: usize) -> Result<()> {
    if channels == 0 || channels > MAX_CHANNELS {
        return Err(Error::invalid(
            "channels",
            channels,
            format!("1 to {MAX_CHANNELS}"),
        ));
    }
    if height == 0 || width == 0 {
        return Err(Error::invalid(
            "grid",
            format!("{height}×{width}"),
            "1×1 cells or more",
        ));
    }
    Ok(())
}

impl<T: Copy + Default> NGrid<T> {
    /// A grid of zeros.
    pub fn new(
        height: usize,
        width: usize,
        channels: usize,
        boundary: BoundaryCondition,
    ) -> Result<Self> {
        check_shape(height, width, channels)?;
        Ok(NGrid {
            height,
            width,
            channels,
            boundary,
            values: vec![T::default(); height * width * channels],
        })
    }

    /// A grid of given values in the order (y, x, channel).
    pub fn from_values(
        height: usize,
        width: usize,
        channels: usize,
        boundary: BoundaryCondition,
        values: Vec<T>,
    ) -> Result<Self> {
        check_shape(height, width, channels)?;
        if values.len() != height * width * channels {
            return Err(Error::invalid(
                "grid",
                format!("{} values", values.len()),
                format!("{height}·{width}·{channels}"),
            ));
        }
        Ok(NGrid {
            height,
            width,
            channels,
            boundary,
            values,
        })
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Channels of every cell.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// One cell's channels.
    pub fn cell(&self, y: usize, x: usize) -> &[T] {
        let first = (y * self.width + x) * self.channels;
        &self.values[first..first + self.channels]
    }

    /// One cell's channels, to change.
    pub fn cell_mut(&mut self, y: usize, x: usize) -> &mut [T] {
        let first = (y * self.width + x) * self.channels;
        &mut self.values[first..first + self.channels]
    }

    /// A channel of the nine cells around (y, x), row-major, by the boundary condition.
    pub fn neighbourhood(&self, y: usize, x: usize, channel: usize) -> [T; 9] {
        NEIGHBOURS.map(|d| {
            self.boundary
                .neighbour((self.height, self.width), (y, x), d)
                .map_or(T::default(), |(y, x)| self.cell(y, x)[channel])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbourhoods_wrap_or_end_at_the_border() {
        let values: Vec<i32> = (1..=6).collect();
        let torus = BoundaryCondition::Periodic;
        let mut grid = NGrid::from_values(2, 3, 1, torus, values).unwrap();
        assert_eq!(grid.neighbourhood(0, 0, 0), [6, 4, 5, 3, 1, 2, 6, 4, 5]);
        grid.boundary = BoundaryCondition::Zero;
        assert_eq!(grid.neighbourhood(0, 0, 0), [0, 0, 0, 0, 1, 2, 0, 4, 5]);
    }

    #[test]
    fn channels_and_sizes_out_of_range_are_refused() {
        let torus = BoundaryCondition::Periodic;
        for (shape, word) in [
            ((3, 3, 0), "channels"),
            ((3, 3, 129), "129"),
            ((0, 3, 1), "0×3"),
        ] {
            let (h, w, c) = shape;
            let error = NGrid::<f32>::new(h, w, c, torus).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(NGrid::<f32>::new(1, 1, 128, torus).is_ok());
    }
}
