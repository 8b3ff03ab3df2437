// The verification of the model on the screen, and the switch that puts a mistake into its gradients.
import { h, number } from "./dom";
import type { Mistake, Verification } from "./messages";

/** The chain's links, in a visitor's words. */
const LINKS: Record<string, string> = {
  "1 differences": "The gradient is the slope: central differences in f64.",
  "3 cpu f32": "The fast kernels agree with the f64 reference, within what rounding explains.",
  "4 gpu f32": "The kernels on the GPU agree with the f64 reference, within what rounding explains.",
  "6 trajectory": "Steps of every optimizer stay where rounding lets them.",
  "5 threads": "Any number of threads gives the same bits.",
  "5 processes": "Any number of processes gives the same bits.",
  "5 machines": "Every instruction set gives the same bits.",
};

export function proofOf(verification: Verification, of = "this model's gradients"): HTMLElement[] {
  const rows = verification.links.flatMap((link) => {
    const mark = { pass: ["good", "✓ passed"], fail: ["bad", "✗ failed"] }[link.verdict] ?? ["open", "unchecked"];
    const [says, notes] = [LINKS[link.link] ?? "", link.notes.join("; ")];
    const why = { pass: says, fail: [says, notes].filter(Boolean).join(" ") }[link.verdict] ?? `Not checked here: ${notes || "there was nothing to check"}.`;
    const cells = [h("td", {}, link.elements.toLocaleString("en")), h("td", {}, number(link.worst)), h("td", { class: mark[0] }, mark[1]!)];
    return [h("tr", {}, h("th", { scope: "row" }, link.link), ...cells), h("tr", { class: "why" }, h("td", { colSpan: 4 }, why))];
  });
  const head = ["link", "elements", "worst, of its bound", "verdict"].map((text) => h("th", { scope: "col" }, text));
  return [
    h("p", { class: verification.failed > 0 ? "bad" : "good" }, proven(verification, of)),
    h("div", { class: "scroll", tabIndex: 0 }, h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows))),
  ];
}

function proven({ passed, checks, failed }: Verification, of: string): string {
  const told = `${passed} of ${checks} checks of ${of} passed`;
  if (failed > 0) return `✗ ${failed} of ${checks} checks of ${of} FAILED.`;
  return passed === checks ? `✓ ${told}.` : `✓ ${told}; the others could not be made here, for the reasons below.`;
}

/** The switch: which mistake, where, and a button that only checks. */
export class MistakePanel {
  readonly element: HTMLElement;
  private on = h("input", { type: "checkbox", id: "wrong", role: "switch" });
  private choice = h("select", { id: "mistake" });
  private onlyFast = h("input", { type: "checkbox", id: "only-fast" });
  private check = h("button", { type: "button" }, "Check the gradients");
  private told = h("p", { class: "told" });
  private body: HTMLElement;
  /** What a link has chosen, until the list is there. */
  private wanted = "";

  constructor(
    private list: () => Promise<string[]>,
    private first: RegExp[],
    check: () => void,
    private changed: () => void,
  ) {
    this.body = h(
      "div",
      { class: "mistake", hidden: true },
      h("label", { for: "mistake" }, "Mistake"),
      this.choice,
      h("label", { class: "wide check" }, this.onlyFast, "in the fast kernels alone; the reference stays right"),
      this.told,
    );
    this.on.addEventListener("change", () => void this.toggle().then(this.changed));
    this.choice.addEventListener("change", this.changed);
    this.onlyFast.addEventListener("change", this.changed);
    this.check.addEventListener("click", check);
    this.check.disabled = true;
    this.element = h("div", { class: "switch" }, h("label", { class: "check", for: "wrong" }, this.on, "Put in a mistake"), this.body, h("div", { class: "row" }, this.check));
  }

  /** What is switched on. */
  chosen(): Mistake | undefined {
    if (!this.on.checked || this.choice.value === "") return undefined;
    return { words: this.choice.value, only_f32: this.onlyFast.checked };
  }

  /** Switches one on, as a link says. */
  choose({ words, only_f32 }: Mistake): void {
    this.on.checked = true;
    this.onlyFast.checked = only_f32;
    this.wanted = words;
  }

  /** Whether there is a trained model to check. */
  ready(yes: boolean): void {
    this.check.disabled = !yes;
  }

  /** The experiment has changed: its mistakes are others. */
  async renew(): Promise<void> {
    if (!this.on.checked) return;
    await this.toggle();
    this.changed();
  }

  private async toggle(): Promise<void> {
    this.body.hidden = !this.on.checked;
    if (!this.on.checked) return;
    const before = this.wanted || this.choice.value;
    try {
      const all = await this.list();
      this.wanted = "";
      const seen = this.first.map((words) => all.find((one) => words.test(one))).find((one) => one !== undefined);
      const chosen = all.includes(before) ? before : seen;
      const groups = new Map<string, HTMLOptionElement[]>();
      for (const words of all) {
        const [where = "", what = ""] = words.split(/: (.*)/s, 2);
        const option = h("option", { value: words, selected: words === chosen }, what);
        groups.set(where, [...(groups.get(where) ?? []), option]);
      }
      this.choice.replaceChildren(...[...groups].map(([label, options]) => h("optgroup", { label }, ...options)));
      this.told.textContent = "Train with it and watch the loss, or only check: the proof goes red.";
    } catch (error) {
      this.choice.replaceChildren();
      this.told.textContent = error instanceof Error ? error.message : String(error);
    }
  }
}
