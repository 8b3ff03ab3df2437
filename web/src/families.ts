// What can be trained here: examples of every family, and how a visitor's own data becomes an experiment.
import checkerboard from "../../experiments/checkerboard.toml?raw";
import checkerboardSmall from "../../experiments/checkerboard-small.toml?raw";
import coloredG from "../../experiments/colored-g-small.toml?raw";
import denoise from "../../experiments/denoise.toml?raw";
import friedman from "../../experiments/friedman.toml?raw";
import karate from "../../experiments/karate.toml?raw";
import lifeSmall from "../../experiments/life-small.toml?raw";
import lizardSmall from "../../experiments/lizard-small.toml?raw";
import { set } from "./toml";
import moons from "../../experiments/moons.toml?raw";

export interface Example {
  name: string;
  text: string;
}

export interface Family {
  id: string;
  title: string;
  about: string;
  examples: Example[];
  /** What a visitor of one's own can bring, and the sentence that says so. */
  takes?: { accept: string; what: string; kind: "table" | "edges" | "picture"; kan?: boolean };
  /** A formula can be typed in the place of data. */
  formula?: boolean;
  /** A target can be drawn, taken from a picture or said as a rule. */
  draw?: boolean;
  /** Points can be set by hand. */
  paints?: boolean;
  /** What of the model can be set beside the experiment's text. */
  knobs?: "kan" | "layers";
  /** Mistakes that show in the training, the first that the model has. */
  mistakes: RegExp[];
  /** The trained circuit can be played with. */
  plays?: boolean;
  /** The trained network can be written as a formula. */
  explains?: boolean;
}

/** An automaton that learns one step of a rule in B/S notation. */
export function onRule(name: string, rule: string): string {
  const [, born, stays] = /^\s*B([0-8]*)\/?S([0-8]*)\s*$/i.exec(rule) ?? [];
  if (born === undefined) throw new Error(`${JSON.stringify(rule)} is no rule; one looks like B36/S23`);
  return set(set(set(lifeSmall, "", "name", JSON.stringify(name)), "", "about", JSON.stringify(`One step of B${born}/S${stays}`)), "data", "rule", `"B${born}/S${stays}"`);
}

const rule = (name: string, text: string): Example => ({ name, text: onRule(name, text) });

const points = (name: string, generate: string, classes = 2): Example => ({
  name,
  text: set(set(set(moons, "", "name", JSON.stringify(name)), "", "about", '"Points of a plane told apart"'), "data", "generate", generate).replace("out = 2 }", `out = ${classes} }`),
});

