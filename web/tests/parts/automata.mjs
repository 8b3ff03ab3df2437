// Automata: they learn, heal, and take targets of a visitor's.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { tooClose } from "../colours.mjs";
import { command_on, edit, photograph, sameBits, save, train, unpacked, visit } from "../visitor.mjs";

export default {
  async "an automaton learns, is played with and is downloaded"() {
    const page = await visit("#automata");
    const told = await train(page);
    assert.match(told, /It learnt/, told);
    assert.equal(await page.locator(".stage .view img").count(), 4);
    await sameBits(page);
    const kinds = await page.evaluate(() => [...new Set([...document.querySelectorAll(".figures svg rect[rx='3']")].map((gate) => getComputedStyle(gate).fill))]);
    assert(kinds.length >= 3, kinds.join());
    assert.deepEqual(tooClose(kinds), []);
    const cells = () => page.evaluate(() => {
      const canvas = document.querySelector("canvas.grid");
      return canvas.toDataURL();
    });
    await page.waitForTimeout(4000);
    const grown = await cells();
    const box = await page.locator("canvas.grid").boundingBox();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.locator("canvas.grid").scrollIntoViewIfNeeded();
    await page.locator("canvas.grid").click({ position: { x: box.width / 2, y: box.height / 2 } });
    await page.waitForTimeout(500);
    assert.notDeepEqual(await cells(), grown, "the brush did nothing");
    await photograph(page, "automata");
    const circuit = JSON.parse(readFileSync(await save(page, "circuit.json"), "utf8"));
    assert(circuit.gates.length > 0);
    assert.match(readFileSync(await save(page, "circuit.c"), "utf8"), /uint/);
    assert.match(readFileSync(await save(page, "circuit.v"), "utf8"), /module/);
    const run = await unpacked(page);
    command_on("check", run);
    command_on("run", run, "--steps", "3", "--out", join(run, "played.png"), "-q");
    await page.context().close();
  },
  async "an automaton heals, on any grid, from any start, by keys as well"() {
    const page = await visit("#automata");
    await train(page);
    const wiped = () => page.evaluate(() => document.querySelector("canvas.grid").toDataURL());
    await page.getByLabel("grid").selectOption("64");
    await page.getByLabel("speed").selectOption("60");
    await page.waitForFunction(() => Number(/Step (\d+)/.exec(document.querySelector(".player .told").textContent)?.[1]) > 80);
    await page.getByRole("button", { name: "Pause" }).click();
    await page.waitForTimeout(200);
    const grown = await wiped();
    await page.locator("canvas.grid").focus();
    for (const key of ["ArrowLeft", "ArrowLeft", "ArrowUp", " "]) await page.keyboard.press(key);
    await page.waitForTimeout(200);
    assert.notEqual(await wiped(), grown, "the brush did nothing");
    await page.getByRole("button", { name: "Play", exact: true }).click();
    await page.waitForFunction((grown) => document.querySelector("canvas.grid").toDataURL() === grown, grown, { timeout: 20000 });
    await page.getByLabel("grid").selectOption("1024");
    await page.locator(".player").getByLabel("from").selectOption("random");
    await page.getByLabel("speed").selectOption("0");
    await page.waitForFunction(() => document.querySelector("canvas.grid").width === 1024 && Number(/Step (\d+)/.exec(document.querySelector(".player .told").textContent)?.[1]) > 5);
    await page.context().close();
  },
  async "a drawing, a picture and a rule become targets"() {
    const page = await visit("#automata");
    await page.getByText("Make a target").click();
    await page.locator("canvas.pad").first().click({ position: { x: 8, y: 8 } });
    await page.getByLabel("cells", { exact: true }).selectOption("8");
    await page.getByRole("button", { name: "Use the drawing" }).click();
    const text = () => page.locator("textarea[aria-label='The experiment']").inputValue();
    assert.match(await text(), /grid = \[8, 8\]/);
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 20"));
    await train(page);
    const dark = await page.evaluate(async () => {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = 64;
      const pen = canvas.getContext("2d");
      pen.fillStyle = "white";
      pen.fillRect(0, 0, 64, 64);
      pen.fillStyle = "black";
      pen.fillRect(0, 0, 32, 64);
      const blob = await new Promise((resolve) => canvas.toBlob(resolve));
      return Array.from(new Uint8Array(await blob.arrayBuffer()));
    });
    await page.getByLabel("or from a picture").setInputFiles({ name: "half.png", mimeType: "image/png", buffer: Buffer.from(dark) });
    await page.waitForTimeout(300);
    await page.getByLabel("from", { exact: true }).first().selectOption("bitmap");
    await page.getByRole("button", { name: "Use the drawing" }).click();
    assert.match(await text(), /^bitmap = \[\["f0"/m);
    assert.match(await text(), /^start_bitmap = /m);
    await page.getByLabel("or from a picture").setInputFiles({ name: "no.png", mimeType: "image/png", buffer: Buffer.from("no picture") });
    await page.locator(".state.failed", { hasText: "can't be read" }).waitFor();
    await page.getByLabel("or a rule").fill("B3/S12345");
    await page.getByRole("button", { name: "Use the rule" }).click();
    assert.match(await text(), /rule = "B3\/S12345"/);
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 20"));
    await train(page);
    await page.getByLabel("or a rule").fill("B9");
    await page.getByRole("button", { name: "Use the rule" }).click();
    await page.locator(".state.failed", { hasText: "is no rule" }).waitFor();
    await page.context().close();
  },
};
