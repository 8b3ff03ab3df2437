// One family's room: an experiment, its training as it goes, and what can be done with the result.
import { cloudPanel } from "./cloud";
import { Compare } from "./compare";
import { Curve } from "./curve";
import { h, number } from "./dom";
import type { Engine } from "./engine";
import { type Family, onFormula } from "./families";
import { KernelsPanel } from "./kernels";
import { Knobs } from "./knobs";
import { fragment } from "./link";
import type { Device, EngineEvent, Figure, Mistake } from "./messages";
import { draftOf, ownFields, type Taken } from "./own";
import { MistakePanel, proofOf } from "./proof";
import { files, results } from "./results";
import { targetPanel } from "./target";
import { get, set } from "./toml";

/** The folder of the run, and of a copy that is checked with a mistake, among the engine's files. */
export const RUN = "/run";
const COPY = "/checked";

export class Lab {
  readonly element: HTMLElement;
  private text = h("textarea", { spellcheck: false, rows: 18, "aria-label": "The experiment" });
  private choice = h("select", { id: "example" });
  private seed = h("input", { type: "number", min: "0", step: "1", value: "0", id: "seed" });
  private device = h("select", { id: "computes" }, h("option", { value: "cpu" }, "processor"), h("option", { value: "gpu" }, "GPU (WebGPU)"));
  private gpu = "";
  private workers = h("select", { id: "workers" });
  private train = h("button", { class: "main", type: "button" }, "Train");
  private stop = h("button", { type: "button", disabled: true }, "Stop");
  private more = h("button", { type: "button", disabled: true }, "Go on");
  private share = h("button", { type: "button" }, "Copy link");
  private withData = h("input", { type: "checkbox", id: "with-data" });
  private shareData = h("label", { class: "check", for: "with-data", hidden: true }, this.withData, "with my data");
  private stage: HTMLElement;
  private state = h("p", { class: "state" }, "Ready.");
  private spoken = h("p", { class: "spoken", role: "status" });
  private progress = h("progress", { max: 1, value: 0, "aria-label": "Steps done" });
  private view = h("div", { class: "view" });
  private proof = h("div", { class: "proof", "aria-live": "polite" }, h("p", {}, "After training, the gradients of this very model are checked."));
  private after = h("div", { class: "after" });
  private notes = h("ul", { class: "findings" });
  private curve = new Curve();
  private compare: Compare | null = null;
  private knobs: Knobs[] = [];
  private mistakes: MistakePanel;
  private kernels: KernelsPanel;
  private taken: Taken | null = null;
  private figures: Figure[] = [];
  private steps = 1;
  private began = 0;
  private done = 0;
  /** The step that was told first: a run may go on from a later one. */
  private first: number | null = null;
  private stepped = false;
  /** How fast it was at the last epoch, before the verification. */
  private trained = "";
  /** Workers that share the training. */
  private shared = 1;
  private running = false;
  /** The last run's experiment, and whether it came to its end; null where there is none to go on with. */
  private ended: { text: string; whole: boolean } | null = null;

  constructor(
    readonly family: Family,
    private engine: Engine,
  ) {
    family.examples.forEach((example, i) => this.choice.append(h("option", { value: String(i) }, example.name)));
    this.choice.append(h("option", { value: "-1", hidden: true }, "your own"));
    this.choice.addEventListener("change", () => this.take(family.examples[Number(this.choice.value)]!.text));
    this.seed.addEventListener("input", () => this.change(set(this.text.value, "train", "seed", String(Number(this.seed.value) || 0))));
    this.text.addEventListener("change", () => this.changed());
    this.device.addEventListener("change", () => void this.choose(this.device.value as Device));
    for (let n = 1; n <= Math.min(navigator.hardwareConcurrency, 8); n *= 2) this.workers.append(h("option", { value: String(n) }, String(n)));
    this.workers.addEventListener("change", () => this.spread());
    this.train.addEventListener("click", () => void this.run());
    this.stop.addEventListener("click", () => engine.stop());
    this.more.addEventListener("click", () => void this.run(true));
    this.share.addEventListener("click", () => void this.copyLink());
    const list = () => engine.call({ do: "mistakes", experiment: this.text.value }) as Promise<string[]>;
    this.mistakes = new MistakePanel(list, family.mistakes, () => void this.check(), () => this.warn());
    this.kernels = new KernelsPanel(engine, this.proof, (yes) => this.takeTurn(yes));
    // An automaton's boards stand side by side on a phone, too.
    if (family.plays) this.view.classList.add("small");
    this.stage = h("div", { class: "stage" }, this.state, this.spoken, this.progress, this.view);
    this.element = h(
      "section",
      { class: "lab", "aria-labelledby": "title" },
      h("div", { class: "intro" }, h("h2", { id: "title", tabIndex: -1 }, family.title), h("p", {}, family.about)),
      this.controls(),
      this.stage,
      h("div", { class: "side" }, h("h3", {}, "Loss"), this.curve.element, h("h3", {}, "Proof"), this.proof, this.mistakes.element, this.kernels.element),
      this.after,
    );
    this.take(family.examples[0]!.text);
  }

