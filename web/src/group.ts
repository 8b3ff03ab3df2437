// Several engines that train one model, each in a worker of its own: what they send one another goes through memory that
// they share, a ring of bytes for each pair and direction. It needs a page that is isolated.

/** Bytes of a ring: a power of two, so that counts may overflow. What is longer goes through it piece by piece. */
const RING = 1 << 16;
/** Looks at the rings before a worker sleeps; waking takes longer than most answers. */
const SPINS = 2_000;

/** The memory of so many workers: a bell for each, the counts written and read of each pair, and the rings. */
export function shared(size: number): SharedArrayBuffer {
  return new SharedArrayBuffer(4 * heads(size) + size * size * RING);
}

const heads = (size: number): number => size + 2 * size * size;

interface Side {
  other: number;
  at: number;
  left: number;
}

/** One worker's place in the group. */
export class Group {
  private words: Int32Array;
  private bytes: Uint8Array;

  constructor(
    memory: SharedArrayBuffer,
    private rank: number,
    private size: number,
  ) {
    this.words = new Int32Array(memory, 0, heads(size));
    this.bytes = new Uint8Array(memory, 4 * heads(size));
  }

  /** Sends bytes of an engine's memory to all others, and receives theirs; returns when all is done. */
  exchange(engine: Uint8Array, send: number, sent: Uint32Array, received: number, counts: Uint32Array): void {
    const [out, into] = [this.sides(send, sent), this.sides(received, counts)];
    for (let idle = 0; out.some((s) => s.left > 0) || into.some((s) => s.left > 0); idle++) {
      const bell = Atomics.load(this.words, this.rank);
      let moved = false;
      for (const side of out) moved = (side.left > 0 && this.put(engine, side)) || moved;
      for (const side of into) moved = (side.left > 0 && this.take(engine, side)) || moved;
      if (moved) idle = 0;
      else if (idle > SPINS) Atomics.wait(this.words, this.rank, bell);
    }
  }

  /** Where each other worker's bytes begin, one behind the other; this worker's own stay where they are. */
  private sides(start: number, lengths: Uint32Array): Side[] {
    let at = start;
    return Array.from(lengths, (left, other) => {
      const side = { other, at, left };
      at += left;
      return side;
    }).filter((side) => side.left > 0 && side.other !== this.rank);
  }

  private ring(from: number, to: number): { written: number; read: number; start: number } {
    const pair = from * this.size + to;
    const written = this.size + 2 * pair;
    return { written, read: written + 1, start: pair * RING };
  }

  private put(engine: Uint8Array, side: Side): boolean {
    const { written, read, start } = this.ring(this.rank, side.other);
    const at = Atomics.load(this.words, written);
    const count = Math.min(side.left, RING - ((at - Atomics.load(this.words, read)) >>> 0));
    if (count === 0) return false;
    this.pieces(at, count, (place, from, length) => this.bytes.set(engine.subarray(side.at + from, side.at + from + length), start + place));
    this.done(side, written, at, count);
    return true;
  }

  private take(engine: Uint8Array, side: Side): boolean {
    const { written, read, start } = this.ring(side.other, this.rank);
    const at = Atomics.load(this.words, read);
    const count = Math.min(side.left, (Atomics.load(this.words, written) - at) >>> 0);
    if (count === 0) return false;
    this.pieces(at, count, (place, from, length) => engine.set(this.bytes.subarray(start + place, start + place + length), side.at + from));
    this.done(side, read, at, count);
    return true;
  }

  /** A stretch of a ring is one piece, or two around its end. */
  private pieces(at: number, count: number, move: (place: number, from: number, length: number) => void): void {
    const place = at & (RING - 1);
    const first = Math.min(count, RING - place);
    move(place, 0, first);
    if (first < count) move(0, first, count - first);
  }

  /** Says how far this worker is, and rings the other's bell. */
  private done(side: Side, word: number, at: number, count: number): void {
    Atomics.store(this.words, word, (at + count) | 0);
    side.at += count;
    side.left -= count;
    Atomics.add(this.words, side.other, 1);
    Atomics.notify(this.words, side.other);
  }
}
