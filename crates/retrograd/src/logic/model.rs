//! The automaton as a [`Model`]: its description, its batch and its parameters.

use serde::{Deserialize, Serialize};

use super::gates::{GATES, PASS_A};
use super::grid::check_shape;
use super::{BoundaryCondition, Wires, WiringKind, fast, reference};
use crate::model::{Batch, Buffer, Grads, Kernels, Pass};
use crate::rng::Key;
use crate::scalar::cast;
use crate::verify::{Bundle, Case, FromBundle};
use crate::{Error, Layout, Model, Result, Scalar, Target};

/// The logit that every gate starts with for passing a through; the others start at 0.
const PASS_LOGIT: f32 = 10.0;

/// A differentiable-logic cellular automaton, as written in files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogicSpec {
    /// Always `logic_ca`.
    #[serde(default = "family")]
    pub family: String,
    /// Channels of a cell, 1 to 128.
    pub channels: usize,
    /// Perception kernels.
    pub kernels: usize,
    /// Widths of a perception kernel, from the 9 inputs to its outputs.
    pub perception: Vec<usize>,
    /// Widths of the update circuit, from channels + channels·outputs·kernels inputs to the
    /// channels.
    pub update: Vec<usize>,
    /// What lies beyond the border.
    #[serde(default)]
    pub boundary: BoundaryCondition,
    /// Steps of the automaton in one forward.
    pub steps: usize,
    /// The chance that a cell takes its new state in a step; 1 is synchronous.
    #[serde(default = "synchronous")]
    pub fire_rate: f64,
    /// How gates are wired.
    #[serde(default)]
    pub wiring: WiringKind,
    /// Every perception kernel has a wiring of its own.
    #[serde(default)]
    pub per_kernel_wiring: bool,
}

fn family() -> String {
    "logic_ca".into()
}
fn synchronous() -> f64 {
    1.0
}

impl LogicSpec {
    /// Inputs of the update circuit.
    pub fn update_inputs(&self) -> usize {
        let outputs = self.perception.last().copied().unwrap_or(0);
        self.channels + self.channels * outputs * self.kernels
    }

    /// Widths, counts and rates fit together.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str, got: String, needed: String| Err(Error::invalid(what, got, needed));
        if self.family != family() {
            return bad("model.family", self.family.clone(), family());
        }
        check_shape(1, 1, self.channels)?;
        if self.kernels == 0 {
            return bad("kernels", "0".into(), "at least 1".into());
        }
        if self.steps == 0 {
            return bad("steps", "0".into(), "at least 1".into());
        }
        if !(self.fire_rate > 0.0 && self.fire_rate <= 1.0) {
            return bad(
                "fire_rate",
                self.fire_rate.to_string(),
                "0 < fire_rate ≤ 1".into(),
            );
        }
        for (name, widths) in [("perception", &self.perception), ("update", &self.update)] {
            if widths.len() < 2 || widths.contains(&0) {
                return bad(
                    name,
                    format!("{widths:?}"),
                    "at least two widths, all positive".into(),
                );
            }
            if widths.iter().any(|&w| w > 1 << 20) {
                return bad(name, format!("{widths:?}"), "widths up to 2²⁰".into());
            }
        }
        if self.perception[0] != 9 {
            return bad(
                "perception[0]",
                self.perception[0].to_string(),
                "9, the 3×3 neighbourhood".into(),
            );
        }
        if self.update[0] != self.update_inputs() {
            return bad(
                "update[0]",
                self.update[0].to_string(),
                format!(
                    "{}: channels + channels·perception outputs·kernels",
                    self.update_inputs()
                ),
            );
        }
        let last = self.update[self.update.len() - 1];
        if last != self.channels {
            return bad(
                "update's last width",
                last.to_string(),
                format!("{}, the number of channels", self.channels),
            );
        }
        Ok(())
    }
}

