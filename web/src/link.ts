// The whole state of a page as the fragment of its address.

/** Fragments above this are not followed and not made: browsers and chats cut longer ones. */
const LIMIT = 16_000;

export interface State {
  tab: string;
  experiment: string;
}

async function through(bytes: Uint8Array, stream: CompressionStream | DecompressionStream): Promise<Uint8Array> {
  const piped = new Blob([bytes as BlobPart]).stream().pipeThrough(stream as ReadableWritablePair);
  return new Uint8Array(await new Response(piped as ReadableStream).arrayBuffer());
}

/** The fragment that holds an experiment, or null where it would be too long. */
export async function fragment(state: State): Promise<string | null> {
  const bytes = await through(new TextEncoder().encode(state.experiment), new CompressionStream("deflate-raw"));
  const text = btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const whole = `#${state.tab}/${text}`;
  return whole.length <= LIMIT ? whole : null;
}

/** What a fragment says; an experiment only where it has one. */
export async function parse(hash: string): Promise<{ tab: string; experiment?: string }> {
  const [tab = "", text = ""] = hash.replace(/^#/, "").split("/", 2);
  if (text === "") return { tab };
  if (hash.length > LIMIT) throw new Error(`the link is longer than ${LIMIT} characters`);
  try {
    const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(plain, (c) => c.charCodeAt(0));
    return { tab, experiment: new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"))) };
  } catch {
    throw new Error("the link is damaged; a part of it may be missing");
  }
}
