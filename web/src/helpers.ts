// The other workers of a training that several share: engines that do as the first one does, and say nothing.
import { shared } from "./group";
import type { Answer, Request, ToWorker } from "./messages";

type Unnumbered<T> = T extends unknown ? Omit<T, "id"> : never;

class Helper {
  private worker: Worker;
  private pending = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  private next = 0;

  constructor(kind: string | null) {
    this.worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module", name: kind ?? "" });
    this.worker.addEventListener("message", ({ data }: MessageEvent<Answer>) => {
      if (data.kind === "done") this.pending.get(data.id)?.resolve(data.ok);
      else if (data.kind === "failed") this.pending.get(data.id)?.reject(new Error(data.error));
      else if (data.kind === "broken") this.fail(data.error);
    });
    this.worker.addEventListener("error", (event) => this.fail(event.message || "the worker could not be started"));
  }

  private fail(why: string): void {
    for (const { reject } of this.pending.values()) reject(new Error(why));
    this.pending.clear();
  }

  ask(message: Unnumbered<ToWorker>): Promise<unknown> {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      this.worker.postMessage({ ...message, id });
    });
  }

  end(): void {
    this.worker.terminate();
    this.fail("the worker ended");
  }
}

/** As many of them as a training has needed. */
export class Helpers {
  private all: Helper[] = [];

  constructor(private kind: string | null) {}

  /** Lets workers 1 to `size - 1` do what is asked with those files: the memory that they share, and when they are done. */
  async begin(size: number, request: Request, files: [string, Uint8Array][]): Promise<{ memory: SharedArrayBuffer; done: Promise<unknown> }> {
    while (this.all.length < size - 1) this.all.push(new Helper(this.kind));
    const memory = shared(size);
    const own = this.all.slice(0, size - 1);
    // A worker that doesn't get so far has no part in it, and nobody waits for it.
    await Promise.all(
      own.map(async (helper, i) => {
        for (const [path, bytes] of files) await helper.ask({ kind: "write", path, bytes });
        await helper.ask({ kind: "group", memory, rank: i + 1, size });
      }),
    );
    const calls = own.map((helper, i) => helper.ask({ kind: "call", request: { ...request, group: { rank: i + 1, size } } as Request }));
    const done = Promise.all(calls);
    done.catch(() => {});
    return { memory, done };
  }

  end(): void {
    for (const helper of this.all.splice(0)) helper.end();
  }
}
