//! A network: layers in a row, with skips, over one flat parameter vector.

use std::ops::Range;

use super::fused::Fused;
pub(crate) use super::node::{Node, Value};
use super::spec::{LayerSpec, NetworkSpec};
use crate::layer::pieces::{add, copy, zero};
use crate::layer::{Backward, Describe, Forward, Saved, TENSORS, sized};
use crate::rng::Key;
use crate::verify::mutants::LayerFault;
use crate::verify::{Bundle, Case, FromBundle};
use crate::{Buffer, Error, Grads, Layout, Model, Pass, Result, Scalar};

/// A feed-forward network.
///
/// A batch is the samples' values, one sample after the other; its length decides the number of
/// samples.
pub struct Network {
    spec: NetworkSpec,
    pub(crate) nodes: Vec<Node>,
    /// The shape of one sample of every layer's output.
    pub(crate) shapes: Vec<Vec<usize>>,
    /// Where every layer's tensors are, by slot.
    pub(crate) tensors: Vec<[Range<usize>; TENSORS]>,
    layout: Layout,
    /// What the fast kernels compute together.
    pub(crate) fused: Fused,
    /// A deliberate fault, for the verifier's mutants.
    pub(crate) fault: Option<LayerFault>,
}

/// What a network's forward leaves for backward.
pub struct NetworkTape<T> {
    /// Every layer's output (empty where it is another name for an earlier one).
    values: Vec<Vec<T>>,
    d_values: Vec<Vec<T>>,
    pub(crate) saved: Vec<Saved<T>>,
    /// For a gradient that is added to one already there.
    added: Vec<T>,
    pub(crate) samples: usize,
}

impl<T> Default for NetworkTape<T> {
    fn default() -> Self {
        NetworkTape {
            values: Vec::new(),
            d_values: Vec::new(),
            saved: Vec::new(),
            added: Vec::new(),
            samples: 0,
        }
    }
}

impl Network {
    /// Builds a network; every shape and option is checked here.
    pub fn new(spec: &NetworkSpec) -> Result<Self> {
        if spec.family != "network" {
            return Err(Error::invalid("model.family", &spec.family, "network"));
        }
        if spec.input.is_empty() || spec.input.contains(&0) {
            let got = format!("{:?}", spec.input);
            return Err(Error::invalid("model.input", got, "sizes of at least 1"));
        }
        if spec.layers.is_empty() {
            return Err(Error::invalid("model.layers", "none", "at least one layer"));
        }
        if spec.layers.len() > MAX_LAYERS {
            let needed = format!("at most {MAX_LAYERS}");
            return Err(Error::invalid("model.layers", spec.layers.len(), needed));
        }
        if spec
            .layers
            .iter()
            .all(|l| matches!(l, LayerSpec::Flatten {}))
        {
            return Err(Error::invalid(
                "model.layers",
                "nothing but flatten",
                "a layer that computes",
            ));
        }
        if let Some(sparsity) = &spec.sparsity {
            for (what, value) in [("l1", sparsity.l1), ("entropy", sparsity.entropy)] {
                if !(value >= 0.0 && value.is_finite()) {
                    let what = format!("model.sparsity.{what}");
                    return Err(Error::invalid(what, value, "a finite number ≥ 0"));
                }
            }
        }
        let mut network = Network {
            spec: spec.clone(),
            nodes: Vec::new(),
            shapes: Vec::new(),
            tensors: Vec::new(),
            layout: Layout::new(),
            fused: Fused::default(),
            fault: None,
        };
        for (index, layer) in spec.layers.iter().enumerate() {
            let (node, shape) = network.build(index, layer)?;
            super::build::check_size(&format!("model.layers[{index}]"), "an output", &shape)?;
            let mut ranges = [(); TENSORS].map(|()| 0..0);
            if let Some(describe) = node.describe() {
                for (range, tensor) in ranges.iter_mut().zip(describe.tensors()) {
                    if let Some(t) = tensor {
                        let name = format!("{index}.{}", t.name);
                        *range = network.layout.push_stored(name, &t.shape, &t.order);
                    }
                }
            }
            network.nodes.push(node);
            network.shapes.push(shape);
            network.tensors.push(ranges);
        }
        network.fused = Fused::find(&network);
        Ok(network)
    }

