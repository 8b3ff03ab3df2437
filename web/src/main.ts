import "./style.css";
import { h } from "./dom";
import { Engine } from "./engine";
import { FAMILIES } from "./families";
import { Lab } from "./lab";
import { parse, type State } from "./link";
import { pictureOf } from "./pictures";

const tabs = document.getElementById("tabs")!;
const main = document.getElementById("main")!;
const device = document.getElementById("device")!;

let engine: Engine | null = null;
let shown: string | null = null;

/** What is to be seen before a family is opened: the engine is not loaded for it. */
function welcome(): void {
  shown = null;
  engine?.close();
  engine = null;
  device.textContent = "Nothing is sent anywhere.";
  device.className = "";
  const cards = FAMILIES.map((family) => h("a", { class: "card", href: `#${family.id}` }, pictureOf(family.id), h("h2", {}, family.title), h("p", {}, family.about)));
  main.replaceChildren(
    h(
      "section",
      { class: "welcome" },
      h("p", {}, "Small and unusual networks, trained in this page while you watch, each with the proof that its gradient is right; a switch puts a mistake into it, and the proof turns red. Nothing is installed, and nothing leaves the page."),
      h("div", { class: "cards" }, ...cards),
    ),
  );
  mark(null);
}

function mark(id: string | null): void {
  for (const link of tabs.querySelectorAll("a")) {
    if (link.hash === `#${id}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Opens a family, with an engine of its own: what another was doing ends. */
function open({ tab, experiment, device: computes, mistake, files }: Partial<State> & { tab: string }): void {
  const family = FAMILIES.find((f) => f.id === tab);
  if (!family) return welcome();
  if (shown === family.id && experiment === undefined) return;
  const first = shown === null && main.childElementCount === 0;
  shown = family.id;
  engine?.close();
  device.textContent = "Loading the engine …";
  device.className = "";
  // ?engine=scalar is for those who want to see the one without vectors.
  engine = new Engine(new URLSearchParams(location.search).get("engine"));
  engine.onState = (text, broken) => {
    device.textContent = text;
    device.className = broken ? "failed" : "";
  };
  const lab = new Lab(family, engine);
  if (experiment !== undefined) lab.take(experiment, files, mistake);
  if (computes === "gpu") void lab.choose(computes);
  main.replaceChildren(lab.element);
  mark(family.id);
  // Who came by a key or by ear goes on where the family begins.
  if (!first) lab.element.querySelector<HTMLElement>("#title")?.focus();
}

async function follow(): Promise<void> {
  try {
    open(await parse(location.hash));
  } catch (error) {
    welcome();
    device.className = "failed";
    device.textContent = error instanceof Error ? error.message : String(error);
  }
}

tabs.append(...FAMILIES.map((family) => h("a", { href: `#${family.id}` }, family.title)));
addEventListener("hashchange", () => void follow());
// A file that misses its box would replace the page.
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => event.preventDefault());
if (typeof WebAssembly === "undefined") {
  main.append(h("p", { class: "failed" }, "This browser has no WebAssembly, which the playground trains with."));
} else {
  void follow();
}
