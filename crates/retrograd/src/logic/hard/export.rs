//! The circuit as JSON, C and Verilog.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{Gate, HardCircuit};
use crate::logic::BoundaryCondition;
use crate::logic::gates::{GATES, NAMES};
use crate::{Error, Result};

/// The format's name and version.
const FORMAT: &str = "retrograd-circuit-1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CircuitFile {
    format: String,
    channels: usize,
    boundary: BoundaryCondition,
    /// The numbers' meaning, for readers.
    gate_names: Vec<String>,
    /// (gate, a, b).
    gates: Vec<(u8, u32, u32)>,
    outputs: Vec<u32>,
}

impl HardCircuit {
    /// As JSON: gates as (number, a, b); nodes count the inputs first, nine for every channel.
    pub fn to_json(&self) -> String {
        let file = CircuitFile {
            format: FORMAT.into(),
            channels: self.channels,
            boundary: self.boundary,
            gate_names: NAMES.map(String::from).to_vec(),
            gates: self.gates.iter().map(|g| (g.op, g.a, g.b)).collect(),
            outputs: self.outputs.clone(),
        };
        serde_json::to_string(&file).expect("plain numbers")
    }

    /// Reads what [`HardCircuit::to_json`] wrote, everything checked.
    pub fn from_json(text: &str) -> Result<Self> {
        let file: CircuitFile = serde_json::from_str(text)
            .map_err(|e| Error::invalid("circuit", e, "a circuit as this program writes it"))?;
        if file.format != FORMAT {
            return Err(Error::invalid("circuit's format", file.format, FORMAT));
        }
        let circuit = HardCircuit {
            channels: file.channels,
            boundary: file.boundary,
            gates: file
                .gates
                .into_iter()
                .map(|(op, a, b)| Gate { op, a, b })
                .collect(),
            outputs: file.outputs,
        };
        circuit.check()?;
        Ok(circuit)
    }

    /// As a C file that stands alone: `cell` computes 64 cells at a time; the program reads
    /// "height width steps" and the cells' bits (y, x, channel) from its input and writes the bits
    /// after the steps.
    pub fn to_c(&self) -> String {
        let name = |node: u32| match (node as usize).checked_sub(self.inputs()) {
            None => format!("n[{node}]"),
            Some(i) => format!("g{i}"),
        };
        let mut body = String::new();
        for (i, gate) in self.gates.iter().enumerate() {
            let formula = formula(gate.op, &name(gate.a), &name(gate.b), "~", "0", "~(word)0");
            writeln!(body, "    const word g{i} = {formula};").expect("text grows");
        }
        for (c, &o) in self.outputs.iter().enumerate() {
            writeln!(body, "    y[{c}] = {};", name(o)).expect("text grows");
        }
        C_FILE
            .replace("@CHANNELS@", &self.channels.to_string())
            .replace("@GATES@", &self.gates.len().to_string())
            .replace(
                "@PERIODIC@",
                match self.boundary {
                    BoundaryCondition::Periodic => "1",
                    BoundaryCondition::Zero => "0",
                },
            )
            .replace("@BODY@", &body)
    }

    /// As a Verilog module of one cell: `n` holds the nine neighbours of every channel, bit
    /// 9·channel + neighbour; `y` the new channels.
    pub fn to_verilog(&self) -> String {
        let name = |node: u32| match (node as usize).checked_sub(self.inputs()) {
            None => format!("n[{node}]"),
            Some(i) => format!("g{i}"),
        };
        let mut text = format!(
            "// One cell: {} gates. n[9*channel + neighbour], neighbours row by row, 4 is the cell.\n\
             module logic_cell(input wire [{}:0] n, output wire [{}:0] y);\n",
            self.gates.len(),
            self.inputs() - 1,
            self.channels - 1
        );
        for (i, gate) in self.gates.iter().enumerate() {
            let formula = formula(gate.op, &name(gate.a), &name(gate.b), "~", "1'b0", "1'b1");
            writeln!(text, "  wire g{i} = {formula};").expect("text grows");
        }
        for (c, &o) in self.outputs.iter().enumerate() {
            writeln!(text, "  assign y[{c}] = {};", name(o)).expect("text grows");
        }
        text.push_str("endmodule\n");
        text
    }
}

