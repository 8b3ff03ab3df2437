import "./style.css";
import { h } from "./dom";
import { Engine } from "./engine";
import { FAMILIES } from "./families";
import { Lab } from "./lab";
import { parse } from "./link";

const tabs = document.getElementById("tabs")!;
const main = document.getElementById("main")!;
const device = document.getElementById("device")!;

let engine: Engine | null = null;
let shown: string | null = null;

/** Opens a family, with an engine of its own: what another was doing ends. */
function open(id: string, experiment?: string): void {
  const family = FAMILIES.find((f) => f.id === id) ?? FAMILIES[0]!;
  if (shown === family.id && experiment === undefined) return;
  shown = family.id;
  engine?.close();
  device.textContent = "Loading the engine …";
  engine = new Engine();
  engine.onState = (text, broken) => {
    device.textContent = text;
    device.className = broken ? "failed" : "";
  };
  const lab = new Lab(family, engine);
  if (experiment !== undefined) lab.take(experiment);
  main.replaceChildren(lab.element);
  for (const link of tabs.querySelectorAll("a")) {
    if (link.hash === `#${family.id}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function follow(): Promise<void> {
  try {
    const { tab, experiment } = await parse(location.hash);
    open(tab, experiment);
  } catch (error) {
    open("");
    device.className = "failed";
    device.textContent = error instanceof Error ? error.message : String(error);
  }
}

tabs.append(...FAMILIES.map((family) => h("a", { href: `#${family.id}` }, family.title)));
addEventListener("hashchange", () => void follow());
if (typeof WebAssembly === "undefined") {
  main.append(h("p", { class: "failed" }, "This browser has no WebAssembly, which the playground trains with."));
} else {
  void follow();
}
