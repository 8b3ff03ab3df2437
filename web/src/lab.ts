// One family's room: an experiment, its training as it goes, and what can be done with the result.
import { Curve } from "./curve";
import { download, h, number, sizeOf } from "./dom";
import type { Engine } from "./engine";
import { type Family, onDrawing, onFormula } from "./families";
import { fragment } from "./link";
import type { EngineEvent, Figure, Verification } from "./messages";
import { Pad } from "./pad";
import { Player } from "./player";

/** The folder of the run, among the engine's files. */
const RUN = "/run";
/** Files that a page can take: beyond it the visitor is sent to the command. */
const LARGEST = 32 * 1024 ** 2;

export class Lab {
  readonly element: HTMLElement;
  private text = h("textarea", { spellcheck: false, rows: 18, "aria-label": "The experiment" });
  private choice = h("select", { id: "example" });
  private seed = h("input", { type: "number", min: "0", step: "1", value: "0", id: "seed" });
  private train = h("button", { class: "main", type: "button" }, "Train");
  private stop = h("button", { type: "button", disabled: true }, "Stop");
  private share = h("button", { type: "button" }, "Copy link");
  private state = h("p", { class: "state", "aria-live": "polite" }, "Ready.");
  private progress = h("progress", { max: 1, value: 0, "aria-label": "Steps done" });
  private view = h("div", { class: "view" });
  private proof = h("div", { class: "proof" }, h("p", {}, "After training, the gradients of this very model are checked."));
  private after = h("div", { class: "after" });
  private notes = h("ul", { class: "findings" });
  private curve = new Curve();
  private steps = 1;
  private began = 0;
  private running = false;

  constructor(
    readonly family: Family,
    private engine: Engine,
  ) {
    family.examples.forEach((example, i) => this.choice.append(h("option", { value: String(i) }, example.name)));
    this.choice.addEventListener("change", () => this.take(family.examples[Number(this.choice.value)]!.text));
    this.seed.addEventListener("input", () => this.setSeed());
    this.train.addEventListener("click", () => void this.run());
    this.stop.addEventListener("click", () => engine.stop());
    this.share.addEventListener("click", () => void this.copyLink());
    this.element = h(
      "section",
      { class: "lab", "aria-labelledby": "title" },
      h("div", { class: "intro" }, h("h2", { id: "title" }, family.title), h("p", {}, family.about)),
      this.controls(),
      h("div", { class: "stage" }, this.state, this.progress, this.view),
      h("div", { class: "side" }, h("h3", {}, "Loss"), this.curve.element, h("h3", {}, "Proof"), this.proof),
      this.after,
    );
    this.take(family.examples[0]!.text);
  }

  private controls(): HTMLElement {
    const { family } = this;
    const own = family.takes;
    const input = own && h("input", { type: "file", accept: own.accept, id: "file" });
    input?.addEventListener("change", () => input.files?.[0] && void this.takeFile(input.files[0]));
    const formula = h("input", { type: "text", value: "x*y + sin(3*x)", id: "formula", spellcheck: false });
    const useFormula = h("button", { type: "button" }, "Use");
    useFormula.addEventListener("click", () => this.take(onFormula(formula.value)));
    const pad = family.draw ? new Pad((cells) => this.take(onDrawing(cells))) : null;
    const box = h(
      "div",
      { class: "controls" },
      h("label", { for: "example" }, "Example"),
      this.choice,
      h("label", { for: "seed" }, "Seed"),
      this.seed,
      family.formula ? h("label", { for: "formula" }, "Formula") : null,
      family.formula ? h("div", { class: "row" }, formula, useFormula) : null,
      own ? h("label", { for: "file" }, `Your own: ${own.what}`) : null,
      input ?? null,
      pad ? h("details", { class: "wide" }, h("summary", {}, "Draw a target"), pad.element) : null,
      h("details", { class: "wide" }, h("summary", {}, "The experiment, to change at will"), this.text),
      h("div", { class: "row wide" }, this.train, this.stop, this.share),
    );
    if (own) {
      box.addEventListener("dragover", (event) => event.preventDefault());
      box.addEventListener("drop", (event) => {
        event.preventDefault();
        const file = event.dataTransfer?.files[0];
        if (file) void this.takeFile(file);
      });
    }
    return box;
  }

  /** Takes over an experiment. */
  take(text: string): void {
    this.text.value = text;
    this.seed.value = /^seed = (\d+)/m.exec(text)?.[1] ?? "0";
  }

