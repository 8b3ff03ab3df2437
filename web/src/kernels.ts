// The button that holds every kernel on this GPU to the f64 reference, whatever is trained.
import { h } from "./dom";
import type { Engine } from "./engine";
import type { KernelsEvent, Verification } from "./messages";
import { proofOf } from "./proof";

/** A panel that is shown where a GPU computes. `proof` is where the outcome goes. */
export class KernelsPanel {
  readonly element: HTMLElement;
  private only = h("input", { type: "text", id: "only", placeholder: "all", size: 14, spellcheck: false });
  private button = h("button", { type: "button" }, "Check the kernels on this GPU");
  private told = h("p", { class: "told" });

  constructor(
    private engine: Engine,
    private proof: HTMLElement,
    private busy: (yes: boolean) => boolean,
  ) {
    this.button.addEventListener("click", () => void this.check());
    this.element = h("div", { class: "kernels", hidden: true }, h("div", { class: "row" }, h("label", { for: "only" }, "models named"), this.only, this.button), this.told);
  }

  show(yes: boolean): void {
    this.element.hidden = !yes;
    this.told.textContent = "A small model for every layer that the library has, its output, its gradients and steps of every optimizer beside the f64 reference. All of them take minutes; conv2d or kan alone, seconds.";
  }

  ready(yes: boolean): void {
    this.button.disabled = !yes;
  }

  private async check(): Promise<void> {
    if (!this.busy(true)) return;
    const wrong: string[] = [];
    const only = this.only.value.split(",").map((word) => word.trim()).filter((word) => word !== "");
    this.engine.onEvent = (event) => {
      if (event.kind !== "kernels") return;
      this.told.textContent = `${event.more.done} of ${event.more.of} models: ${event.more.model}`;
      wrong.push(...event.more.problems.filter(({ verdict }) => verdict === "fail").map(inWords));
    };
    try {
      const answer = (await this.engine.call({ do: "kernels", only })) as { verification: Verification; models: number; stopped: boolean };
      this.proof.replaceChildren(...proofOf(answer.verification, "the kernels on this GPU"), ...(wrong.length > 0 ? [h("ul", { class: "findings" }, ...wrong.map((text) => h("li", {}, text)))] : []));
      this.told.textContent = answer.stopped ? "Stopped." : `${answer.models} models were computed.`;
    } catch (error) {
      this.told.textContent = error instanceof Error ? error.message : String(error);
    } finally {
      this.busy(false);
    }
  }
}

function inWords({ model, tensor, link, ratio, note }: KernelsEvent["problems"][number]): string {
  return `${model}, ${tensor}, link ${link}: ${ratio === null ? "no number" : `${ratio.toPrecision(3)} times its bound`}${note ? `; ${note}` : ""}`;
}
