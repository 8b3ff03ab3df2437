//! A drawing of the circuit: inputs on the left, every gate one column after the last that it
//! reads, outputs on the right.

use std::fmt::Write as _;

use super::HardCircuit;
use crate::logic::gates::NAMES;

/// Gates beyond which a drawing is a grey cloud.
const MAX_GATES: usize = 2000;

const COLUMN: f64 = 64.0;
const ROW: f64 = 17.0;

impl HardCircuit {
    /// An SVG drawing, or none where there are too many gates to see anything. `currentColor`
    /// follows the page it stands in.
    pub fn to_svg(&self) -> Option<String> {
        if self.gates.len() > MAX_GATES {
            return None;
        }
        let inputs = self.inputs();
        let mut read = vec![false; inputs];
        let mut depth = vec![0_usize; inputs];
        for gate in &self.gates {
            for node in [gate.a, gate.b] {
                if let Some(read) = read.get_mut(node as usize) {
                    *read = true;
                }
            }
            depth.push(1 + depth[gate.a as usize].max(depth[gate.b as usize]));
        }
        for &o in &self.outputs {
            if let Some(read) = read.get_mut(o as usize) {
                *read = true;
            }
        }
        let columns = depth.iter().max().copied().unwrap_or(0) + 2;
        // In a column, by the mean height of what is read: wires cross less.
        let mut members: Vec<Vec<(f64, usize)>> = vec![Vec::new(); columns];
        let mut height = vec![0.0_f64; inputs + self.gates.len()];
        for i in (0..inputs).filter(|&i| read[i]) {
            members[0].push((i as f64, i));
        }
        for column in 0..columns - 1 {
            if column > 0 {
                for (i, gate) in self.gates.iter().enumerate() {
                    if depth[inputs + i] == column {
                        let mean = (height[gate.a as usize] + height[gate.b as usize]) / 2.0;
                        members[column].push((mean, inputs + i));
                    }
                }
            }
            members[column].sort_by(|x, y| x.0.total_cmp(&y.0));
            let count = members[column].len() as f64;
            for (k, &(_, node)) in members[column].iter().enumerate() {
                height[node] = k as f64 - (count - 1.0) / 2.0;
            }
        }
        let tallest = members.iter().map(Vec::len).max().unwrap_or(0);
        let tallest = tallest.max(self.outputs.len()).max(1) as f64;
        let (width, total) = (columns as f64 * COLUMN, (tallest + 2.0) * ROW);
        let x = |column: usize| (column as f64 + 0.5) * COLUMN;
        let y = |height: f64| total / 2.0 + height * ROW;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {total:.0}\" \
             font-family=\"sans-serif\" font-size=\"9\" text-anchor=\"middle\" fill=\"currentColor\" \
             stroke=\"none\">\n<g fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.35\">\n"
        );
        let mut wire = |from: usize, to: (f64, f64)| {
            let (x0, y0) = (x(depth[from]) + 14.0, y(height[from]));
            let (x1, y1) = (to.0 - 14.0, to.1);
            let bend = (x1 - x0) / 2.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{x0:.0} {y0:.1}C{:.0} {y0:.1} {:.0} {y1:.1} {x1:.0} {y1:.1}\"/>",
                x0 + bend,
                x1 - bend
            );
        };
        for (i, gate) in self.gates.iter().enumerate() {
            let node = inputs + i;
            let here = (x(depth[node]), y(height[node]));
            wire(gate.a as usize, (here.0, here.1 - 2.0));
            if gate.a != gate.b {
                wire(gate.b as usize, (here.0, here.1 + 2.0));
            }
        }
        let last = x(columns - 1);
        let out = |c: usize| y(c as f64 - (self.outputs.len() as f64 - 1.0) / 2.0);
        for (c, &o) in self.outputs.iter().enumerate() {
            wire(o as usize, (last, out(c)));
        }
        svg.push_str("</g>\n");
        let mut label = |x: f64, y: f64, text: &str, colour: &str| {
            let _ = writeln!(
                svg,
                "<rect x=\"{:.0}\" y=\"{:.1}\" width=\"28\" height=\"13\" rx=\"3\" fill=\"{colour}\"/>\
                 <text x=\"{x:.0}\" y=\"{:.1}\" fill=\"#fff\">{text}</text>",
                x - 14.0,
                y - 6.5,
                y + 3.2
            );
        };
        const PLACES: [&str; 9] = ["↖", "↑", "↗", "←", "·", "→", "↙", "↓", "↘"];
        for i in (0..inputs).filter(|&i| read[i]) {
            label(
                x(0),
                y(height[i]),
                &format!("{} {}", i / 9, PLACES[i % 9]),
                "#4a6fa5",
            );
        }
        for (i, gate) in self.gates.iter().enumerate() {
            let node = inputs + i;
            let colour = match gate.op {
                6 | 9 => "#b8576a",
                1 | 2 | 4 | 8 => "#5b8a5a",
                7 | 11 | 13 | 14 => "#b07d3c",
                _ => "#777",
            };
            label(
                x(depth[node]),
                y(height[node]),
                NAMES[gate.op as usize],
                colour,
            );
        }
        for c in 0..self.outputs.len() {
            label(last, out(c), &format!("{c}′"), "#4a6fa5");
        }
        svg.push_str("</svg>\n");
        Some(svg)
    }
}