  private setSeed(): void {
    const text = this.text.value.replace(/^seed = .*\n?/m, "");
    this.text.value = text.replace(/^\[train\]\n/m, `[train]\nseed = ${Number(this.seed.value) || 0}\n`);
  }

  private async takeFile(file: File): Promise<void> {
    try {
      if (file.size > LARGEST) {
        throw new Error(`${file.name} has ${sizeOf(file.size)}; a page takes ${sizeOf(LARGEST)}, the command any size`);
      }
      const name = file.name.replaceAll(/[^\w.-]/g, "_");
      const bytes = new Uint8Array(await file.arrayBuffer());
      await this.engine.write(`/${name}`, bytes);
      const target = this.family.takes?.target ? lastColumn(bytes) : undefined;
      const draft = (await this.engine.call({
        do: "draft",
        path: `/${name}`,
        ...(target === undefined ? {} : { target }),
        ...(this.family.takes?.kan ? { kan: true } : {}),
      })) as { text: string; findings: string[] };
      this.take(draft.text);
      const predicted = target === undefined ? "" : ` The last column, “${target}”, is predicted.`;
      this.say(`${file.name} is ready.${predicted}`);
      this.after.replaceChildren(h("ul", { class: "findings" }, ...draft.findings.map((line) => h("li", {}, line))));
    } catch (error) {
      this.fail(error);
    }
  }

  private say(text: string): void {
    this.state.className = "state";
    this.state.textContent = text;
  }

  private fail(error: unknown): void {
    this.state.className = "state failed";
    this.state.textContent = error instanceof Error ? error.message : String(error);
  }

  private async run(): Promise<void> {
    if (this.running) return;
    this.running = true;
    this.train.disabled = true;
    this.stop.disabled = false;
    this.curve.clear();
    this.view.replaceChildren();
    this.notes.replaceChildren();
    this.after.replaceChildren();
    this.proof.replaceChildren(h("p", {}, "Training …"));
    this.say("Starting …");
    this.began = performance.now();
    this.engine.onEvent = (event) => this.hear(event);
    try {
      await this.engine.ask({ kind: "remove", path: RUN });
      const answer = (await this.engine.call({
        do: "train",
        experiment: this.text.value,
        folder: RUN,
        view: 120,
        verify: true,
      })) as { summary: Record<string, unknown>; stopped: boolean };
      await this.finish(answer.summary, answer.stopped);
    } catch (error) {
      this.fail(error);
      this.proof.replaceChildren(h("p", {}, "Nothing to check: the training ended with an error."));
    } finally {
      this.running = false;
      this.train.disabled = false;
      this.stop.disabled = true;
    }
  }

  private hear(event: EngineEvent): void {
    switch (event.kind) {
      case "start":
        this.steps = Math.max(event.more.steps, 1);
        this.say(`${event.more.params.toLocaleString("en")} parameters, ${event.more.steps.toLocaleString("en")} steps.`);
        break;
      case "step":
        this.progress.value = event.more.step / this.steps;
        this.curve.add("loss", event.more.step, event.more.loss);
        break;
      case "epoch": {
        const { epoch, step, metrics } = event.more;
        if ("validation_loss" in metrics) this.curve.add("validation_loss", step, metrics.validation_loss ?? null);
        const figures = Object.entries(metrics).map(([name, value]) => `${name.replaceAll("_", " ")} ${number(value)}`);
        const rate = step / Math.max((performance.now() - this.began) / 1000, 1e-3);
        this.say([`Epoch ${epoch}`, ...figures, `${rate.toFixed(0)} steps/s`].join(" · "));
        break;
      }
      case "view":
        this.show(event.more);
        break;
      case "note":
      case "warning":
        this.notes.append(h("li", { class: event.kind }, event.more.text));
        if (!this.notes.isConnected) this.after.append(this.notes);
        break;
      case "verified":
        this.prove(event.more);
        break;
    }
  }

  private show(figures: Figure[]): void {
    // The same boxes are kept, so that nothing jumps.
    while (this.view.children.length > figures.length) this.view.lastElementChild!.remove();
    figures.forEach((figure, i) => {
      let box = this.view.children[i] as HTMLElement | undefined;
      if (!box) {
        box = h("figure", {}, h("div", { class: "picture" }), h("figcaption"));
        this.view.append(box);
      }
      const caption = figure.caption === "" ? figure.title : `${figure.title}: ${figure.caption}`;
      box.firstElementChild!.innerHTML = figure.html;
      box.lastElementChild!.textContent = caption;
      box.querySelector("img")?.setAttribute("alt", caption);
    });
  }