/// One layer of a circuit: gate j reads inputs a\[j\] and b\[j\]; its logits are those of gate
/// `first` + j of the flat vector.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub inputs: usize,
    pub a: Vec<u32>,
    pub b: Vec<u32>,
    pub first: usize,
}

/// Layers in a row. The values of a run lie in one vector: inputs, then each layer's outputs.
#[derive(Clone, Debug)]
pub(super) struct Circuit {
    pub layers: Vec<Layer>,
    pub inputs: usize,
    /// Inputs and all gates.
    pub values: usize,
}

impl Circuit {
    fn new(layers: Vec<Layer>) -> Self {
        Circuit {
            inputs: layers[0].inputs,
            values: layers[0].inputs + layers.iter().map(|l| l.a.len()).sum::<usize>(),
            layers,
        }
    }

    pub fn outputs(&self) -> usize {
        self.layers[self.layers.len() - 1].a.len()
    }
}

/// A differentiable-logic cellular automaton.
#[derive(Clone, Debug)]
pub struct LogicCa {
    spec: LogicSpec,
    layout: Layout,
    /// For each perception layer one wiring, or one for every kernel.
    perception_wires: Vec<Vec<Wires>>,
    update_wires: Vec<Wires>,
    /// All kernels side by side, kernel fastest: gate j·K + k.
    pub(super) perception: Circuit,
    pub(super) update: Circuit,
    pub(super) plan: fast::Plan,
    /// Whether the reference may use threads too. The results are the same.
    pub parallel: bool,
}

impl LogicCa {
    /// A model with the wiring of a seed.
    pub fn new(spec: LogicSpec, seed: u64) -> Result<Self> {
        spec.check()?;
        let key = Key::new(seed).purpose("wiring");
        let draw = |name: &str, index: u64, inputs: usize, gates: usize, first: bool| {
            let mut stream = key.index(index).stream();
            match spec.wiring {
                WiringKind::Unique if first && gates == 8 => Ok(Wires::first_kernel(&mut stream)),
                WiringKind::Unique => Wires::unique(name, inputs, gates, &mut stream),
                WiringKind::Random => Wires::random(name, inputs, gates, &mut stream),
            }
        };
        let wirings = if spec.per_kernel_wiring {
            spec.kernels
        } else {
            1
        };
        let perception = (1..spec.perception.len())
            .map(|l| {
                (0..wirings)
                    .map(|k| {
                        let name = format!("perception[{l}]");
                        let index = (l as u64) << 32 | k as u64;
                        draw(
                            &name,
                            index,
                            spec.perception[l - 1],
                            spec.perception[l],
                            l == 1,
                        )
                    })
                    .collect::<Result<Vec<_>>>()
            })
            .collect::<Result<Vec<_>>>()?;
        let update = (1..spec.update.len())
            .map(|l| {
                let index = 1 << 63 | l as u64;
                draw(
                    &format!("update[{l}]"),
                    index,
                    spec.update[l - 1],
                    spec.update[l],
                    false,
                )
            })
            .collect::<Result<Vec<_>>>()?;
        Self::with_wires(spec, perception, update)
    }