  private controls(): HTMLElement {
    const { family } = this;
    const box = h("div", { class: "controls" }, h("label", { for: "example" }, "Example"), this.choice, h("label", { for: "seed" }, "Seed"), this.seed, h("label", { for: "computes" }, "Computed by"), this.device);
    // What several workers share takes an isolated page.
    if (crossOriginIsolated && this.workers.options.length > 1) box.append(h("label", { for: "workers" }, "Workers"), this.workers);
    if (family.formula) {
      const formula = h("input", { type: "text", value: "x*y + sin(3*x)", id: "formula", spellcheck: false });
      const use = h("button", { type: "button" }, "Use");
      use.addEventListener("click", () => this.take(onFormula(formula.value)));
      box.append(h("label", { for: "formula" }, "Formula"), h("div", { class: "row" }, formula, use));
    }
    const fields = (kind: ConstructorParameters<typeof Knobs>[0]) => {
      const knobs = new Knobs(kind, () => this.text.value, (text) => this.change(text), (error) => this.fail(error));
      this.knobs.push(knobs);
      return knobs.elements;
    };
    if (family.knobs) box.append(...fields(family.knobs));
    const training = h("details", { class: "wide" }, h("summary", {}, "Training and data"), h("div", { class: "fields" }, ...fields("training")));
    if (family.takes) box.append(...ownFields(family, box, (files) => void this.takeFiles(files)));
    if (family.paints) box.append(cloudPanel((files) => void this.takeFiles(files)));
    if (family.draw) {
      const use = (text: string) => {
        this.take(text);
        this.say("The target is ready.");
      };
      box.append(targetPanel(use, (error) => this.fail(error)));
    }
    box.append(
      training,
      h("details", { class: "wide" }, h("summary", {}, "The experiment as text, to change at will"), this.text),
      h("div", { class: "row wide" }, this.train, this.stop, this.more, this.share, this.shareData),
    );
    return box;
  }

  /** Takes over an experiment; files of a link among the engine's, and its mistake. */
  take(text: string, files: Record<string, string> = {}, mistake?: Mistake): void {
    const known = Object.entries(files).filter(([name]) => /^[\w.-]+$/.test(name));
    for (const [name, content] of known) void this.engine.write(`/${name}`, new TextEncoder().encode(content));
    // Data of a link can go on in another.
    this.own(known.length === 0 ? null : { text, told: "", findings: [], files: Object.fromEntries(known) });
    if (mistake) this.mistakes.choose(mistake);
    this.ended = null;
    this.more.disabled = true;
    this.choice.value = String(this.family.examples.findIndex((example) => example.text === text));
    this.change(text);
  }

  /** Whose data is learnt: that of a visitor's, or an example's. */
  private own(taken: Taken | null): void {
    this.taken = taken;
    this.shareData.hidden = Object.keys(taken?.files ?? {}).length === 0;
    this.withData.checked = false;
  }

