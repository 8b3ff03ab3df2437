// In the browser: the engine, and the same models written with TensorFlow.js, from the same weights on the same rows.
import { ConsoleStdout, Directory, File, OpenFile, PreopenDirectory, WASI } from "@bjorn3/browser_wasi_shim";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops";
import "@tensorflow/tfjs-core/dist/register_all_gradients";
import "@tensorflow/tfjs-backend-cpu";
import { setWasmPaths } from "@tensorflow/tfjs-backend-wasm";
import { boardLoss } from "./automaton.js";
import { COUNTS, FILES, MODELS, RATE, ROWS } from "./experiments.mjs";

const encoder = new TextEncoder();
const files = new PreopenDirectory("/", new Map(Object.entries(FILES).map(([name, text]) => [name, new File(encoder.encode(text))])));

let engine;
async function load() {
  const silent = () => ConsoleStdout.lineBuffered(() => {});
  const wasi = new WASI([], [], [new OpenFile(new File([])), silent(), silent(), files], { debug: false });
  const module = await WebAssembly.compileStreaming(fetch("engine-simd128.wasm"));
  // What it would ask of a GPU or of other workers is not asked here.
  const asked = WebAssembly.Module.imports(module).filter((wanted) => ["webgpu", "workers"].includes(wanted.module));
  const others = Object.fromEntries(asked.map(({ name }) => [name, () => { throw new Error(name); }]));
  const imports = { wasi_snapshot_preview1: wasi.wasiImport, retrograd: { event: () => 0 }, webgpu: others, workers: others };
  const instance = await WebAssembly.instantiate(module, imports);
  wasi.initialize(instance);
  engine = instance.exports;
}

function call(request) {
  const bytes = encoder.encode(JSON.stringify(request));
  const place = engine.reserve(bytes.length);
  new Uint8Array(engine.memory.buffer).set(bytes, place);
  const length = engine.call();
  const told = new Uint8Array(engine.memory.buffer).slice(engine.answer(), engine.answer() + length);
  const answer = JSON.parse(new TextDecoder().decode(told));
  if ("error" in answer) throw new Error(answer.error);
  return answer.ok;
}

/** Trains, and answers the weights with the milliseconds of the whole call. */
function train(text) {
  files.dir.contents.delete("run");
  const start = performance.now();
  const { summary } = call({ do: "train", experiment: text, folder: "/run" });
  const whole = performance.now() - start;
  const folder = files.dir.contents.get("run");
  if (!(folder instanceof Directory)) throw new Error("no run");
  const { data } = folder.contents.get("model.safetensors");
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const head = Number(view.getBigUint64(0, true));
  const tensors = JSON.parse(new TextDecoder().decode(data.subarray(8, 8 + head)));
  delete tensors.__metadata__;
  const weights = {};
  for (const [name, { shape, data_offsets }] of Object.entries(tensors)) {
    const bytes = data.slice(8 + head + data_offsets[0], 8 + head + data_offsets[1]);
    weights[name] = { shape, values: new Float32Array(bytes.buffer) };
  }
  return { weights, whole, milliseconds: summary.ms_per_step, digest: summary.weights_sha256 };
}

/** B-splines of degree 3 on 5 intervals of [-1, 1] by the recursion, (rows, inputs) → (rows, inputs, 8). */
function basis(x) {
  const [grid, degree, low, step] = [5, 3, -1, 2 / 5];
  const knots = tf.tensor1d(Array.from({ length: grid + 2 * degree + 1 }, (_, j) => low + (j - degree) * step));
  const wide = x.expandDims(2);
  const piece = (from, length) => knots.slice([from], [length]);
  const count = grid + 2 * degree;
  // Which interval: a step, whose derivative TensorFlow.js has no function for.
  const within = tf.customGrad((wide) => ({
    value: tf.logicalAnd(tf.greaterEqual(wide, piece(0, count)), tf.less(wide, piece(1, count))).cast("float32"),
    gradFunc: () => tf.zerosLike(wide),
  }));
  let b = within(wide);
  for (let d = 1; d <= degree; d++) {
    const left = count - d;
    const [rows, inputs] = x.shape;
    const rising = wide.sub(piece(0, left)).div(d * step).mul(b.slice([0, 0, 0], [rows, inputs, left]));
    const falling = piece(d + 1, left).sub(wide).div(d * step).mul(b.slice([0, 0, 1], [rows, inputs, left]));
    b = rising.add(falling);
  }
  return b;
}