    /// A model with given wires: for each perception layer one wiring shared by the kernels, or
    /// one for every kernel; for each update layer one.
    pub fn with_wires(
        spec: LogicSpec,
        perception: Vec<Vec<Wires>>,
        update: Vec<Wires>,
    ) -> Result<Self> {
        spec.check()?;
        let count = |what: &str, got: usize, needed: usize| {
            if got == needed {
                return Ok(());
            }
            Err(Error::invalid(
                format!("wires of {what}"),
                format!("{got} layers"),
                format!("{needed}"),
            ))
        };
        count("perception", perception.len(), spec.perception.len() - 1)?;
        count("update", update.len(), spec.update.len() - 1)?;
        let wirings = if spec.per_kernel_wiring {
            spec.kernels
        } else {
            1
        };
        for (l, layer) in perception.iter().enumerate() {
            let name = format!("wires.perception.{l}");
            if layer.len() != wirings {
                return Err(Error::invalid(
                    name,
                    layer.len(),
                    format!("{wirings} wirings"),
                ));
            }
            for wires in layer {
                wires.check(&name, spec.perception[l], spec.perception[l + 1])?;
            }
        }
        for (l, wires) in update.iter().enumerate() {
            let name = format!("wires.update.{l}");
            wires.check(&name, spec.update[l], spec.update[l + 1])?;
        }
        let mut layout = Layout::new();
        for (l, &gates) in spec.perception[1..].iter().enumerate() {
            // Stored with the kernels next to each other, as they run.
            let shape = [spec.kernels, gates, GATES];
            layout.push_stored(format!("perception.{l}.logits"), &shape, &[1, 0, 2]);
        }
        for (l, &gates) in spec.update[1..].iter().enumerate() {
            layout.push(format!("update.{l}.logits"), &[gates, GATES]);
        }
        let mut model = LogicCa {
            perception: perception_circuit(&spec, &perception),
            update: update_circuit(&spec, &update),
            plan: fast::Plan::default(),
            perception_wires: perception,
            update_wires: update,
            spec,
            layout,
            parallel: true,
        };
        model.plan = fast::Plan::new(&model);
        Ok(model)
    }

    /// The description.
    pub fn spec(&self) -> &LogicSpec {
        &self.spec
    }

    /// For each perception layer its wiring, or one for every kernel.
    pub fn perception_wires(&self) -> &[Vec<Wires>] {
        &self.perception_wires
    }

    /// For each update layer its wiring.
    pub fn update_wires(&self) -> &[Wires] {
        &self.update_wires
    }

    /// The number of gates that are trained: kernels once, whatever the number of channels.
    pub fn gates(&self) -> usize {
        self.layout.len() / GATES
    }

    /// Gates evaluated for one cell in one step.
    pub fn gates_per_cell(&self) -> usize {
        let perception: usize = self.perception.layers.iter().map(|l| l.a.len()).sum();
        let update: usize = self.update.layers.iter().map(|l| l.a.len()).sum();
        self.spec.channels * perception + update
    }

    /// The softmax of every gate's logits.
    pub fn soften<T: Scalar>(&self, params: &[T], p: &mut Vec<T>) {
        p.resize(params.len(), T::ZERO);
        for (logits, p) in params.chunks_exact(GATES).zip(p.chunks_exact_mut(GATES)) {
            super::gates::softmax(logits, p);
        }
    }

    /// Hard mode: all weight on the gate with the largest logit, the first on ties.
    pub fn harden<T: Scalar>(&self, params: &[T], p: &mut Vec<T>) {
        p.clear();
        p.resize(params.len(), T::ZERO);
        for (logits, p) in params.chunks_exact(GATES).zip(p.chunks_exact_mut(GATES)) {
            p[super::gates::hardest(logits) as usize] = T::ONE;
        }
    }
}

/// All kernels of one channel, kernel fastest: gate j·K + k.
fn perception_circuit(spec: &LogicSpec, wires: &[Vec<Wires>]) -> Circuit {
    let kernels = spec.kernels;
    let mut first = 0;
    let layers = wires
        .iter()
        .enumerate()
        .map(|(l, of_kernel)| {
            let gates = spec.perception[l + 1];
            let expand = |side: fn(&Wires) -> &Vec<u32>| -> Vec<u32> {
                (0..gates * kernels)
                    .map(|e| {
                        let (j, k) = (e / kernels, e % kernels);
                        let wire = side(&of_kernel[k % of_kernel.len()])[j];
                        if l == 0 {
                            wire
                        } else {
                            wire * kernels as u32 + k as u32
                        }
                    })
                    .collect()
            };
            let layer = Layer {
                inputs: if l == 0 {
                    9
                } else {
                    spec.perception[l] * kernels
                },
                a: expand(|w| &w.a),
                b: expand(|w| &w.b),
                first,
            };
            first += gates * kernels;
            layer
        })
        .collect();
    Circuit::new(layers)
}

