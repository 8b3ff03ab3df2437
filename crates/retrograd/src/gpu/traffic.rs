//! What the kernels of a step read and write in storage buffers, counted by the kernels themselves.
//!
//! A copy of a kernel's text is compiled in which every index of a storage buffer goes through a function
//! that counts the access and marks the element: `x[i]` becomes `x[touch(3u, u32(i))]`. So the counts can't
//! be out of date, and hold for any adapter: they are of the kernels and the shape alone. Workgroup memory
//! and registers are not counted; a vector of which one component is read counts whole.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::device::{Gpu, storage_usage};
use super::kernels::Kernel;
use super::mutants::tokens::{self, Kind};
use super::precision::real_bytes;
use super::recording::{Part, Recording, download};
use crate::{Error, Result};

/// Bytes of storage buffers that a kernel of a step reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelTraffic {
    /// Layer and entry point.
    pub label: String,
    /// Read, as often as it is read.
    pub read: u64,
    /// Written, as often as it is written.
    pub written: u64,
    /// What is read, once.
    pub read_once: u64,
    /// What is written, once.
    pub written_once: u64,
}

impl KernelTraffic {
    /// Read and written.
    pub fn bytes(&self) -> u64 {
        self.read + self.written
    }

    /// The least for a kernel with these operands and results.
    pub fn least(&self) -> u64 {
        self.read_once + self.written_once
    }
}

/// The same of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTraffic {
    /// Kernel by kernel, in order.
    pub kernels: Vec<KernelTraffic>,
    /// The least for the whole step in one kernel: what it finds, read once, and what of that it
    /// changes, written once. What lies between kernels would stay in registers.
    pub fused: u64,
}

impl StepTraffic {
    /// Of all kernels.
    pub fn bytes(&self) -> u64 {
        self.kernels.iter().map(KernelTraffic::bytes).sum()
    }

    /// The least for these kernels.
    pub fn least(&self) -> u64 {
        self.kernels.iter().map(KernelTraffic::least).sum()
    }

    /// Of a recording that was replayed once.
    pub(super) fn of(gpu: &Gpu, recording: &Recording) -> Result<Self> {
        let mut step = StepTraffic::default();
        let mut whole = Whole::default();
        for (label, tally) in recording.tallies() {
            let mut kernel = KernelTraffic {
                label: label.to_string(),
                ..Default::default()
            };
            let words = tally.words(gpu)?;
            let found = tally.slots.iter().map(|slot| slot.found(&words));
            let found: Vec<_> = found.zip(&tally.slots).collect();
            for ((times, marked), slot) in &found {
                let bytes = [*times, marked.len() as u64].map(|n| n * slot.bytes);
                let to = match slot.writes {
                    true => [&mut kernel.written, &mut kernel.written_once],
                    false => [&mut kernel.read, &mut kernel.read_once],
                };
                to.into_iter().zip(bytes).for_each(|(to, n)| *to += n);
            }
            // What a kernel reads is there before what it writes.
            for writes in [false, true] {
                for ((_, marked), slot) in found.iter().filter(|(_, s)| s.writes == writes) {
                    whole.add(slot, marked);
                }
            }
            step.kernels.push(kernel);
        }
        step.fused = whole.bytes();
        Ok(step)
    }
}

/// The words of all buffers that a step found, wrote, and both.
#[derive(Default)]
struct Whole {
    buffers: HashMap<wgpu::Buffer, Vec<Word>>,
}

#[derive(Clone, Copy, Default)]
struct Word {
    found: bool,
    written: bool,
}

impl Whole {
    fn add(&mut self, slot: &Slot, marked: &[u32]) {
        let words = slot.part.buffer.size().div_ceil(4) as usize;
        let all = self.buffers.entry(slot.part.buffer.clone()).or_default();
        all.resize(words, Word::default());
        for &element in marked {
            let start = slot.part.offset + u64::from(element) * slot.bytes;
            for word in start / 4..(start + slot.bytes).div_ceil(4) {
                let Some(word) = all.get_mut(word as usize) else {
                    continue;
                };
                word.found |= !slot.writes && !word.written;
                word.written |= slot.writes;
            }
        }
    }

    fn bytes(&self) -> u64 {
        let of = |word: &Word| match word.found {
            true => 1 + u64::from(word.written),
            false => 0,
        };
        4 * self.buffers.values().flatten().map(of).sum::<u64>()
    }
}

