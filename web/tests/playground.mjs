// Drives the playground in Chromium, as a visitor would.
//
//   node tests/playground.mjs [--retrograd PATH] [--served] [--pictures FOLDER] [--only WORDS]
//
// web/dist is served from this process, to this machine, with the headers of `retrograd playground`; with --served
// by that command itself. Any message on the console, any request to another address, and any failed promise of the
// page is a failure. With --retrograd the command trains the same experiments, the digests of the weights must be
// equal, and it takes the files that the page gives; with --pictures every view is photographed at three widths,
// light and dark. --only runs the parts whose name has these words.
import assert from "node:assert/strict";
import automata from "./parts/automata.mjs";
import devices from "./parts/devices.mjs";
import looks from "./parts/looks.mjs";
import models from "./parts/models.mjs";
import trust from "./parts/trust.mjs";
import { leave, options, problems } from "./visitor.mjs";

const parts = { ...automata, ...models, ...trust, ...devices, ...looks };
let failed = 0;
for (const [name, part] of Object.entries(parts).filter(([name]) => name.includes(options.only ?? ""))) {
  const start = performance.now();
  try {
    await part();
    assert.deepEqual(problems.splice(0), []);
    console.log(`ok      ${((performance.now() - start) / 1000).toFixed(1).padStart(5)} s  ${name}`);
  } catch (error) {
    failed++;
    console.log(`FAILED  ${name}\n${error.stack}\n${problems.splice(0).join("\n")}`);
  }
}
await leave();
process.exitCode = failed ? 1 : 0;