function kanLayer(x, base, spline) {
  const [rows, inputs] = x.shape;
  const outputs = base.shape[0];
  const silu = x.mul(x.sigmoid());
  const flat = basis(x).reshape([rows, inputs * 8]);
  return tf.matMul(silu, base, false, true).add(tf.matMul(flat, spline.reshape([outputs, inputs * 8]), false, true));
}

const LOSSES = {
  points(w, x) {
    const dense = (value, layer) => tf.matMul(value, w[`${layer}.weight`], false, true).add(w[`${layer}.bias`]);
    const logits = dense(dense(dense(x, 0).tanh(), 2).tanh(), 4);
    const right = tf.tensor2d(ROWS.map(([a, b]) => (a * b > 0 ? [0, 1] : [1, 0])));
    return logits.logSumExp(1).sub(logits.mul(right).sum(1)).mean();
  },
  automaton: boardLoss,
  kan(w, x) {
    const hidden = kanLayer(x, w["0.base_weight"], w["0.spline_weight"]);
    const y = kanLayer(hidden, w["1.base_weight"], w["1.spline_weight"]);
    const right = tf.tensor2d(ROWS.map(([a, b]) => [Number((a * b).toFixed(6))]));
    return y.sub(right).square().mean();
  },
};

/** Steps of TensorFlow.js from those weights: what they become, and the milliseconds of one. */
function steps(model, weights, count) {
  const names = Object.keys(weights);
  // An automaton's wires are no weights.
  const trained = names.filter((name) => !name.startsWith("wires."));
  const variables = Object.fromEntries(names.map((name) => [name, tf.variable(tf.tensor(weights[name].values, weights[name].shape), trained.includes(name))]));
  const x = tf.tensor2d(ROWS);
  const optimizer = tf.train.adam(RATE, 0.9, 0.999, 1e-8);
  const loss = () => LOSSES[model](variables, x);
  const first = tf.tidy(() => loss().dataSync()[0]);
  const start = performance.now();
  for (let i = 0; i < count; i++) optimizer.minimize(loss, false, trained.map((name) => variables[name]));
  const values = Object.fromEntries(names.map((name) => [name, variables[name].dataSync()]));
  const milliseconds = (performance.now() - start) / count;
  const last = tf.tidy(() => loss().dataSync()[0]);
  Object.values(variables).forEach((variable) => variable.dispose());
  return { values, milliseconds, first, last };
}

/** The loss at given weights. */
function lossAt(model, weights) {
  return tf.tidy(() => {
    const values = Object.fromEntries(Object.entries(weights).map(([name, { values, shape }]) => [name, tf.tensor(values, shape)]));
    return LOSSES[model](values, tf.tensor2d(ROWS)).dataSync()[0];
  });
}

globalThis.bench = async (model) => {
  const { ours: count, compared, theirs: timings } = COUNTS[model];
  if (!engine) await load();
  const text = MODELS[model];
  // A rate that changes nothing leaves the first weights.
  const start = train(text(1, 1e-30)).weights;
  const short = train(text(compared, RATE)).weights;
  train(text(count, RATE));
  const ours = train(text(count, RATE));
  const result = { ours: { milliseconds: ours.whole / count, stepping: ours.milliseconds, digest: ours.digest } };
  for (const backend of ["wasm", "cpu"]) {
    setWasmPaths(new URL("./", location.href).href);
    await tf.setBackend(backend);
    await tf.ready();
    steps(model, start, Math.min(20, timings[backend]));
    const theirs = steps(model, start, compared);
    const timed = steps(model, start, timings[backend]);
    result[backend] = { milliseconds: timed.milliseconds, losses: [theirs.first, theirs.last], ours: [lossAt(model, start), lossAt(model, short)] };
  }
  return result;
};

/** The seconds until an experiment's run ends. */
globalThis.until = async (text) => {
  if (!engine) await load();
  files.dir.contents.delete("run");
  const start = performance.now();
  const { summary } = call({ do: "train", experiment: text, folder: "/run" });
  return { seconds: (performance.now() - start) / 1000, training: summary.seconds, steps: summary.steps, learned: summary.learned, digest: summary.weights_sha256 };
};
globalThis.ready = true;