/// A kernel that counts, and its counts.
pub(crate) struct Tally {
    pub pipeline: wgpu::ComputePipeline,
    pub bind_group: wgpu::BindGroup,
    counts: Part,
    slots: Vec<Slot>,
}

/// Reads, or writes, of one buffer under one name.
struct Slot {
    part: Part,
    /// Of an element.
    bytes: u64,
    writes: bool,
    /// Where its count lies, where its marks begin, and how many there are.
    at: usize,
    marks: usize,
    elements: usize,
}

impl Slot {
    /// How often, and which elements.
    fn found(&self, words: &[u32]) -> (u64, Vec<u32>) {
        let marked = (0..self.elements as u32).filter(|i| {
            let word = words[self.marks + *i as usize / 32];
            word >> (i % 32) & 1 == 1
        });
        (u64::from(words[self.at]), marked.collect())
    }
}

/// Words of a slot before the marks: its count, where its marks begin, how many there are.
const HEAD: usize = 3;

impl Tally {
    pub fn new(
        gpu: &Gpu,
        kernel: &Kernel,
        half: bool,
        entry: &'static str,
        constants: &[(&'static str, f64)],
        buffers: &[&Part],
    ) -> Result<Self> {
        let text = kernel.text(half);
        let globals = globals(&text, half)?;
        let module = gpu.module(kernel.name, counting(&text, &globals));
        let pipeline = gpu.compile(&module, None, entry, constants);
        gpu.check()?;
        let mut words = vec![0_u32; 2 * HEAD * globals.len()];
        let mut slots = Vec::new();
        let mut end = words.len();
        for (i, global) in globals.iter().enumerate() {
            let Some(part) = buffers.get(global.binding - 1) else {
                continue;
            };
            let elements = (part.bound() / global.bytes) as usize;
            for writes in [false, true] {
                let at = HEAD * (2 * i + usize::from(writes));
                words[at + 1] = end as u32;
                words[at + 2] = elements as u32;
                slots.push(Slot {
                    part: (*part).clone(),
                    bytes: global.bytes,
                    writes,
                    at,
                    marks: end,
                    elements,
                });
                end += elements.div_ceil(32);
            }
        }
        words.resize(end, 0);
        let usage = storage_usage();
        let buffer = gpu.constant("counts", bytemuck::cast_slice(&words), usage)?;
        let bind_group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(1),
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: buffer.as_entire_binding(),
            }],
        });
        Ok(Tally {
            pipeline,
            bind_group,
            counts: Part {
                bytes: 4 * end as u64,
                ..Part::whole(&buffer)
            },
            slots,
        })
    }

    fn words(&self, gpu: &Gpu) -> Result<Vec<u32>> {
        let floats = download(gpu, &self.counts)?;
        Ok(floats.into_iter().map(f32::to_bits).collect())
    }
}

impl Gpu {
    /// Whether kernels that are recorded count.
    pub(crate) fn tallies(&self) -> bool {
        self.tallies.load(Ordering::Relaxed)
    }

    /// From here on they do, or don't.
    pub(super) fn tally(&self, counts: bool) {
        self.tallies.store(counts, Ordering::Relaxed);
    }
}

/// A storage buffer as a file names it.
#[derive(Debug, PartialEq, Eq)]
struct Global {
    name: String,
    binding: usize,
    /// Of an element.
    bytes: u64,
}

/// The storage buffers of a file.
fn globals(text: &str, half: bool) -> Result<Vec<Global>> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((before, after)) = line.split_once("var<storage") else {
            continue;
        };
        let binding = before.split_once("@binding(").and_then(|(_, b)| {
            let digits = b.split(')').next()?;
            digits.parse().ok()
        });
        let declared = after.split_once('>').and_then(|(_, named)| {
            let (name, ty) = named.split_once(':')?;
            let ty = ty.trim().strip_prefix("array<")?;
            let element = ty.split(';').next()?.strip_suffix('>')?;
            Some((name.trim().to_string(), element))
        });
        let (Some(binding), Some((name, element))) = (binding, declared) else {
            return Err(unknown(line));
        };
        found.push(Global {
            name,
            binding,
            bytes: element_bytes(element, half).ok_or_else(|| unknown(line))?,
        });
    }
    Ok(found)
}

fn element_bytes(element: &str, half: bool) -> Option<u64> {
    let of = |scalar: &str| match scalar {
        "real" => Some(real_bytes(half)),
        "f32" | "u32" | "i32" => Some(4),
        _ => None,
    };
    let vector = |name: &str| {
        let rest = element.strip_prefix(name)?.strip_prefix('<')?;
        of(rest.strip_suffix('>')?)
    };
    match element {
        // Of optimizer.wgsl: four f32.
        "Before" => Some(16),
        _ => of(element)
            .or_else(|| vector("vec2").map(|n| 2 * n))
            .or_else(|| vector("vec4").map(|n| 4 * n)),
    }
}

