// Two pictures of the same thing, one over the other, with a slider between them.
import { h } from "./dom";

let made = 0;

export class Compare {
  readonly element: HTMLElement;
  private under = h("img", { alt: "" });
  private over = h("img", { alt: "", class: "over" });
  private slider = h("input", { type: "range", min: "0", max: "100", value: "50", id: `between${made++}` });
  private words = h("span");

  constructor() {
    const move = () => {
      const at = Number(this.slider.value);
      this.over.style.clipPath = `inset(0 0 0 ${at}%)`;
    };
    this.slider.addEventListener("input", move);
    move();
    this.element = h(
      "figure",
      { class: "compare" },
      h("div", { class: "both" }, this.under, this.over),
      h("div", { class: "row" }, h("label", { for: this.slider.id }, "before and after"), this.slider),
      h("figcaption", {}, this.words),
    );
  }

  show(before: string, after: string, words: string): void {
    this.under.src = before;
    this.over.src = after;
    this.under.alt = "before";
    this.over.alt = "after";
    this.words.textContent = words;
  }
}
