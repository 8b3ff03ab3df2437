// Mistakes on purpose, stopping and going on, and all that can go wrong.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { deflateRawSync } from "node:zlib";
import { browser, command_on, edit, end, ending, isolate, losses, options, origin, own, photograph, problems, train, unpacked, visit } from "../visitor.mjs";

export default {
  async "a mistake is put in: the loss ends higher, for all to see, and the check turns red"() {
    // Whole examples, but for the pictures; the automaton is done before the 300th epoch where its gradients are right.
    for (const [family, epochs] of [["automata", 320], ["denoise", 6], ["points"], ["kan"], ["graph"]]) {
      const page = await visit(`#${family}`);
      if (epochs) await edit(page, (text) => text.replace(/^epochs = .*$/m, `epochs = ${epochs}`));
      await train(page);
      const digest = await page.locator(".digest code").textContent();
      const right = await ending(page);
      await page.getByRole("switch", { name: "Put in a mistake" }).check();
      const choice = page.getByLabel("Mistake", { exact: true });
      await page.waitForFunction(() => document.querySelectorAll("#mistake option").length > 3);
      const all = await choice.locator("option").evaluateAll((options) => options.map((option) => option.value));
      assert.equal(new Set(all).size, all.length);
      // What a visitor is shown first has to be one that is seen.
      const words = await choice.inputValue();
      // The trained model with the mistake: no training, only the check.
      await page.getByRole("button", { name: "Check the gradients" }).click();
      await page.locator(".proof p.bad", { hasText: "FAILED" }).waitFor({ timeout: 60000 });
      const red = (link) => page.locator(".proof tr", { hasText: link }).locator(".bad").count();
      assert.equal(await red("1 differences"), 1, `${family}: the differences don't see it`);
      await page.getByLabel("in the fast kernels alone").check();
      await page.getByRole("button", { name: "Check the gradients" }).click();
      await page.waitForFunction(() => [...document.querySelectorAll(".proof tr")].some((row) => row.textContent.startsWith("1 differences") && !row.querySelector(".bad")), null, { timeout: 60000 });
      assert.equal(await red("3 cpu f32"), 1, `${family}: the bounds don't see it`);
      await page.getByLabel("in the fast kernels alone").uncheck();
      const told = await end(page);
      assert.match(told, /had a mistake/);
      assert.equal(await red("1 differences"), 1);
      assert.notEqual(await page.locator(".digest code").textContent(), digest);
      const wrong = await ending(page);
      console.log(`        ${family}, ${words}: the loss ends at ${wrong.toPrecision(3)} instead of ${right.toPrecision(3)}`);
      // A quarter more is 5 % of the height of a curve that falls by two powers of ten.
      assert(wrong > 1.25 * right, `${wrong} ${right}`);
      assert.match(await page.locator(".legend").textContent(), /without the mistake/);
      if (family === "points") {
        await photograph(page, "mistake");
        await page.getByRole("button", { name: "Copy link" }).click();
        await page.waitForFunction(() => location.hash.length > 20);
        const other = await visit(new URL(page.url()).hash);
        await other.waitForFunction((words) => document.querySelector("#mistake").value === words, words);
        assert(await other.getByRole("switch", { name: "Put in a mistake" }).isChecked());
        await other.context().close();
      }
      if (family !== "automata") {
        await page.getByRole("switch", { name: "Put in a mistake" }).uncheck();
        await train(page);
        assert.equal(await page.locator(".digest code").textContent(), digest);
      }
      await page.context().close();
    }
  },
  async "training stops and goes on where the page is isolated, with the bits of one that was never stopped"() {
    const page = await visit("#automata");
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 100000"));
    await page.getByRole("button", { name: "Train" }).click();
    await page.locator(".stage .view img").first().waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    await page.locator(".state", { hasText: /stopped|Stopped/ }).waitFor({ timeout: 30000 });
    await page.context().close();
    const points = await visit("#points");
    const more = points.getByRole("button", { name: "Go on" });
    assert(await more.isDisabled());
    await edit(points, (text) => text.replace(/^epochs = .*$/m, "epochs = 400"));
    await points.getByRole("button", { name: "Train" }).click();
    await points.locator(".view svg").first().waitFor();
    await points.getByRole("button", { name: "Stop" }).click();
    await points.locator(".state", { hasText: /^Stopped/ }).waitFor({ timeout: 30000 });
    const done = (await losses(points)).length;
    assert(done < 400, `${done} epochs before it was stopped`);
    const halted = await unpacked(points);
    command_on("train", "--resume", halted, "--no-verify", "-q");
    await more.click();
    await points.locator(".state", { hasText: /^Done/ }).waitFor({ timeout: 60000 });
    assert.equal((await losses(points)).length, 400);
    const digest = await points.locator(".digest code").textContent();
    if (options.retrograd) assert.equal(JSON.parse(readFileSync(join(halted, "summary.json"), "utf8")).weights_sha256, digest);
    await train(points);
    assert.equal(await points.locator(".digest code").textContent(), digest);
    // One that came to its end goes on for as many epochs again.
    await edit(points, (text) => text.replace(/^epochs = .*$/m, "epochs = 5"));
    await train(points);
    await more.click();
    await points.waitForFunction(() => /^epochs = 10$/m.test(document.querySelector("textarea[aria-label='The experiment']").value));
    await points.locator(".state", { hasText: /^Done/ }).waitFor({ timeout: 60000 });
    assert.equal((await losses(points)).length, 10);
    await points.getByLabel("Example").selectOption({ label: "spirals" });
    assert(await more.isDisabled());
    await points.context().close();
  },
  async "without isolation it stops as well, and says what that costs"() {
    isolate(false);
    const page = await visit("#points", {}, own);
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 100000"));
    await page.getByRole("button", { name: "Train" }).click();
    await page.locator(".view svg").first().waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    await page.locator(".state.failed", { hasText: "what was learnt is lost" }).waitFor();
    await edit(page, (text) => text.replace(/^epochs = .*$/m, "epochs = 2"));
    await train(page);
    isolate(true);
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
    // A few kilobytes that inflate to many megabytes.
    const bomb = deflateRawSync(Buffer.alloc(8 << 20, 65)).toString("base64url");
    assert(bomb.length < 16000);
    await page.goto("about:blank");
    await page.goto(`${origin}/#points/${bomb}`);
    await page.locator("#device.failed", { hasText: "damaged" }).waitFor();
    await page.context().close();
    const graph = await visit("#graph");
    await graph.getByLabel(/Your own/).setInputFiles({ name: "none.csv", mimeType: "text/csv", buffer: Buffer.from("not a list") });
    await graph.locator(".state.failed", { hasText: "none.csv" }).waitFor();
    await graph.context().close();
    const denoise = await visit("#denoise");
    for (const name of ["bad.png", "bad.mrc", "bad.tif"]) {
      await denoise.getByLabel(/Your own/).setInputFiles({ name, mimeType: "image/png", buffer: Buffer.from("\x89PNG nothing") });
      await denoise.locator(".state.failed", { hasText: name }).waitFor();
    }
    await denoise.context().close();
  },
  async "what is missing gives a sentence: an engine, vectors, storage, motion, a worker"() {
    const lost = await visit("", {}, own);
    await lost.route("**/*.wasm", (route) => route.fulfill({ status: 404 }));
    await lost.evaluate(() => (location.hash = "#points"));
    await lost.locator("#device.failed", { hasText: "the server answered 404" }).waitFor();
    await lost.unroute("**/*.wasm");
    problems.splice(0);
    // What is done next starts another.
    await edit(lost, (text) => text.replace(/^epochs = .*$/m, "epochs = 2"));
    await train(lost);
    await lost.context().close();
    const refused = () => {
      for (const name of ["localStorage", "sessionStorage", "indexedDB"]) {
        Object.defineProperty(window, name, { get: () => { throw new DOMException("refused", "SecurityError"); } });
      }
    };
    const plain = await visit("?engine=scalar#automata", { reducedMotion: "reduce" }, origin, refused);
    await plain.getByText("WebAssembly without vectors").waitFor();
    await edit(plain, (text) => text.replace(/^epochs = .*$/m, "epochs = 10"));
    await train(plain);
    await plain.getByRole("button", { name: "Play", exact: true }).waitFor();
    await plain.context().close();
    const crashed = await visit("#points");
    await crashed.workers()[0].evaluate(() => void setTimeout(() => { throw new Error("on purpose"); }));
    await crashed.locator("#device.failed", { hasText: "The engine stopped" }).waitFor();
    problems.splice(0);
    await edit(crashed, (text) => text.replace(/^epochs = .*$/m, "epochs = 2"));
    await train(crashed);
    await crashed.context().close();
    const none = await browser.newContext();
    const page = await none.newPage();
    await page.addInitScript(() => delete window.WebAssembly);
    await page.goto(origin);
    await page.getByText("This browser has no WebAssembly").waitFor();
    await none.close();
  },
};