    /// What it was built from.
    pub fn spec(&self) -> &NetworkSpec {
        &self.spec
    }

    /// The shape of one sample of the output.
    pub fn output_shape(&self) -> &[usize] {
        self.shapes.last().expect("at least one layer")
    }

    /// The length of one sample of the input.
    pub fn input_len(&self) -> usize {
        self.spec.input.iter().product()
    }

    /// The length of one sample of the output.
    pub fn output_len(&self) -> usize {
        self.output_shape().iter().product()
    }

    /// Multiplications and additions of the dense and convolution layers in a training step of one
    /// sample: forward, weight gradients, and input gradients of all layers but the first.
    pub fn flops(&self) -> f64 {
        let mut total = 0.0;
        for (layer, node) in self.nodes.iter().enumerate() {
            let per_output = match node {
                Node::Dense(dense) => dense.inputs,
                Node::Conv2d(conv) => conv.inputs / conv.groups * conv.kernel * conv.kernel,
                _ => continue,
            };
            let outputs: usize = self.shapes[layer].iter().product();
            let passes = if layer == 0 { 2.0 } else { 3.0 };
            total += passes * 2.0 * (per_output * outputs) as f64;
        }
        total
    }

    /// Whether a batch fits: whole samples, at least one, every value finite.
    pub fn check_batch(&self, batch: &[f32]) -> Result<()> {
        let sample = self.input_len();
        if batch.is_empty() || !batch.len().is_multiple_of(sample) {
            let needed = format!("a multiple of {sample}, the input {:?}", self.spec.input);
            return Err(Error::invalid(
                "batch",
                format!("{} values", batch.len()),
                needed,
            ));
        }
        if let Some(i) = batch.iter().position(|v| !v.is_finite()) {
            let what = format!("sample {}, value {}", i / sample, i % sample);
            return Err(Error::invalid(what, batch[i], "a finite number"));
        }
        Ok(())
    }

    pub(crate) fn shape_of(&self, value: Value) -> &[usize] {
        match value {
            Value::Input => &self.spec.input,
            Value::Of(layer) => &self.shapes[layer],
        }
    }

    /// The value that layer `index` reads.
    pub(crate) fn before(index: usize) -> Value {
        index.checked_sub(1).map_or(Value::Input, Value::Of)
    }

    /// The value whose numbers a flattened value shares.
    pub(crate) fn stored(&self, value: Value) -> Value {
        match value {
            Value::Of(layer) if matches!(self.nodes[layer], Node::Flatten) => {
                self.stored(Self::before(layer))
            }
            other => other,
        }
    }

    /// What a layer reads, after a forward.
    pub(crate) fn layer_input<'a, T: Scalar>(
        &self,
        layer: usize,
        input: &'a [T],
        tape: &'a NetworkTape<T>,
    ) -> &'a [T] {
        tape.value(self.stored(Self::before(layer)), input)
    }

    /// Whether anything in the layer is trained.
    pub(crate) fn is_trained(&self, layer: usize) -> bool {
        self.tensors[layer]
            .iter()
            .any(|r| !r.is_empty() && !self.layout.is_frozen(r.clone()))
    }

    pub(crate) fn params_of<'a, T>(&self, layer: usize, params: &'a [T]) -> [&'a [T]; TENSORS] {
        [0, 1, 2].map(|slot| &params[self.tensors[layer][slot].clone()])
    }

    /// The gradients of a layer's trained tensors; frozen and absent ones are `None`.
    pub(crate) fn d_params_of<'a, T>(
        &self,
        layer: usize,
        mut d_params: Option<&'a mut [T]>,
    ) -> [Option<&'a mut [T]>; TENSORS] {
        // The tensors of a layer lie one after the other: split off one at a time.
        let mut taken = 0;
        [0, 1, 2].map(|slot| {
            let range = self.tensors[layer][slot].clone();
            if range.is_empty() {
                return None;
            }
            let rest = d_params.take()?.split_at_mut(range.start - taken).1;
            let (own, rest) = rest.split_at_mut(range.len());
            taken = range.end;
            d_params = Some(rest);
            (!self.layout.is_frozen(range)).then_some(own)
        })
    }
}