fn update_circuit(spec: &LogicSpec, wires: &[Wires]) -> Circuit {
    let mut first = spec.perception[1..].iter().sum::<usize>() * spec.kernels;
    let layers = wires
        .iter()
        .enumerate()
        .map(|(l, wires)| {
            let layer = Layer {
                inputs: spec.update[l],
                a: wires.a.clone(),
                b: wires.b.clone(),
                first,
            };
            first += wires.gates();
            layer
        })
        .collect();
    Circuit::new(layers)
}

/// States of several grids of one size, and which cells fire in which step.
#[derive(Clone, Debug, PartialEq)]
pub struct LogicBatch<T> {
    /// (batch, height, width, channels).
    pub state: Vec<T>,
    /// Grids.
    pub batch: usize,
    /// Rows of a grid.
    pub height: usize,
    /// Columns of a grid.
    pub width: usize,
    /// (steps, height, width), the same for all grids; none where every cell fires.
    pub fire: Option<Vec<bool>>,
}

impl<T: Scalar> LogicBatch<T> {
    /// A batch for a model, everything checked.
    pub fn new(
        model: &LogicCa,
        state: Vec<T>,
        [batch, height, width]: [usize; 3],
        fire: Option<Vec<bool>>,
    ) -> Result<Self> {
        let channels = model.spec.channels;
        check_shape(height, width, channels)?;
        let len = batch * height * width * channels;
        if batch == 0 || state.len() != len {
            return Err(Error::invalid(
                "state",
                format!("{} values", state.len()),
                format!("{batch}·{height}·{width}·{channels}, of at least one grid"),
            ));
        }
        if let Some(i) = state.iter().position(|x| !x.is_finite()) {
            return Err(Error::invalid(
                format!("state, element {i}"),
                state[i].to_f64(),
                "a finite number",
            ));
        }
        if let Some(fire) = &fire
            && fire.len() != model.spec.steps * height * width
        {
            return Err(Error::invalid(
                "fire",
                format!("{} values", fire.len()),
                format!(
                    "{}·{height}·{width}: steps, rows, columns",
                    model.spec.steps
                ),
            ));
        }
        Ok(LogicBatch {
            state,
            batch,
            height,
            width,
            fire,
        })
    }

    /// Whether cell (y, x) fires in step t.
    pub fn fires(&self, t: usize, y: usize, x: usize) -> bool {
        let cell = (t * self.height + y) * self.width + x;
        self.fire.as_ref().is_none_or(|fire| fire[cell])
    }
}

impl<T: Send + Sync> Batch<T> for LogicBatch<T> {
    fn values(&self) -> &[T] {
        &self.state
    }
    fn values_mut(&mut self) -> &mut [T] {
        &mut self.state
    }
}

/// What forward leaves for backward.
#[derive(Default)]
pub struct LogicTape<T> {
    output: Vec<T>,
    reference: reference::Tape<T>,
    fast: fast::Tape,
}

