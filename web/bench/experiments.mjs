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

const kan = (out) => `{ kind = "kan", out = ${out}, grid = 5, degree = 3, range = [-1.0, 1.0] }`;

export const MODELS = {
  points: experiment(
    "points",
    '{ kind = "dense", out = 32 }, { kind = "tanh" }, { kind = "dense", out = 32 }, { kind = "tanh" }, { kind = "dense", out = 2 }',
    'file = "points.csv"\ntargets = "kind"\ntask = "classification"',
  ),
  kan: experiment("kan", `${kan(5)}, ${kan(1)}`, 'file = "product.csv"\ntargets = "y"\ntask = "regression"'),
};

export const RATE = 0.01;
