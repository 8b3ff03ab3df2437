//! The hard automaton on a device: 32 cells to a word, the circuit written out as a kernel.
//!
//! Every gate becomes a line of the kernel, so that its values stay in registers. An invocation owns a
//! word of a row. Rows begin at whole words; the bits of a row's last word beyond its cells are 0.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{BitGrid, HardCircuit};
use crate::gpu::device::{Gpu, storage_usage};
use crate::gpu::recording::{Part, download, fold};
use crate::logic::BoundaryCondition;
use crate::{Error, Result};

/// A grid of bits on a device, with its circuit.
pub struct GpuGrid {
    gpu: Arc<Gpu>,
    height: usize,
    width: usize,
    channels: usize,
    /// The grid and the next one, by channel, row and word.
    planes: [Part; 2],
    mask: Option<Part>,
    pipeline: wgpu::ComputePipeline,
    /// From the first to the second, and back.
    bindings: [wgpu::BindGroup; 2],
    /// Which of the planes is the grid.
    current: usize,
    steps: u64,
}

/// Steps after which the CPU lets the device catch up.
const AHEAD: u64 = 32;

/// Gates beyond which drivers take minutes to compile them.
const MOST_GATES: usize = 20_000;

impl GpuGrid {
    /// Puts a grid on a device; with a mask where cells fire now and then.
    pub fn new(
        gpu: &Arc<Gpu>,
        circuit: &HardCircuit,
        grid: &BitGrid,
        masked: bool,
    ) -> Result<Self> {
        let (height, width, channels) = (grid.height(), grid.width(), grid.channels());
        if circuit.gates.len() > MOST_GATES {
            return Err(Error::Gpu {
                what: format!(
                    "a circuit of {} gates is too long a kernel",
                    circuit.gates.len()
                ),
                advice: "play it with --device cpu".into(),
            });
        }
        let bytes = 4 * (channels * height * width.div_ceil(32)) as u64;
        let part = |label: &str, bytes: u64| -> Result<Part> {
            Ok(Part::whole(&gpu.buffer(label, bytes, storage_usage())?))
        };
        let planes = [part("the grid", bytes)?, part("the next grid", bytes)?];
        let mask = match masked {
            true => Some(part("the mask", bytes / channels as u64)?),
            false => None,
        };
        let text = kernel(circuit, [height, width], masked);
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let label = Some("circuit");
        let module = gpu
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
        let pipeline = gpu
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label,
                layout: None,
                module: &module,
                entry_point: Some("play"),
                compilation_options: Default::default(),
                cache: None,
            });
        let bind = |from: &Part, to: &Part| {
            let entry = |binding: u32, part: &Part| (binding, part.buffer.clone());
            let mut all = vec![entry(0, from), entry(1, to)];
            all.extend(mask.iter().map(|mask| entry(2, mask)));
            let entries: Vec<_> = all
                .iter()
                .map(|(binding, buffer)| wgpu::BindGroupEntry {
                    binding: *binding,
                    resource: buffer.as_entire_binding(),
                })
                .collect();
            gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label,
                layout: &pipeline.get_bind_group_layout(0),
                entries: &entries,
            })
        };
        let bindings = [bind(&planes[0], &planes[1]), bind(&planes[1], &planes[0])];
        gpu.check()?;
        let mut made = GpuGrid {
            gpu: Arc::clone(gpu),
            height,
            width,
            channels,
            planes,
            mask,
            pipeline,
            bindings,
            current: 0,
            steps: 0,
        };
        made.load(grid)?;
        Ok(made)
    }

    /// Words of a row.
    fn row(&self) -> usize {
        self.width.div_ceil(32)
    }

    /// Takes the bits of another grid of this size.
    pub fn load(&mut self, grid: &BitGrid) -> Result<()> {
        let mut words = Vec::with_capacity(self.channels * self.height * self.row());
        for c in 0..self.channels {
            for y in 0..self.height {
                words.extend(grid.words32(y, c));
            }
        }
        let plane = &self.planes[self.current];
        self.gpu
            .write(&plane.buffer, 0, bytemuck::cast_slice(&words));
        self.gpu.check()
    }

    /// One step, without waiting. Where there is a mask (y, x), cells that don't fire keep their state.
    pub fn step(&mut self, fire: Option<&[bool]>) -> Result<()> {
        self.gpu.check()?;
        if let (Some(mask), Some(fire)) = (&self.mask, fire) {
            let word = |cells: &[bool]| {
                let bits = cells.iter().enumerate();
                bits.fold(0_u32, |word, (i, &on)| word | u32::from(on) << i)
            };
            let rows = fire.chunks_exact(self.width);
            let words: Vec<u32> = rows.flat_map(|row| row.chunks(32).map(word)).collect();
            self.gpu
                .write(&mask.buffer, 0, bytemuck::cast_slice(&words));
        }
        let groups = (self.height * self.row()).div_ceil(64);
        let limit = self.gpu.max_groups();
        let [x, y] = fold(groups, limit)?;
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &self.bindings[self.current], &[]);
            pass.dispatch_workgroups(x, y, 1);
        }
        let submission = self.gpu.submit(encoder);
        self.current = 1 - self.current;
        self.steps += 1;
        match self.steps.is_multiple_of(AHEAD) {
            true => self.gpu.wait(Some(submission)),
            false => Ok(()),
        }
    }

    /// Brings the bits back into a grid of this size: waits for all steps.
    pub fn read(&self, grid: &mut BitGrid) -> Result<()> {
        let len = self.channels * self.height * self.row();
        let part = Part {
            bytes: 4 * len as u64,
            ..self.planes[self.current].clone()
        };
        let words = download(&self.gpu, &part)?;
        let mut rows = words.chunks_exact(self.row());
        for c in 0..self.channels {
            for y in 0..self.height {
                let row = rows.next().unwrap_or_default();
                grid.set_words32(y, c, row.iter().map(|word| word.to_bits()));
            }
        }
        Ok(())
    }
}

