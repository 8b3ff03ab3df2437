/** What the page tells the worker. */
export type ToWorker = { id: number } & (
  | { kind: "call"; request: Request }
  | { kind: "write"; path: string; bytes: Uint8Array }
  | { kind: "read"; path: string }
  | { kind: "list"; path: string }
  | { kind: "remove"; path: string }
  | { kind: "copy"; path: string; to: string }
  | { kind: "flag"; flag: SharedArrayBuffer }
  | { kind: "gpu" }
  | { kind: "group"; memory: SharedArrayBuffer; rank: number; size: number }
  | { kind: "pack" }
);

/** What the worker answers. */
export type Answer =
  | { kind: "ready" }
  | { kind: "broken"; error: string }
  | { kind: "event"; event: EngineEvent }
  | { kind: "done"; id: number; ok: unknown }
  | { kind: "failed"; id: number; error: string };

/** A mistake in the gradients, on purpose. */
export interface Mistake {
  words: string;
  /** In the fast kernels alone: the reference stays right. */
  only_f32: boolean;
}

/** What computes: WebAssembly on the processor, or the browser's WebGPU. */
export type Device = "cpu" | "gpu";

/** What the engine does (web/engine/src/lib.rs). */
export type Request =
  | { do: "about" }
  | { do: "train"; experiment: string; folder?: string; resume?: boolean; view?: number; verify?: boolean; mistake?: Mistake; device?: Device; group?: { rank: number; size: number } }
  | { do: "mistakes"; experiment: string }
  | { do: "check"; run: string; mistake?: Mistake; device?: Device }
  | { do: "kernels"; only?: string[] }
  | { do: "draft"; path: string; target?: string; kan?: boolean; labels?: string; links?: boolean }
  | { do: "run"; run: string; inputs?: string[]; out?: string }
  | { do: "explain"; run: string; prune?: number }
  | { do: "export"; run: string; format?: string; onnx?: boolean }
  | { do: "play"; circuit: string; size: [number, number]; start: string; fire_rate?: number; seed?: number }
  | { do: "steps"; count: number }
  | { do: "paint"; at: [number, number]; radius: number; value: boolean };

export interface Figure {
  title: string;
  caption: string;
  html: string;
}

export interface Epoch {
  epoch: number;
  step: number;
  train_loss: number | null;
  metrics: Record<string, number | null>;
  seconds: number;
}

export interface Link {
  link: string;
  checks: number;
  elements: number;
  worst: number | null;
  verdict: string;
  notes: string[];
}

export interface Verification {
  checks: number;
  passed: number;
  failed: number;
  unchecked: number;
  links: Link[];
}

/** A model whose kernels were held to the reference. */
export interface KernelsEvent {
  done: number;
  of: number;
  model: string;
  passed: boolean;
  problems: { model: string; tensor: string; link: string; verdict: string; ratio: number | null; note: string }[];
}

/** What happens while a run trains. */
export type EngineEvent =
  | { kind: "start"; more: { params: number; step: number; steps: number } }
  | { kind: "step"; more: { step: number; loss: number | null } }
  | { kind: "epoch"; more: Epoch }
  | { kind: "view" | "figures"; more: Figure[] }
  | { kind: "note" | "warning" | "picture"; more: { text: string } }
  | { kind: "verified"; more: Verification }
  | { kind: "kernels"; more: KernelsEvent }
  | { kind: "saved" | "skipped" | "stopped_early"; more: unknown };
