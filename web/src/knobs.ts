// The sizes of a model as fields, beside the experiment's text.
import { h } from "./dom";
import { get, set } from "./toml";

interface Knob {
  label: string;
  read(text: string): string | undefined;
  write(text: string, value: string): string;
}

const ACTIVATIONS = ["gelu", "relu", "silu", "tanh", "sigmoid", "elu", "leaky_relu"];
const OPTIMIZERS = ["sgd", "adam", "adamw"];

function whole(value: string, what: string, least: number, most: number): number {
  const number = Number(value);
  if (!Number.isInteger(number) || number < least || number > most) throw new Error(`${what} is a whole number from ${least} to ${most}`);
  return number;
}

function real(value: string, what: string, least: number, most: number): number {
  const number = Number(value);
  if (value.trim() === "" || !Number.isFinite(number) || number < least || number > most) throw new Error(`${what} is a number from ${least} to ${most}`);
  return number;
}

interface Layer {
  kind: string;
  out?: number;
  p?: number;
}

/** The layers of an experiment: kinds, outputs and probabilities. */
function layers(text: string): Layer[] | undefined {
  const list = get(text, "model", "layers");
  if (list === undefined) return undefined;
  return list.split("\n").flatMap((line) => {
    const code = line.replace(/#.*/, "");
    return [...code.matchAll(/\{[^{}]*?kind = "(\w+)"([^{}]*)\}/g)].map(([, kind, rest]) => {
      const out = /\bout = (\d+)/.exec(rest!)?.[1];
      const p = /\bp = ([\d.]+)/.exec(rest!)?.[1];
      return { kind: kind!, ...(out === undefined ? {} : { out: Number(out) }), ...(p === undefined ? {} : { p: Number(p) }) };
    });
  });
}

const listed = (lines: string[]): string => `[\n${lines.map((line) => `  { ${line} },`).join("\n")}\n]`;

/** Numbers between commas. */
function widths(value: string): number[] {
  return value.split(/[\s,]+/).filter((part) => part !== "").map((part) => whole(part, "a width", 1, 512));
}

const sizesOf = (text: string): number[] | undefined => get(text, "model", "sizes")?.match(/\d+/g)?.map(Number);
const kansOf = (text: string) => {
  const all = layers(text);
  return all && all.length > 0 && all.every((layer) => layer.kind === "kan") ? all : undefined;
};
const option = (text: string, key: string): string | undefined => new RegExp(`\\b${key} = (\\d+)`).exec(get(text, "model", "layers") ?? "")?.[1];

/** One option of all KAN layers, or of the model. */
function everywhere(text: string, key: string, value: number): string {
  const list = get(text, "model", "layers");
  if (list === undefined) return set(text, "model", key, String(value));
  return set(text, "model", "layers", list.replaceAll(new RegExp(`\\b${key} = \\d+`, "g"), `${key} = ${value}`));
}

const KAN: Knob[] = [
  {
    label: "Hidden nodes",
    read: (text) => sizesOf(text)?.slice(1, -1).join(", ") ?? kansOf(text)?.slice(0, -1).map((layer) => layer.out).join(", "),
    write(text, value) {
      const between = widths(value);
      const sizes = sizesOf(text);
      if (sizes) return set(text, "model", "sizes", `[${[sizes[0], ...between, sizes[sizes.length - 1]].join(", ")}]`);
      const outs = [...between, kansOf(text)?.at(-1)?.out ?? 1];
      const [grid, degree] = [option(text, "grid") ?? 5, option(text, "degree") ?? 3];
      return set(text, "model", "layers", listed(outs.map((out) => `kind = "kan", out = ${out}, grid = ${grid}, degree = ${degree}, range = [-3.0, 3.0]`)));
    },
  },
  {
    label: "Grid",
    read: (text) => (sizesOf(text) ? (get(text, "model", "grid") ?? "5") : option(text, "grid")),
    write: (text, value) => everywhere(text, "grid", whole(value, "the grid", 1, 64)),
  },
  {
    label: "Degree",
    read: (text) => (sizesOf(text) ? (get(text, "model", "degree") ?? "3") : option(text, "degree")),
    write: (text, value) => everywhere(text, "degree", whole(value, "the degree", 1, 5)),
  },
];

/** A layer in the field's words; undefined for one that it has none for. */
function words({ kind, out, p }: Layer): string | undefined {
  if (kind === "dense") return `, ${out}`;
  if (kind === "kan") return `, kan ${out}`;
  if (kind === "dropout") return ` dropout ${p}`;
  return ACTIVATIONS.includes(kind) ? ` ${kind}` : undefined;
}

/** The layers that words between two commas say: a width, and what comes after it. */
function said(part: string): string[] {
  const list = part.trim().split(/\s+/).filter((word) => word !== "");
  const lines: string[] = [];
  for (let i = 0; i < list.length; i++) {
    const word = list[i]!;
    if (word === "kan") lines.push(`kind = "kan", out = ${whole(list[++i] ?? "", "a width", 1, 1024)}, grid = 5, degree = 3, range = [-3.0, 3.0]`);
    else if (word === "dropout") lines.push(`kind = "dropout", p = ${real(list[++i] ?? "", "what is dropped", 0, 0.95)}`);
    else if (/^\d/.test(word)) lines.push(`kind = "dense", out = ${whole(word, "a width", 1, 1024)}`);
    else if (ACTIVATIONS.includes(word)) lines.push(`kind = "${word}"`);
    else throw new Error(`${JSON.stringify(word)} is none of ${ACTIVATIONS.join(", ")}, dropout 0.2 and kan 8; other layers go into the experiment's text`);
  }
  return lines;
}

const LAYERS: Knob[] = [
  {
    label: "Hidden layers",
    read(text) {
      const all = layers(text);
      const list = all?.slice(0, -1).map(words);
      if (!list || all!.at(-1)!.kind !== "dense" || list.includes(undefined)) return undefined;
      return list.join("").replace(/^[, ]+/, "");
    },
    write(text, value) {
      const last = layers(text)?.at(-1)?.out ?? 1;
      return set(text, "model", "layers", listed([...value.split(",").flatMap(said), `kind = "dense", out = ${last}`]));
    },
  },
];

/** A field of an inline table, as it is written. */
const field = (text: string, section: string, key: string, name: string): string | undefined => new RegExp(`\\b${name} = ("[^"]*"|[^,}\\s]+)`).exec(get(text, section, key) ?? "")?.[1];

/** The text with another value of such a field. */
function setField(text: string, section: string, key: string, name: string, value: string): string {
  const table = get(text, section, key);
  if (table === undefined) return text;
  const known = new RegExp(`\\b${name} = ("[^"]*"|[^,}\\s]+)`);
  return set(text, section, key, known.test(table) ? table.replace(known, `${name} = ${value}`) : table.replace(/\s*\}$/, `, ${name} = ${value} }`));
}

