// The page's side of the worker.
import { Helpers } from "./helpers";
import type { Answer, EngineEvent, Request, ToWorker } from "./messages";

type Pending = { resolve: (value: unknown) => void; reject: (error: Error) => void };
type Unnumbered<T> = T extends unknown ? Omit<T, "id"> : never;

/** How long a training may go on after it was asked to stop. */
const PATIENCE = 5_000;

/** An engine in a worker of its own. Where a worker is lost, calls fail with a sentence and a new one starts. */
export class Engine {
  private worker: Worker | null = null;
  private pending = new Map<number, Pending>();
  private next = 0;
  private flag: Int32Array | null = null;
  private ending: ReturnType<typeof setTimeout> | undefined;
  private about = "";
  private helpers: Helpers;
  onEvent: (event: EngineEvent) => void = () => {};
  onState: (text: string, broken: boolean) => void = () => {};

  constructor(private kind: string | null = null) {
    this.helpers = new Helpers(kind);
    this.begin();
  }

  private begin(): void {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module", name: this.kind ?? "" });
    this.worker = worker;
    worker.addEventListener("message", (event: MessageEvent<Answer>) => this.worker === worker && this.hear(event.data));
    worker.addEventListener("error", (event) => this.worker === worker && this.lose(event.message || "the worker could not be started"));
    if (typeof SharedArrayBuffer !== "undefined" && crossOriginIsolated) {
      this.flag = new Int32Array(new SharedArrayBuffer(4));
      this.ask({ kind: "flag", flag: this.flag.buffer as SharedArrayBuffer }).catch(() => {});
    }
    this.call({ do: "about" }).then(
      (about) => {
        this.about = told(about as { simd: string; version: string });
        this.tell();
      },
      () => {},
    );
  }

  /** Says what computes: the engine itself, or another. */
  tell(other = this.about): void {
    if (other !== "") this.onState(`${other} Nothing is sent anywhere.`, false);
  }

  private hear(answer: Answer): void {
    switch (answer.kind) {
      case "event":
        return this.onEvent(answer.event);
      case "ready":
        return;
      case "broken":
        return this.lose(answer.error);
      default: {
        const pending = this.pending.get(answer.id);
        this.pending.delete(answer.id);
        if (this.pending.size === 0) clearTimeout(this.ending);
        if (answer.kind === "done") pending?.resolve(answer.ok);
        else pending?.reject(new Error(answer.error));
      }
    }
  }

  private lose(why: string): void {
    this.onState(`The engine stopped: ${why}. What is done next starts another.`, true);
    this.end(`the engine stopped: ${why}; what was learnt is lost`);
  }

  /** Ends the worker, and what it was doing. */
  private end(why: string): void {
    clearTimeout(this.ending);
    this.worker?.terminate();
    this.worker = null;
    this.helpers.end();
    const pending = [...this.pending.values()];
    this.pending.clear();
    for (const { reject } of pending) reject(new Error(why));
  }

  ask(message: Unnumbered<ToWorker>): Promise<unknown> {
    if (!this.worker) this.begin();
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      this.worker!.postMessage({ ...message, id });
    });
  }

  call(request: Request): Promise<unknown> {
    if (this.flag) Atomics.store(this.flag, 0, 0);
    return this.ask({ kind: "call", request });
  }

  /** A request that so many workers share, where the page is isolated; the first answers. */
  async shared(size: number, request: Request): Promise<unknown> {
    if (size === 1) return this.call(request);
    const files = (await this.ask({ kind: "pack" })) as [string, Uint8Array][];
    const { memory, done } = await this.helpers.begin(size, request, files);
    await this.ask({ kind: "group", memory, rank: 0, size });
    // Where another can't go on, the first would wait for it for ever.
    let ended = false;
    done.catch((error: Error) => setTimeout(() => ended || this.lose(error.message), PATIENCE));
    try {
      return await this.call({ ...request, group: { rank: 0, size } } as Request);
    } catch (error) {
      // They may wait for something that the first doesn't send any more.
      this.helpers.end();
      throw error;
    } finally {
      ended = true;
    }
  }

  write(path: string, bytes: Uint8Array): Promise<unknown> {
    return this.ask({ kind: "write", path, bytes });
  }

  async read(path: string): Promise<Uint8Array> {
    return (await this.ask({ kind: "read", path })) as Uint8Array;
  }

  /** Ends the worker; the page has another. */
  close(): void {
    this.onState = () => {};
    this.end("the page went on");
  }

  /** Ends what is trained now: at the next event where the page is isolated, which saves; else at once. */
  stop(): void {
    if (this.flag && Atomics.exchange(this.flag, 0, 1) === 0) {
      this.ending = setTimeout(() => this.lose("it did not stop when it was asked to"), PATIENCE);
      return;
    }
    this.end(this.flag ? "stopped; what was learnt is lost" : "stopped; what was learnt is lost, as this server sends no headers for isolation");
  }
}

function told(about: { simd: string; version: string }): string {
  const vectors = about.simd === "scalar" ? "without vectors" : `with vectors (${about.simd})`;
  return `Computed in this page by WebAssembly ${vectors}.`;
}
