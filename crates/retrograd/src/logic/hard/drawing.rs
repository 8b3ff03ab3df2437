//! A drawing of the circuit. Up to some 200 gates it is drawn gate by gate in layers; beyond that
//! a reader sees more in an overview.
//!
//! A gate stands one column after the last that it reads, an input one before the first that reads it,
//! outputs on the right. A wire that passes columns has a place of its own in each of them. The order
//! within columns is found by moving everything to the middle of its neighbours, from the left and from the
//! right in turn; then heights are, with room between neighbours kept.

use std::fmt::Write as _;

use super::HardCircuit;
use super::overview::overview;
use crate::logic::gates::NAMES;
use crate::math;

/// The most gates that are drawn one by one.
const MAX_GATES: usize = 200;

/// Times that the order in columns is improved, and heights.
const SWEEPS: usize = 24;

const COLUMN: f64 = 74.0;
const ROW: f64 = 18.0;
/// Between wires that pass by.
const WIRE: f64 = 7.0;
const HALF: f64 = 15.0;
const MARGIN: f64 = 16.0;

/// What an input's label says of its place in the neighbourhood.
const PLACES: [&str; 9] = ["↖", "↑", "↗", "←", "·", "→", "↙", "↓", "↘"];

/// The colour of a gate's kind: those who lack one kind of cones tell any two apart, and from that of the inputs.
pub(super) fn colour(op: u8) -> &'static str {
    match op {
        6 | 9 => "#882255",
        1 | 2 | 4 | 8 => "#009e73",
        7 | 11 | 13 | 14 => "#c46a00",
        _ => "#777",
    }
}

impl HardCircuit {
    /// An SVG drawing, or an overview where there are too many gates to see each. `currentColor` follows
    /// the page it stands in.
    pub fn to_svg(&self) -> String {
        if self.gates.len() > MAX_GATES {
            return overview(self);
        }
        let drawing = Drawing::new(self);
        let [width, height] = drawing.size();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"sans-serif\" font-size=\"9\" text-anchor=\"middle\" fill=\"currentColor\" \
             stroke=\"none\">\n<g fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.45\">\n"
        );
        drawing.wires(&mut svg);
        svg.push_str("</g>\n");
        drawing.labels(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    /// The column of every node: gates one after the last that they read; inputs and what is not read 0.
    pub(super) fn depths(&self) -> Vec<usize> {
        let mut depth = vec![0_usize; self.inputs()];
        for gate in &self.gates {
            depth.push(1 + depth[gate.a as usize].max(depth[gate.b as usize]));
        }
        depth
    }
}

/// What stands in a column.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Input(usize),
    Gate(usize),
    Output(usize),
    /// A wire that passes.
    Wire,
}

struct Item {
    kind: Kind,
    column: usize,
    y: f64,
    /// The items one column before that it comes from, and those after.
    before: Vec<usize>,
    after: Vec<usize>,
}

struct Drawing<'a> {
    circuit: &'a HardCircuit,
    items: Vec<Item>,
    /// Every column's items from top to bottom.
    columns: Vec<Vec<usize>>,
}

impl<'a> Drawing<'a> {
    fn new(circuit: &'a HardCircuit) -> Self {
        let inputs = circuit.inputs();
        let mut depth = circuit.depths();
        let last = depth.iter().max().copied().unwrap_or(0) + 1;
        let mut readers: Vec<Vec<(usize, Kind)>> = vec![Vec::new(); depth.len()];
        for (i, gate) in circuit.gates.iter().enumerate() {
            // A constant reads nothing, whatever its wires are.
            for node in [gate.a, gate.b]
                .into_iter()
                .filter(|_| !matches!(gate.op, 0 | 15))
            {
                readers[node as usize].push((depth[inputs + i], Kind::Gate(i)));
            }
        }
        for (c, &o) in circuit.outputs.iter().enumerate() {
            readers[o as usize].push((last, Kind::Output(c)));
        }
        for (input, depth) in depth.iter_mut().enumerate().take(inputs) {
            *depth = readers[input].iter().map(|r| r.0).min().unwrap_or(1) - 1;
        }
        let mut drawing = Drawing {
            circuit,
            items: Vec::new(),
            columns: vec![Vec::new(); last + 1],
        };
        let mut place = vec![None; depth.len()];
        for node in 0..depth.len() {
            let kind = match node.checked_sub(inputs) {
                None if readers[node].is_empty() => continue,
                None => Kind::Input(node),
                Some(i) => Kind::Gate(i),
            };
            place[node] = Some(drawing.add(kind, depth[node]));
        }
        let outputs = circuit.outputs.iter().enumerate();
        let outputs: Vec<usize> = outputs
            .map(|(c, _)| drawing.add(Kind::Output(c), last))
            .collect();
        for node in 0..depth.len() {
            let Some(mut from) = place[node] else {
                continue;
            };
            readers[node].sort_by_key(|r| r.0);
            for &(column, reader) in &readers[node] {
                // One wire for all that read it, as far as the last of them.
                while drawing.items[from].column + 1 < column {
                    let next = drawing.items[from].column + 1;
                    let wire = drawing.add(Kind::Wire, next);
                    drawing.join(from, wire);
                    from = wire;
                }
                let to = match reader {
                    Kind::Gate(i) => place[inputs + i],
                    Kind::Output(c) => Some(outputs[c]),
                    _ => None,
                };
                if let Some(to) = to {
                    drawing.join(from, to);
                }
            }
        }
        drawing.arrange();
        drawing
    }

    fn add(&mut self, kind: Kind, column: usize) -> usize {
        let item = self.items.len();
        self.columns[column].push(item);
        self.items.push(Item {
            kind,
            column,
            y: 0.0,
            before: Vec::new(),
            after: Vec::new(),
        });
        item
    }

