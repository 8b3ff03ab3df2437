// node run.mjs MODULE.wasm EXPERIMENT.toml: trains in WebAssembly, prints what came out as JSON.
import { readFileSync } from "node:fs";

const [module, experiment] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(readFileSync(module), {});
const { memory, reserve, train, answer } = instance.exports;
const text = readFileSync(experiment);
new Uint8Array(memory.buffer).set(text, reserve(text.length));
const start = performance.now();
const length = train();
const bytes = new Uint8Array(memory.buffer).slice(answer(), answer() + length);
const result = JSON.parse(new TextDecoder().decode(bytes));
result.milliseconds = performance.now() - start;
console.log(JSON.stringify(result));
process.exitCode = result.error ? 1 : 0;
