// The playground's engine in headless Chromium beside TensorFlow.js and beside the command, in one run:
//
//   npm ci --prefix web/bench && node web/bench/bench.mjs --retrograd target/release/retrograd
//
// TensorFlow.js (wasm and cpu backends) trains the same models from the same weights on the same rows; its losses
// after some steps must be the engine's. The command runs on one thread, at SSE2 and at the machine's best, and must
// come to the engine's digests.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { extname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { COUNTS, FILES, MODELS, RATE } from "./experiments.mjs";

const { values: options } = parseArgs({ options: { retrograd: { type: "string" }, only: { type: "string" } } });
const here = fileURLToPath(new URL(".", import.meta.url));
const root = resolve(here, "../..");
// esbuild and playwright-core are the page's.
const page_of = createRequire(join(here, "../package.json"));
const { chromium } = page_of("playwright-core");
const esbuild = page_of("esbuild");
const work = mkdtempSync(join(tmpdir(), "bench-"));
esbuild.buildSync({ entryPoints: [join(here, "page.js")], bundle: true, format: "esm", outfile: join(work, "page.js"), nodePaths: [join(here, "node_modules"), join(here, "../node_modules")], logLevel: "error" });
writeFileSync(join(work, "index.html"), '<!doctype html><title>bench</title><script type="module" src="page.js"></script>');
const places = [work, join(here, "../dist"), join(here, "node_modules/@tensorflow/tfjs-backend-wasm/dist")];
const kinds = { ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm" };
const server = createServer((request, response) => {
  const name = request.url === "/" ? "index.html" : request.url.slice(1).replaceAll("..", "");
  const path = places.map((place) => join(place, name)).find(existsSync);
  if (!path) return response.writeHead(404).end();
  response.setHeader("Content-Type", kinds[extname(path)] ?? "application/octet-stream");
  // Isolated, so that TensorFlow.js may take its threads, and clocks are fine.
  response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
  response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
  response.end(readFileSync(path));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const found = ["chromium", "google-chrome"].map((name) => spawnSync("which", [name], { encoding: "utf8" }).stdout.trim()).find(Boolean);
const browser = await chromium.launch({ executablePath: found, args: ["--no-sandbox", "--disable-quic", "--disable-background-networking"] });
const page = await browser.newPage();
page.on("pageerror", (error) => console.error(error.message));
await page.goto(`http://127.0.0.1:${server.address().port}/`);
await page.waitForFunction(() => globalThis.ready);

const command = options.retrograd && resolve(options.retrograd);
/** The command's milliseconds a step, or seconds, on one thread. */
function native(name, text, simd) {
  const folder = mkdtempSync(join(work, "run-"));
  for (const [file, content] of Object.entries(FILES)) writeFileSync(join(folder, file), content);
  writeFileSync(join(folder, "experiment.toml"), text);
  const env = { ...process.env, ...(simd ? { RETROGRAD_SIMD: simd } : {}) };
  execFileSync(command, ["train", "experiment.toml", "--out", "run", "--no-verify", "--threads", "1", "-q"], { cwd: folder, env, stdio: ["ignore", "ignore", "inherit"] });
  return JSON.parse(readFileSync(join(folder, "run/summary.json"), "utf8"));
}

for (const [name, text] of Object.entries(MODELS).filter(([name]) => name.includes(options.only ?? ""))) {
  const { ours: count, compared } = COUNTS[name];
  const result = await page.evaluate((name) => bench(name), name);
  const { ours } = result;
  console.log(`${name}: ${(1000 / ours.milliseconds).toFixed(0)} steps/s, ${ours.milliseconds.toFixed(4)} ms a step (${ours.stepping.toFixed(4)} of it in steps)`);
  for (const backend of ["wasm", "cpu"]) {
    const theirs = result[backend];
    const [before, after] = theirs.losses;
    assert(Math.abs(before - theirs.ours[0]) <= 1e-5 * Math.max(1, before), `${name}: another loss at first`);
    assert(Math.abs(after - theirs.ours[1]) <= 2e-3 * after, `${name}: ${after} after ${compared} steps, the engine ${theirs.ours[1]}`);
    console.log(`  TensorFlow.js ${backend}: ${(1000 / theirs.milliseconds).toFixed(0)} steps/s, ${(theirs.milliseconds / ours.milliseconds).toFixed(1)} times the engine's time; loss after ${compared} steps ${after.toPrecision(6)}, the engine's ${theirs.ours[1].toPrecision(6)}`);
  }
  if (!command) continue;
  for (const simd of ["sse2", ""]) {
    const { ms_per_step, weights_sha256, device } = native(name, text(count, RATE), simd);
    assert.equal(weights_sha256, ours.digest);
    console.log(`  the command, one thread, ${simd || "the machine's best"}: ${ms_per_step.toFixed(4)} ms a step; the engine takes ${(ours.stepping / ms_per_step).toFixed(1)} times as long (${device}, same digest)`);
  }
}
const checkerboard = readFileSync(join(root, "experiments/checkerboard-small.toml"), "utf8");
const board = await page.evaluate((text) => until(text), checkerboard);
assert.equal(board.learned, true);
console.log(`checkerboard, small: perfect after ${board.training.toFixed(1)} s, ${board.steps} steps`);
if (command) {
  for (const simd of ["sse2", ""]) {
    const { seconds, weights_sha256 } = native("checkerboard", checkerboard, simd);
    assert.equal(weights_sha256, board.digest);
    console.log(`  the command, one thread, ${simd || "the machine's best"}: ${seconds.toFixed(1)} s; the engine takes ${(board.training / seconds).toFixed(1)} times as long (same digest)`);
  }
}
await browser.close();
server.close();
rmSync(work, { recursive: true, force: true });
