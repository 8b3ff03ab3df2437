// What is timed, and the data: a batch is all of it, so that the order of rows changes nothing.

export const ROWS = Array.from({ length: 50 }, (_, i) => [Math.sin(1.7 * i), Math.cos(2.3 * i)].map((v) => Number(v.toFixed(6))));

const table = (name, value) => [`a,b,${name}`, ...ROWS.map(([a, b]) => `${a},${b},${value(a, b)}`), ""].join("\n");

export const FILES = {
  "points.csv": table("kind", (a, b) => (a * b > 0 ? "b" : "a")),
  "product.csv": table("y", (a, b) => (a * b).toFixed(6)),
};

const experiment = (name, layers, data) => (steps, rate) => `name = "${name}"

[model]
family = "network"
layers = [${layers}]

[data]
${data}
validation = 0.0

[train]
epochs = ${steps}
evaluate_every = ${steps}
batch = ${ROWS.length}
optimizer = { kind = "adam", lr = ${rate} }
`;

export const BOARD = { side: 12, steps: 16, batch: 2 };

const kan = (out) => `{ kind = "kan", out = ${out}, grid = 5, degree = 3, range = [-1.0, 1.0] }`;

export const MODELS = {
  points: experiment(
    "points",
    '{ kind = "dense", out = 32 }, { kind = "tanh" }, { kind = "dense", out = 32 }, { kind = "tanh" }, { kind = "dense", out = 2 }',
    'file = "points.csv"\ntargets = "kind"\ntask = "classification"',
  ),
  kan: experiment("kan", `${kan(5)}, ${kan(1)}`, 'file = "product.csv"\ntargets = "y"\ntask = "regression"'),
};

/** A checkerboard out of one cell, the same at every step. */
MODELS.automaton = (steps, rate) => `name = "automaton"

[model]
family = "logic_ca"
channels = 8
kernels = 8
perception = [9, 8, 4, 2]
update = [136, 128, 128, 128, 128, 128, 128, 128, 128, 64, 32, 16, 8]
boundary = "zero"
steps = ${BOARD.steps}
pass_logit = 8.0

[data]
grid = [${BOARD.side}, ${BOARD.side}]
start = "centre"
target = "checkerboard"

[train]
epochs = ${steps}
evaluate_every = ${steps}
batch = ${BOARD.batch}
optimizer = { kind = "adam", lr = ${rate} }
`;

/** Steps that are timed of the engine, those after which losses are compared, and those that TensorFlow.js is timed for. */
export const COUNTS = {
  points: { ours: 4000, compared: 100, theirs: { wasm: 300, cpu: 300 } },
  kan: { ours: 4000, compared: 100, theirs: { wasm: 300, cpu: 300 } },
  automaton: { ours: 100, compared: 5, theirs: { wasm: 10, cpu: 3 } },
};

export const RATE = 0.01;
