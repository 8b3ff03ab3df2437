// A small picture for each family on the first page.

const BLUE = "var(--a)";
const ORANGE = "var(--b)";
const SOFT = "var(--line)";

/** Numbers from 0 to 1, the same at every visit. */
function* numbers(): Generator<number, never> {
  for (let state = 7; ; ) yield (state = (state * 48271) % 0x7fffffff) / 0x7fffffff;
}

const square = (x: number, y: number, size: number, fill: string) => `<rect x="${x}" y="${y}" width="${size}" height="${size}" fill="${fill}"/>`;
const dot = (x: number, y: number, radius: number, fill: string) => `<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="${radius}" fill="${fill}"/>`;
const path = (d: string, stroke: string, width: number) => `<path d="${d}" fill="none" stroke="${stroke}" stroke-width="${width}"/>`;
const cells = Array.from({ length: 12 * 24 }, (_, i) => [i % 24, Math.floor(i / 24)] as const);

/** Noise on the left becomes squares on the right. */
function automata(): string {
  const random = numbers();
  return cells.map(([x, y]) => {
    const exact = ((x >> 1) + (y >> 1)) % 2 === 1;
    const noise = random.next().value < 0.5;
    return (random.next().value < x / 16 ? exact : noise) ? square(10 * x, 10 * y, 9, BLUE) : "";
  }).join("");
}

function kan(): string {
  const curves = [[30, "q 14 -26 28 0 t 28 0"], [60, "q 28 -34 56 0"], [90, "c 20 0 34 -6 56 -22"]] as const;
  const edges = curves.map(([y, d], i) => path(`M 20 ${y} L 70 ${y} M 126 ${y + (i === 2 ? -22 : 0)} L 200 60`, SOFT, 2) + path(`M 70 ${y} ${d}`, i === 1 ? ORANGE : BLUE, 4));
  return [...edges, ...curves.map(([y]) => dot(20, y, 6, BLUE)), dot(204, 60, 8, ORANGE)].join("");
}

function points(): string {
  const random = numbers();
  return Array.from({ length: 70 }, (_, i) => {
    const [angle, blur] = [Math.PI * random.next().value, () => 14 * (random.next().value - 0.5)];
    const upper = i % 2 === 0;
    const [x, y] = upper ? [95 + 62 * Math.cos(angle), 78 - 58 * Math.sin(angle)] : [145 - 62 * Math.cos(angle), 44 + 58 * Math.sin(angle)];
    return dot(x + blur(), y + blur(), 3.5, upper ? BLUE : ORANGE);
  }).join("");
}

function graph(): string {
  const random = numbers();
  const nodes = Array.from({ length: 18 }, (_, i) => {
    const [middle, angle, far] = [i % 2 === 0 ? 70 : 170, (2 * Math.PI * i) / 18 + random.next().value, 18 + 26 * random.next().value];
    return { x: middle + 1.3 * far * Math.cos(angle), y: 60 + far * Math.sin(angle), kind: i % 2 };
  });
  const near = nodes.flatMap((a, i) => nodes.slice(i + 1).filter((b) => Math.hypot(a.x - b.x, a.y - b.y) < (a.kind === b.kind ? 46 : 52)).map((b) => path(`M ${a.x.toFixed(1)} ${a.y.toFixed(1)} L ${b.x.toFixed(1)} ${b.y.toFixed(1)}`, SOFT, 1.5)));
  return [...near, ...nodes.map(({ x, y, kind }) => dot(x, y, 5, kind === 0 ? BLUE : ORANGE))].join("");
}

/** The same hills with noise and without. */
function denoise(): string {
  const random = numbers();
  return cells.map(([x, y]) => {
    const height = 6 + 2.4 * Math.sin(x / 3.1) + 1.2 * Math.sin(x / 1.3);
    const grey = y > height ? 90 : 185 - 5 * y;
    const shown = Math.round(grey + (x < 12 ? 110 * (random.next().value - 0.5) : 0));
    return square(10 * x, 10 * y, 10.5, `rgb(${shown},${shown},${shown})`);
  }).join("");
}

const ALL: Record<string, () => string> = { automata, kan, points, graph, denoise };

export function pictureOf(family: string): HTMLElement {
  const box = document.createElement("div");
  box.innerHTML = `<svg class="sketch" viewBox="0 0 240 120" aria-hidden="true">${ALL[family]?.() ?? ""}</svg>`;
  return box;
}
