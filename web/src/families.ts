// What can be trained here: examples of every family, and how a visitor's own data becomes an experiment.
import checkerboard from "../../experiments/checkerboard.toml?raw";
import checkerboardSmall from "../../experiments/checkerboard-small.toml?raw";
import coloredG from "../../experiments/colored-g-small.toml?raw";
import denoise from "../../experiments/denoise.toml?raw";
import friedman from "../../experiments/friedman.toml?raw";
import karate from "../../experiments/karate.toml?raw";
import lifeSmall from "../../experiments/life-small.toml?raw";
import lizardSmall from "../../experiments/lizard-small.toml?raw";
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
  /** Files that a visitor can drop here, and the sentence that says so. */
  takes?: { accept: string; what: string; target?: boolean; kan?: boolean };
  /** A formula can be typed in the place of data. */
  formula?: boolean;
  /** A pattern can be drawn as the target. */
  draw?: boolean;
  /** The trained circuit can be played with. */
  plays?: boolean;
  /** The trained network can be written as a formula. */
  explains?: boolean;
}

const rule = (name: string, text: string): Example => ({
  name,
  text: lifeSmall.replace(/^name = .*$/m, `name = "${name}"`).replace('target = "life"', `target = "life"\nrule = "${text}"`),
});

const points = (name: string, generate: string): Example => ({
  name,
  text: moons.replace(/^name = .*$/m, `name = "${name}"`).replace(/^about = .*\n/m, "").replace(/^generate = .*$/m, `generate = ${generate}`),
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

/** An automaton that grows a drawing from one cell: rows of cells that are on or off. */
export function onDrawing(cells: boolean[][]): string {
  const digits = cells[0]!.length / 4;
  const rows = cells.map((row) => {
    const bits = BigInt(`0b${row.map((on) => (on ? "1" : "0")).join("")}`);
    return `"${bits.toString(16).padStart(digits, "0")}"`;
  });
  return lizardSmall
    .replace(/^name = .*$/m, 'name = "drawing"')
    .replace(/^about = .*$/m, 'about = "One cell grows into a drawing"')
    .replace(/^grid = .*$/m, `grid = [${cells.length}, ${cells[0]!.length}]`)
    .replace(/^steps = .*$/m, `steps = ${Math.max(6, Math.round(cells.length * 0.75))}`)
    .replace(/^bitmap = \[[\s\S]*?^\]/m, `bitmap = [[${rows.join(", ")}]]`);
}

export const FAMILIES: Family[] = [
  {
    id: "automata",
    title: "Automata",
    about:
      "Every cell has the same small circuit of logic gates. The gates are learnt: soft at first, then decided one by one, until an exact circuit is left that finds its pattern from anything.",
    examples: [
      { name: "checkerboard, small", text: checkerboardSmall },
      { name: "checkerboard", text: checkerboard },
      { name: "arrow from one cell", text: lizardSmall },
      { name: "coloured G, small", text: coloredG },
      { name: "the game of life", text: lifeSmall },
      rule("high life", "B36/S23"),
    ],
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
    formula: true,
    explains: true,
    takes: { accept: ".csv,.tsv,.txt", what: "a table (CSV)", target: true, kan: true },
  },
  {
    id: "points",
    title: "Points",
    about: "A network of any layers tells points of a plane apart; the colours are what it says.",
    examples: [
      { name: "two moons", text: moons },
      points("spirals", '{ name = "spirals", samples = 1000, turns = 1.5 }'),
      points("three arms", '{ name = "spirals", samples = 900, arms = 3 }'),
      { name: "Friedman's function", text: friedman },
    ],
    takes: { accept: ".csv,.tsv,.txt", what: "a table (CSV)", target: true },
  },
  {
    id: "graph",
    title: "Graph",
    about: "Members of a club that fell apart, told from two labels and who met whom. Wrong ones are ringed.",
    examples: [{ name: "karate club", text: karate }],
    takes: { accept: ".csv,.txt,.edges", what: "a list of edges, two columns" },
  },
  {
    id: "denoise",
    title: "Denoise",
    about: "A small convolutional network removes noise; from a picture of your own it learns without a clean one.",
    examples: [{ name: "photographs", text: denoise.replace("count = 10, width = 256, height = 256", "count = 4, width = 128, height = 128").replace("epochs = 30", "epochs = 12") }],
    takes: { accept: ".png,.tif,.tiff,.mrc", what: "a picture (PNG, TIFF, MRC)" },
  },
];