/// A gate on 32 cells.
fn expression(op: u8, a: &str, b: &str) -> String {
    match op {
        0 => "0u".into(),
        1 => format!("{a} & {b}"),
        2 => format!("{a} & ~{b}"),
        3 => a.into(),
        4 => format!("~{a} & {b}"),
        5 => b.into(),
        6 => format!("{a} ^ {b}"),
        7 => format!("{a} | {b}"),
        8 => format!("~({a} | {b})"),
        9 => format!("~({a} ^ {b})"),
        10 => format!("~{b}"),
        11 => format!("{a} | ~{b}"),
        12 => format!("~{a}"),
        13 => format!("~{a} | {b}"),
        14 => format!("~({a} & {b})"),
        _ => "~0u".into(),
    }
}

/// The kernel of a circuit on grids of a size.
fn kernel(circuit: &HardCircuit, [height, width]: [usize; 2], masked: bool) -> String {
    let row = width.div_ceil(32);
    let last = (width - 1) % 32;
    let zero = circuit.boundary == BoundaryCondition::Zero;
    let valid = u32::MAX >> (31 - last);
    let mut text = format!(
        "const HEIGHT = {height}u;\nconst ROW = {row}u;\nconst LAST = {last}u;\n\
         const VALID = {valid}u;\nconst ZERO = {zero};\n{HEAD}"
    );
    if masked {
        text += "@group(0) @binding(2) var<storage, read> mask: array<u32>;\n";
    }
    text += BEGIN;
    let inputs = circuit.inputs();
    let name = |node: u32| match (node as usize).checked_sub(inputs) {
        None => format!("i{node}"),
        Some(gate) => format!("g{gate}"),
    };
    let mut read = vec![false; inputs];
    let wires = circuit.gates.iter().flat_map(|gate| [gate.a, gate.b]);
    for node in wires.chain(circuit.outputs.iter().copied()) {
        if let Some(read) = read.get_mut(node as usize) {
            *read = true;
        }
    }
    for (input, _) in read.iter().enumerate().filter(|(_, read)| **read) {
        let [channel, dy, dx] = [input / 9, input % 9 / 3, input % 3];
        let _ = writeln!(
            text,
            "    let i{input} = seen({channel}u, y, {dy}u, k, {dx}u);"
        );
    }
    for (i, gate) in circuit.gates.iter().enumerate() {
        let value = expression(gate.op, &name(gate.a), &name(gate.b));
        let _ = writeln!(text, "    let g{i} = {value};");
    }
    for (channel, &output) in circuit.outputs.iter().enumerate() {
        let value = name(output);
        let _ = match masked {
            true => writeln!(
                text,
                "    next[at({channel}u, y) + k] = select({value}, {value} & VALID, k == ROW - 1u) & fire \
                 | grid[at({channel}u, y) + k] & ~fire;"
            ),
            false => writeln!(
                text,
                "    next[at({channel}u, y) + k] = select({value}, {value} & VALID, k == ROW - 1u);"
            ),
        };
    }
    if masked {
        text = text.replace("    // fire\n", "    let fire = mask[y * ROW + k];\n");
    }
    text + "}\n"
}

