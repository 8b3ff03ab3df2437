//! Random models of every family. A choice that a model refuses is drawn again, from where the stream is.

use std::sync::Arc;

use super::draw::{Draw, KINKED, SIZES, SMOOTH};
use crate::graph::{
    DagNN, DagSpec, EdgeRules, Graph, GraphBatch, GraphNetwork, GraphSpec, Head, TransformSpec,
};
use crate::logic::{LogicBatch, LogicCa, LogicSpec};
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::verify::Case;
use crate::{Loss, Model};

/// The most parameters, and values of a batch: what is cut along larger sizes is `verify/sizes.rs`'s.
const MOST_PARAMS: usize = 3_000;
const MOST_VALUES: usize = 2_500;

/// A model with its batch, its loss, and what it is in a few words.
pub(super) struct Drawn<M: Model> {
    pub case: Case<M>,
    pub loss: Loss,
    pub words: String,
}

/// Draws until something fits.
fn until<X>(mut draw: impl FnMut() -> Option<X>) -> X {
    loop {
        if let Some(x) = draw() {
            return x;
        }
    }
}

fn kinds(layers: &[LayerSpec]) -> String {
    let kinds: Vec<&str> = layers.iter().map(LayerSpec::kind).collect();
    kinds.join(" ")
}

fn largest(values: &[f64]) -> f64 {
    crate::verify::largest(values)
}

/// A network that was built, with its numbers.
fn finished(draw: &mut Draw, mut model: Network, samples: usize) -> Option<Drawn<Network>> {
    if model.layout().len() > MOST_PARAMS || samples * model.input_len() > MOST_VALUES {
        return None;
    }
    for mut buffer in model.buffers() {
        let moved = draw.numbers(buffer.values.len(), 0.5, 1.5);
        if buffer.name.ends_with("std") || buffer.name.ends_with("var") {
            buffer.values.copy_from_slice(&moved);
        }
        model.set_buffer(&buffer).ok()?;
    }
    let params = draw.params(&model);
    let input = draw.samples(samples, model.input_len());
    let (loss, target) = draw.target(samples, model.output_len());
    let words = format!(
        "{}; {samples} samples, {}, data of {:.1e}",
        kinds(&model.spec().layers),
        loss.name(),
        largest(&input)
    );
    let case = Case {
        model,
        params,
        input,
        target,
    };
    Some(Drawn { case, loss, words })
}

fn built(input: &[usize], layers: &[String]) -> Option<Network> {
    let layers: Vec<LayerSpec> = serde_json::from_str(&format!("[{}]", layers.join(","))).ok()?;
    Network::new(&NetworkSpec::new(input, layers)).ok()
}

const BATCHES: [usize; 12] = [1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 64, 65];