/** A KAN on a formula; inputs are the names in it, each between -1 and 1. */
export function onFormula(formula: string): string {
  const functions = new Set(["sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "abs", "pi", "e"]);
  const names = [...new Set(formula.match(/[a-z][a-z0-9_]*/gi) ?? [])].filter((name) => !functions.has(name));
  const inputs = names.sort().map((name) => `${name} = [-1.0, 1.0]`);
  return `name = "formula"

[model]
family = "kan"
sizes = [${Math.max(names.length, 1)}, ${Math.max(2 * names.length, 2)}, 1]
grid = 5

[data]
generate = { name = "formula", formula = ${JSON.stringify(formula)}, inputs = { ${inputs.join(", ")} }, samples = 1000 }

[train]
epochs = 60
batch = 50
optimizer = { kind = "adam", lr = 0.02 }
schedule = { kind = "cosine", min = 0.01 }
`;
}

export type Start = "centre" | "random" | "zeros" | "bitmap";

/** Rows of cells as an experiment has them: a hexadecimal number each, the leftmost cell first. */
function bitmap(cells: boolean[][]): string {
  const digits = cells[0]!.length / 4;
  const rows = cells.map((row) => {
    const bits = BigInt(`0b${row.map((on) => (on ? "1" : "0")).join("")}`);
    return `"${bits.toString(16).padStart(digits, "0")}"`;
  });
  return `[[${rows.join(", ")}]]`;
}

/** An automaton that makes a drawing from something: rows of cells that are on or off. */
export function onDrawing(cells: boolean[][], start: Start, first: boolean[][]): string {
  const settings: [string, string, string][] = [
    ["", "name", '"drawing"'],
    ["", "about", '"Cells that become a drawing"'],
    ["model", "steps", String(Math.max(6, Math.round(cells.length * 0.75)))],
    ["data", "grid", `[${cells.length}, ${cells[0]!.length}]`],
    ["data", "start", JSON.stringify(start)],
    ["data", "bitmap", bitmap(cells)],
  ];
  if (start === "bitmap") settings.push(["data", "start_bitmap", bitmap(first)]);
  return settings.reduce((text, [section, key, value]) => set(text, section, key, value), lizardSmall);
}

export const FAMILIES: Family[] = [
  {
    id: "automata",
    title: "Automata",
    about:
      "Every cell has the same small circuit of logic gates. The gates are learnt: soft at first, then decided one by one, until an exact circuit is left that finds its pattern from any start, and again when it is damaged.",
    examples: [
      { name: "checkerboard, small", text: checkerboardSmall },
      { name: "checkerboard", text: checkerboard },
      { name: "arrow from one cell", text: lizardSmall },
      { name: "coloured G, small", text: coloredG },
      { name: "the game of life", text: lifeSmall },
      rule("high life", "B36/S23"),
    ],
    mistakes: [/perception\.0.*shifted by one/],
    draw: true,
    plays: true,
  },
  {
    id: "kan",
    title: "KAN",
    about:
      "A Kolmogorov–Arnold network learns a function on every edge. Watch the curves bend, then read what it found as a formula.",
    examples: [
      { name: "x·y", text: onFormula("x*y") },
      { name: "sin(3x) + y²", text: onFormula("sin(3*x) + y^2") },
      { name: "exp(−x² − y²)", text: onFormula("exp(-x^2 - y^2)") },
    ],
    mistakes: [/neighbouring spline/],
    formula: true,
    explains: true,
    takes: { accept: ".csv,.tsv,.txt", what: "a table (CSV)", kind: "table", kan: true },
    knobs: "kan",
  },
  {
    id: "points",
    title: "Points",
    about: "A network with layers of your choice tells points of a plane apart; the colours show what it says, point by point.",
    examples: [
      { name: "two moons", text: moons },
      points("spirals", '{ name = "spirals", samples = 1000, turns = 1.5, noise = 0.02 }'),
      points("three arms", '{ name = "spirals", samples = 900, arms = 3, noise = 0.02 }', 3),
      { name: "Friedman's function", text: friedman },
    ],
    takes: { accept: ".csv,.tsv,.txt", what: "a table (CSV)", kind: "table" },
    mistakes: [/dense: stale x/],
    knobs: "layers",
    paints: true,
  },
  {
    id: "graph",
    title: "Graph",
    about: "Which side the members of a divided karate club took, told from two of them and from who met whom. Wrong answers are ringed.",
    examples: [{ name: "karate club", text: karate }],
    takes: { accept: ".csv,.txt,.edges", what: "a list of edges, two columns", kind: "edges" },
    mistakes: [/d_x of the last sample/],
  },
  {
    id: "denoise",
    title: "Denoise",
    about: "A small convolutional network removes noise; from a picture of your own it learns without a clean one.",
    examples: [{ name: "photographs", text: set(denoise, "train", "epochs", "30").replace("lr = 2e-3", "lr = 5e-3").replace("count = 10, width = 256, height = 256", "count = 4, width = 128, height = 128") }],
    takes: { accept: ".png,.tif,.tiff,.mrc", what: "a picture (PNG, TIFF, MRC)", kind: "picture" },
    mistakes: [/in and out swapped/],
  },
];
