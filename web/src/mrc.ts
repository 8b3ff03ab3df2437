// The first section of an MRC file (MRC2014) as a picture: browsers show none.
import { h } from "./dom";

export interface Section {
  width: number;
  height: number;
  values: Float32Array;
}

/** Bytes of a number, and how it is read, by the header's mode. */
const MODES: Record<number, [bytes: number, read: (view: DataView, at: number, little: boolean) => number]> = {
  0: [1, (view, at) => view.getInt8(at)],
  1: [2, (view, at, little) => view.getInt16(at, little)],
  2: [4, (view, at, little) => view.getFloat32(at, little)],
  6: [2, (view, at, little) => view.getUint16(at, little)],
};

/** The first section; null where the file is none, is packed, or has numbers that are not shown here. */
export function firstSection(bytes: Uint8Array): Section | null {
  if (bytes.length < 1024) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  // A number that is no mode in one byte order is one in the other.
  const little = view.getInt32(12, true) in MODES;
  const [width, height, , mode] = [0, 4, 8, 12].map((at) => view.getInt32(at, little)) as [number, number, number, number];
  const [size, read] = MODES[mode] ?? [0, () => 0];
  const first = 1024 + view.getInt32(92, little);
  const count = width * height;
  if (size === 0 || width <= 0 || height <= 0 || first < 1024 || first + count * size > bytes.length) return null;
  return { width, height, values: Float32Array.from({ length: count }, (_, i) => read(view, first + i * size, little)) };
}

/** What is darkest and what is lightest, but for a hundredth of the numbers on either side. */
export function levels({ values }: Section): [number, number] {
  const every = Math.max(1, Math.floor(values.length / 100_000));
  const sorted = values.filter((value, i) => i % every === 0 && Number.isFinite(value)).sort();
  const at = (share: number) => sorted[Math.floor(share * (sorted.length - 1))] ?? 0;
  return [at(0.01), at(0.99)];
}

/** A section in grey levels, as the address of a picture. Row 0 is below, as such files have it. */
export function drawn({ width, height, values }: Section, [dark, light]: [number, number]): string {
  const canvas = h("canvas", { width, height });
  const pen = canvas.getContext("2d")!;
  const image = new ImageData(width, height);
  const { data } = image;
  const scale = 255 / Math.max(light - dark, Number.MIN_VALUE);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = 4 * (y * width + x);
      data[at] = data[at + 1] = data[at + 2] = (values[(height - 1 - y) * width + x]! - dark) * scale;
      data[at + 3] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas.toDataURL();
}