  /** Lets the processor compute, or the GPU where the browser has one; a sentence where it has none. */
  async choose(device: Device): Promise<void> {
    this.device.value = device;
    this.kernels.show(device === "gpu");
    this.workers.disabled = device === "gpu";
    if (device === "cpu") return this.engine.tell();
    this.device.disabled = true;
    try {
      this.gpu = String(await this.engine.ask({ kind: "gpu" }));
      this.engine.tell(`Computed in this page by ${this.gpu} through WebGPU.`);
      this.warn();
    } catch (error) {
      this.device.value = "cpu";
      this.workers.disabled = this.running;
      this.kernels.show(false);
      this.engine.tell();
      this.fail(error);
    } finally {
      this.device.disabled = this.running;
    }
  }

  /** Lets several workers share every batch: it is cut into shards, as with several processes of the command. */
  private spread(): void {
    const count = Number(this.workers.value);
    const shards = Number(get(this.text.value, "train", "shards") ?? 0);
    if (count <= 1 || shards >= count) return;
    this.change(set(this.text.value, "train", "shards", String(count)));
    this.say(`Every batch is cut into ${count} shards, which the experiment says: its weights have these bits with any number of workers, and with the command.`);
  }

  /** What computes the next steps. Mistakes are put into the processor's kernels: those are trained with there. */
  private placed(mistake: Mistake | undefined): Device {
    return mistake ? "cpu" : (this.device.value as Device);
  }

  /** Workers that share the training: no more than the shards that the experiment has. */
  private count(): number {
    const shards = Number(get(this.text.value, "train", "shards") ?? 1);
    return crossOriginIsolated ? Math.max(1, Math.min(Number(this.workers.value), shards)) : 1;
  }

  private change(text: string): void {
    this.text.value = text;
    this.changed();
  }

  private changed(): void {
    this.seed.value = get(this.text.value, "train", "seed") ?? "0";
    for (const knobs of this.knobs) knobs.refresh();
    void this.mistakes.renew();
  }

  private async takeFiles(files: File[]): Promise<void> {
    try {
      const taken = await draftOf(this.engine, this.family, files);
      this.take(taken.text);
      this.own(taken);
      this.say(taken.told);
      this.after.replaceChildren(h("ul", { class: "findings" }, ...taken.findings.map((line) => h("li", {}, line))));
    } catch (error) {
      this.fail(error);
    }
  }

  /** Says something to those who see it and those who hear it. */
  private say(text: string): void {
    this.show(text);
    this.spoken.textContent = text;
  }

  /** Something that changes too often to be read aloud. */
  private show(text: string): void {
    this.state.className = "state";
    this.state.textContent = text;
  }

  private fail(error: unknown): void {
    this.say(error instanceof Error ? error.message : String(error));
    this.state.className = "state failed";
  }

  private warn(): void {
    const mistake = this.mistakes.chosen();
    this.element.classList.toggle("wrong", mistake !== undefined);
    if (mistake && this.device.value === "gpu") this.say("A mistake is put into the processor's kernels: it computes as long as there is one.");
  }

  private busy(yes: boolean): void {
    this.running = yes;
    this.train.disabled = yes;
    this.device.disabled = yes;
    this.workers.disabled = yes || this.device.value === "gpu";
    this.kernels.ready(!yes);
    this.stop.disabled = !yes;
    this.more.disabled = yes || this.ended === null;
    if (yes) this.mistakes.ready(false);
  }

  /** Takes the engine for something that is not a training, or gives it back; whether it was free. */
  private takeTurn(yes: boolean): boolean {
    if (yes && this.running) return false;
    this.busy(yes);
    if (!yes) this.mistakes.ready(this.ended?.whole === true);
    return true;
  }

