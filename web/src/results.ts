// What can be done with a trained model: play, explain, apply, look at, download.
import { Compare } from "./compare";
import { download, h, sizeOf } from "./dom";
import type { Engine } from "./engine";
import type { Family } from "./families";
import { fill, RUN } from "./lab";
import type { Device, Figure } from "./messages";
import { drawn, firstSection, levels } from "./mrc";
import { Player } from "./player";
import { zip } from "./zip";

const CLEANED = "/cleaned";

export async function results(engine: Engine, family: Family, experiment: string, summary: Record<string, unknown>, figures: Figure[], device: Device, picture?: string): Promise<HTMLElement[]> {
  const parts: HTMLElement[] = [];
  if (family.plays) parts.push(new Player(engine, `${RUN}/circuit.json`, experiment).element);
  if (family.explains) parts.push(explanation(engine));
  if (picture !== undefined) parts.push(cleaning(engine, picture));
  if (figures.length > 0) parts.push(report(figures));
  parts.push(await files(engine, family, "Unpacked, the command takes the run: retrograd run, export, check, reproduce."));
  const digest = String(summary.weights_sha256 ?? "");
  if (digest) parts.push(h("p", { class: "digest" }, `SHA-256 of the weights, ${device === "gpu" ? "on this GPU" : "on every machine"}: `, h("code", {}, digest)));
  return parts;
}

const sentence = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** The figures of the run's report. */
function report(figures: Figure[]): HTMLElement {
  const boxes = figures.map((figure) => {
    const box = h("figure", {}, h("div", { class: "picture" }), h("figcaption"));
    fill(box, figure);
    return box;
  });
  return h("div", { class: "figures" }, h("h3", {}, "What came out"), h("div", { class: "view" }, ...boxes));
}

/** Edges that matter little are taken out, the others named. */
function explanation(engine: Engine): HTMLElement {
  const share = h("input", { type: "range", min: "0", max: "50", value: "3", id: "prune" });
  const told = h("output", { for: "prune" }, "3 %");
  share.addEventListener("input", () => (told.textContent = `${share.value} %`));
  const button = h("button", { type: "button" }, "Write it as a formula");
  const out = h("pre", { class: "formula", "aria-live": "polite" });
  const drawn = h("div", { class: "picture" });
  button.addEventListener("click", async () => {
    button.disabled = true;
    out.textContent = "Looking for functions …";
    try {
      const lines = (await engine.call({ do: "explain", run: RUN, prune: Number(share.value) / 100 })) as string[];
      out.textContent = lines.filter((line) => !line.startsWith("written")).join("\n");
      drawn.innerHTML = new TextDecoder().decode(await engine.read(`${RUN}/explained.svg`));
      drawn.querySelector("svg")?.setAttribute("role", "img");
      drawn.querySelector("svg")?.setAttribute("aria-label", "The network that is left");
    } catch (error) {
      out.textContent = sentence(error);
    }
    button.disabled = false;
  });
  return h(
    "div",
    { class: "explanation" },
    h("h3", {}, "Formula"),
    h("div", { class: "row" }, h("label", { for: "prune" }, "prune edges below this share of the largest of their layer"), share, told, button),
    out,
    drawn,
  );
}

/** The addresses of a picture before and after, in the same grey levels; null where a browser shows no such file. */
function pictures(name: string, before: Uint8Array, after: Uint8Array): [string, string] | null {
  if (name.endsWith(".png")) {
    const url = (of: Uint8Array) => URL.createObjectURL(new Blob([of as BlobPart], { type: "image/png" }));
    return [url(before), url(after)];
  }
  const [noisy, clean] = [firstSection(before), firstSection(after)];
  if (!name.endsWith(".mrc") || !noisy || !clean) return null;
  return [drawn(noisy, levels(noisy)), drawn(clean, levels(noisy))];
}

/** The whole picture through the trained network. */
function cleaning(engine: Engine, picture: string): HTMLElement {
  const button = h("button", { type: "button" }, "Clean the whole picture");
  const told = h("p", { "aria-live": "polite" });
  const box = h("div", { class: "row" });
  button.addEventListener("click", async () => {
    button.disabled = true;
    told.textContent = "Cleaning …";
    try {
      await engine.ask({ kind: "remove", path: CLEANED });
      await engine.call({ do: "run", run: RUN, inputs: [picture], out: CLEANED });
      const list = (await engine.ask({ kind: "list", path: CLEANED })) as { name: string; bytes: number }[];
      const [first] = list;
      if (!first) throw new Error("nothing came out");
      const bytes = await engine.read(`${CLEANED}/${first.name}`);
      const save = h("button", { type: "button" }, `${first.name} (${sizeOf(first.bytes)})`);
      save.addEventListener("click", () => download(first.name, bytes));
      const both = pictures(first.name, await engine.read(picture), bytes);
      const compare = new Compare();
      if (both) compare.show(...both, "before on the left, after on the right");
      box.replaceChildren(...(both ? [compare.element] : []), save);
      told.textContent = both ? "Done." : "Done. A browser shows no such file: download it.";
    } catch (error) {
      told.textContent = sentence(error);
    }
    button.disabled = false;
  });
  return h("div", {}, h("h3", {}, "The whole picture"), button, told, box);
}

/** The files of a run, to download, and a sentence on what the command does with them. */
export async function files(engine: Engine, family: Family, use: string): Promise<HTMLElement> {
  const items = h("ul");
  const refresh = async () => {
    const found = (await engine.ask({ kind: "list", path: RUN })) as { name: string; bytes: number }[];
    const shown = found.filter(({ name }) => !name.startsWith(".") && !name.startsWith("checkpoint"));
    items.replaceChildren(
      ...shown.map(({ name, bytes }) => {
        const button = h("button", { type: "button", class: "file" }, `${name} (${sizeOf(bytes)})`);
        button.addEventListener("click", async () => download(name, await engine.read(`${RUN}/${name}`)));
        return h("li", {}, button);
      }),
    );
    return found;
  };
  await refresh();
  const all = h("button", { type: "button" }, "The whole run as a ZIP");
  all.addEventListener("click", async () => {
    const found = await refresh();
    const contents = await Promise.all(found.map(async ({ name }) => ({ name: `run/${name}`, bytes: await engine.read(`${RUN}/${name}`) })));
    download("run.zip", zip(contents));
  });
  const told = h("p", { class: "told", "aria-live": "polite" });
  const buttons: HTMLElement[] = [all];
  if (family.id !== "automata" && family.id !== "graph") {
    const onnx = h("button", { type: "button" }, "Export to ONNX");
    onnx.addEventListener("click", async () => {
      try {
        told.textContent = ((await engine.call({ do: "export", run: RUN, onnx: true })) as string[]).join(" · ");
        await refresh();
      } catch (error) {
        told.textContent = sentence(error);
      }
    });
    buttons.push(onnx);
  }
  return h(
    "details",
    { class: "files", open: true },
    h("summary", {}, "Files of the run, as the command leaves them"),
    items,
    h("div", { class: "row" }, ...buttons),
    h("p", { class: "told" }, use),
    told,
  );
}
