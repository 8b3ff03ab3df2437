// What an automaton should become, and from what: a drawing, a picture or a rule.
import { h } from "./dom";
import { onDrawing, onRule, type Start } from "./families";
import { Pad } from "./pad";

const SIDES = [8, 12, 16, 20];
const STARTS: [Start, string][] = [
  ["centre", "one cell"],
  ["random", "noise"],
  ["zeros", "nothing"],
  ["bitmap", "a drawing"],
];

/** The panel; `use` takes the experiment that was made. */
export function targetPanel(use: (text: string) => void, fail: (error: unknown) => void): HTMLElement {
  const target = new Pad("The target");
  const start = new Pad("The start");
  start.dot();
  const side = h("select", { id: "side" }, ...SIDES.map((n) => h("option", { value: String(n), selected: n === 12 }, `${n} × ${n}`)));
  side.addEventListener("change", () => [target, start].forEach((pad) => pad.resize(Number(side.value))));
  const from = h("select", { id: "from" }, ...STARTS.map(([value, words]) => h("option", { value }, words)));
  const first = h("div", { class: "drawing", hidden: true }, h("p", {}, "The start:"), start.element);
  from.addEventListener("change", () => (first.hidden = from.value !== "bitmap"));
  const picture = h("input", { type: "file", accept: "image/*", id: "picture" });
  picture.addEventListener("change", () => {
    const file = picture.files?.[0];
    if (file) target.take(file).catch(fail);
  });
  const useDrawing = h("button", { type: "button" }, "Use the drawing");
  useDrawing.addEventListener("click", () => {
    try {
      use(onDrawing(target.drawn(), from.value as Start, start.drawn()));
    } catch (error) {
      fail(error);
    }
  });
  const rule = h("input", { type: "text", id: "rule", value: "B36/S23", spellcheck: false });
  const useRule = h("button", { type: "button" }, "Use the rule");
  useRule.addEventListener("click", () => {
    try {
      use(onRule("a rule", rule.value));
    } catch (error) {
      fail(error);
    }
  });
  return h(
    "details",
    { class: "wide" },
    h("summary", {}, "Make a target"),
    h("div", { class: "row" }, h("label", { for: "side" }, "cells"), side, h("label", { for: "from" }, "from"), from),
    target.element,
    first,
    h("div", { class: "row" }, h("label", { for: "picture" }, "or from a picture"), picture),
    h("div", { class: "row" }, useDrawing),
    h("div", { class: "row" }, h("label", { for: "rule" }, "or a rule (B/S)"), rule, useRule),
  );
}