  /** Trains the experiment, or goes on with the last run: one that came to its end for as many epochs again. */
  private async run(on = false): Promise<void> {
    const before = on ? this.ended : null;
    if (!this.takeTurn(true)) return;
    const mistake = this.mistakes.chosen();
    if (before) this.lengthen(before);
    else {
      this.curve.begin(mistake === undefined);
      this.view.replaceChildren();
      this.compare = null;
    }
    const experiment = before?.text ?? this.text.value;
    this.ended = null;
    this.figures = [];
    this.notes.replaceChildren();
    this.after.replaceChildren();
    this.proof.replaceChildren(h("p", {}, mistake ? `Training with a mistake: ${mistake.words}.` : "Training …"));
    this.say(before ? "Going on …" : "Starting …");
    this.bringUp();
    this.began = performance.now();
    this.done = 0;
    this.first = null;
    this.stepped = false;
    this.trained = "no epoch";
    const device = this.placed(mistake);
    // Only the first worker has the run that goes on; the bits are the same.
    this.shared = device === "cpu" && !before ? this.count() : 1;
    this.engine.onEvent = (event) => this.hear(event);
    try {
      if (!before) await this.engine.ask({ kind: "remove", path: RUN });
      const answer = (await this.engine.shared(this.shared, {
        do: "train",
        experiment,
        folder: RUN,
        resume: before !== null,
        view: 120,
        verify: true,
        device,
        ...(mistake ? { mistake } : {}),
      })) as { summary: Record<string, unknown> };
      await this.finish(answer.summary, mistake, device, experiment);
      this.ended = { text: experiment, whole: true };
    } catch (error) {
      if (await this.halted(error, experiment)) return;
      this.fail(error);
      this.proof.replaceChildren(h("p", {}, "Nothing to check: the training ended with an error."));
    } finally {
      this.takeTurn(false);
    }
  }

  /** A run that came to its end gets as many epochs again, or those that its text has been given. */
  private lengthen(run: { text: string; whole: boolean }): void {
    const epochs = (text: string) => Number(get(text, "train", "epochs") ?? 0);
    const [had, now] = [epochs(run.text), epochs(this.text.value)];
    const wanted = now > had ? now : run.whole ? 2 * had : had;
    const same = this.text.value === run.text;
    run.text = set(run.text, "train", "epochs", String(wanted));
    if (same) this.change(run.text);
  }

  /** On a phone the controls fill the screen: what is to be watched comes into sight. */
  private bringUp(): void {
    const { top } = this.stage.getBoundingClientRect();
    if (top < 0.4 * innerHeight && top > -100) return;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.stage.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
  }

  /** Checks the trained model once more, with the mistake that is chosen or without. */
  private async check(): Promise<void> {
    if (!this.takeTurn(true)) return;
    const mistake = this.mistakes.chosen();
    this.proof.replaceChildren(h("p", {}, mistake ? `Checking with a mistake: ${mistake.words} …` : "Checking …"));
    this.engine.onEvent = (event) => event.kind === "verified" && this.hear(event);
    try {
      await this.engine.ask({ kind: "copy", path: RUN, to: COPY });
      await this.engine.call({ do: "check", run: COPY, device: this.placed(mistake), ...(mistake ? { mistake } : {}) });
    } catch (error) {
      this.proof.replaceChildren(h("p", { class: "failed" }, error instanceof Error ? error.message : String(error)));
    } finally {
      this.takeTurn(false);
    }
  }

  private hear(event: EngineEvent): void {
    switch (event.kind) {
      case "start":
        this.steps = Math.max(event.more.steps, 1);
        this.first = event.more.step;
        this.say(`${event.more.params.toLocaleString("en")} parameters, ${event.more.steps.toLocaleString("en")} steps.`);
        break;
      case "step":
        this.done = event.more.step;
        this.stepped = true;
        this.progress.value = event.more.step / this.steps;
        this.curve.add("loss", event.more.step, event.more.loss);
        break;
      case "epoch": {
        const { epoch, step, metrics } = event.more;
        if ("validation_loss" in metrics) this.curve.add("validation_loss", step, metrics.validation_loss ?? null);
        const figures = Object.entries(metrics).map(([name, value]) => `${name.replaceAll("_", " ")} ${number(value)}`);
        // A GPU's losses come when they are there: no step of its own is told.
        if (!this.stepped) this.curve.add("loss", step, event.more.train_loss);
        this.done = step;
        this.progress.value = step / this.steps;
        this.trained = this.rate();
        this.show([`Epoch ${epoch}`, ...figures, this.trained].join(" · "));
        break;
      }
      case "view":
        this.draw(event.more);
        break;
      case "figures":
        this.figures = event.more;
        break;
      case "note":
      case "warning":
        this.notes.append(h("li", { class: event.kind }, event.more.text));
        if (!this.notes.isConnected) this.after.append(this.notes);
        break;
      case "verified":
        this.proof.replaceChildren(...proofOf(event.more));
        break;
    }
  }

