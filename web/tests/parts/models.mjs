// Networks, KANs, graphs and pictures: examples, and data of a visitor's own.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { command_on, drop, edit, end, photograph, sameBits, save, train, unpacked, visit } from "../visitor.mjs";

export default {
  async "a KAN learns a formula and writes it down"() {
    const page = await visit("#kan");
    await page.getByLabel("Formula").fill("x*y");
    await page.getByRole("button", { name: "Use", exact: true }).click();
    await page.getByLabel("Hidden nodes").fill("3");
    await page.getByLabel("Grid").fill("4");
    await page.getByLabel("Degree").fill("2");
    await page.getByLabel("Degree").press("Enter");
    assert.match(await page.locator("textarea[aria-label='The experiment']").inputValue(), /degree = 2[^]*sizes = \[2, 3, 1\]\ngrid = 4/);
    await page.getByLabel("Degree").fill("9");
    await page.getByLabel("Degree").press("Enter");
    await page.locator(".state.failed", { hasText: "from 1 to 5" }).waitFor();
    await train(page);
    await sameBits(page);
    assert((await page.locator(".stage .view svg").count()) >= 1);
    for (const figure of ["Predictions", "Residuals"]) await page.locator(".figures figcaption", { hasText: figure }).waitFor();
    await page.getByRole("button", { name: "Write it as a formula" }).click();
    await page.locator(".formula", { hasText: "=" }).waitFor({ timeout: 120000 });
    assert.match(await page.locator(".formula").textContent(), /pruned/);
    await page.locator(".explanation svg").waitFor();
    await page.getByRole("button", { name: "Export to ONNX" }).click();
    await page.getByRole("button", { name: /\.onnx/ }).waitFor();
    command_on("check", await unpacked(page));
    await photograph(page, "kan");
    await page.context().close();
  },
  async "a table of one's own is learnt"() {
    const page = await visit("#points");
    const rows = Array.from({ length: 200 }, (_, i) => [Math.sin(i), Math.cos(2 * i)]);
    const table = ["a,b,kind", ...rows.map(([a, b]) => `${a},${b},${a * b > 0 ? "same" : "other"}`)].join("\n");
    await page.getByLabel(/Your own/).setInputFiles({ name: "mine.csv", mimeType: "text/csv", buffer: Buffer.from(table) });
    await page.locator(".state", { hasText: "mine.csv is ready" }).waitFor();
    await train(page);
    assert(readFileSync(await save(page, "model.safetensors")).length > 100);
    // A link holds data only where that is asked for.
    await page.getByRole("button", { name: "Copy link" }).click();
    await page.locator(".state", { hasText: "no data of yours" }).waitFor();
    const without = page.url().length;
    await page.getByLabel("with my data").check();
    await page.getByRole("button", { name: "Copy link" }).click();
    await page.locator(".state", { hasText: "and your data" }).waitFor();
    assert(page.url().length > without);
    const digest = await page.locator(".digest code").textContent();
    const other = await visit(new URL(page.url()).hash);
    await train(other);
    assert.equal(await other.locator(".digest code").textContent(), digest);
    await other.context().close();
    await page.getByText("Or paste it").click();
    await page.getByLabel("Pasted data").fill(table);
    await page.getByRole("button", { name: "Use what is pasted" }).click();
    await page.locator(".state", { hasText: "pasted.csv is ready" }).waitFor();
    await page.context().close();
  },
  async "a KAN learns a table, and layers are set in a field"() {
    const page = await visit("#kan");
    const rows = Array.from({ length: 120 }, (_, i) => [Math.sin(i), Math.cos(2 * i)]);
    const table = ["a,b,y", ...rows.map(([a, b]) => `${a},${b},${a * b}`)].join("\n");
    await page.getByLabel(/Your own/).setInputFiles({ name: "product.csv", mimeType: "text/csv", buffer: Buffer.from(table) });
    await page.locator(".state", { hasText: "product.csv is ready" }).waitFor();
    await page.getByLabel("Hidden nodes").fill("3, 2");
    await page.getByLabel("Hidden nodes").press("Enter");
    assert.match(await page.locator("textarea[aria-label='The experiment']").inputValue(), /out = 3, grid = 5[^]*out = 2, grid = 5[^]*out = 1, grid = 5/);
    await edit(page, (text) => text.replace(/^epochs = \d+/m, "epochs = 20"));
    await train(page);
    await page.context().close();
    const points = await visit("#points");
    await points.getByLabel("Hidden layers").fill("8 tanh, 6 relu");
    await points.getByLabel("Hidden layers").press("Enter");
    assert.match(await points.locator("textarea[aria-label='The experiment']").inputValue(), /out = 8 \},\n  \{ kind = "tanh" \},\n  \{ kind = "dense", out = 6 \},\n  \{ kind = "relu" \},\n  \{ kind = "dense", out = 2 \}/);
    await points.getByLabel("Hidden layers").fill("12, kan 6, 8 silu dropout 0.25");
    await points.getByLabel("Hidden layers").press("Enter");
    assert.match(await points.locator("textarea[aria-label='The experiment']").inputValue(), /"dense", out = 12 \},\n  \{ kind = "kan", out = 6, [^\n]*\n  \{ kind = "dense", out = 8 \},\n  \{ kind = "silu" \},\n  \{ kind = "dropout", p = 0.25 \},\n  \{ kind = "dense", out = 2 \}/);
    assert.equal(await points.getByLabel("Hidden layers").inputValue(), "12, kan 6, 8 silu dropout 0.25");
    await points.getByText("Training and data").click();
    for (const [name, value] of [["Epochs", "3"], ["Batch", "25"], ["Learning rate", "0.02"], ["Weight decay", "0.001"], ["Samples", "300"], ["Noise", "0.25"]]) {
      await points.getByLabel(name, { exact: true }).fill(value);
      await points.getByLabel(name, { exact: true }).press("Enter");
      assert.equal(await points.getByLabel(name, { exact: true }).inputValue(), value);
    }
    assert.match(await points.locator("textarea[aria-label='The experiment']").inputValue(), /samples = 300, noise = 0.25 \}[^]*epochs = 3\nbatch = 25\noptimizer = \{ kind = "adam", lr = 0.02, weight_decay = 0.001 \}/);
    await train(points);
    await points.getByLabel("Optimizer", { exact: true }).fill("sgd");
    await points.getByLabel("Optimizer", { exact: true }).press("Enter");
    assert.match(await points.locator("textarea[aria-label='The experiment']").inputValue(), /optimizer = \{ kind = "sgd", lr = 0.02 \}/);
    await train(points);
    await points.getByLabel("Noise", { exact: true }).fill("much");
    await points.getByLabel("Noise", { exact: true }).press("Enter");
    await points.locator(".state.failed", { hasText: "noise is a number" }).waitFor();
    await points.getByLabel("Hidden layers").fill("8 tansh");
    await points.getByLabel("Hidden layers").press("Enter");
    await points.locator(".state.failed", { hasText: "is none of" }).waitFor();
    await points.context().close();
  },
  async "points drawn by hand are learnt, by pointer and by keys"() {
    const page = await visit("#points");
    await page.getByText("Draw the points").click();
    const field = page.locator("canvas.cloud");
    const said = page.locator(".controls .told[role=status]");
    await field.scrollIntoViewIfNeeded();
    const box = await field.boundingBox();
    const at = (x, y) => [box.x + x * box.width, box.y + y * box.height];
    await page.mouse.click(...at(0.2, 0.2));
    await page.getByLabel("Points of", { exact: true }).selectOption("b");
    // A stroke sets several.
    await page.mouse.move(...at(0.2, 0.7));
    await page.mouse.down();
    await page.mouse.move(...at(0.8, 0.7), { steps: 30 });
    await page.mouse.up();
    assert.match(await said.textContent(), /^\d\d points: 1 of a, \d+ of b\.$/);
    const count = async () => Number(/^\d+/.exec(await said.textContent())[0]);
    const before = await count();
    await field.focus();
    for (const key of ["ArrowUp", "ArrowLeft", " "]) await page.keyboard.press(key);
    assert.equal(await count(), before + 1);
    await page.keyboard.press("Backspace");
    assert.equal(await count(), before);
    await page.getByRole("button", { name: "Undo" }).click();
    assert.equal(await count(), before - 1);
    await page.getByLabel("or begin with").selectOption({ label: "three clusters" });
    await page.getByRole("button", { name: "Fill" }).click();
    assert.match(await said.textContent(), /^240 points: \d+ of a, \d+ of b, \d+ of c\.$/);
    await photograph(page, "drawn");
    await page.getByRole("button", { name: "Use the points" }).click();
    await page.locator(".state", { hasText: "drawn.csv is ready" }).waitFor();
    await train(page);
    assert.match(await page.locator(".figures").textContent(), /Confusion|confusion/);
    await page.getByRole("button", { name: "Clear" }).first().click();
    await page.getByRole("button", { name: "Use the points" }).click();
    await page.locator(".state.failed", { hasText: "drawn.csv" }).waitFor();
    await page.context().close();
  },
  async "points are told apart, and a link holds the experiment"() {
    const page = await visit("#points");
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 15").replace("[train]", "[train]\nseed = 5"));
    await train(page);
    await sameBits(page);
    await photograph(page, "points");
    await page.getByRole("button", { name: "Copy link" }).click();
    await page.waitForFunction(() => location.hash.length > 20);
    const digest = await page.locator(".digest code").textContent();
    const other = await visit(new URL(page.url()).hash);
    assert.match(await other.locator("textarea[aria-label='The experiment']").inputValue(), /seed = 5/);
    await train(other);
    assert.equal(await other.locator(".digest code").textContent(), digest);
    await other.getByRole("link", { name: "Graph" }).click();
    await other.getByRole("heading", { name: "Graph" }).waitFor();
    await other.goBack();
    await other.getByRole("heading", { name: "Points" }).waitFor();
    await page.context().close();
    await other.context().close();
  },
  async "every example trains"() {
    for (const family of ["automata", "kan", "points", "graph", "denoise"]) {
      const page = await visit(`#${family}`);
      const names = await page.getByLabel("Example", { exact: true }).locator("option:not([hidden])").allTextContents();
      for (const name of names) {
        await page.getByLabel("Example", { exact: true }).selectOption({ label: name });
        await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 1"));
        await end(page).catch((error) => { throw new Error(`${family}, ${name}: ${error.message}`); });
      }
      await page.context().close();
    }
  },
  async "a graph colours itself"() {
    const page = await visit("#graph");
    await train(page);
    await sameBits(page);
    assert((await page.locator(".stage .view svg circle").count()) >= 34);
    await photograph(page, "graph");
    await page.context().close();
  },
  async "edges of one's own: links are predicted, or classes where they are known"() {
    const page = await visit("#graph");
    const edges = Array.from({ length: 30 }, (_, i) => [1, 2, 7].map((d) => `${i},${(i + d) % 30}`)).flat();
    const file = { name: "edges.csv", mimeType: "text/csv", buffer: Buffer.from(["source,target", ...edges].join("\n")) };
    await page.getByLabel(/Your own/).setInputFiles(file);
    await page.locator(".state", { hasText: "edges.csv is ready" }).waitFor();
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 40"));
    await train(page);
    assert((await page.locator(".stage .view svg circle").count()) >= 30);
    const classes = Array.from({ length: 30 }, (_, i) => i % 2);
    await page.getByLabel(/Classes/).setInputFiles({ name: "classes.csv", mimeType: "text/csv", buffer: Buffer.from(["class", ...classes].join("\n")) });
    await page.locator(".state", { hasText: "Classes are predicted" }).waitFor();
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 40"));
    await train(page);
    await page.context().close();
  },
  async "an image clears"() {
    const page = await visit("#denoise");
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 2"));
    await train(page);
    assert.equal(await page.locator(".stage .view img").count(), 2);
    await page.getByLabel("before and after").focus();
    for (let i = 0; i < 20; i++) await page.keyboard.press("ArrowRight");
    assert.match(await page.locator(".compare .over").first().getAttribute("style"), /70%/);
    await photograph(page, "denoise");
    await page.context().close();
  },
  async "a picture of one's own is cleaned"() {
    const page = await visit("#denoise");
    const noisy = await page.evaluate(async () => {
      const canvas = document.createElement("canvas");
      canvas.width = 96;
      canvas.height = 72;
      const pen = canvas.getContext("2d");
      for (let y = 0; y < 72; y++) {
        for (let x = 0; x < 96; x++) {
          const grey = 120 + 60 * ((Math.floor(x / 16) + Math.floor(y / 16)) % 2) + ((x * 7919 + y * 104729) % 61) - 30;
          pen.fillStyle = `rgb(${grey}, ${grey}, ${grey})`;
          pen.fillRect(x, y, 1, 1);
        }
      }
      const blob = await new Promise((resolve) => canvas.toBlob(resolve));
      return Array.from(new Uint8Array(await blob.arrayBuffer()));
    });
    await page.getByLabel(/Your own/).setInputFiles({ name: "mine.png", mimeType: "image/png", buffer: Buffer.from(noisy) });
    await page.locator(".state", { hasText: "mine.png is ready" }).waitFor();
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 2").replace(/^architecture = .*$/m, 'architecture = "simple-cnn"'));
    await train(page);
    await page.getByRole("button", { name: "Clean the whole picture" }).click();
    const cleaned = readFileSync(await save(page, "mine.png", /^mine.*\.png \(/));
    assert.deepEqual([...cleaned.subarray(1, 4)], [0x50, 0x4e, 0x47]);
    await page.context().close();
  },
  async "a micrograph that is dropped is cleaned, with a slider between before and after"() {
    const page = await visit("#denoise");
    const side = 64;
    const mrc = new DataView(new ArrayBuffer(1024 + 4 * side * side));
    // Sizes, numbers of f32, cells, axes, the word MAP and the byte order (MRC2014).
    [side, side, 1, 2].forEach((value, i) => mrc.setInt32(4 * i, value, true));
    [side, side, 1].forEach((value, i) => (mrc.setInt32(28 + 4 * i, value, true), mrc.setFloat32(40 + 4 * i, value, true), mrc.setFloat32(52 + 4 * i, 90, true), mrc.setInt32(64 + 4 * i, i + 1, true)));
    new Uint8Array(mrc.buffer).set([0x4d, 0x41, 0x50, 0x20, 0x44, 0x44], 208);
    mrc.setInt32(108, 20140, true);
    for (let i = 0; i < side * side; i++) {
      const [x, y] = [i % side, Math.floor(i / side)];
      mrc.setFloat32(1024 + 4 * i, 3 * ((x >> 4) & 1) + ((x * 7919 + y * 104729) % 61) / 30 + Math.sin(y / 5), true);
    }
    await drop(page, "grid.mrc", new Uint8Array(mrc.buffer));
    await page.locator(".state", { hasText: "grid.mrc is ready" }).waitFor();
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 2").replace(/^architecture = .*$/m, 'architecture = "simple-cnn"'));
    await train(page);
    await page.getByRole("button", { name: "Clean the whole picture" }).click();
    await page.locator(".after .compare img.over").waitFor();
    const sizes = await page.locator(".after .compare img").evaluateAll((images) => Promise.all(images.map(async (image) => (await image.decode(), [image.naturalWidth, image.naturalHeight]))));
    assert.deepEqual(sizes, [[side, side], [side, side]]);
    await page.locator(".after").getByLabel("before and after").focus();
    for (let i = 0; i < 10; i++) await page.keyboard.press("ArrowLeft");
    assert.match(await page.locator(".after .compare .over").getAttribute("style"), /40%/);
    const cleaned = readFileSync(await save(page, "grid.mrc", /^grid.*\.mrc \(/));
    assert.equal(cleaned.toString("latin1", 208, 211), "MAP");
    assert.notDeepEqual(cleaned.subarray(1024), Buffer.from(mrc.buffer).subarray(1024));
    await photograph(page, "micrograph");
    await page.context().close();
  },
};
