// The sizes of a model as fields, beside the experiment's text.
import { h } from "./dom";
import { get, set } from "./toml";

interface Knob {
  label: string;
  read(text: string): string | undefined;
  write(text: string, value: string): string;
}

const ACTIVATIONS = ["gelu", "relu", "silu", "tanh", "sigmoid", "elu", "leaky_relu"];

function whole(value: string, what: string, least: number, most: number): number {
  const number = Number(value);
  if (!Number.isInteger(number) || number < least || number > most) throw new Error(`${what} is a whole number from ${least} to ${most}`);
  return number;
}

/** The layers of an experiment: kinds and outputs. */
function layers(text: string): { kind: string; out?: number }[] | undefined {
  const list = get(text, "model", "layers");
  if (list === undefined) return undefined;
  return list.split("\n").flatMap((line) => {
    const code = line.replace(/#.*/, "");
    return [...code.matchAll(/\{[^{}]*?kind = "(\w+)"([^{}]*)\}/g)].map(([, kind, rest]) => {
      const out = /\bout = (\d+)/.exec(rest!)?.[1];
      return { kind: kind!, ...(out === undefined ? {} : { out: Number(out) }) };
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

const LAYERS: Knob[] = [
  {
    label: "Hidden layers",
    read(text) {
      const all = layers(text);
      if (!all || all.at(-1)?.kind !== "dense" || !all.every((layer) => layer.kind === "dense" || ACTIVATIONS.includes(layer.kind))) return undefined;
      const words = all.slice(0, -1).map((layer) => (layer.kind === "dense" ? `, ${layer.out}` : ` ${layer.kind}`));
      return words.join("").replace(/^, /, "");
    },
    write(text, value) {
      const lines = value.split(",").flatMap((part) => {
        const [width, ...kinds] = part.trim().split(/\s+/);
        if (!width) return [];
        const wrong = kinds.find((kind) => !ACTIVATIONS.includes(kind));
        if (wrong !== undefined) throw new Error(`${JSON.stringify(wrong)} is no activation: ${ACTIVATIONS.join(", ")}; other layers go into the experiment's text`);
        return [`kind = "dense", out = ${whole(width, "a width", 1, 1024)}`, ...kinds.map((kind) => `kind = "${kind}"`)];
      });
      const last = layers(text)?.at(-1)?.out ?? 1;
      return set(text, "model", "layers", listed([...lines, `kind = "dense", out = ${last}`]));
    },
  },
];

/** Fields for a family's knobs; `change` is given the text's new form. */
export class Knobs {
  readonly elements: HTMLElement[] = [];
  private fields: { knob: Knob; label: HTMLElement; input: HTMLInputElement }[];

  constructor(
    kind: "kan" | "layers",
    private text: () => string,
    change: (text: string) => void,
    fail: (error: unknown) => void,
  ) {
    this.fields = (kind === "kan" ? KAN : LAYERS).map((knob, i) => {
      const input = h("input", { type: "text", id: `knob${i}`, spellcheck: false });
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

  /** Shows what the text says; fields that it has no place for are off. */
  refresh(): void {
    for (const { knob, input } of this.fields) {
      const value = knob.read(this.text());
      input.value = value ?? "";
      input.disabled = value === undefined;
      input.placeholder = value === undefined ? "see the experiment's text" : "none";
    }
  }
}