  private prove(verification: Verification): void {
    const rows = verification.links.map((link) => {
      const good = link.verdict === "pass";
      const mark = h("td", { class: good ? "good" : link.verdict === "fail" ? "bad" : "open" }, good ? "✓ passed" : link.verdict === "fail" ? "✗ failed" : "unchecked");
      return h("tr", {}, h("th", { scope: "row" }, link.link), h("td", {}, link.elements.toLocaleString("en")), h("td", {}, number(link.worst)), mark);
    });
    const head = ["link", "elements", "worst, of its bound", ""].map((text) => h("th", { scope: "col" }, text));
    this.proof.replaceChildren(
      h("p", {}, proven(verification)),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows))),
    );
  }

  private async finish(summary: Record<string, unknown>, stopped: boolean): Promise<void> {
    const seconds = (performance.now() - this.began) / 1000;
    const learned = summary.learned === true ? " It learnt." : summary.learned === false ? " It did not learn it; another seed may." : "";
    this.say(`${stopped ? "Stopped" : "Done"} after ${seconds.toFixed(1)} s.${learned}`);
    this.progress.value = 1;
    const digest = String(summary.weights_sha256 ?? "");
    const parts: HTMLElement[] = [];
    if (this.family.plays) parts.push(new Player(this.engine, `${RUN}/circuit.json`, this.text.value).element);
    if (this.family.explains) parts.push(this.explanation());
    parts.push(await this.files());
    if (digest) {
      parts.push(
        h("p", { class: "digest" }, "SHA-256 of the weights, on every machine: ", h("code", {}, digest)),
      );
    }
    this.after.append(...parts);
  }

  private explanation(): HTMLElement {
    const button = h("button", { type: "button" }, "Write it as a formula");
    const out = h("pre", { class: "formula", "aria-live": "polite" });
    button.addEventListener("click", async () => {
      button.disabled = true;
      out.textContent = "Looking for functions …";
      try {
        out.textContent = ((await this.engine.call({ do: "explain", run: RUN })) as string[]).join("\n");
      } catch (error) {
        out.textContent = error instanceof Error ? error.message : String(error);
      }
      button.disabled = false;
    });
    return h("div", {}, h("h3", {}, "Formula"), button, out);
  }

  private async files(): Promise<HTMLElement> {
    const found = (await this.engine.ask({ kind: "list", path: RUN })) as { name: string; bytes: number }[];
    const shown = found.filter(({ name }) => !name.startsWith(".") && !name.startsWith("checkpoint"));
    const items = shown.map(({ name, bytes }) => {
      const button = h("button", { type: "button", class: "file" }, `${name} (${sizeOf(bytes)})`);
      button.addEventListener("click", async () => download(name, await this.engine.read(`${RUN}/${name}`)));
      return h("li", {}, button);
    });
    return h("details", { class: "files", open: true }, h("summary", {}, "Files of the run, as the command leaves them"), h("ul", {}, ...items));
  }

  private async copyLink(): Promise<void> {
    const hash = await fragment({ tab: this.family.id, experiment: this.text.value });
    if (hash === null) return this.fail("The experiment is too long for a link.");
    history.replaceState(null, "", hash);
    try {
      await navigator.clipboard.writeText(location.href);
      this.say("The link is copied. It holds the experiment, and no data of yours.");
    } catch {
      this.say("The address above is the link. It holds the experiment, and no data of yours.");
    }
  }
}

function proven({ links, passed, checks }: Verification): string {
  const failed = links.some((link) => link.verdict === "fail");
  const rest = failed ? "SOME FAILED" : "the others could not be made on a model that is trained to the end";
  const told = `${passed} of ${checks} checks of this model's gradients passed`;
  return passed === checks ? `${told}.` : `${told}; ${rest}.`;
}

/** The name of the last column of a table. */
function lastColumn(bytes: Uint8Array): string | undefined {
  const line = new TextDecoder().decode(bytes.slice(0, 65536)).split(/\r?\n/, 1)[0] ?? "";
  const names = line.split(/[,;\t]/);
  return names.length > 1 ? names[names.length - 1]!.trim().replaceAll('"', "") : undefined;
}