fn unknown(line: &str) -> Error {
    Error::Gpu {
        what: format!("no known storage buffer: {}", line.trim()),
        advice: "teach gpu/traffic.rs its element's size".into(),
    }
}

/// The text with every access to those buffers counted.
fn counting(text: &str, globals: &[Global]) -> String {
    let all = tokens::tokens(text);
    let word = |i: usize| all.get(i).map_or("", |t| &text[t.range.clone()]);
    let mut inserted: Vec<(usize, String)> = Vec::new();
    for i in 0..all.len() {
        let is_field = i > 0 && word(i - 1) == ".";
        let known = globals.iter().position(|g| g.name == word(i));
        let Some(global) = known.filter(|_| all[i].kind == Kind::Name && !is_field) else {
            continue;
        };
        if word(i + 1) != "[" {
            continue;
        }
        let Some(close) = tokens::closing(text, &all, i + 1) else {
            continue;
        };
        let read = HEAD * 2 * global;
        let write = read + HEAD;
        let touch = match assigned(text, &all, close + 1) {
            Assigned::No => format!("touch({read}u, u32("),
            Assigned::Anew => format!("touch({write}u, u32("),
            Assigned::Changed => format!("touch({write}u, touch({read}u, u32("),
        };
        let closing = ")".repeat(touch.matches('(').count());
        inserted.push((all[i + 1].range.end, touch));
        inserted.push((all[close].range.start, closing));
    }
    inserted.sort_by_key(|(at, _)| *at);
    let mut counted = String::with_capacity(2 * text.len());
    let mut from = 0;
    for (at, what) in inserted {
        counted.push_str(&text[from..at]);
        counted.push_str(&what);
        from = at;
    }
    counted.push_str(&text[from..]);
    counted + TOUCH
}

const TOUCH: &str = "
@group(1) @binding(0) var<storage, read_write> counts: array<atomic<u32>>;

fn touch(slot: u32, index: u32) -> u32 {
    atomicAdd(&counts[slot], 1u);
    if (index < atomicLoad(&counts[slot + 2u])) {
        atomicOr(&counts[atomicLoad(&counts[slot + 1u]) + index / 32u], 1u << (index % 32u));
    }
    return index;
}
";

enum Assigned {
    No,
    Anew,
    /// `+=`
    Changed,
}

/// Whether something is assigned to what ends before a token; behind it may be a component.
fn assigned(text: &str, all: &[tokens::Token], mut i: usize) -> Assigned {
    let word = |i: usize| all.get(i).map_or("", |t| &text[t.range.clone()]);
    loop {
        match word(i) {
            "." => i += 2,
            "[" => match tokens::closing(text, all, i) {
                Some(close) => i = close + 1,
                None => return Assigned::No,
            },
            "=" => return Assigned::Anew,
            "+=" | "-=" | "*=" | "/=" => return Assigned::Changed,
            _ => return Assigned::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::kernels;

    #[test]
    fn reads_writes_and_sums_in_place_are_told_apart() {
        let text = "@group(0) @binding(1) var<storage, read> x: array<real>;\n\
                    @group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;\n\
                    fn f() { y[x[2]].z = a.x[1] + y[i + 1u][0]; y[0] += b; if (x[i] == c) {} }";
        let globals = globals(text, true).unwrap();
        assert_eq!([globals[0].bytes, globals[1].bytes], [2, 16]);
        let counted = counting(text, &globals);
        let body = counted.split_once("fn f()").unwrap().1;
        assert!(body.starts_with(
            " { y[touch(9u, u32(x[touch(0u, u32(2))]))].z = a.x[1] + y[touch(6u, u32(i + 1u))][0]; \
             y[touch(9u, touch(6u, u32(0)))] += b; if (x[touch(0u, u32(i))] == c) {} }"
        ), "{body}");
    }

    #[test]
    fn every_kernel_can_count() {
        for kernel in kernels::all() {
            for half in [false, true] {
                let text = kernel.text(half);
                let globals = globals(&text, half).unwrap();
                let counted = counting(&text, &globals);
                assert!(counted.matches("touch(").count() > 1, "{}", kernel.name);
                crate::gpu::mutants::parses(&counted).unwrap();
            }
        }
    }
}