/// The grid, and a word of what cells see of a row.
const HEAD: &str = "
@group(0) @binding(0) var<storage, read> grid: array<u32>;
@group(0) @binding(1) var<storage, read_write> next: array<u32>;

fn at(channel: u32, y: u32) -> u32 {
    return (channel * HEIGHT + y) * ROW;
}

// What the cells of word k of row y see at dy and dx: 0 before, 1 here, 2 after.
fn seen(channel: u32, y: u32, dy: u32, k: u32, dx: u32) -> u32 {
    if (ZERO && ((y == 0u && dy == 0u) || (y == HEIGHT - 1u && dy == 2u))) {
        return 0u;
    }
    let begin = at(channel, (y + HEIGHT + dy - 1u) % HEIGHT);
    let word = grid[begin + k];
    if (dx == 1u) {
        return word;
    }
    if (dx == 0u) {
        if (k > 0u) {
            return (word << 1u) | (grid[begin + k - 1u] >> 31u);
        }
        let wrapped = select((grid[begin + ROW - 1u] >> LAST) & 1u, 0u, ZERO);
        return (word << 1u) | wrapped;
    }
    if (k < ROW - 1u) {
        return (word >> 1u) | (grid[begin + k + 1u] << 31u);
    }
    let wrapped = select(grid[begin] & 1u, 0u, ZERO);
    return ((word >> 1u) & ~(1u << LAST)) | (wrapped << LAST);
}

";

/// An invocation owns a word.
const BEGIN: &str = "
@compute @workgroup_size(64)
fn play(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = (group.y * groups.x + group.x) * 64u + lane;
    let k = index % ROW;
    let y = index / ROW;
    if (y >= HEIGHT) {
        return;
    }
    // fire
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Choice;
    use crate::logic::hard::{Gate, Program};
    use crate::rng::Key;

    /// Gates of all kinds on the neighbours of two channels.
    fn circuit(boundary: BoundaryCondition) -> HardCircuit {
        let mut stream = Key::new(3).purpose("circuit").stream();
        let mut gates = Vec::new();
        for i in 0..40_usize {
            let [a, b] = [(); 2].map(|()| stream.below(18 + i) as u32);
            let op = (i % 16) as u8;
            gates.push(Gate { op, a, b });
        }
        HardCircuit {
            channels: 2,
            boundary,
            gates,
            outputs: vec![18 + 39, 18 + 38],
        }
    }

    #[test]
    fn the_bits_are_the_cpus_on_both_sides_of_every_word_with_masks_and_without() {
        let gpu = Gpu::open(&Choice::Auto).unwrap();
        for boundary in [BoundaryCondition::Periodic, BoundaryCondition::Zero] {
            let circuit = circuit(boundary);
            let program = Program::new(&circuit);
            for (width, masked) in [(1, false), (31, true), (32, false), (33, true), (65, false)] {
                let mut grid = BitGrid::new([1, 5, width], 2, boundary).unwrap();
                let mut stream = Key::new(width as u64).purpose("grid").stream();
                grid.randomise(&mut stream);
                let mut on_gpu = GpuGrid::new(&gpu, &circuit, &grid, masked).unwrap();
                let mut ones = 0;
                for step in 0..4 {
                    let fire: Vec<bool> = (0..5 * width).map(|_| stream.uniform() < 0.6).collect();
                    let fire = masked.then_some(&fire[..]);
                    grid.step(&program, fire);
                    on_gpu.step(fire).unwrap();
                    let mut back = BitGrid::new([1, 5, width], 2, boundary).unwrap();
                    on_gpu.read(&mut back).unwrap();
                    for y in 0..5 {
                        for x in 0..width {
                            for c in 0..2 {
                                let bit = grid.get(0, y, x, c);
                                assert_eq!(back.get(0, y, x, c), bit, "{width} {step} {y} {x} {c}");
                                ones += usize::from(bit);
                            }
                        }
                    }
                }
                assert!(ones > 0 && ones < 4 * 5 * width * 2, "{ones} of {width}");
            }
        }
    }
}
