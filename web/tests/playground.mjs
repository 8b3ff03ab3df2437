// Drives the playground in Chromium, as a visitor would.
//
//   node tests/playground.mjs [--retrograd PATH] [--pictures FOLDER]
//
// web/dist is served from this process, to this machine, with the headers of `retrograd playground`. Any
// message on the console, any request to another address, and any failed promise of the page is a failure.
// With --retrograd the command trains the same experiments, and the digests of the weights must be equal; with
// --pictures every view is photographed at three widths, light and dark.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values: options } = parseArgs({ options: { retrograd: { type: "string" }, pictures: { type: "string" } } });
const dist = fileURLToPath(new URL("../dist", import.meta.url));
const work = mkdtempSync(join(tmpdir(), "playground-"));
const kinds = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };
let isolated = true;
const server = createServer((request, response) => {
  const name = normalize(new URL(request.url, "http://x").pathname);
  const path = join(dist, name === "/" ? "index.html" : name);
  if (!existsSync(path)) return response.writeHead(404).end();
  response.setHeader("Content-Type", kinds[extname(path)] ?? "application/octet-stream");
  if (isolated) {
    response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
    response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
  }
  response.end(readFileSync(path));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const origin = `http://127.0.0.1:${server.address().port}`;

const found = ["chromium", "chromium-browser", "google-chrome"].map((name) => spawnSync("which", [name], { encoding: "utf8" }).stdout.trim()).find(Boolean);
assert(found, "there is no Chromium");
const browser = await chromium.launch({ executablePath: found, args: ["--no-sandbox"] });
const problems = [];

async function visit(hash = "", more = {}) {
  const context = await browser.newContext({ viewport: { width: 1600, height: 1000 }, acceptDownloads: true, ...more });
  const page = await context.newPage();
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(`page: ${error.message}`));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(origin) && !url.startsWith("data:") && !url.startsWith("blob:")) problems.push(`request to ${url}`);
  });
  await page.goto(`${origin}/${hash}`);
  await page.getByText("Nothing is sent anywhere").waitFor();
  return page;
}

/** Trains what is chosen to its end; what the page says then. */
async function train(page, seconds = 240) {
  await page.getByRole("button", { name: "Train" }).click();
  await page.locator(".state", { hasText: /^(Done|Stopped)/ }).waitFor({ timeout: seconds * 1000 });
  const proof = await page.locator(".proof p").first().textContent();
  const [passed, all] = proof.match(/(\d+) of (\d+)/).slice(1).map(Number);
  // Some may not be possible: a browser has one instruction set, and gates that are decided have gradients
  // of 0. None may fail.
  assert(passed >= all / 2, proof);
  assert.equal(await page.locator(".proof .bad").count(), 0);
  return page.locator(".state").textContent();
}

async function edit(page, change) {
  const box = page.getByRole("textbox", { name: "The experiment" });
  if (!(await box.isVisible())) await page.getByText("The experiment, to change at will").click();
  await box.fill(change(await box.inputValue()));
}

async function save(page, name) {
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: new RegExp(`^${name.replaceAll(".", "\\.")} `) }).click()]);
  const path = join(work, `${Math.random().toString(36).slice(2)}-${name}`);
  await file.saveAs(path);
  return path;
}

/** The command trains the page's experiment to the same bits. */
async function sameBits(page) {
  const digest = await page.locator(".digest code").textContent();
  assert.match(digest, /^[0-9a-f]{64}$/);
  if (!options.retrograd) return;
  const text = await page.locator("textarea").inputValue();
  const folder = mkdtempSync(join(work, "run-"));
  writeFileSync(join(folder, "experiment.toml"), text);
  execFileSync(options.retrograd, ["train", "experiment.toml", "--out", "run", "--no-verify", "-q"], { cwd: folder });
  assert.equal(JSON.parse(readFileSync(join(folder, "run/summary.json"), "utf8")).weights_sha256, digest);
}