/// A gate in the notation that C and Verilog share.
fn formula(op: u8, a: &str, b: &str, not: &str, zero: &str, one: &str) -> String {
    let patterns: [&str; GATES] = [
        "0", "a & b", "a & !b", "a", "!a & b", "b", "a ^ b", "a | b", "!(a | b)", "!(a ^ b)", "!b",
        "a | !b", "!a", "!a | b", "!(a & b)", "1",
    ];
    let mut text = String::new();
    for letter in patterns[op as usize].chars() {
        match letter {
            'a' => text.push_str(a),
            'b' => text.push_str(b),
            '!' => text.push_str(not),
            '0' => text.push_str(zero),
            '1' => text.push_str(one),
            other => text.push(other),
        }
    }
    text
}

const C_FILE: &str = r#"/* A cellular automaton of @CHANNELS@ channel(s), learned as a circuit of @GATES@ gates.

   cc -O2 circuit.c -o circuit
   ./circuit < start.txt

   start.txt: height width steps, then one 0 or 1 for every cell and channel,
   (row, column, channel), spaces and lines as you like. The program writes the cells after the
   steps in the same way. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t word;

enum { CHANNELS = @CHANNELS@, PERIODIC = @PERIODIC@ };

/* The new channels of 64 cells, one in each bit. n[9 * channel + neighbour], neighbours row by
   row, 4 is the cell itself. */
void cell(const word n[9 * CHANNELS], word y[CHANNELS])
{
@BODY@}

static unsigned char at(const unsigned char *grid, long h, long w, long y, long x, int c)
{
    if (PERIODIC) {
        y = (y + h) % h;
        x = (x + w) % w;
    } else if (y < 0 || y >= h || x < 0 || x >= w) {
        return 0;
    }
    return grid[(y * w + x) * CHANNELS + c];
}

static void step(const unsigned char *old, unsigned char *new, long h, long w)
{
    word n[9 * CHANNELS], out[CHANNELS];
    long cells = h * w;
    for (long first = 0; first < cells; first += 64) {
        long count = cells - first < 64 ? cells - first : 64;
        for (int c = 0; c < CHANNELS; c++) {
            for (int k = 0; k < 9; k++) {
                word bits = 0;
                for (long i = 0; i < count; i++) {
                    long y = (first + i) / w, x = (first + i) % w;
                    bits |= (word)at(old, h, w, y + k / 3 - 1, x + k % 3 - 1, c) << i;
                }
                n[9 * c + k] = bits;
            }
        }
        cell(n, out);
        for (long i = 0; i < count; i++)
            for (int c = 0; c < CHANNELS; c++)
                new[(first + i) * CHANNELS + c] = out[c] >> i & 1;
    }
}

int main(void)
{
    long h, w, steps;
    if (scanf("%ld %ld %ld", &h, &w, &steps) != 3 || h < 1 || w < 1 || steps < 0)
        return fprintf(stderr, "needs: height width steps\n"), 2;
    size_t size = (size_t)h * (size_t)w * CHANNELS;
    unsigned char *old = malloc(size), *new = malloc(size);
    if (!old || !new)
        return fprintf(stderr, "no memory for %ld x %ld cells\n", h, w), 2;
    for (size_t i = 0; i < size; i++) {
        char bit;
        if (scanf(" %c", &bit) != 1 || (bit != '0' && bit != '1'))
            return fprintf(stderr, "needs %zu bits\n", size), 2;
        old[i] = bit == '1';
    }
    for (long t = 0; t < steps; t++) {
        step(old, new, h, w);
        unsigned char *swap = old;
        old = new;
        new = swap;
    }
    for (size_t i = 0; i < size; i++) {
        putchar('0' + old[i]);
        if ((i + 1) % ((size_t)w * CHANNELS) == 0)
            putchar('\n');
    }
    return 0;
}
"#;
