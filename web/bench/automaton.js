// The engine's automaton with TensorFlow.js: soft gates over all cells at once, nodes along the first axis, so that a
// wire is a row.
import * as tf from "@tensorflow/tfjs-core";
import { BOARD } from "./experiments.mjs";

/** The coefficients of (1, a, b, ab) of the sixteen gates: gate g has bit 3 - (2a + b) as its value. */
const TABLE = Array.from({ length: 16 }, (_, gate) => {
  const [zero, b, a, both] = [3, 2, 1, 0].map((bit) => (gate >> bit) & 1);
  return [zero, a - zero, b - zero, both - a - b + zero];
});

/** Rows of a tensor. Their gradient is gathered as well, from those that read them: the wasm backend can't scatter. */
function picker(wires, inputs) {
  const readers = Array.from({ length: inputs }, () => []);
  wires.forEach((from, to) => readers[from].push(to));
  const most = Math.max(...readers.map((list) => list.length));
  // Who has fewer readers reads a row of zeros behind the last.
  const tables = Array.from({ length: most }, (_, k) => readers.map((list) => list[k] ?? wires.length));
  return tf.customGrad((x) => ({
    value: tf.gather(x, tf.tensor1d(wires, "int32")),
    gradFunc: (d) => {
      const padded = tf.concat([d, tf.zeros([1, ...d.shape.slice(1)])]);
      return tables.map((table) => tf.gather(padded, tf.tensor1d(table, "int32"))).reduce((sum, part) => sum.add(part));
    },
  }));
}

/** Mixed gates: values (inputs, …, places) to (gates, …, places), the logits (gates, …, 16). */
function mixed(values, logits, [first, second]) {
  const pick = (wires) => picker(wires, values.shape[0])(values);
  const [a, b] = [pick(first), pick(second)];
  const shape = logits.shape.slice(0, -1);
  const flat = tf.matMul(tf.softmax(logits.reshape([-1, 16])), tf.tensor2d(TABLE, [16, 4], "float32"));
  const c = tf.split(flat, 4, 1).map((column) => column.reshape([...shape, 1]));
  return c[0].add(c[1].mul(a)).add(c[2].mul(b)).add(c[3].mul(a.mul(b)));
}

const layersOf = (w, name) => Object.keys(w).filter((key) => key.startsWith(`${name}.`)).length;
const known = new Map();

/** Wires as numbers; they never change. */
function wires(w, name) {
  if (!known.has(name)) {
    const all = Array.from(w[name].dataSync());
    known.set(name, [all.slice(0, all.length / 2), all.slice(all.length / 2)]);
  }
  return known.get(name);
}

/** One step of a state (channels, batch, rows, columns). */
function step(w, state) {
  const [channels, batch, rows, columns] = state.shape;
  const places = batch * rows * columns;
  const padded = state.pad([[0, 0], [0, 0], [1, 1], [1, 1]]);
  const around = [];
  for (let y = 0; y < 3; y++) for (let x = 0; x < 3; x++) around.push(padded.slice([0, 0, y, x], [channels, batch, rows, columns]));
  // (9, 1, channels * places); then a kernel each along the second axis.
  let values = tf.stack(around).reshape([9, 1, channels * places]);
  for (let i = 0; i < layersOf(w, "perception"); i++) values = mixed(values, w[`perception.${i}.logits`].transpose([1, 0, 2]), wires(w, `wires.perception.${i}`));
  const [outputs, kernels] = values.shape;
  const seen = values.reshape([outputs, kernels, channels, places]).transpose([2, 0, 1, 3]).reshape([-1, places]);
  values = tf.concat([state.reshape([channels, places]), seen]);
  for (let i = 0; i < layersOf(w, "update"); i++) values = mixed(values, w[`update.${i}.logits`], wires(w, `wires.update.${i}`));
  return values.reshape(state.shape);
}

/** The squares of what the first channel is wrong by after all steps, of a board. */
export function boardLoss(w) {
  const { side, steps, batch } = BOARD;
  const channels = w[`update.${layersOf(w, "update") - 1}.logits`].shape[0];
  const middle = Math.floor(side / 2);
  const cells = Array.from({ length: side * side }, (_, i) => [Math.floor(i / side), i % side]);
  const board = (value) => tf.tensor4d(Array.from({ length: channels * batch }, () => cells.map(value)).flat(), [channels, batch, side, side]);
  let state = board(([y, x]) => Number(y === middle && x === middle));
  for (let i = 0; i < steps; i++) state = step(w, state);
  const target = board(([y, x]) => (Math.floor(x / 2) + Math.floor(y / 2)) % 2);
  const first = (of) => of.slice([0, 0, 0, 0], [1, batch, side, side]);
  return first(state).sub(first(target)).square().sum().div(batch);
}