/// Dense layers, norms, activations, dropout, sums and joins with earlier layers.
pub(super) fn rows(draw: &mut Draw) -> Drawn<Network> {
    until(|| {
        let inputs = draw.of(&SIZES);
        let mut layers = Vec::new();
        if draw.chance(0.2) {
            layers.push(r#"{"kind":"normalize"}"#.to_string());
        }
        for _ in 0..draw.between(1, 3) {
            let out = draw.of(&SIZES);
            let bias = draw.chance(0.7);
            layers.push(format!(r#"{{"kind":"dense","out":{out},"bias":{bias}}}"#));
            let more = [
                (0.3, r#"{"kind":"layer_norm"}"#.to_string()),
                (0.7, draw.activation()),
                (0.1, r#"{"kind":"dropout","p":0.3}"#.to_string()),
            ];
            layers.extend(more.into_iter().filter(|m| draw.chance(m.0)).map(|m| m.1));
            if draw.chance(0.3) {
                let kind = draw.of(&["add", "concat"]);
                let with = draw.between(0, layers.len()) as i64 - 1;
                let joined = format!(r#"{{"kind":"{kind}","with":{with}}}"#);
                layers.push(joined);
                if built(&[inputs], &layers).is_none() {
                    layers.pop();
                }
            }
        }
        if draw.chance(0.15) {
            let classes = draw.of(&[64, 65, 100, 129, 257]);
            layers.push(format!(r#"{{"kind":"dense","out":{classes}}}"#));
        }
        let model = built(&[inputs], &layers)?;
        let samples = draw.of(&BATCHES);
        finished(draw, model, samples)
    })
}

/// Splines of all degrees, edges and bases.
pub(super) fn kans(draw: &mut Draw) -> Drawn<Network> {
    until(|| {
        let inputs = draw.of(&SIZES[..9]);
        let mut layers = Vec::new();
        if draw.chance(0.4) {
            layers.push(r#"{"kind":"normalize"}"#.to_string());
        }
        for _ in 0..draw.between(1, 2) {
            let (out, low) = (draw.of(&SIZES[..9]), draw.of(&[-2.0, -1.0, 0.0]));
            layers.push(format!(
                r#"{{"kind":"kan","out":{out},"grid":{},"degree":{},"range":[{low},{}],"base":"{}","bias":{},"outside":"{}","free_knots":{}}}"#,
                draw.of(&[1, 2, 5, 8]),
                draw.of(&[1, 2, 3, 3, 4, 5]),
                low + draw.of(&[1.0, 2.0, 4.0]),
                draw.of(&["silu", "none"]),
                draw.chance(0.5),
                draw.of(&["decay", "clamp"]),
                draw.chance(0.2),
            ));
            if out > 1 && draw.chance(0.2) {
                layers.push(r#"{"kind":"layer_norm"}"#.to_string());
            }
        }
        if draw.chance(0.3) {
            layers.push(format!(
                r#"{{"kind":"dense","out":{}}}"#,
                draw.of(&[1, 3, 10])
            ));
        }
        let model = built(&[inputs], &layers)?;
        let samples = draw.of(&BATCHES);
        finished(draw, model, samples)
    })
}

/// A layer of a picture's network.
fn picture_layer(draw: &mut Draw, layers: &mut Vec<String>) {
    let out = draw.of(&[1, 2, 3, 4, 6, 8]);
    let layer = match draw.between(0, 8) {
        0 => r#"{"kind":"max_pool2d","kernel":2}"#.to_string(),
        1 => r#"{"kind":"avg_pool2d","kernel":2}"#.to_string(),
        2 => r#"{"kind":"max_pool2d","kernel":3,"stride":2}"#.to_string(),
        3 => r#"{"kind":"upsample","scale":2}"#.to_string(),
        4 => format!(
            r#"{{"kind":"conv_transpose2d","out":{out},"kernel":3,"stride":{},"padding":1,"bias":{}}}"#,
            draw.of(&[1, 2]),
            draw.chance(0.7)
        ),
        _ => {
            let kernel = draw.of(&[1, 2, 3, 3, 5]);
            format!(
                r#"{{"kind":"conv2d","out":{out},"kernel":{kernel},"padding":{},"padding_mode":"{}","stride":{},"dilation":{},"groups":{},"bias":{}}}"#,
                draw.of(&[0, kernel / 2]),
                draw.of(&["zeros", "reflect"]),
                draw.of(&[1, 1, 2]),
                draw.of(&[1, 1, 1, 2]),
                draw.of(&[1, 1, 2]),
                draw.chance(0.7),
            )
        }
    };
    layers.push(layer);
    if draw.chance(0.35) {
        let groups = draw.of(&[1, 2, out]);
        layers.push(match draw.chance(0.5) {
            true => r#"{"kind":"batch_norm2d"}"#.to_string(),
            false => format!(r#"{{"kind":"group_norm","groups":{groups}}}"#),
        });
    }
    if draw.chance(0.6) {
        layers.push(draw.activation());
    }
    if draw.chance(0.2) {
        let kind = draw.of(&["add", "concat"]);
        let with = draw.between(0, layers.len()) as i64 - 1;
        layers.push(format!(r#"{{"kind":"{kind}","with":{with}}}"#));
    }
}

/// Convolutions, pools, norms of planes, larger and smaller pictures.
pub(super) fn pictures(draw: &mut Draw) -> Drawn<Network> {
    until(|| {
        let input = [
            draw.of(&[1, 2, 3]),
            draw.between(3, 12),
            draw.between(3, 12),
        ];
        let mut layers = Vec::new();
        for _ in 0..draw.between(1, 4) {
            let before = layers.len();
            picture_layer(draw, &mut layers);
            while layers.len() > before && built(&input, &layers).is_none() {
                layers.pop();
            }
        }
        if !layers.iter().any(|l| l.contains("conv")) {
            layers.push(r#"{"kind":"conv2d","out":2,"kernel":1}"#.to_string());
        }
        if draw.chance(0.4) {
            layers.push(r#"{"kind":"flatten"}"#.to_string());
            let out = draw.of(&[2, 3, 10]);
            layers.push(format!(r#"{{"kind":"dense","out":{out}}}"#));
        }
        let model = built(&input, &layers)?;
        if model.output_len() > 600 {
            return None;
        }
        let samples = draw.of(&[1, 2, 3, 5, 8]);
        finished(draw, model, samples)
    })
}

/// Some graphs side by side: edges at random, hubs, nodes without any.
fn random_graph(draw: &mut Draw) -> Graph {
    let one = |draw: &mut Draw| {
        let nodes = draw.of(&[1, 2, 3, 6, 9, 16, 17]);
        let edges = draw.of(&[0, nodes, 3 * nodes]);
        let node = |draw: &mut Draw| draw.between(0, nodes - 1) as u32;
        let mut sources: Vec<u32> = (0..edges).map(|_| node(draw)).collect();
        let mut targets: Vec<u32> = (0..edges).map(|_| node(draw)).collect();
        if draw.chance(0.2) {
            // A hub.
            sources.extend(1..nodes as u32);
            targets.extend(vec![0; nodes - 1]);
        }
        let rules = EdgeRules::drop();
        Graph::build(nodes, &sources, &targets, rules).map(|built| built.graph)
    };
    until(|| {
        let graphs: Vec<Graph> = (0..draw.of(&[1, 1, 2, 5]))
            .map(|_| one(draw))
            .collect::<Result<_, _>>()
            .ok()?;
        Some(Graph::union(&graphs))
    })
}

fn graph_layers(draw: &mut Draw, mut kinds: Vec<&'static str>) -> Vec<String> {
    let mut layers = Vec::new();
    if draw.chance(0.3) {
        kinds.push("dense");
    }
    for _ in 0..draw.between(1, 2) {
        let (kind, out) = (draw.of(&kinds), draw.of(&[2, 3, 5, 8, 16]));
        layers.push(match kind {
            "self_attention" => {
                let heads = draw.of(&[1, 1, 2, 4]);
                format!(r#"{{"kind":"self_attention","heads":{heads}}}"#)
            }
            "gat" | "gatv2" => {
                let heads = draw.of(&[1, 2, 3]);
                format!(r#"{{"kind":"{kind}","out":{out},"heads":{heads}}}"#)
            }
            kind => format!(r#"{{"kind":"{kind}","out":{out}}}"#),
        });
        if draw.chance(0.3) {
            layers.push(r#"{"kind":"layer_norm"}"#.to_string());
        }
        if draw.chance(0.7) {
            layers.push(draw.activation());
        }
    }
    let pool = draw.of(&["sum_pool", "mean_pool", "max_pool"]);
    match draw.between(0, 9) {
        0..4 => layers.push(format!(r#"{{"kind":"{pool}"}}"#)),
        4 => return [layers, vec![r#"{"kind":"pair_dot"}"#.to_string()]].concat(),
        _ => {}
    }
    let out = draw.of(&[1, 2, 3, 7]);
    layers.push(format!(r#"{{"kind":"dense","out":{out}}}"#));
    layers
}

/// Graph networks of all kinds.
pub(super) fn graphs(draw: &mut Draw) -> Drawn<GraphNetwork> {
    until(|| {
        let (mut extra, mut kinds) = (
            "",
            vec![
                "gcn",
                "sage",
                "gin",
                "message_passing",
                "gat",
                "gatv2",
                "self_attention",
            ],
        );
        match draw.between(0, 7) {
            0 => (extra, kinds) = (r#""edge_weight":true,"#, vec!["gcn"]),
            1 => (extra, kinds) = (r#""edge_features":2,"#, vec!["gine"]),
            _ => {}
        }
        let features = draw.of(&SIZES);
        let layers = graph_layers(draw, kinds).join(",");
        let spec = format!(r#"{{"features":{features},{extra}"layers":[{layers}]}}"#);
        let spec: GraphSpec = serde_json::from_str(&spec).ok()?;
        on_graph(draw, &spec)
    })
}

/// Texts and other nodes with ids: embedding, message passing with residuals, attention.
pub(super) fn transforms(draw: &mut Draw) -> Drawn<GraphNetwork> {
    until(|| {
        let width = draw.of(&[2, 3, 4, 8]);
        let widths = (0..draw.between(1, 3)).map(|_| draw.of(&[width, width, 5, 8]));
        let widths = widths.collect();
        let spec = TransformSpec {
            vocabulary: draw.between(2, 12),
            embedding: width,
            widths,
            attention_heads: draw.of(&[None, Some(1), Some(2)]),
            head: draw.of(&[Head::Nodes, Head::Graphs]),
            out: draw.of(&[1, 2, 5]),
        };
        on_graph(draw, &spec.to_graph_spec())
    })
}

fn on_graph(draw: &mut Draw, spec: &GraphSpec) -> Option<Drawn<GraphNetwork>> {
    let model = GraphNetwork::new(spec).ok()?;
    let graph = Arc::new(random_graph(draw));
    let (nodes, edges) = (graph.nodes(), graph.edges());
    let mut input = match spec.features {
        Some(width) => {
            let values = draw.samples(nodes, width);
            GraphBatch::dense(graph, width, values).ok()?
        }
        None => {
            let vocabulary = model.embedding().map_or(1, |e| e.vocabulary);
            let id = |_| draw.between(0, vocabulary - 1) as u32;
            let ids: Vec<u32> = (0..nodes).map(id).collect();
            GraphBatch::ids(graph, vocabulary, &ids).ok()?
        }
    };
    if spec.edge_weight {
        input = input
            .with_edge_weights(&draw.numbers(edges, 0.1, 2.0))
            .ok()?;
    }
    if spec.edge_features > 0 {
        let values = draw.normals(edges * spec.edge_features, 1.0);
        input = input.with_edge_features(spec.edge_features, &values).ok()?;
    }
    let pair = |_| [0, 1].map(|_| draw.between(0, nodes - 1) as u32);
    input = input.with_pairs((0..5).map(pair).collect()).ok()?;
    model.check(&input).ok()?;
    if model.layout().len() > MOST_PARAMS {
        return None;
    }
    let params = draw.params(&model);
    let (loss, target) = draw.target(model.output_rows(&input), model.output_width());
    let words = format!(
        "{}; {nodes} nodes, {edges} edges, {}, data of {:.1e}",
        kinds(&spec.layers),
        loss.name(),
        largest(crate::Batch::values(&input))
    );
    let case = Case {
        model,
        params,
        input,
        target,
    };
    Some(Drawn { case, loss, words })
}

/// Single neurons with edges forwards at random.
pub(super) fn dags(draw: &mut Draw) -> Drawn<DagNN> {
    until(|| {
        let (inputs, hidden) = (draw.of(&SIZES[..7]), draw.of(&SIZES));
        let outputs = draw.of(&[1, 2, 5]);
        let activation = draw.of(&[&SMOOTH[..], &KINKED].concat());
        let spec = DagSpec::new(inputs, hidden, outputs, activation);
        let nodes = inputs + hidden + outputs;
        let share = draw.of(&[0.1, 0.4, 0.9]);
        let (mut sources, mut targets) = (Vec::new(), Vec::new());
        for target in inputs..nodes {
            for source in 0..target.min(inputs + hidden) {
                if draw.chance(share) {
                    sources.push(source as u32);
                    targets.push(target as u32);
                }
            }
        }
        let model = DagNN::new(&spec, &sources, &targets).ok()?;
        let samples = draw.of(&BATCHES);
        let params = draw.params(&model);
        let input = draw.samples(samples, inputs);
        let (loss, target) = draw.target(samples, outputs);
        let words = format!(
            "{nodes} nodes, {} edges, {activation}; {samples} samples, {}, data of {:.1e}",
            sources.len(),
            loss.name(),
            largest(&input)
        );
        let case = Case {
            model,
            params,
            input,
            target,
        };
        Some(Drawn { case, loss, words })
    })
}

/// Automata: states between 0 and 1, some of them bits, as gates take them.
pub(super) fn automata(draw: &mut Draw) -> Drawn<LogicCa> {
    until(|| {
        let (channels, kernels) = (draw.of(&[1, 2, 3, 8]), draw.of(&[1, 2, 3]));
        let perception = draw.of(&[vec![9, 8, 4, 2], vec![9, 5, 3], vec![9, 8, 1]]);
        let read = channels * (1 + kernels * perception[perception.len() - 1]);
        let mut update = vec![read];
        for _ in 0..draw.between(0, 2) {
            update.push(draw.of(&[4, 7, 8, 16, 17]));
        }
        update.push(channels);
        let (steps, fire_rate) = (draw.between(1, 5), draw.of(&[1.0, 1.0, 0.6]));
        let spec = format!(
            r#"{{"channels":{channels},"kernels":{kernels},"perception":{perception:?},"update":{update:?},"steps":{steps},"fire_rate":{fire_rate},"boundary":"{}","wiring":"{}","per_kernel_wiring":{},"gate_penalty":{}}}"#,
            draw.of(&["periodic", "zero"]),
            draw.of(&["unique", "random"]),
            draw.chance(0.5),
            draw.of(&[0.0, 0.0, 1e-3]),
        );
        let spec: LogicSpec = serde_json::from_str(&spec).ok()?;
        let model = LogicCa::new(spec, draw.seed()).ok()?;
        let [batch, height, width] = [draw.of(&[1, 2, 3]), draw.between(1, 9), draw.between(1, 9)];
        let len = batch * height * width * channels;
        if len > MOST_VALUES || model.layout().len() > MOST_PARAMS {
            return None;
        }
        let mut state = draw.numbers(len, 0.0, 1.0);
        if draw.chance(0.5) {
            state.iter_mut().for_each(|s| *s = s.round());
        }
        let fires = |_| draw.chance(fire_rate);
        let fire = (fire_rate < 1.0).then(|| (0..steps * height * width).map(fires).collect());
        let input = LogicBatch::new(&model, state, [batch, height, width], fire).ok()?;
        // Logits as they start, far apart as after long training, or nothing.
        let scale = draw.of(&[0.0, 0.3, 1.0, 5.0]);
        let start = model.init(draw.seed());
        let far = draw.normals(start.len(), scale);
        let moved = start.iter().zip(&far);
        let params = moved.map(|(p, f)| f64::from((f64::from(*p) + f) as f32));
        let params = params.collect();
        let loss = draw.of(&[Loss::Mse, Loss::SumSquares, Loss::L1, Loss::Huber]);
        let bits = draw.numbers(len, 0.0, 1.0);
        let target = crate::Target::values(bits.into_iter().map(f64::round).collect());
        let words = format!(
            "{channels} channels, {kernels} kernels, update {update:?}, {steps} steps, {batch}×{height}×{width}, {}",
            loss.name()
        );
        let case = Case {
            model,
            params,
            input,
            target,
        };
        Some(Drawn { case, loss, words })
    })
}