impl<T: Scalar> NetworkTape<T> {
    pub(crate) fn value<'a>(&'a self, value: Value, input: &'a [T]) -> &'a [T] {
        match value {
            Value::Input => input,
            Value::Of(layer) => &self.values[layer],
        }
    }
}

impl Model for Network {
    type Input<T: Scalar> = Vec<T>;
    type Tape<T: Scalar> = NetworkTape<T>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        let mut params = vec![0.0; self.layout.len()];
        for (layer, node) in self.nodes.iter().enumerate() {
            let Some(describe) = node.describe() else {
                continue;
            };
            for (slot, range) in self.tensors[layer].iter().enumerate() {
                let tensor = self.layout.tensors().iter().find(|t| t.range() == *range);
                let Some(tensor) = tensor.filter(|_| !range.is_empty()) else {
                    continue;
                };
                // A stream of its own for every tensor: equal shapes start with other weights.
                let index = (layer * TENSORS + slot) as u64;
                let mut stream = Key::new(seed).purpose("init").index(index).stream();
                let values = describe.init(slot, tensor.len(), &mut stream);
                tensor.from_torch(&values, &mut params[range.clone()]);
            }
        }
        params
    }

    fn forward<T: Scalar>(
        &self,
        params: &[T],
        input: &Vec<T>,
        pass: &Pass,
        tape: &mut NetworkTape<T>,
    ) {
        let samples = input.len() / self.input_len();
        tape.samples = samples;
        tape.values.resize_with(self.nodes.len(), Vec::new);
        tape.d_values.resize_with(self.nodes.len(), Vec::new);
        tape.saved.resize_with(self.nodes.len(), Saved::default);
        for (layer, node) in self.nodes.iter().enumerate() {
            if layer > 0 && self.fuses::<T>(layer - 1, pass) {
                continue;
            }
            let relu = self.fuses::<T>(layer, pass);
            let to = layer + usize::from(relu);
            if relu {
                tape.values[layer].clear();
            }
            let before = self.stored(Self::before(layer));
            let len = samples * self.shapes[layer].iter().product::<usize>();
            // Taken out, so that the values before it can be read meanwhile.
            let mut y = std::mem::take(&mut tape.values[to]);
            if let Some(built) = node.layer::<T>() {
                let mut saved = std::mem::take(&mut tape.saved[layer]);
                let io = Forward {
                    params: self.params_of(layer, params),
                    x: tape.value(before, input),
                    y: sized(&mut y, len),
                    samples,
                    saved: &mut saved,
                    pass,
                    relu,
                };
                match &self.fault {
                    Some(fault) if fault.at::<T>(layer) => {
                        fault.forward(built, io, &self.shapes[layer]);
                    }
                    _ => built.forward(io),
                }
                tape.saved[layer] = saved;
            } else {
                match *node {
                    Node::Concat(with) => {
                        let [x, other] = [before, self.stored(with)].map(|v| tape.value(v, input));
                        let (a, b) = (x.len() / samples, other.len() / samples);
                        let rows = x.chunks_exact(a).zip(other.chunks_exact(b));
                        for ((x, other), y) in rows.zip(sized(&mut y, len).chunks_exact_mut(a + b))
                        {
                            copy(&mut y[..a], x);
                            copy(&mut y[a..], other);
                        }
                    }
                    Node::Add(with) => {
                        let [x, other] = [before, self.stored(with)].map(|v| tape.value(v, input));
                        copy(sized(&mut y, len), x);
                        add(&mut y, other);
                    }
                    _ => {}
                }
            }
            tape.values[to] = y;
        }
    }

    fn output<'t, T: Scalar>(&self, tape: &'t NetworkTape<T>) -> &'t [T] {
        match self.stored(Value::Of(self.nodes.len() - 1)) {
            Value::Of(layer) => &tape.values[layer],
            // Nothing but flattens: the output is the input, which forward has no copy of.
            Value::Input => unreachable!("refused when built"),
        }
    }

    fn backward<T: Scalar>(
        &self,
        params: &[T],
        input: &Vec<T>,
        pass: &Pass,
        tape: &mut NetworkTape<T>,
        d_output: &[T],
        grads: Grads<'_, T>,
    ) {
        let Grads {
            params: mut d_params,
            input: mut d_input,
            accumulate,
        } = grads;
        if let Some(d_params) = d_params.as_deref_mut()
            && !accumulate
        {
            zero(d_params, &self.layout);
        }
        if let Some(d_input) = d_input.as_deref_mut() {
            d_input.fill(T::ZERO);
        }
        let samples = tape.samples;
        let last = self.nodes.len() - 1;
        // Whether anything that is asked for depends on a value.
        let wants_params = d_params.is_some();
        let wants_input = d_input.is_some();
        let mut wanted = [false; MAX_LAYERS];
        for layer in 0..=last {
            let wanted_of = |v: Value| match v {
                Value::Input => wants_input,
                Value::Of(l) => wanted[l],
            };
            let with = match self.nodes[layer] {
                Node::Concat(v) | Node::Add(v) => wanted_of(v),
                _ => false,
            };
            wanted[layer] =
                with || wanted_of(Self::before(layer)) || (wants_params && self.is_trained(layer));
        }
        // Whether a value's gradient has its first contribution.
        let mut written = [false; MAX_LAYERS];
        let mut d_input_written = false;
        // Whether the parameters of the layers below have their gradients.
        let mut stack_done = false;
        // The layer whose gradient is `d_output`.
        let mut top = last;
        if let Value::Of(layer) = self.stored(Value::Of(last)) {
            top = layer;
            written[top] = true;
        }
        for layer in (0..=last).rev() {
            if !wanted[layer] || matches!(self.nodes[layer], Node::Flatten) {
                continue;
            }
            if layer > 0 && written[layer] && self.fuses::<T>(layer - 1, pass) {
                // The layer before it takes its gradient, and masks it.
                tape.d_values.swap(layer - 1, layer);
                written[layer - 1] = true;
                if top == layer {
                    top -= 1;
                }
                continue;
            }
            let relu = self.fuses::<T>(layer, pass);
            if !written[layer] {
                // Nothing after it reads this value.
                continue;
            }
            let kept = std::mem::take(&mut tape.d_values[layer]);
            let d_y = match layer == top {
                true => d_output,
                false => &kept,
            };
            if let Some(d_params) = d_params.as_deref_mut()
                && self.ends_stack::<T>(layer, pass)
            {
                self.backward_stack(params, input, tape, d_y, d_params);
                stack_done = true;
                if !wants_input {
                    // It begins at the input: nothing is left to do.
                    tape.d_values[layer] = kept;
                    if relu {
                        tape.d_values.swap(layer, layer + 1);
                    }
                    break;
                }
            }
            let before = self.stored(Self::before(layer));
            let is_wanted = |v: Value| match v {
                Value::Input => wants_input,
                Value::Of(l) => wanted[l],
            };
            if let Some(built) = self.nodes[layer].layer::<T>() {
                let mut saved = std::mem::take(&mut tape.saved[layer]);
                let mut added = std::mem::take(&mut tape.added);
                let mut d_before = match before {
                    Value::Of(l) => std::mem::take(&mut tape.d_values[l]),
                    Value::Input => Vec::new(),
                };
                let x = tape.value(before, input);
                let adds = match before {
                    Value::Of(l) => written[l],
                    Value::Input => d_input_written,
                };
                let d_x = is_wanted(before).then(|| {
                    if adds {
                        sized(&mut added, x.len())
                    } else {
                        match before {
                            Value::Of(_) => sized(&mut d_before, x.len()),
                            Value::Input => d_input.as_deref_mut().expect("wanted"),
                        }
                    }
                });
                let has_d_x = d_x.is_some();
                let own = d_params.as_deref_mut().filter(|_| !stack_done);
                let io = Backward {
                    params: self.params_of(layer, params),
                    x,
                    y: &tape.values[layer + usize::from(relu)],
                    d_y,
                    samples,
                    saved: &mut saved,
                    pass,
                    d_params: self.d_params_of(layer, own),
                    d_x,
                    relu,
                };
                match &self.fault {
                    Some(fault) if fault.at::<T>(layer) => {
                        let shapes = [self.shape_of(Self::before(layer)), &self.shapes[layer]];
                        fault.backward(&self.nodes[layer], built, io, shapes);
                    }
                    _ => built.backward(io),
                }
                if has_d_x {
                    match before {
                        Value::Of(l) => {
                            if adds {
                                add(&mut d_before, &added);
                            }
                            written[l] = true;
                        }
                        Value::Input => {
                            if adds {
                                add(d_input.as_deref_mut().expect("wanted"), &added);
                            }
                            d_input_written = true;
                        }
                    }
                }
                if let Value::Of(l) = before {
                    tape.d_values[l] = d_before;
                }
                tape.saved[layer] = saved;
                tape.added = added;
            } else if let Node::Concat(with) | Node::Add(with) = self.nodes[layer] {
                let is_concat = matches!(self.nodes[layer], Node::Concat(_));
                let with = self.stored(with);
                let total = d_y.len() / samples;
                let own = tape.value(before, input).len() / samples;
                let ranges = if is_concat {
                    [0..own, own..total]
                } else {
                    [0..total, 0..total]
                };
                let fault = self.fault.filter(|fault| fault.at::<T>(layer));
                let wrong =
                    fault.map(|f| f.skip(d_y, &self.shapes[layer], samples, ranges.clone()));
                let (d_y, ranges) = match &wrong {
                    Some((d_y, ranges)) => (&d_y[..], ranges.clone()),
                    None => (d_y, ranges),
                };
                let drops = fault.and_then(|f| f.drops());
                for (branch, (value, range)) in [before, with].into_iter().zip(ranges).enumerate() {
                    if !is_wanted(value) || drops == Some(branch) {
                        continue;
                    }
                    let len = samples * range.len();
                    let (d_value, is_written) = match value {
                        Value::Input => (
                            d_input.as_deref_mut().expect("wanted"),
                            &mut d_input_written,
                        ),
                        Value::Of(l) => (sized(&mut tape.d_values[l], len), &mut written[l]),
                    };
                    for (d_value, d_y) in d_value
                        .chunks_exact_mut(range.len())
                        .zip(d_y.chunks_exact(total))
                    {
                        if *is_written {
                            add(d_value, &d_y[range.clone()]);
                        } else {
                            copy(d_value, &d_y[range.clone()]);
                        }
                    }
                    *is_written = true;
                }
            }
            tape.d_values[layer] = kept;
            if relu {
                // Back to where the next step grows it.
                tape.d_values.swap(layer, layer + 1);
            }
        }
    }

    fn penalty<T: Scalar>(&self, params: &[T], mut d_params: Option<&mut [T]>) -> T {
        let mut sum = T::ZERO;
        let Some(sparsity) = &self.spec.sparsity else {
            return sum;
        };
        for (layer, node) in self.nodes.iter().enumerate() {
            if let Node::Kan(kan) = node {
                let [spline_weight, base_weight, _] = self.params_of(layer, params);
                let [d_spline, d_base, _] = self.d_params_of(layer, d_params.as_deref_mut());
                sum += kan.penalty(sparsity, spline_weight, base_weight, [d_spline, d_base]);
            }
        }
        sum
    }

    fn cast_input<T: Scalar, U: Scalar>(&self, input: &Vec<T>) -> Vec<U> {
        crate::scalar::cast(input)
    }

    fn pattern<T: Scalar>(
        &self,
        params: &[T],
        input: &Vec<T>,
        tape: &NetworkTape<T>,
        pattern: &mut Vec<u32>,
    ) {
        for (layer, node) in self.nodes.iter().enumerate() {
            if self.spec.sparsity.is_some() && matches!(node, Node::Kan(_)) {
                // The penalty has a kink where a weight is 0.
                let [spline_weight, base_weight, _] = self.params_of(layer, params);
                let weights = spline_weight.iter().chain(base_weight);
                pattern.extend(weights.map(|&w| u32::from(w > T::ZERO)));
            }
            if let Some(built) = node.layer::<T>() {
                let mut before = self.stored(Self::before(layer));
                if let Value::Of(l) = before
                    && tape.values[l].is_empty()
                {
                    // In one pass with this ReLU, whose output is positive where its input is.
                    before = Value::Of(layer);
                }
                let x = tape.value(before, input);
                built.pattern(x, &tape.saved[layer], pattern);
            }
        }
    }

    fn buffers(&self) -> Vec<Buffer> {
        let mut all = Vec::new();
        for (layer, node) in self.nodes.iter().enumerate() {
            for mut buffer in node.describe().map_or_else(Vec::new, Describe::buffers) {
                buffer.name = format!("{layer}.{}", buffer.name);
                all.push(buffer);
            }
        }
        all
    }

    fn set_buffer(&mut self, buffer: &Buffer) -> Result<()> {
        let what = || format!("buffer {}", buffer.name);
        if let Some(i) = buffer.values.iter().position(|v| !v.is_finite()) {
            let element = format!("{}, element {i}", what());
            return Err(Error::invalid(element, buffer.values[i], "a finite number"));
        }
        if let Some((layer, name)) = buffer.name.split_once('.')
            && let Ok(layer) = layer.parse::<usize>()
            && let Some(node) = self.nodes.get_mut(layer)
            && let Some(describe) = node.describe_mut()
            && describe.set_buffer(name, buffer)?
        {
            return Ok(());
        }
        let names: Vec<String> = self.buffers().into_iter().map(|b| b.name).collect();
        let needed = format!("one of the model's buffers: [{}]", names.join(", "));
        Err(Error::invalid(what(), "no such buffer", needed))
    }

    fn absorb(&mut self, tape: &NetworkTape<f32>) {
        for (node, saved) in self.nodes.iter_mut().zip(&tape.saved) {
            if let Some(describe) = node.describe_mut() {
                describe.absorb(saved, tape.samples);
            }
        }
    }
}

