// What a visitor brings: files dropped or chosen, and text pasted.
import { h, sizeOf } from "./dom";
import type { Engine } from "./engine";
import type { Family } from "./families";
import { set } from "./toml";

/** Files that a page can take: beyond it the visitor is sent to the command. */
const LARGEST = 32 * 1024 ** 2;
/** Where pictures are put: the command's drafts want a folder of them. */
const PICTURES = "/pictures";
/** A draft's epochs are for the command; with fewer a page is done within minutes. */
const EPOCHS = 20;

export interface Taken {
  text: string;
  told: string;
  findings: string[];
  /** The files, as text, where they could be part of a link. */
  files: Record<string, string>;
  /** A picture among the engine's files. */
  picture?: string;
}

/** The name of the last column of a table. */
function lastColumn(text: string): string | undefined {
  const line = text.split(/\r?\n/, 1)[0] ?? "";
  const names = line.split(/[,;\t]/);
  return names.length > 1 ? names[names.length - 1]!.trim().replaceAll('"', "") : undefined;
}

/** Makes an experiment of files: the first is the data, a second the classes of a graph's nodes. */
export async function draftOf(engine: Engine, family: Family, files: File[]): Promise<Taken> {
  const takes = family.takes!;
  const named = files.map((file) => ({ file, name: file.name.replaceAll(/[^\w.-]/g, "_") }));
  const tooLarge = files.find((file) => file.size > LARGEST);
  if (tooLarge) {
    throw new Error(`${tooLarge.name} has ${sizeOf(tooLarge.size)}; a page takes ${sizeOf(LARGEST)}, the command any size`);
  }
  const [data, labels] = named;
  if (!data) throw new Error("there is no file");
  const folder = takes.kind === "picture" ? PICTURES : "";
  if (folder) await engine.ask({ kind: "remove", path: folder });
  const texts: Record<string, string> = {};
  for (const { file, name } of named) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (takes.kind !== "picture" && bytes.length < 200_000) texts[name] = new TextDecoder().decode(bytes);
    await engine.write(`${folder}/${name}`, bytes);
  }
  const target = takes.kind === "table" ? lastColumn(await data.file.slice(0, 65536).text()) : undefined;
  const draft = (await engine.call({
    do: "draft",
    path: folder || `/${data.name}`,
    ...(target === undefined ? {} : { target }),
    ...(takes.kan ? { kan: true } : {}),
    ...(takes.kind === "edges" && labels ? { labels: `/${labels.name}` } : {}),
    ...(takes.kind === "edges" && !labels ? { links: true } : {}),
  })) as { text: string; findings: string[] };
  const short = takes.kind === "picture" ? set(draft.text, "train", "epochs", String(EPOCHS)) : draft.text;
  const more = {
    table: ` The last column, “${target}”, is predicted.`,
    edges: labels ? " Classes are predicted." : " Which nodes are linked is predicted; choose a file of classes as well, and they are.",
    picture: ` ${EPOCHS} epochs give a first look; the experiment says how many.`,
  }[takes.kind];
  return {
    text: short,
    told: `${data.file.name} is ready.${more}`,
    findings: draft.findings,
    files: texts,
    ...(takes.kind === "picture" ? { picture: `${PICTURES}/${data.name}` } : {}),
  };
}

/** The fields; `take` is given what was chosen, dropped or pasted. */
export function ownFields(family: Family, box: HTMLElement, take: (files: File[]) => void): HTMLElement[] {
  const { accept, what, kind } = family.takes!;
  const file = h("input", { type: "file", accept, id: "file" });
  const labels = h("input", { type: "file", accept, id: "labels" });
  const chosen = () => [file, labels].flatMap((input) => [...(input.files ?? [])].slice(0, 1));
  file.addEventListener("change", () => file.files?.length && take(chosen()));
  labels.addEventListener("change", () => file.files?.length && take(chosen()));
  box.addEventListener("dragover", (event) => event.preventDefault());
  box.addEventListener("drop", (event) => {
    event.preventDefault();
    const dropped = [...(event.dataTransfer?.files ?? [])];
    if (dropped.length > 0) take(dropped.slice(0, kind === "edges" ? 2 : 1));
  });
  const fields: HTMLElement[] = [h("label", { for: "file" }, `Your own: ${what}`), file];
  if (kind === "edges") fields.push(h("label", { for: "labels" }, "Classes of its nodes, if known"), labels);
  if (kind !== "picture") {
    const text = h("textarea", { rows: 5, spellcheck: false, id: "pasted", "aria-label": "Pasted data" });
    text.placeholder = kind === "table" ? "a,b,y\n0.1,0.2,0.02\n…" : "source,target\n0,1\n…";
    const use = h("button", { type: "button" }, "Use what is pasted");
    use.addEventListener("click", () => take([new File([text.value], kind === "table" ? "pasted.csv" : "edges.csv", { type: "text/csv" })]));
    fields.push(h("details", { class: "wide" }, h("summary", {}, "Or paste it"), text, h("div", { class: "row" }, use)));
  }
  return fields;
}
