//! The automaton as a [`Model`]: its parameters, its wires, and the way through them.

use super::circuit::{Circuit, perception_circuit, update_circuit};
use super::gates::{GATES, PASS_A};
use super::{LogicBatch, LogicSpec, Wires, WiringKind, fast, reference};
use crate::model::{Buffer, Grads, Kernels, Pass};
use crate::rng::Key;
use crate::rng::jax::JaxKey;
use crate::scalar::cast;
use crate::verify::mutants::{GradientMistake, Mistake};
use crate::{Error, Layout, Model, Result, Scalar};

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
    pub(super) plan: fast::GatePlan,
    /// Whether the reference may use threads too. The results are the same.
    pub parallel: bool,
    /// What is wrong with its gradients on purpose.
    mistake: Option<GradientMistake>,
    /// Made for a device when it is first put on one.
    #[cfg(feature = "gpu")]
    pub(super) on_device: crate::gpu::OnDevice,
}

impl LogicCa {
    /// A model with the wiring of a seed, or of the description's own.
    pub fn new(spec: LogicSpec, seed: u64) -> Result<Self> {
        let seed = spec.wiring_seed.unwrap_or(seed);
        Self::wired(spec, seed)
    }

    fn wired(spec: LogicSpec, seed: u64) -> Result<Self> {
        spec.check()?;
        if spec.wiring == WiringKind::Jax {
            return Self::with_notebook_wires(spec, seed);
        }
        let key = Key::new(seed).purpose("wiring");
        let draw = |name: &str, index: u64, inputs: usize, gates: usize, first: bool| {
            let mut stream = key.index(index).stream();
            match spec.wiring {
                WiringKind::Unique if first && gates == 8 => Ok(Wires::first_kernel(&mut stream)),
                WiringKind::Unique | WiringKind::Jax => {
                    Wires::unique(name, inputs, gates, &mut stream)
                }
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

    /// The wires that the paper's notebook draws from a seed.
    fn with_notebook_wires(spec: LogicSpec, seed: u64) -> Result<Self> {
        let Ok(seed) = u32::try_from(seed) else {
            return Err(Error::invalid(
                "seed",
                seed,
                "below 2³² with wiring = \"jax\"",
            ));
        };
        // The run's key is split once; the second half is the model's, which gives a key to each
        // of the two circuits.
        let mut key = JaxKey::new(seed).branch();
        let update = Wires::jax("update", &spec.update, false, key.branch())?;
        let perception = Wires::jax("perception", &spec.perception, true, key.branch())?;
        let perception = perception.into_iter().map(|wires| vec![wires]).collect();
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
            plan: fast::GatePlan::default(),
            perception_wires: perception,
            update_wires: update,
            spec,
            layout,
            parallel: true,
            mistake: None,
            #[cfg(feature = "gpu")]
            on_device: Default::default(),
        };
        model.plan = fast::GatePlan::new(&model);
        Ok(model)
    }

    /// Takes the wires of another seed; which tensors are frozen stays.
    pub(super) fn rewire(&mut self, seed: u64) -> Result<()> {
        let frozen = self.layout.clone();
        *self = LogicCa {
            layout: frozen,
            parallel: self.parallel,
            mistake: self.mistake.clone(),
            ..Self::wired(self.spec.clone(), seed)?
        };
        Ok(())
    }

    /// The same automaton with another number of steps.
    pub(super) fn with_steps(&self, steps: usize) -> Result<Self> {
        let spec = LogicSpec {
            steps,
            ..self.spec.clone()
        };
        Self::with_wires(
            spec,
            self.perception_wires.clone(),
            self.update_wires.clone(),
        )
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

    /// The gradients as they are.
    fn right_backward<T: Scalar>(
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

    #[cfg(feature = "gpu")]
    fn accelerator(
        &self,
        placement: &crate::train::Placement,
        start: &crate::train::Start<'_>,
    ) -> Result<Option<Box<dyn crate::train::Accelerator<Self>>>> {
        crate::gpu::GpuTrainer::placed(self, placement, start)
    }

    #[cfg(feature = "gpu")]
    fn verifier(
        &self,
        on: crate::verify::On,
    ) -> Result<Option<Box<dyn crate::verify::Device<Self>>>> {
        crate::gpu::GpuVerifier::on(on).map(Some)
    }

    fn init(&self, _seed: u64) -> Vec<f32> {
        let mut params = vec![0.0; self.layout.len()];
        for logits in params.chunks_exact_mut(GATES) {
            logits[PASS_A] = self.spec.pass_logit as f32;
        }
        params
    }

    fn compute_forward<T: Scalar>(
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

    fn compute_backward<T: Scalar>(
        &self,
        params: &[T],
        input: &LogicBatch<T>,
        pass: &Pass,
        tape: &mut LogicTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        match &self.mistake {
            None => self.right_backward(params, input, pass, tape, d_output, grads),
            Some(mistake) => {
                let right = |d_output: &[T], grads: Grads<'_, T>| {
                    self.right_backward(params, input, pass, tape, d_output, grads);
                };
                mistake.around(&self.layout, input.batch, d_output, grads, right);
            }
        }
    }

    fn mistakes(&self) -> Vec<String> {
        GradientMistake::words(&self.layout)
    }

    fn make_mistake(&mut self, mistake: &Mistake) -> Result<()> {
        self.mistake = Some(GradientMistake::find(&self.layout, mistake)?);
        Ok(())
    }

    /// `gate_penalty` times the gates that do something: every gate counts with its chance to.
    fn penalty<T: Scalar>(&self, params: &[T], mut d_params: Option<&mut [T]>) -> T {
        if self.spec.gate_penalty == 0.0 {
            return T::ZERO;
        }
        let price = T::from_f64(self.spec.gate_penalty);
        let mut sum = T::ZERO;
        for tensor in self.layout.tensors() {
            for first in tensor.range().step_by(GATES) {
                let gate = first..first + GATES;
                let d_logits = d_params.as_deref_mut().filter(|_| !tensor.frozen);
                let d_logits = d_logits.map(|d| (price, &mut d[gate.clone()]));
                sum += super::gates::activity(&params[gate], d_logits);
            }
        }
        price * sum
    }

    fn check_input<T: Scalar>(&self, input: &LogicBatch<T>) -> Result<()> {
        input.check_lengths(self)
    }

    fn output_values<T: Scalar>(&self, input: &LogicBatch<T>) -> Option<usize> {
        Some(input.state.len())
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
pub(super) fn wires_of(what: &str, values: &[f64], gates: usize) -> Result<Vec<Wires>> {
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