impl Model for LogicCa {
    type Input<T: Scalar> = LogicBatch<T>;
    type Tape<T: Scalar> = LogicTape<T>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }

    fn init(&self, _seed: u64) -> Vec<f32> {
        let mut params = vec![0.0; self.layout.len()];
        for logits in params.chunks_exact_mut(GATES) {
            logits[PASS_A] = PASS_LOGIT;
        }
        params
    }

    fn forward<T: Scalar>(
        &self,
        params: &[T],
        input: &LogicBatch<T>,
        pass: &Pass,
        tape: &mut LogicTape<T>,
    ) {
        tape.output.resize(input.state.len(), T::ZERO);
        if pass.kernels == Kernels::Fast
            && let (Some(params), Some(state), Some(output)) = (
                T::f32s(params),
                T::f32s(&input.state),
                T::f32s_mut(&mut tape.output),
            )
        {
            let batch = fast::Grids::of(input, state);
            fast::forward(self, params, &batch, &mut tape.fast, output);
            return;
        }
        self.soften(params, &mut tape.reference.p);
        reference::forward(self, input, &mut tape.reference);
        tape.output.copy_from_slice(tape.reference.last_state());
    }

    fn output<'t, T: Scalar>(&self, tape: &'t LogicTape<T>) -> &'t [T] {
        &tape.output
    }

    fn backward<T: Scalar>(
        &self,
        params: &[T],
        input: &LogicBatch<T>,
        pass: &Pass,
        tape: &mut LogicTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        let Grads {
            params: d_params,
            input: d_input,
            accumulate,
        } = grads;
        if pass.kernels == Kernels::Fast
            && let (Some(_), Some(state), Some(d_output)) =
                (T::f32s(params), T::f32s(&input.state), T::f32s(d_output))
        {
            let batch = fast::Grids::of(input, state);
            let d_params = d_params.map(|d| T::f32s_mut(d).expect("one scalar"));
            let d_input = d_input.map(|d| T::f32s_mut(d).expect("one scalar"));
            fast::backward(
                self,
                &batch,
                &mut tape.fast,
                d_output,
                d_params,
                accumulate,
                d_input,
            );
            return;
        }
        let d_state = reference::backward(self, input, &mut tape.reference, d_output);
        if let Some(d_params) = d_params {
            if !accumulate {
                d_params.fill(T::ZERO);
            }
            let tape = &tape.reference;
            for range in self.layout.trainable() {
                for first in range.step_by(GATES) {
                    let gate = first..first + GATES;
                    let (p, h) = (&tape.p[gate.clone()], &tape.h[gate.clone()]);
                    reference::add_logit_gradient(p, h, &mut d_params[gate]);
                }
            }
        }
        if let Some(d_input) = d_input {
            d_input.copy_from_slice(&d_state);
        }
    }

    fn cast_input<T: Scalar, U: Scalar>(&self, input: &LogicBatch<T>) -> LogicBatch<U> {
        LogicBatch {
            state: cast(&input.state),
            batch: input.batch,
            height: input.height,
            width: input.width,
            fire: input.fire.clone(),
        }
    }

    fn buffers(&self) -> Vec<Buffer> {
        let flat = |wires: &Wires| -> Vec<f64> {
            wires
                .a
                .iter()
                .chain(&wires.b)
                .map(|&w| f64::from(w))
                .collect()
        };
        let perception = self.perception_wires.iter().enumerate().map(|(l, layer)| {
            let pair = [2, layer[0].gates()];
            let shape = if self.spec.per_kernel_wiring {
                [&[layer.len()], &pair[..]].concat()
            } else {
                pair.to_vec()
            };
            Buffer {
                name: format!("wires.perception.{l}"),
                shape,
                values: layer.iter().flat_map(flat).collect(),
            }
        });
        let update = self
            .update_wires
            .iter()
            .enumerate()
            .map(|(l, wires)| Buffer {
                name: format!("wires.update.{l}"),
                shape: vec![2, wires.gates()],
                values: flat(wires),
            });
        perception.chain(update).collect()
    }

    fn set_buffer(&mut self, buffer: &Buffer) -> Result<()> {
        let own = self.buffers();
        let Some(i) = own.iter().position(|b| b.name == buffer.name) else {
            return Err(Error::invalid(
                format!("buffer {}", buffer.name),
                "a name that the model doesn't have",
                "wires.perception.L or wires.update.L",
            ));
        };
        if own[i].shape != buffer.shape || own[i].values.len() != buffer.values.len() {
            return Err(Error::invalid(
                format!("buffer {}", buffer.name),
                format!("shape {:?}", buffer.shape),
                format!("{:?}", own[i].shape),
            ));
        }
        if own[i].values == buffer.values {
            return Ok(());
        }
        let (mut perception, mut update) =
            (self.perception_wires.clone(), self.update_wires.clone());
        if i < perception.len() {
            let gates = perception[i][0].gates();
            perception[i] = wires_of(&buffer.name, &buffer.values, gates)?;
        } else {
            let l = i - perception.len();
            let gates = update[l].gates();
            update[l] = wires_of(&buffer.name, &buffer.values, gates)?.remove(0);
        }
        let frozen = self.layout.clone();
        *self = LogicCa {
            layout: frozen,
            parallel: self.parallel,
            ..Self::with_wires(self.spec.clone(), perception, update)?
        };
        Ok(())
    }
}

