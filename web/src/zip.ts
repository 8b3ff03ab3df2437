// A folder as one file: a ZIP archive of stored files (APPNOTE 4.3), which every system unpacks.

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

function crc32(bytes: Uint8Array): number {
  let sum = -1;
  for (const byte of bytes) sum = TABLE[(sum ^ byte) & 255]! ^ (sum >>> 8);
  return ~sum >>> 0;
}

/** Numbers of two or four bytes each, the lowest first. */
function fields(...all: [size: 2 | 4, value: number][]): number[] {
  return all.flatMap(([size, value]) => Array.from({ length: size }, (_, i) => (value >>> (8 * i)) & 255));
}

export function zip(files: { name: string; bytes: Uint8Array }[]): Uint8Array {
  const parts: Uint8Array[] = [];
  const list: Uint8Array[] = [];
  let at = 0;
  const put = (to: Uint8Array[], numbers: number[], ...more: Uint8Array[]) => {
    for (const part of [Uint8Array.from(numbers), ...more]) to.push(part);
  };
  for (const { name, bytes } of files) {
    const path = new TextEncoder().encode(name);
    // Version 2.0, names in UTF-8, stored; 1980-01-01, so that the same run gives the same file.
    const about = fields([2, 20], [2, 0x800], [2, 0], [2, 0], [2, 33], [4, crc32(bytes)], [4, bytes.length], [4, bytes.length], [2, path.length], [2, 0]);
    put(list, [...fields([4, 0x02014b50], [2, 20]), ...about, ...fields([2, 0], [2, 0], [2, 0], [4, 0], [4, at])], path);
    put(parts, [...fields([4, 0x04034b50]), ...about], path, bytes);
    at += 30 + path.length + bytes.length;
  }
  const size = list.reduce((sum, part) => sum + part.length, 0);
  put(list, fields([4, 0x06054b50], [2, 0], [2, 0], [2, files.length], [2, files.length], [4, size], [4, at], [2, 0]));
  const all = [...parts, ...list];
  const whole = new Uint8Array(all.reduce((sum, part) => sum + part.length, 0));
  let to = 0;
  for (const part of all) {
    whole.set(part, to);
    to += part.length;
  }
  return whole;
}
