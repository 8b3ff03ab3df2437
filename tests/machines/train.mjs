// node train.mjs ENGINE.wasm EXPERIMENT.toml: trains in WebAssembly, prints what came out as JSON.
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

const [engine, experiment] = process.argv.slice(2);
const wasi = new WASI({ version: "preview1" });
const imports = { ...wasi.getImportObject(), retrograd: { event: () => 0 } };
const { instance } = await WebAssembly.instantiate(readFileSync(engine), imports);
wasi.initialize(instance);
const { memory, reserve, call, answer } = instance.exports;
const request = { do: "train", experiment: readFileSync(experiment, "utf8") };
const bytes = new TextEncoder().encode(JSON.stringify(request));
new Uint8Array(memory.buffer).set(bytes, reserve(bytes.length));
const start = performance.now();
const length = call();
const told = new Uint8Array(memory.buffer).slice(answer(), answer() + length);
const result = JSON.parse(new TextDecoder().decode(told));
if (result.error) throw new Error(result.error);
const { summary, metrics, simd } = result.ok;
const milliseconds = performance.now() - start;
console.log(JSON.stringify({ weights: summary.weights_sha256, metrics, simd, milliseconds }));