    fn join(&mut self, from: usize, to: usize) {
        self.items[from].after.push(to);
        self.items[to].before.push(from);
    }

    /// The room that an item takes.
    fn room(&self, item: usize) -> f64 {
        match self.items[item].kind {
            Kind::Wire => WIRE,
            _ => ROW,
        }
    }

    /// Orders and heights.
    fn arrange(&mut self) {
        for column in 0..self.columns.len() {
            self.stack(column);
        }
        let last = self.columns.len() - 1;
        for sweep in 0..2 * SWEEPS {
            // First the order may change, later heights alone.
            let ordering = sweep < SWEEPS;
            for i in 0..=last {
                let column = if sweep % 2 == 0 { i } else { last - i };
                self.settle(column, sweep % 2 == 0, ordering);
            }
        }
        self.close_gaps();
    }

    /// From the top margin on, without empty bands: parts that nothing joins drift apart.
    fn close_gaps(&mut self) {
        let mut order: Vec<usize> = (0..self.items.len()).collect();
        order.sort_by(|&a, &b| self.items[a].y.total_cmp(&self.items[b].y));
        let (mut last, mut at) = (f64::INFINITY, MARGIN);
        for item in order {
            let y = self.items[item].y;
            at += math::min(math::max(y - last, 0.0), 1.5 * ROW);
            last = y;
            self.items[item].y = at;
        }
    }

    /// One below the other, around 0.
    fn stack(&mut self, column: usize) {
        let members = self.columns[column].clone();
        let total: f64 = members.iter().map(|&i| self.room(i)).sum();
        let mut y = -total / 2.0;
        for item in members {
            let room = self.room(item);
            self.items[item].y = y + room / 2.0;
            y += room;
        }
    }

    /// Moves a column's items to the middle of their neighbours on one side, both where it has none there.
    fn settle(&mut self, column: usize, from_left: bool, ordering: bool) {
        let wish = |item: &Item| {
            let (first, second) = match from_left {
                true => (&item.before, &item.after),
                false => (&item.after, &item.before),
            };
            let side = if first.is_empty() { second } else { first };
            let sum: f64 = side.iter().map(|&i| self.items[i].y).sum();
            match side.len() {
                0 => item.y,
                n => sum / n as f64,
            }
        };
        let mut members: Vec<(f64, usize)> = self.columns[column]
            .iter()
            .map(|&i| (wish(&self.items[i]), i))
            .collect();
        if ordering {
            members.sort_by(|x, y| x.0.total_cmp(&y.0));
        }
        // Each as near to its wish as those before it leave room for, and the same from below: the mean.
        let mut down = Vec::with_capacity(members.len());
        let mut end = f64::NEG_INFINITY;
        for &(wish, item) in &members {
            let half = self.room(item) / 2.0;
            let y = if wish - half > end { wish } else { end + half };
            down.push(y);
            end = y + half;
        }
        let mut begin = f64::INFINITY;
        for (k, &(wish, item)) in members.iter().enumerate().rev() {
            let half = self.room(item) / 2.0;
            let y = if wish + half < begin {
                wish
            } else {
                begin - half
            };
            begin = y - half;
            down[k] = (down[k] + y) / 2.0;
        }
        for (&(_, item), y) in members.iter().zip(down) {
            self.items[item].y = y;
        }
        self.columns[column] = members.into_iter().map(|m| m.1).collect();
    }

    fn size(&self) -> [f64; 2] {
        let bottom = self.items.iter().map(|i| i.y).fold(0.0, math::max);
        [self.columns.len() as f64 * COLUMN, bottom + MARGIN]
    }

    fn x(&self, item: usize) -> f64 {
        (self.items[item].column as f64 + 0.5) * COLUMN
    }

    /// A curve from every item to those after it.
    fn wires(&self, svg: &mut String) {
        for (from, item) in self.items.iter().enumerate() {
            let (x0, y0) = (self.x(from), item.y);
            if item.kind == Kind::Wire {
                let _ = writeln!(
                    svg,
                    "<path d=\"M{:.0} {y0:.1}h{:.0}\"/>",
                    x0 - HALF,
                    2.0 * HALF
                );
            }
            for &to in &item.after {
                let (x0, x1) = (x0 + HALF, self.x(to) - HALF);
                let (y1, bend) = (self.items[to].y, (x1 - x0) / 2.0);
                let _ = writeln!(
                    svg,
                    "<path d=\"M{x0:.0} {y0:.1}C{:.0} {y0:.1} {:.0} {y1:.1} {x1:.0} {y1:.1}\"/>",
                    x0 + bend,
                    x1 - bend
                );
            }
        }
    }

    /// A box with a name for every input, gate and output.
    fn labels(&self, svg: &mut String) {
        for (i, item) in self.items.iter().enumerate() {
            let (text, colour) = match item.kind {
                Kind::Wire => continue,
                Kind::Input(i) => (format!("{} {}", i / 9, PLACES[i % 9]), "#4a6fa5"),
                Kind::Gate(i) => {
                    let op = self.circuit.gates[i].op;
                    (NAMES[op as usize].to_string(), colour(op))
                }
                Kind::Output(c) => (format!("{c}′"), "#4a6fa5"),
            };
            let (x, y) = (self.x(i), item.y);
            let _ = writeln!(
                svg,
                "<rect x=\"{:.0}\" y=\"{:.1}\" width=\"{:.0}\" height=\"13\" rx=\"3\" fill=\"{colour}\"/>\
                 <text x=\"{x:.0}\" y=\"{:.1}\" fill=\"#fff\">{text}</text>",
                x - HALF,
                y - 6.5,
                2.0 * HALF,
                y + 3.2
            );
        }
    }
}
