//! Training steps of burn and candle on a workload that `retrograd bench NAME --dump FILE` wrote.
//!
//! peers burn|candle MODE WORKLOAD FILE THREADS
//!
//! Speaks as `peers.py` does: prints one JSON object with the losses before each of the first three steps, which
//! must agree with the file's; then, for every line of standard input, which is a number of seconds, makes steps
//! for so long and prints the median and the least time of one and the most memory that the process had. Each has
//! one mode; threads are those of RAYON_NUM_THREADS.

mod with_burn;
mod with_candle;

use std::collections::HashMap;
use std::time::Instant;

use safetensors::SafeTensors;

/// A tensor of the file.
pub struct Tensor {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// A workload: what `retrograd` started from.
pub struct Problem {
    pub tensors: HashMap<String, Tensor>,
}

impl Problem {
    fn read(path: &str) -> Self {
        let bytes = std::fs::read(path).expect("the workload's file");
        let file = SafeTensors::deserialize(&bytes).expect("safetensors");
        let tensors = file.iter().map(|(name, view)| {
            let numbers = view.data().chunks_exact(4);
            let values = numbers.map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            let shape = view.shape().to_vec();
            let values = values.collect();
            (name.to_string(), Tensor { shape, values })
        });
        Problem {
            tensors: tensors.collect(),
        }
    }

    pub fn get(&self, name: &str) -> &Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// The layers that have parameters: their number in the network and the kind.
    pub fn layers(&self) -> Vec<(usize, Kind)> {
        let mut layers: Vec<(usize, Kind)> = Vec::new();
        for (name, tensor) in &self.tensors {
            let Some((number, tensor_name)) = name
                .strip_prefix("params/")
                .and_then(|name| name.split_once('.'))
            else {
                continue;
            };
            let kind = match (tensor_name, tensor.shape.len()) {
                ("spline_weight", 3) => Kind::Kan,
                ("weight", 4) => Kind::Conv,
                ("weight", 2) => Kind::Dense,
                _ => continue,
            };
            layers.push((number.parse().expect("a layer's number"), kind));
        }
        layers.sort_unstable_by_key(|&(number, _)| number);
        layers
    }

    /// The shape of the batch: rows of features, or square images of one channel.
    pub fn batch_shape(&self) -> Vec<usize> {
        let len = self.get("batch/values").values.len();
        let (first, kind) = self.layers()[0];
        match kind {
            Kind::Conv => {
                // Two images in the workloads of two, one in the others.
                let side = |n: usize| ((len / n) as f64).sqrt() as usize;
                let images = [1, 2].into_iter().find(|&n| side(n) * side(n) * n == len);
                let images = images.expect("square images");
                vec![images, 1, side(images), side(images)]
            }
            Kind::Dense | Kind::Kan => {
                let weight = match kind {
                    Kind::Kan => self.get(&format!("params/{first}.spline_weight")),
                    _ => self.get(&format!("params/{first}.weight")),
                };
                vec![len / weight.shape[1], weight.shape[1]]
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Dense,
    Conv,
    Kan,
}

/// What stands between two layers with parameters.
#[derive(Clone, Copy, PartialEq)]
pub enum Between {
    Nothing,
    Relu,
    Gelu,
}

impl Between {
    pub fn after(kind: Kind) -> Self {
        match kind {
            Kind::Kan => Between::Nothing,
            Kind::Conv => Between::Relu,
            Kind::Dense => Between::Gelu,
        }
    }
}

/// Grid and degree of the KAN workloads; the range is [−1, 1].
pub const GRID: usize = 5;
pub const DEGREE: usize = 3;

/// The knots of every KAN workload.
pub fn knots() -> Vec<f32> {
    let step = 2.0 / GRID as f32;
    (0..=GRID + 2 * DEGREE)
        .map(|i| -1.0 + (i as f32 - DEGREE as f32) * step)
        .collect()
}

/// Bytes of memory that this process had at most, as Linux counts them.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Makes steps for so many seconds: the median and the least time of one.
fn timed(step: &mut dyn FnMut() -> f32, seconds: f64) -> serde_json::Value {
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < (seconds / 4.0).min(0.3) {
        step();
    }
    let mut times = Vec::new();
    let start = Instant::now();
    // Where a step takes seconds, two are enough: rounds repeat them.
    while start.elapsed().as_secs_f64() < seconds || times.len() < 2 {
        let before = Instant::now();
        step();
        times.push(before.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    serde_json::json!({
        "step_ns": times[times.len() / 2],
        "min_ns": times[0],
        "steps": times.len(),
        "peak_rss_bytes": peak_memory(),
    })
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, peer, _mode, _workload, path, _threads] = &args[..] else {
        eprintln!("usage: peers burn|candle MODE WORKLOAD FILE THREADS");
        std::process::exit(2);
    };
    let problem = Problem::read(path);
    let mut step: Box<dyn FnMut() -> f32> = match peer.as_str() {
        "burn" => with_burn::step(&problem),
        "candle" => with_candle::step(&problem),
        other => panic!("no peer {other}"),
    };
    let losses: Vec<f32> = (0..3).map(|_| step()).collect();
    println!("{}", serde_json::json!({ "losses": losses }));
    for line in std::io::stdin().lines() {
        let seconds = line.expect("standard input").parse().expect("seconds");
        println!("{}", timed(&mut *step, seconds));
    }
}
