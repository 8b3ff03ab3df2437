// The whole state of a page as the fragment of its address.
import type { Device, Mistake } from "./messages";

/** Fragments above this are not followed and not made: browsers and chats cut longer ones. */
const LIMIT = 16_000;
/** What a fragment may become when it is inflated: a small one can hold a great many zeros. */
const INFLATED = 1 << 20;

export interface State {
  tab: string;
  experiment: string;
  /** What computes, where that is not the processor. */
  device?: Device;
  /** The mistake that is put in, where there is one. */
  mistake?: Mistake;
  /** Files of the visitor's own, as text, where that was asked for. */
  files?: Record<string, string>;
}

async function through(bytes: Uint8Array, stream: CompressionStream | DecompressionStream): Promise<Uint8Array> {
  const piped = new Blob([bytes as BlobPart]).stream().pipeThrough(stream as ReadableWritablePair);
  const parts: Uint8Array[] = [];
  let size = 0;
  for (const reader = piped.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > INFLATED) throw new Error("too long");
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
}

/** The fragment that holds an experiment, or null where it would be too long. */
export async function fragment({ tab, experiment, device, mistake, files }: State): Promise<string | null> {
  const more = { ...(device === "gpu" ? { device } : {}), ...(mistake ? { mistake } : {}), ...(files ? { files } : {}) };
  const text = Object.keys(more).length > 0 ? JSON.stringify({ experiment, ...more }) : experiment;
  if (text.length > INFLATED) return null;
  const bytes = await through(new TextEncoder().encode(text), new CompressionStream("deflate-raw"));
  if (bytes.length > LIMIT) return null;
  const code = btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const whole = `#${tab}/${code}`;
  return whole.length <= LIMIT ? whole : null;
}

/** What a fragment says; an experiment only where it has one. */
export async function parse(hash: string): Promise<Partial<State> & { tab: string }> {
  const [tab = "", code = ""] = hash.replace(/^#/, "").split("/", 2);
  if (code === "") return { tab };
  if (hash.length > LIMIT) throw new Error(`the link is longer than ${LIMIT} characters`);
  try {
    const plain = atob(code.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(plain, (c) => c.charCodeAt(0));
    const text = new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw")));
    if (!text.startsWith("{")) return { tab, experiment: text };
    const { experiment, device, mistake, files = {} } = JSON.parse(text) as Record<string, unknown>;
    const isText = (value: unknown): value is string => typeof value === "string";
    if (!isText(experiment) || typeof files !== "object" || files === null || !Object.values(files).every(isText)) throw new Error("not a state");
    const { words, only_f32 } = (mistake ?? {}) as Record<string, unknown>;
    const wrong = isText(words) ? { mistake: { words, only_f32: only_f32 === true } } : {};
    return { tab, experiment, device: device === "gpu" ? "gpu" : "cpu", ...wrong, files: files as Record<string, string> };
  } catch {
    throw new Error("the link is damaged; a part of it may be missing");
  }
}