/// Wirings from flat values, (wirings, 2, gates).
fn wires_of(what: &str, values: &[f64], gates: usize) -> Result<Vec<Wires>> {
    let whole = values
        .iter()
        .map(|&v| {
            if v >= 0.0 && v.fract() == 0.0 && v <= f64::from(u32::MAX) {
                Ok(v as u32)
            } else {
                Err(Error::invalid(what, v, "a whole number ≥ 0"))
            }
        })
        .collect::<Result<Vec<u32>>>()?;
    Ok(whole
        .chunks_exact(2 * gates)
        .map(|w| Wires {
            a: w[..gates].to_vec(),
            b: w[gates..].to_vec(),
        })
        .collect())
}

impl FromBundle for LogicCa {
    fn from_bundle(bundle: &Bundle) -> Result<Case<Self>> {
        let spec: LogicSpec = bundle.model_spec()?;
        spec.check()?;
        let wires = |circuit: &str, widths: &[usize]| {
            (0..widths.len() - 1)
                .map(|l| {
                    let name = format!("input/wires.{circuit}.{l}");
                    let array = bundle.array(&name)?;
                    let gates = widths[l + 1];
                    if !array.shape.ends_with(&[2, gates]) {
                        return Err(Error::file(
                            &bundle.path,
                            &name,
                            format!("shape {:?}, needs [2, {gates}]", array.shape),
                        ));
                    }
                    wires_of(&name, &array.values, gates)
                })
                .collect::<Result<Vec<_>>>()
        };
        let perception = wires("perception", &spec.perception)?;
        let update = wires("update", &spec.update)?
            .into_iter()
            .map(|mut w| w.remove(0))
            .collect();
        let model = LogicCa::with_wires(spec, perception, update)?;
        let state = bundle.array("input/state")?;
        let &[batch, height, width, channels] = &state.shape[..] else {
            return Err(Error::file(
                &bundle.path,
                "input/state",
                format!("shape {:?}, needs (B, H, W, C)", state.shape),
            ));
        };
        if channels != model.spec.channels {
            return Err(Error::file(
                &bundle.path,
                "input/state",
                format!("{channels} channels, the model has {}", model.spec.channels),
            ));
        }
        let fire = bundle
            .get("input/fire")
            .map(|fire| fire.values.iter().map(|&f| f != 0.0).collect());
        let input = LogicBatch::new(&model, state.values.clone(), [batch, height, width], fire)?;
        let first = &bundle.array("input/target")?.values;
        if first.len() != batch * height * width {
            return Err(Error::file(
                &bundle.path,
                "input/target",
                format!("{} values, needs one for every cell", first.len()),
            ));
        }
        let target = channel_target(first, 1, channels);
        let params = bundle.flat(&model, "param")?;
        Ok(Case {
            model,
            params,
            input,
            target,
        })
    }
}

/// A target for the first `read` channels of every cell, given in the order (cell, channel); the
/// others have weight 0.
pub fn channel_target<T: Scalar>(values: &[T], read: usize, channels: usize) -> Target<T> {
    let cells = values.len() / read;
    let mut all = vec![T::ZERO; cells * channels];
    let mut weights = vec![T::ZERO; cells * channels];
    for cell in 0..cells {
        for c in 0..read {
            all[cell * channels + c] = values[cell * read + c];
            weights[cell * channels + c] = T::ONE;
        }
    }
    Target::values(all).weighted(weights)
}
