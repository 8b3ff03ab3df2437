// Points of a plane, set by hand: the data that visitors of such pages ask for first.
import { h } from "./dom";

/** Classes have a colour and a shape each. */
const CLASSES = ["a", "b", "c", "d"] as const;
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];
const SIDE = 320;
/** Between two points of one stroke, and how far a key moves, in the canvas's own pixels. */
const APART = 14;
const STEP = 16;

interface Point {
  x: number;
  y: number;
  kind: number;
}

/** Numbers from 0 to 1 that look drawn, the same at every visit. */
function stream(): () => number {
  let state = 1;
  return () => (state = (state * 48271) % 0x7fffffff) / 0x7fffffff;
}

const PATTERNS: [string, (at: () => number) => Point][] = [
  ["a ring", (draw) => {
    const inside = draw() < 0.5;
    const [angle, far] = [2 * Math.PI * draw(), inside ? 0.35 * Math.sqrt(draw()) : 0.65 + 0.25 * draw()];
    return { x: far * Math.cos(angle), y: far * Math.sin(angle), kind: inside ? 0 : 1 };
  }],
  ["four squares", (draw) => {
    const [x, y] = [draw(), draw()].map((v) => (v < 0.5 ? 1.8 * v - 0.95 : 1.8 * v - 0.85)) as [number, number];
    return { x, y, kind: x * y > 0 ? 0 : 1 };
  }],
  ["three clusters", (draw) => {
    const kind = Math.floor(3 * draw());
    const [angle, far] = [2 * Math.PI * (kind / 3 + 0.25), 0.55];
    const spread = () => 0.28 * (draw() + draw() + draw() - 1.5);
    return { x: far * Math.cos(angle) + spread(), y: far * Math.sin(angle) + spread(), kind };
  }],
];

/** A field to draw points in; `use` is given them as a table. */
export function cloudPanel(use: (files: File[]) => void): HTMLElement {
  const points: Point[] = [];
  let at: [number, number] = [SIDE / 2, SIDE / 2];
  let keys = false;
  const canvas = h("canvas", { class: "pad cloud", width: SIDE, height: SIDE, tabIndex: 0, role: "application", "aria-label": "Points of a plane: arrows move, space sets a point, backspace takes the last one away" });
  const kind = h("select", { id: "class" }, ...CLASSES.map((name) => h("option", { value: name }, `class ${name}`)));
  const told = h("p", { class: "told", role: "status" });
  const draw = () => {
    const pen = canvas.getContext("2d")!;
    pen.fillStyle = "#f3efe4";
    pen.fillRect(0, 0, SIDE, SIDE);
    pen.fillStyle = "#d9d6cd";
    pen.fillRect(SIDE / 2, 0, 1, SIDE);
    pen.fillRect(0, SIDE / 2, SIDE, 1);
    for (const point of points) mark(pen, point);
    if (keys) {
      pen.strokeStyle = "#1d2530";
      pen.strokeRect(at[0] - 8, at[1] - 8, 16, 16);
    }
    const counts = CLASSES.map((name, i) => [points.filter((point) => point.kind === i).length, name] as const).filter(([count]) => count > 0);
    told.textContent = points.length === 0 ? "No points yet: set some of each class." : `${points.length} points: ${counts.map(([count, name]) => `${count} of ${name}`).join(", ")}.`;
  };
  const set = (x: number, y: number) => {
    points.push({ x: (2 * x) / SIDE - 1, y: 1 - (2 * y) / SIDE, kind: CLASSES.indexOf(kind.value as "a") });
    draw();
  };
  const place = (event: PointerEvent): [number, number] => {
    const box = canvas.getBoundingClientRect();
    const inside = (offset: number, size: number) => Math.min(SIDE, Math.max(0, (offset * SIDE) / size));
    return [inside(event.clientX - box.left, box.width), inside(event.clientY - box.top, box.height)];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    [keys, at] = [false, place(event)];
    set(...at);
  });
  canvas.addEventListener("pointermove", (event) => {
    const to = place(event);
    if (event.buttons !== 1 || Math.hypot(to[0] - at[0], to[1] - at[1]) < APART) return;
    at = to;
    set(...at);
  });
  canvas.addEventListener("keydown", (event) => {
    const moves: Record<string, [number, number]> = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };
    const move = moves[event.key];
    keys = true;
    if (move) at = [0, 1].map((c) => Math.min(SIDE - STEP / 2, Math.max(STEP / 2, at[c]! + move[c]!))) as [number, number];
    else if (event.key === " ") set(...at);
    else if (event.key === "Backspace") points.pop();
    else return;
    event.preventDefault();
    draw();
  });
  const button = (words: string, click: () => void) => {
    const made = h("button", { type: "button" }, words);
    made.addEventListener("click", () => {
      click();
      draw();
    });
    return made;
  };
  const patterns = h("select", { id: "pattern" }, ...PATTERNS.map(([name]) => h("option", {}, name)));
  const fill = () => {
    const [, point] = PATTERNS[patterns.selectedIndex]!;
    const numbers = stream();
    points.splice(0, points.length, ...Array.from({ length: 240 }, () => point(numbers)));
  };
  const table = () => ["x,y,class", ...points.map(({ x, y, kind }) => `${x.toFixed(3)},${y.toFixed(3)},${CLASSES[kind]}`), ""].join("\n");
  draw();
  return h(
    "details",
    { class: "wide" },
    h("summary", {}, "Draw the points"),
    h("div", { class: "row" }, h("label", { for: "class" }, "Points of"), kind, button("Undo", () => points.pop()), button("Clear", () => points.splice(0))),
    h("div", { class: "drawing" }, canvas),
    told,
    h("div", { class: "row" }, h("label", { for: "pattern" }, "or begin with"), patterns, button("Fill", fill)),
    h("div", { class: "row" }, button("Use the points", () => use([new File([table()], "drawn.csv", { type: "text/csv" })]))),
  );
}

function mark(pen: CanvasRenderingContext2D, { x, y, kind }: Point): void {
  const [cx, cy] = [((x + 1) * SIDE) / 2, ((1 - y) * SIDE) / 2];
  pen.fillStyle = COLOURS[kind]!;
  pen.beginPath();
  if (kind === 0) pen.arc(cx, cy, 4, 0, 2 * Math.PI);
  else {
    const corners = kind === 1 ? 4 : kind === 2 ? 3 : 4;
    const turn = kind === 1 ? Math.PI / 4 : -Math.PI / 2;
    for (let i = 0; i < corners; i++) {
      const angle = turn + (2 * Math.PI * i) / corners;
      pen.lineTo(cx + 5.5 * Math.cos(angle), cy + 5.5 * Math.sin(angle));
    }
    pen.closePath();
  }
  pen.fill();
}
