//! A drawing of the circuit: inputs on the left, every gate one column after the last that it
//! reads, outputs on the right.

use std::fmt::Write as _;

use super::HardCircuit;
use crate::logic::gates::NAMES;

/// Gates beyond which a drawing is a grey cloud.
const MAX_GATES: usize = 2000;

const COLUMN: f64 = 64.0;
const ROW: f64 = 17.0;

/// What an input's label says of its place in the neighbourhood.
const PLACES: [&str; 9] = ["↖", "↑", "↗", "←", "·", "→", "↙", "↓", "↘"];

impl HardCircuit {
    /// An SVG drawing, or none where there are too many gates to see anything. `currentColor`
    /// follows the page it stands in.
    pub fn to_svg(&self) -> Option<String> {
        if self.gates.len() > MAX_GATES {
            return None;
        }
        let drawing = Drawing::new(self);
        let (width, total) = (drawing.columns as f64 * COLUMN, drawing.total);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {total:.0}\" \
             font-family=\"sans-serif\" font-size=\"9\" text-anchor=\"middle\" fill=\"currentColor\" \
             stroke=\"none\">\n<g fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.35\">\n"
        );
        drawing.wires(&mut svg);
        svg.push_str("</g>\n");
        drawing.labels(&mut svg);
        svg.push_str("</svg>\n");
        Some(svg)
    }

    /// Which inputs a gate or an output reads.
    fn inputs_read(&self) -> Vec<bool> {
        let mut read = vec![false; self.inputs()];
        let by_gates = self.gates.iter().flat_map(|gate| [gate.a, gate.b]);
        for node in by_gates.chain(self.outputs.iter().copied()) {
            if let Some(read) = read.get_mut(node as usize) {
                *read = true;
            }
        }
        read
    }
}

/// The middle of a column.
fn column_x(column: usize) -> f64 {
    (column as f64 + 0.5) * COLUMN
}

/// Where everything stands.
struct Drawing<'a> {
    circuit: &'a HardCircuit,
    /// Which inputs are drawn: those that are read.
    read: Vec<bool>,
    columns: usize,
    /// Every node's column, and its row there, counted from the middle.
    depth: Vec<usize>,
    height: Vec<f64>,
    /// The drawing's height.
    total: f64,
}

impl<'a> Drawing<'a> {
    fn new(circuit: &'a HardCircuit) -> Self {
        let inputs = circuit.inputs();
        let read = circuit.inputs_read();
        let mut depth = vec![0_usize; inputs];
        for gate in &circuit.gates {
            depth.push(1 + depth[gate.a as usize].max(depth[gate.b as usize]));
        }
        let columns = depth.iter().max().copied().unwrap_or(0) + 2;
        // In a column, by the mean height of what is read: wires cross less.
        let mut members: Vec<Vec<(f64, usize)>> = vec![Vec::new(); columns];
        let mut height = vec![0.0_f64; inputs + circuit.gates.len()];
        for i in (0..inputs).filter(|&i| read[i]) {
            members[0].push((i as f64, i));
        }
        for column in 0..columns - 1 {
            if column > 0 {
                for (i, gate) in circuit.gates.iter().enumerate() {
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
        let tallest = tallest.max(circuit.outputs.len()).max(1) as f64;
        Drawing {
            circuit,
            read,
            columns,
            depth,
            height,
            total: (tallest + 2.0) * ROW,
        }
    }

    fn y(&self, height: f64) -> f64 {
        self.total / 2.0 + height * ROW
    }

    /// The middle of a node.
    fn place(&self, node: usize) -> (f64, f64) {
        (column_x(self.depth[node]), self.y(self.height[node]))
    }

    /// The middle of an output.
    fn output_place(&self, c: usize) -> (f64, f64) {
        let row = c as f64 - (self.circuit.outputs.len() as f64 - 1.0) / 2.0;
        (column_x(self.columns - 1), self.y(row))
    }

    /// A curve from every node to those that read it.
    fn wires(&self, svg: &mut String) {
        let mut wire = |from: usize, to: (f64, f64)| {
            let (x, y0) = self.place(from);
            let x0 = x + 14.0;
            let (x1, y1) = (to.0 - 14.0, to.1);
            let bend = (x1 - x0) / 2.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{x0:.0} {y0:.1}C{:.0} {y0:.1} {:.0} {y1:.1} {x1:.0} {y1:.1}\"/>",
                x0 + bend,
                x1 - bend
            );
        };
        for (i, gate) in self.circuit.gates.iter().enumerate() {
            let here = self.place(self.circuit.inputs() + i);
            wire(gate.a as usize, (here.0, here.1 - 2.0));
            if gate.a != gate.b {
                wire(gate.b as usize, (here.0, here.1 + 2.0));
            }
        }
        for (c, &o) in self.circuit.outputs.iter().enumerate() {
            wire(o as usize, self.output_place(c));
        }
    }

    /// A box with a name for every input, gate and output.
    fn labels(&self, svg: &mut String) {
        let mut label = |(x, y): (f64, f64), text: &str, colour: &str| {
            let _ = writeln!(
                svg,
                "<rect x=\"{:.0}\" y=\"{:.1}\" width=\"28\" height=\"13\" rx=\"3\" fill=\"{colour}\"/>\
                 <text x=\"{x:.0}\" y=\"{:.1}\" fill=\"#fff\">{text}</text>",
                x - 14.0,
                y - 6.5,
                y + 3.2
            );
        };
        let inputs = self.circuit.inputs();
        for i in (0..inputs).filter(|&i| self.read[i]) {
            let text = format!("{} {}", i / 9, PLACES[i % 9]);
            label(self.place(i), &text, "#4a6fa5");
        }
        for (i, gate) in self.circuit.gates.iter().enumerate() {
            let colour = match gate.op {
                6 | 9 => "#b8576a",
                1 | 2 | 4 | 8 => "#5b8a5a",
                7 | 11 | 13 | 14 => "#b07d3c",
                _ => "#777",
            };
            label(self.place(inputs + i), NAMES[gate.op as usize], colour);
        }
        for c in 0..self.circuit.outputs.len() {
            label(self.output_place(c), &format!("{c}′"), "#4a6fa5");
        }
    }
}
