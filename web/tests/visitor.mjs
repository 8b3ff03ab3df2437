// A visitor of the playground in Chromium: what all parts of the test need.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

export const { values: options } = parseArgs({ options: { retrograd: { type: "string" }, served: { type: "boolean" }, pictures: { type: "string" }, only: { type: "string" } } });
const dist = fileURLToPath(new URL("../dist", import.meta.url));
export const work = mkdtempSync(join(tmpdir(), "playground-"));
const kinds = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };
/** Whether the pages of this process are isolated. */
let isolated = true;
export const isolate = (yes) => void (isolated = yes);
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
export const own = `http://127.0.0.1:${server.address().port}`;
const command = options.served ? spawn(options.retrograd, ["playground", "--no-open"], { stdio: ["ignore", "pipe", "inherit"] }) : null;
const said = command && (await new Promise((resolve) => command.stdout.once("data", resolve)));
export const origin = said ? String(said).trim().replace(/\/$/, "") : own;

const found = ["chromium", "chromium-browser", "google-chrome"].map((name) => spawnSync("which", [name], { encoding: "utf8" }).stdout.trim()).find(Boolean);
assert(found, "there is no Chromium");
const quiet = ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
export const browser = await chromium.launch({ executablePath: found, args: quiet });
/** The same with a GPU, which software computes; launched when it is asked for. */
let second = null;
export const withGpu = () => (second ??= chromium.launch({ executablePath: found, args: [...quiet, "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"] }));
export const problems = [];
/** How many times slower this machine may be than one that is idle. */
export const slow = Number(process.env.SLOW ?? 1);

export async function visit(hash = "", more = {}, at = origin, init = undefined, on = browser) {
  const context = await on.newContext({ viewport: { width: 1600, height: 1000 }, acceptDownloads: true, ...more });
  const page = await context.newPage();
  if (init) await page.addInitScript(init);
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(`page: ${error.message}`));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(at) && !url.startsWith("data:") && !url.startsWith("blob:")) problems.push(`request to ${url}`);
  });
  await page.goto(`${at}/${hash}`);
  await page.getByText("Nothing is sent anywhere").waitFor();
  return page;
}

/** Trains what is chosen to its end, right or wrong. */
export async function end(page, seconds = 240) {
  await page.getByRole("button", { name: "Train" }).click();
  await page.locator(".state.failed, .state:text-matches('^(Done|Stopped)')").waitFor({ timeout: seconds * 1000 });
  const failed = await page.locator(".state.failed").allTextContents();
  assert.deepEqual(failed, []);
  return page.locator(".state").textContent();
}

/** Trains what is chosen to its end; what the page says then. */
export async function train(page, seconds = 240) {
  const told = await end(page, seconds);
  const proof = await page.locator(".proof p").first().textContent();
  const [passed, all] = proof.match(/(\d+) of (\d+)/).slice(1).map(Number);
  // Some may not be possible: a browser has one instruction set, and gates that are decided have gradients
  // of 0. None may fail.
  assert(passed >= all / 2, proof);
  assert.equal(await page.locator(".proof .bad").count(), 0);
  return told;
}

export async function edit(page, change) {
  const box = page.getByRole("textbox", { name: "The experiment" });
  if (!(await box.isVisible())) await page.getByText("The experiment as text, to change at will").click();
  await box.fill(change(await box.inputValue()));
}

export async function save(page, name, button = new RegExp(`^${name.replaceAll(".", "\\.")} `)) {
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: button }).click()]);
  const path = join(work, `${Math.random().toString(36).slice(2)}-${name}`);
  await file.saveAs(path);
  return path;
}

/** The command trains the page's experiment to the same bits. */
export async function sameBits(page) {
  const digest = await page.locator(".digest code").textContent();
  assert.match(digest, /^[0-9a-f]{64}$/);
  if (!options.retrograd) return;
  const text = await page.locator("textarea[aria-label='The experiment']").inputValue();
  const folder = mkdtempSync(join(work, "run-"));
  writeFileSync(join(folder, "experiment.toml"), text);
  execFileSync(options.retrograd, ["train", "experiment.toml", "--out", "run", "--no-verify", "-q"], { cwd: folder });
  assert.equal(JSON.parse(readFileSync(join(folder, "run/summary.json"), "utf8")).weights_sha256, digest);
}

/** Drops a file where the controls are. */
export async function drop(page, name, bytes) {
  const data = await page.evaluateHandle(([name, bytes]) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(bytes)], name));
    return data;
  }, [name, Array.from(bytes)]);
  await page.dispatchEvent(".controls", "drop", { dataTransfer: data });
}

/** The training's losses, an epoch each, as the run's own file has them. */
export async function losses(page) {
  const rows = readFileSync(await save(page, "metrics.csv"), "utf8").trim().split("\n").map((row) => row.split(","));
  const at = rows[0].indexOf("train_loss");
  return rows.slice(1).map((row) => Number(row[at]));
}

/** The mean of the last tenth of them. */
export async function ending(page) {
  const all = await losses(page);
  const last = all.slice(-Math.max(1, Math.floor(all.length / 10)));
  return last.reduce((sum, loss) => sum + loss) / last.length;
}

/** The run as the page packs it, unpacked for the command. */
export async function unpacked(page) {
  const path = await save(page, "run.zip", "The whole run as a ZIP");
  const folder = mkdtempSync(join(work, "zip-"));
  execFileSync("python3", ["-m", "zipfile", "-e", path, folder]);
  return join(folder, "run");
}

/** The command takes what the page gives. */
export function command_on(...args) {
  return options.retrograd ? execFileSync(options.retrograd, args, { encoding: "utf8" }) : "";
}

export async function photograph(page, name) {
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

/** Ends all that was started. */
export async function leave() {
  await browser.close();
  await (await second)?.close();
  command?.kill();
  server.close();
  rmSync(work, { recursive: true, force: true });
}