/// The most layers; bookkeeping of a backward pass lives on the stack.
pub(crate) const MAX_LAYERS: usize = 1024;

impl FromBundle for Network {
    fn from_bundle(bundle: &Bundle) -> Result<Case<Self>> {
        let mut model = Network::new(&bundle.model_spec()?)?;
        for name in bundle.names().filter_map(|n| n.strip_prefix("buffer/")) {
            let array = bundle.array(&format!("buffer/{name}"))?;
            model.set_buffer(&Buffer {
                name: name.into(),
                shape: array.shape.clone(),
                values: array.values.clone(),
            })?;
        }
        let x = bundle.array("input/x")?;
        let sample = &model.spec.input;
        if x.shape.len() != sample.len() + 1 || x.shape[1..] != sample[..] || x.shape[0] == 0 {
            let problem = format!("shape {:?}, the model needs [samples, {sample:?}]", x.shape);
            return Err(Error::file(&bundle.path, "input/x", problem));
        }
        if let Some(i) = x.values.iter().position(|v| !v.is_finite()) {
            let problem = format!("element {i} is {}", x.values[i]);
            return Err(Error::file(&bundle.path, "input/x", problem));
        }
        let target = bundle.target()?;
        bundle
            .loss
            .check(x.shape[0] * model.output_len(), &target)?;
        Ok(Case {
            params: bundle.flat(&model, "param")?,
            input: x.values.clone(),
            target,
            model,
        })
    }
}
