// node call.mjs ENGINE.wasm [FOLDER]: asks the engine for what standard input says, as JSON, and prints its
// answer with the milliseconds that it took. FOLDER is what the engine has for files.
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

const preopens = process.argv[3] ? { "/": process.argv[3] } : {};
const wasi = new WASI({ version: "preview1", preopens });
const module = await WebAssembly.compile(readFileSync(process.argv[2]));
// What the engine would ask of a browser's GPU, and of other workers: there are none here.
const asked = WebAssembly.Module.imports(module).filter((wanted) => ["webgpu", "workers"].includes(wanted.module));
const others = Object.fromEntries(asked.map(({ name }) => [name, () => 0]));
const imports = { ...wasi.getImportObject(), retrograd: { event: () => 0 }, webgpu: others, workers: others };
const instance = await WebAssembly.instantiate(module, imports);
wasi.initialize(instance);
const { memory, reserve, call, answer } = instance.exports;
const bytes = readFileSync(0);
new Uint8Array(memory.buffer).set(bytes, reserve(bytes.length));
const start = performance.now();
const length = call();
const milliseconds = performance.now() - start;
const told = new Uint8Array(memory.buffer).slice(answer(), answer() + length);
const result = JSON.parse(new TextDecoder().decode(told));
if (result.error) throw new Error(result.error);
console.log(JSON.stringify({ ...result, milliseconds }));
