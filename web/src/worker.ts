// The engine in a worker: the page stays free while it trains.
import { ConsoleStdout, Directory, File, Inode, OpenFile, PreopenDirectory, WASI } from "@bjorn3/browser_wasi_shim";
import { Group } from "./group";
import type { Answer, Request, ToWorker } from "./messages";
import { promising, WebGpu } from "./webgpu";

interface Engine {
  memory: WebAssembly.Memory;
  reserve(bytes: number): number;
  call(): number;
  answer(): number;
}

/** The engine, once it is loaded, and the GPU that it may compute on. */
let loaded: Engine | null = null;
const gpu = new WebGpu({ memory: () => loaded!.memory });

declare const self: DedicatedWorkerGlobalScope;

/** Built, this file stands in a folder beside the engines. */
const HERE = import.meta.url;

const files = new PreopenDirectory("/", new Map<string, Inode>());
let stopping: Int32Array | null = null;
/** The place among workers that train together. */
let group: { place: Group; rank: number; size: number } | null = null;

function exchanged(send: number, sent: number, received: number, counts: number): void {
  if (!group) throw new Error("there are no other workers");
  const { buffer } = loaded!.memory;
  const lengths = (at: number) => new Uint32Array(buffer, at, group!.size);
  group.place.exchange(new Uint8Array(buffer), send, lengths(sent), received, lengths(counts));
}

function heard(text: number, length: number): number {
  // The first speaks for all.
  if (group && group.rank > 0) return 0;
  const bytes = new Uint8Array(loaded!.memory.buffer).slice(text, text + length);
  const event = JSON.parse(new TextDecoder().decode(bytes));
  postMessage({ kind: "event", event } satisfies Answer);
  return stopping ? Atomics.load(stopping, 0) : 0;
}

/** A module of seven instructions that only an engine with vectors takes. */
const VECTORS = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
]);

async function load(): Promise<Engine> {
  // A page may ask for the one without vectors by the worker's name.
  const kind = self.name !== "scalar" && WebAssembly.validate(VECTORS) ? "simd128" : "scalar";
  const response = await fetch(new URL(`../engine-${kind}.wasm`, HERE));
  if (!response.ok) throw new Error(`engine-${kind}.wasm: the server answered ${response.status}`);
  const silent = (line: string) => console.debug(line);
  const output = () => ConsoleStdout.lineBuffered(silent);
  const wasi = new WASI([], [], [new OpenFile(new File([])), output(), output(), files], { debug: false });
  const imports = {
    wasi_snapshot_preview1: wasi.wasiImport,
    retrograd: { event: heard },
    webgpu: gpu.imports(),
    workers: { all_to_all: exchanged },
  };
  const { instance } = await WebAssembly.instantiateStreaming(response, imports);
  loaded = instance.exports as unknown as Engine;
  wasi.initialize(instance as never);
  return loaded;
}

const loading = load();

async function serve(message: ToWorker): Promise<Answer> {
  const { id } = message;
  try {
    switch (message.kind) {
      case "flag":
        stopping = new Int32Array(message.flag);
        return { kind: "done", id, ok: null };
      case "write":
        write(message.path, message.bytes);
        return { kind: "done", id, ok: null };
      case "read":
        return { kind: "done", id, ok: read(message.path) };
      case "list":
        return { kind: "done", id, ok: list(message.path) };
      case "remove":
        remove(message.path);
        return { kind: "done", id, ok: null };
      case "copy":
        copy(message.path, message.to);
        return { kind: "done", id, ok: null };
      case "pack":
        return { kind: "done", id, ok: packed() };
      case "group":
        await loading;
        group = { place: new Group(message.memory, message.rank, message.size), rank: message.rank, size: message.size };
        return { kind: "done", id, ok: null };
      case "gpu":
        return { kind: "done", id, ok: await gpu.find() };
      case "call":
        return { kind: "done", id, ok: await call(await loading, message.request) };
    }
  } catch (error) {
    const told = error instanceof Error ? error.message : String(error);
    // What ends a call in the middle of something leaves an engine that can't be called again.
    if (error instanceof Ended) return { kind: "broken", error: told };
    return { kind: "failed", id, error: told };
  }
}