async function photograph(page, name) {
  if (!options.pictures) return;
  mkdirSync(options.pictures, { recursive: true });
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const width of [390, 1024, 1600]) {
      await page.setViewportSize({ width, height: 1000 });
      await page.waitForTimeout(150);
      assert(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name} is wider than ${width}`);
      await page.screenshot({ path: join(options.pictures, `${name}-${width}-${scheme}.png`), fullPage: true });
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1600, height: 1000 });
}

const parts = {
  async "an automaton learns, is played with and is downloaded"() {
    const page = await visit("#automata");
    const told = await train(page);
    assert.match(told, /It learnt/, told);
    assert.equal(await page.locator(".view img").count(), 3);
    await sameBits(page);
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
    await page.context().close();
  },
  async "a drawing becomes a target"() {
    const page = await visit("#automata");
    await page.getByText("Draw a target").click();
    await page.locator("canvas.pad").click({ position: { x: 8, y: 8 } });
    await page.getByRole("button", { name: "Use the drawing" }).click();
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 20"));
    await train(page);
    await page.context().close();
  },
  async "a KAN learns a formula and writes it down"() {
    const page = await visit("#kan");
    await page.getByLabel("Formula").fill("x*y");
    await page.getByRole("button", { name: "Use" }).click();
    await train(page);
    await sameBits(page);
    assert((await page.locator(".view svg").count()) >= 1);
    await page.getByRole("button", { name: "Write it as a formula" }).click();
    await page.locator(".formula", { hasText: "=" }).waitFor({ timeout: 120000 });
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
    assert.match(await other.locator("textarea").inputValue(), /seed = 5/);
    await train(other);
    assert.equal(await other.locator(".digest code").textContent(), digest);
    await other.getByRole("link", { name: "Graph" }).click();
    await other.getByRole("heading", { name: "Graph" }).waitFor();
    await other.goBack();
    await other.getByRole("heading", { name: "Points" }).waitFor();
    await page.context().close();
    await other.context().close();
  },
  async "a graph colours itself"() {
    const page = await visit("#graph");
    await train(page);
    await sameBits(page);
    assert((await page.locator(".view svg circle").count()) >= 34);
    await photograph(page, "graph");
    await page.context().close();
  },
  async "an image clears"() {
    const page = await visit("#denoise");
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 2"));
    await train(page);
    assert.equal(await page.locator(".view img").count(), 2);
    await photograph(page, "denoise");
    await page.context().close();
  },
  async "training stops and saves where the page is isolated"() {
    const page = await visit("#automata");
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 100000"));
    await page.getByRole("button", { name: "Train" }).click();
    await page.locator(".view img").first().waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    await page.locator(".state", { hasText: /stopped|Stopped/ }).waitFor({ timeout: 30000 });
    await page.context().close();
  },
  async "without isolation it stops as well, and says what that costs"() {
    isolated = false;
    const page = await visit("#points");
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 100000"));
    await page.getByRole("button", { name: "Train" }).click();
    await page.locator(".view svg").first().waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    await page.locator(".state.failed", { hasText: "what was learnt is lost" }).waitFor();
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 2"));
    await train(page);
    isolated = true;
    await page.context().close();
  },
  async "bad files and bad experiments give a sentence"() {
    const page = await visit("#points");
    await edit(page, () => "name = 3");
    await page.getByRole("button", { name: "Train" }).click();
    await page.locator(".state.failed").waitFor();
    const file = page.getByLabel(/Your own/);
    await file.setInputFiles({ name: "empty.csv", mimeType: "text/csv", buffer: Buffer.alloc(0) });
    await page.locator(".state.failed", { hasText: "empty.csv" }).waitFor();
    await file.setInputFiles({ name: "large.csv", mimeType: "text/csv", buffer: Buffer.alloc(33 * 1024 ** 2, 65) });
    await page.locator(".state.failed", { hasText: "large.csv has 33.0 MB" }).waitFor();
    await page.goto(`${origin}/#points/AAAA`);
    await page.locator("#device.failed", { hasText: "damaged" }).waitFor();
    await page.context().close();
  },
};

let failed = 0;
for (const [name, part] of Object.entries(parts)) {
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
await browser.close();
server.close();
rmSync(work, { recursive: true, force: true });
process.exitCode = failed ? 1 : 0;
