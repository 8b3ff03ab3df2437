// The losses of a run, drawn as they come.
import { h, number } from "./dom";

/** Those of Okabe and Ito, which the colour-blind tell apart; every second line is dashed as well. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];
/** What a line of an earlier run is called. */
const BEFORE = "without the mistake";

export class Curve {
  readonly element: HTMLElement;
  private canvas = h("canvas", { role: "img" });
  private legend = h("p", { class: "legend" });
  private lines = new Map<string, { x: number; y: number }[]>();
  private due = false;
  private right = true;

  constructor() {
    this.canvas.setAttribute("aria-label", "the losses so far");
    this.element = h("figure", { class: "curve" }, this.canvas, this.legend);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Begins a run. Where its gradients are wrong, the last loss of right ones stays to compare with. */
  begin(right: boolean): void {
    const before = this.right ? this.lines.get("loss") : this.lines.get(BEFORE);
    this.lines.clear();
    if (!right && before) this.lines.set(BEFORE, before);
    this.right = right;
    this.legend.replaceChildren();
    this.draw();
  }

  add(name: string, x: number, y: number | null): void {
    if (y === null || !Number.isFinite(y)) return;
    let line = this.lines.get(name);
    if (!line) this.lines.set(name, (line = []));
    line.push({ x, y });
    // A long run keeps its shape and not every point.
    if (line.length > 2000) this.lines.set(name, line.filter((_, i) => i % 2 === 0));
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      this.draw();
    });
  }

  private draw(): void {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const pen = this.canvas.getContext("2d");
    if (!pen || width === 0) return;
    pen.scale(scale, scale);
    const ink = getComputedStyle(this.canvas).color;
    const points = [...this.lines.values()].flat();
    const positive = points.map((p) => p.y).filter((y) => y > 0);
    const [left, bottom] = [68, height - 20];
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = ink;
    if (positive.length === 0) {
      pen.globalAlpha = 0.6;
      pen.fillText("The loss appears here.", left, height / 2);
      return;
    }
    const lowest = Math.log10(Math.min(...positive));
    const highest = Math.max(Math.log10(Math.max(...positive)), lowest + 0.3);
    const end = Math.max(...points.map((p) => p.x), 1);
    const x = (value: number) => left + ((width - left - 8) * value) / end;
    const y = (value: number) => {
      const share = (Math.log10(Math.max(value, 10 ** lowest)) - lowest) / (highest - lowest);
      return bottom - share * (bottom - 10);
    };
    pen.globalAlpha = 0.7;
    pen.textAlign = "right";
    for (const at of [lowest, (lowest + highest) / 2, highest]) {
      pen.fillText(number(10 ** at), left - 6, y(10 ** at) + 4);
      pen.fillRect(left, y(10 ** at), width - left - 8, 0.5);
    }
    pen.fillText(`step ${end}`, width - 8, height - 5);
    pen.globalAlpha = 1;
    pen.lineWidth = 1.6;
    let i = 0;
    this.legend.replaceChildren();
    for (const [name, line] of this.lines) {
      const colour = name === BEFORE ? ink : COLOURS[i++ % COLOURS.length]!;
      pen.globalAlpha = name === BEFORE ? 0.45 : 1;
      pen.strokeStyle = colour;
      pen.setLineDash(i % 2 === 0 ? [6, 3] : []);
      pen.beginPath();
      line.forEach((p, n) => (n === 0 ? pen.moveTo(x(p.x), y(p.y)) : pen.lineTo(x(p.x), y(p.y))));
      pen.stroke();
      const last = line[line.length - 1]!;
      const key = h("span", { class: i % 2 === 0 ? "key dashed" : "key" });
      key.style.borderColor = colour;
      this.legend.append(key, `${name.replaceAll("_", " ")} ${number(last.y)} `);
    }
  }
}
