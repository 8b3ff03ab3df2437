// The browser's GPU, and several workers.
import assert from "node:assert/strict";
import { browser, edit, end, losses, origin, photograph, sameBits, slow, train, visit, withGpu } from "../visitor.mjs";

export default {
  async "the browser's GPU trains as the processor does, is named, and is held to the same reference"() {
    for (const [family, epochs] of [["points", 8], ["kan", 5]]) {
      const page = await visit(`#${family}`, {}, origin, undefined, await withGpu());
      await edit(page, (text) => text.replace(/^epochs = .*$/m, `epochs = ${epochs}`));
      const curve = async (seed) => {
        await page.getByLabel("Seed").fill(seed);
        return { told: await train(page), losses: await losses(page) };
      };
      const [own, other] = [await curve("0"), await curve("1")];
      assert.match(own.told, /computed by the processor/);
      await page.getByLabel("Computed by").selectOption("gpu");
      await page.locator("#device", { hasText: /Computed in this page by .*swiftshader.* through WebGPU/ }).waitFor();
      const gpu = await curve("0");
      assert.match(gpu.told, /computed by .*swiftshader, through WebGPU/);
      assert.equal(await page.locator(".proof tr", { hasText: "4 gpu f32" }).locator(".good").count(), 1);
      assert.match(await page.locator(".digest").textContent(), /on this GPU/);
      // Rounding moves the curve by far less than another seed does, which is what a wrong step would look like.
      const apart = (a, b) => Math.max(...a.map((loss, i) => Math.abs(loss - b[i])));
      assert.equal(gpu.losses.length, epochs);
      const [byDevice, bySeed] = [apart(gpu.losses, own.losses), apart(other.losses, own.losses)];
      console.log(`        ${family}: the losses of ${epochs} epochs are ${byDevice.toExponential(1)} apart, with another seed ${bySeed.toExponential(1)}`);
      assert(byDevice < bySeed / 100, `${byDevice} ${bySeed}`);
      // Every kernel that such models take, with the bounds of the chain: gradients, and steps of every optimizer.
      await page.getByLabel("models named").fill(family === "kan" ? "kan" : "dense, tanh");
      await page.getByRole("button", { name: "Check the kernels on this GPU" }).click();
      await page.locator(".kernels .told", { hasText: "models were computed" }).waitFor({ timeout: 240_000 * slow });
      assert.equal(await page.locator(".proof .bad").count(), 0, await page.locator(".proof").textContent());
      for (const link of ["4 gpu f32", "6 trajectory"]) assert.equal(await page.locator(".proof tr", { hasText: link }).locator(".good").count(), 1, link);
      if (family === "kan") await photograph(page, "webgpu");
      // A mistake is the processor's: it computes.
      await page.getByRole("switch", { name: "Put in a mistake" }).check();
      await page.waitForFunction(() => document.querySelectorAll("#mistake option").length > 3);
      assert.match(await end(page), /computed by the processor/);
      await page.context().close();
    }
  },
  async "two workers share a training through memory that they share, with the bits of one"() {
    for (const [family, epochs] of [["automata", 12], ["points", 6], ["kan", 4], ["denoise", 1]]) {
      const page = await visit(`#${family}`);
      await edit(page, (text) => text.replace(/^epochs = .*$/m, `epochs = ${epochs}`));
      await page.getByLabel("Workers").selectOption("2");
      assert.match(await page.locator("textarea[aria-label='The experiment']").inputValue(), /^shards = 2/m);
      const both = await train(page);
      assert.match(both, /computed by 2 workers/);
      const digest = await page.locator(".digest code").textContent();
      await page.getByLabel("Workers").selectOption("1");
      const alone = await train(page);
      assert.match(alone, /computed by the processor/);
      assert.equal(await page.locator(".digest code").textContent(), digest, family);
      await sameBits(page);
      console.log(`        ${family}: 2 workers: ${/[\d.]+ s/.exec(both)[0]}, one: ${/[\d.]+ s/.exec(alone)[0]}`);
      if (family === "points") {
        // Own data is every worker's, and all stop together.
        const table = ["a,b,kind", ...Array.from({ length: 60 }, (_, i) => `${Math.sin(i)},${Math.cos(2 * i)},${Math.sin(i) > 0 ? "u" : "v"}`)].join("\n");
        await page.getByLabel(/Your own/).setInputFiles({ name: "mine.csv", mimeType: "text/csv", buffer: Buffer.from(table) });
        await page.locator(".state", { hasText: "mine.csv is ready" }).waitFor();
        await page.getByLabel("Workers").selectOption("2");
        await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 100000"));
        await page.getByRole("button", { name: "Train" }).click();
        await page.locator(".view svg").first().waitFor();
        await page.getByRole("button", { name: "Stop" }).click();
        await page.locator(".state", { hasText: /stopped|Stopped/ }).waitFor({ timeout: 30000 });
        // What is wrong is said once, by the first.
        await edit(page, (text) => text.replace(/^batch = .*$/m, "batch = 0"));
        await page.getByRole("button", { name: "Train" }).click();
        await page.locator(".state.failed", { hasText: "batch" }).waitFor();
      }
      await page.context().close();
    }
  },
  async "every family trains on the browser's GPU, and a link says so"() {
    for (const [family, epochs] of [["automata", 3], ["graph", 20], ["denoise", 1]]) {
      const page = await visit(`#${family}`, {}, origin, undefined, await withGpu());
      await page.getByLabel("Computed by").selectOption("gpu");
      await page.locator("#device", { hasText: "through WebGPU" }).waitFor();
      await edit(page, (text) => text.replace(/^epochs = .*$/m, `epochs = ${epochs}`));
      const told = await train(page, 400 * slow);
      console.log(`        ${family}: ${told}`);
      assert.equal(await page.locator(".proof tr", { hasText: "4 gpu f32" }).locator(".bad").count(), 0);
      if (family === "graph") {
        await page.getByRole("button", { name: "Copy link" }).click();
        await page.waitForFunction(() => location.hash.length > 20);
        const other = await visit(new URL(page.url()).hash, {}, origin, undefined, await withGpu());
        await other.locator("#device", { hasText: "through WebGPU" }).waitFor();
        await other.context().close();
      }
      await page.context().close();
    }
  },
  async "a GPU that is lost gives a sentence, and what is done next goes on"() {
    const context = await (await withGpu()).newContext();
    await context.route("**/worker-*.js", async (route) => {
      const response = await route.fetch();
      const keep = "const ask = GPUAdapter.prototype.requestDevice; GPUAdapter.prototype.requestDevice = async function (wanted) { return (self.device = await ask.call(this, wanted)); };";
      await route.fulfill({ response, body: `${keep}\n${await response.text()}` });
    });
    const page = await visit("#points", {}, origin, undefined, { newContext: () => context });
    await page.getByLabel("Computed by").selectOption("gpu");
    await page.locator("#device", { hasText: "through WebGPU" }).waitFor();
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 100000"));
    await page.getByRole("button", { name: "Train" }).click();
    await page.locator(".view svg").first().waitFor();
    await page.workers()[0].evaluate(() => self.device.destroy());
    await page.locator(".state.failed", { hasText: "was lost" }).waitFor();
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 2"));
    assert.match(await train(page), /through WebGPU/);
    await page.context().close();
  },
  async "without a GPU, WebGPU or a way to wait for it there is a sentence"() {
    for (const [before, words, on] of [
      ["", "no GPU that it would use", browser],
      ["Object.defineProperty(WorkerNavigator.prototype, 'gpu', { get: () => undefined });", "has no WebGPU", await withGpu()],
      ["delete WebAssembly.Suspending;", "Promise Integration", await withGpu()],
    ]) {
      const context = await on.newContext();
      await context.route("**/worker-*.js", async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, body: `${before}\n${await response.text()}` });
      });
      const page = await visit("#points", {}, origin, undefined, { newContext: () => context });
      await page.getByLabel("Computed by").selectOption("gpu");
      await page.locator(".state.failed", { hasText: words }).waitFor();
      assert.equal(await page.getByLabel("Computed by").inputValue(), "cpu");
      await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 2"));
      assert.match(await train(page), /computed by the processor/);
      await context.close();
    }
  },
};