/** A trap of the engine, or an error of the page's in what it imports. */
class Ended extends Error {}

async function call(engine: Engine, request: Request): Promise<unknown> {
  const onGpu = request.do === "kernels" || ("device" in request && request.device === "gpu");
  if (onGpu) await gpu.find();
  const bytes = new TextEncoder().encode(JSON.stringify(request));
  const place = engine.reserve(bytes.length);
  new Uint8Array(engine.memory.buffer).set(bytes, place);
  let length: number;
  try {
    length = onGpu ? await promising(engine.call)() : engine.call();
  } catch (error) {
    throw new Ended(error instanceof Error ? error.message : String(error));
  }
  const told = new Uint8Array(engine.memory.buffer).slice(engine.answer(), engine.answer() + length);
  const answer = JSON.parse(new TextDecoder().decode(told));
  // A device that is lost stays so, and the engine keeps its device.
  if ("error" in answer && onGpu && gpu.isLost()) throw new Ended(answer.error);
  if ("error" in answer) throw new Error(answer.error);
  return answer.ok;
}

/** The folder and the name of a path such as /run/model.safetensors. */
function place(path: string): [Map<string, Inode>, string] {
  const parts = path.split("/").filter((part) => part !== "");
  let folder = files.dir.contents;
  for (const part of parts.slice(0, -1)) {
    const inner = folder.get(part);
    if (!(inner instanceof Directory)) throw new Error(`${path}: there is no such folder`);
    folder = inner.contents;
  }
  return [folder, parts[parts.length - 1] ?? ""];
}

function write(path: string, bytes: Uint8Array): void {
  const parts = path.split("/").filter((part) => part !== "");
  let inside = files.dir.contents;
  for (const part of parts.slice(0, -1)) {
    if (!inside.has(part)) inside.set(part, new Directory([]));
    const inner = inside.get(part);
    if (inner instanceof Directory) inside = inner.contents;
  }
  const [folder, name] = place(path);
  folder.set(name, new File(bytes));
}

function read(path: string): Uint8Array {
  const [folder, name] = place(path);
  const file = folder.get(name);
  if (!(file instanceof File)) throw new Error(`${path}: there is no such file`);
  return file.data.slice();
}

/** The visitor's own files, which stand beside the folders of runs. */
function packed(): [string, Uint8Array][] {
  return [...files.dir.contents].flatMap(([name, inode]): [string, Uint8Array][] => (inode instanceof File ? [[`/${name}`, inode.data.slice()]] : []));
}

function list(path: string): { name: string; bytes: number }[] {
  const [folder, name] = place(path);
  const inner = folder.get(name);
  if (!(inner instanceof Directory)) return [];
  const found = [...inner.contents].filter(([, inode]) => inode instanceof File);
  return found.map(([name, inode]) => ({ name, bytes: (inode as File).data.length }));
}

function remove(path: string): void {
  const [folder, name] = place(path);
  folder.delete(name);
}

/** A folder's files in another, which is made anew. */
function copy(path: string, to: string): void {
  const [from, name] = place(path);
  const inner = from.get(name);
  if (!(inner instanceof Directory)) throw new Error(`${path}: there is no such folder`);
  const copied = [...inner.contents].flatMap(([name, inode]): [string, Inode][] => (inode instanceof File ? [[name, new File(inode.data.slice())]] : []));
  const [folder, last] = place(to);
  folder.set(last, new Directory(copied));
}

// One after the other: the engine has one thread.
let last: Promise<unknown> = Promise.resolve();
addEventListener("message", (event: MessageEvent<ToWorker>) => {
  last = last.then(async () => {
    const answer = await serve(event.data);
    postMessage(answer);
  });
});
loading.then(
  () => postMessage({ kind: "ready" } satisfies Answer),
  (error) => postMessage({ kind: "broken", error: String(error?.message ?? error) } satisfies Answer),
);