/** A number in an inline table. */
function fielded(label: string, [section, key, name]: [string, string, string], [least, most]: [number, number], absent?: string): Knob {
  return {
    label,
    read: (text) => field(text, section, key, name) ?? (get(text, section, key) === undefined ? undefined : absent),
    write: (text, value) => setField(text, section, key, name, String(real(value, label.toLowerCase(), least, most))),
  };
}

/** A whole number of the training's. */
const counted = (label: string, key: string, most: number): Knob => ({
  label,
  read: (text) => get(text, "train", key),
  write: (text, value) => set(text, "train", key, String(whole(value, label.toLowerCase(), 1, most))),
});

const TRAINING: Knob[] = [
  counted("Epochs", "epochs", 1_000_000),
  counted("Batch", "batch", 1_000_000),
  {
    label: "Optimizer",
    read: (text) => field(text, "train", "optimizer", "kind")?.replaceAll('"', ""),
    write(text, value) {
      if (!OPTIMIZERS.includes(value.trim())) throw new Error(`the optimizer is one of ${OPTIMIZERS.join(", ")}; others go into the experiment's text`);
      const rate = field(text, "train", "optimizer", "lr") ?? "0.01";
      return set(text, "train", "optimizer", `{ kind = "${value.trim()}", lr = ${rate} }`);
    },
  },
  fielded("Learning rate", ["train", "optimizer", "lr"], [0, 1000]),
  fielded("Weight decay", ["train", "optimizer", "weight_decay"], [0, 1000], "0"),
  fielded("Samples", ["data", "generate", "samples"], [10, 1_000_000]),
  fielded("Noise", ["data", "generate", "noise"], [0, 1000], "0"),
];

const KINDS = { kan: KAN, layers: LAYERS, training: TRAINING };

/** Fields for a family's knobs; `change` is given the text's new form. */
export class Knobs {
  readonly elements: HTMLElement[] = [];
  private fields: { knob: Knob; label: HTMLElement; input: HTMLInputElement }[];

  constructor(
    private kind: keyof typeof KINDS,
    private text: () => string,
    change: (text: string) => void,
    fail: (error: unknown) => void,
  ) {
    this.fields = KINDS[kind].map((knob, i) => {
      const input = h("input", { type: "text", id: `${kind}${i}`, spellcheck: false, autocapitalize: "off" });
      const label = h("label", { for: input.id }, knob.label);
      input.addEventListener("change", () => {
        try {
          change(knob.write(this.text(), input.value));
        } catch (error) {
          fail(error);
          this.refresh();
        }
      });
      this.elements.push(label, input);
      return { knob, label, input };
    });
  }

  /** Shows what the text says; fields that it has no place for are off, or away where there are many. */
  refresh(): void {
    for (const { knob, label, input } of this.fields) {
      const value = knob.read(this.text());
      if (this.kind === "training") label.hidden = input.hidden = value === undefined;
      input.value = value ?? "";
      input.disabled = value === undefined;
      input.placeholder = value === undefined ? "see the experiment's text" : "none";
    }
  }
}
