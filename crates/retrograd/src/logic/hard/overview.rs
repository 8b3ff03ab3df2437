//! A circuit of many gates at a glance: how many gates stand at each depth, of which kind, and which
//! channels every new channel depends on.

use std::fmt::Write as _;

use super::HardCircuit;
use super::drawing::colour;

/// The matrix of channels is so wide, and so are the bars.
const SIDE: f64 = 640.0;
const BARS: f64 = 180.0;
const LEFT: f64 = 56.0;

/// The kinds that have colours of their own.
const KINDS: [(&str, &[u8]); 4] = [
    ("and", &[1, 2, 4, 8]),
    ("or", &[7, 11, 13, 14]),
    ("xor", &[6, 9]),
    ("other", &[0, 3, 5, 10, 12, 15]),
];

pub(super) fn overview(circuit: &HardCircuit) -> String {
    let height = BARS + SIDE + 130.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\" fill=\"currentColor\" stroke=\"none\">\n",
        SIDE + LEFT + 24.0
    );
    bars(circuit, &mut svg);
    matrix(circuit, BARS + 84.0, &mut svg);
    svg.push_str("</svg>\n");
    svg
}

/// A bar for every depth, its parts the kinds of gates.
fn bars(circuit: &HardCircuit, svg: &mut String) {
    let depths = &circuit.depths()[circuit.inputs()..];
    let columns = depths.iter().max().copied().unwrap_or(1);
    let mut counts = vec![[0_usize; KINDS.len()]; columns];
    for (gate, depth) in circuit.gates.iter().zip(depths) {
        let kind = KINDS.iter().position(|(_, ops)| ops.contains(&gate.op));
        counts[depth - 1][kind.unwrap_or(KINDS.len() - 1)] += 1;
    }
    let most = counts
        .iter()
        .map(|c| c.iter().sum::<usize>())
        .max()
        .unwrap_or(1);
    let (step, scale) = (SIDE / columns as f64, BARS / most as f64);
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"16\" font-weight=\"bold\">{} gates by depth</text>",
        circuit.gates.len()
    );
    let mut x = LEFT + SIDE;
    for (name, ops) in KINDS.iter().rev() {
        x -= 56.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.0}\" y=\"7\" width=\"10\" height=\"10\" fill=\"{}\"/>\
             <text x=\"{:.0}\" y=\"16\">{name}</text>",
            colour(ops[0]),
            x + 14.0
        );
    }
    for (i, count) in counts.iter().enumerate() {
        let (x, all) = (LEFT + i as f64 * step, count.iter().sum::<usize>());
        let mut y = 40.0 + BARS;
        for (&n, (_, ops)) in count.iter().zip(KINDS) {
            y -= n as f64 * scale;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                step * 0.8,
                n as f64 * scale,
                colour(ops[0])
            );
        }
        let middle = x + step * 0.4;
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"9\">{all}</text>\
             <text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"9\">{}</text>",
            y - 3.0,
            BARS + 52.0,
            i + 1
        );
    }
}

/// A square for every new channel (row) and every channel that it depends on (column): the darker the
/// more of the nine neighbours.
fn matrix(circuit: &HardCircuit, top: f64, svg: &mut String) {
    let channels = circuit.channels;
    let cell = SIDE / channels as f64;
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.0}\" font-weight=\"bold\">Which channels (across) each new channel (down) \
         depends on: the darker, the more of its nine neighbours</text>",
        top - 8.0
    );
    let _ = writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"{top:.0}\" width=\"{SIDE}\" height=\"{SIDE}\" fill=\"none\" \
         stroke=\"currentColor\" stroke-opacity=\"0.4\"/>"
    );
    for (c, &output) in circuit.outputs.iter().enumerate() {
        let seen = circuit.depends_on(output);
        for other in 0..channels {
            let places = seen[other * 9..other * 9 + 9]
                .iter()
                .filter(|&&s| s)
                .count();
            if places > 0 {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{cell:.1}\" height=\"{cell:.1}\" \
                     fill=\"#4a6fa5\" fill-opacity=\"{:.2}\"/>",
                    LEFT + other as f64 * cell,
                    top + c as f64 * cell,
                    0.2 + 0.8 * places as f64 / 9.0
                );
            }
        }
    }
    let every = channels.div_ceil(16);
    for c in (0..channels).step_by(every) {
        let at = (c as f64 + 0.5) * cell;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"9\">{c}′</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"9\">{c}</text>",
            LEFT - 6.0,
            top + at + 3.0,
            LEFT + at,
            top + SIDE + 14.0
        );
    }
}

impl HardCircuit {
    /// Which inputs a node depends on, by its wires.
    fn depends_on(&self, node: u32) -> Vec<bool> {
        let inputs = self.inputs();
        let mut used = vec![false; inputs + self.gates.len()];
        used[node as usize] = true;
        for (i, gate) in self.gates.iter().enumerate().rev() {
            if used[inputs + i] {
                used[gate.a as usize] = true;
                used[gate.b as usize] = true;
            }
        }
        used.truncate(inputs);
        used
    }
}