  /** How fast it computes, views and evaluations included. */
  private rate(): string {
    const rate = (this.done - (this.first ?? 0)) / Math.max((performance.now() - this.began) / 1000, 1e-3);
    return `${rate.toFixed(rate < 10 ? 1 : 0)} steps/s`;
  }

  private draw(figures: Figure[]): void {
    if (this.family.takes?.kind === "picture" && figures.length === 2) return this.drawBoth(figures);
    // The same boxes are kept, so that nothing jumps.
    while (this.view.children.length > figures.length) this.view.lastElementChild!.remove();
    figures.forEach((figure, i) => {
      let box = this.view.children[i] as HTMLElement | undefined;
      if (!box) {
        box = h("figure", {}, h("div", { class: "picture" }), h("figcaption"));
        this.view.append(box);
      }
      fill(box, figure);
    });
  }

  private drawBoth(figures: Figure[]): void {
    if (!this.compare) {
      this.compare = new Compare();
      this.view.replaceChildren(this.compare.element);
    }
    const [before, after] = figures.map((figure) => /src="([^"]+)"/.exec(figure.html)?.[1] ?? "");
    this.compare.show(before!, after!, `${figures[0]!.title} on the left, ${figures[1]!.title} on the right`);
  }

  /** Whether the training was stopped and saved, which the engine says as an error. */
  private async halted(error: unknown, experiment: string): Promise<boolean> {
    const step = /^stopped at step (\d+)/.exec(error instanceof Error ? error.message : "")?.[1];
    if (step === undefined) return false;
    this.ended = { text: experiment, whole: false };
    this.say(`Stopped at step ${Number(step).toLocaleString("en")}, ${this.trained}. “Go on” continues from there.`);
    this.proof.replaceChildren(h("p", {}, "The gradients are checked when the training has come to its end."));
    this.after.append(await files(this.engine, this.family, "Unpacked, the command goes on with the run: retrograd train --resume run."));
    return true;
  }

  private async finish(summary: Record<string, unknown>, mistake: Mistake | undefined, device: Device, experiment: string): Promise<void> {
    const seconds = (performance.now() - this.began) / 1000;
    const rate = this.trained;
    const learned = summary.learned === true ? " It learnt." : summary.learned === false ? " It did not learn it; another seed may." : "";
    const unseen = this.proof.querySelector("p.bad") === null;
    const wrong = mistake ? (unseen ? " The check did not see the mistake: it changes nothing in this model, or nothing in the samples that are checked." : " Its gradients had a mistake in them.") : "";
    const by = device === "gpu" ? `${this.gpu}, through WebGPU` : this.shared > 1 ? `${this.shared} workers` : "the processor";
    this.say(`Done after ${seconds.toFixed(1)} s, ${rate}, computed by ${by}.${learned}${wrong}`);
    this.progress.value = 1;
    this.after.append(...(await results(this.engine, this.family, experiment, summary, this.figures, device, this.taken?.picture)));
  }

  private async copyLink(): Promise<void> {
    const files = this.withData.checked ? this.taken?.files : undefined;
    const mistake = this.mistakes.chosen();
    const hash = await fragment({ tab: this.family.id, experiment: this.text.value, device: this.device.value as Device, ...(mistake ? { mistake } : {}), ...(files ? { files } : {}) });
    if (hash === null) return this.fail(files ? "The experiment and the data are too long for a link." : "The experiment is too long for a link.");
    history.replaceState(null, "", hash);
    const holds = files ? "It holds the experiment and your data." : "It holds the experiment, and no data of yours.";
    try {
      await navigator.clipboard.writeText(location.href);
      this.say(`The link is copied. ${holds}`);
    } catch {
      this.say(`The address above is the link. ${holds}`);
    }
  }
}

/** A figure of the library's in its box. */
export function fill(box: HTMLElement, figure: Figure): void {
  const caption = figure.caption === "" ? figure.title : `${figure.title}: ${figure.caption}`;
  box.firstElementChild!.innerHTML = figure.html;
  box.lastElementChild!.textContent = caption;
  box.querySelector("img")?.setAttribute("alt", caption);
  const svg = box.querySelector("svg");
  svg?.setAttribute("role", "img");
  svg?.setAttribute("aria-label", caption);
}
