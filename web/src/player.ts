// The exact circuit at play: cells that heal where they are wiped.
import { h } from "./dom";
import type { Engine } from "./engine";
import { get } from "./toml";

const COLOURS: [number, number, number][] = [
  [0xf3, 0xef, 0xe4],
  [0x2b, 0x3a, 0x55],
];
const SIDES = [16, 32, 64, 128, 256, 512, 1024];
/** Steps a second; 0 for as many as there is time for. */
const SPEEDS: [number, string][] = [
  [2, "2 steps/s"],
  [15, "15 steps/s"],
  [60, "60 steps/s"],
  [0, "as fast as it goes"],
];
const STARTS: [string, string][] = [
  ["random", "noise"],
  ["centre", "one cell"],
  ["zeros", "nothing"],
];
/** How long steps of one frame may take, in milliseconds. */
const FRAME = 12;

type Shown = { do: "steps"; count: number } | { do: "paint"; at: [number, number]; radius: number; value: boolean };

function select(id: string, options: [string, string][], chosen: string): HTMLSelectElement {
  return h("select", { id }, ...options.map(([value, words]) => h("option", { value, selected: value === chosen }, words)));
}

export class Player {
  readonly element: HTMLElement;
  private canvas = h("canvas", { class: "grid", tabIndex: 0, role: "application" });
  private size = select("size", SIDES.map((n) => [String(n), `${n} × ${n}`]), "64");
  private speed = select("speed", SPEEDS.map(([n, words]) => [String(n), words]), "15");
  private brush = select("brush", [["wipe", "wipe"], ["fill", "fill"]], "wipe");
  private radius = h("input", { type: "range", min: "1", max: "20", value: "4", id: "radius" });
  private from: HTMLSelectElement;
  private play = h("button", { type: "button", class: "main" }, "Play");
  private told = h("p", { class: "told" });
  private playing = false;
  private busy = false;
  private due = 0;
  private done = 0;
  private gates = 0;
  /** Steps that were made within a frame's time. */
  private pace = 1;
  private at: [number, number] = [32, 32];
  private strokes: [number, number][] = [];
  private colours: boolean;
  private fireRate: number;

  constructor(
    private engine: Engine,
    private circuit: string,
    experiment: string,
  ) {
    const start = get(experiment, "data", "start")?.replaceAll('"', "") ?? "random";
    this.from = select("player-from", STARTS, start === "bitmap" ? "zeros" : start);
    this.fireRate = Number(get(experiment, "model", "fire_rate") ?? "1");
    this.colours = /colou?red|rgb/i.test(experiment);
    this.canvas.setAttribute("aria-label", "The cells of the learnt circuit: arrows move the brush, space paints");
    const again = h("button", { type: "button" }, "Start again");
    again.addEventListener("click", () => void this.lay());
    for (const control of [this.size, this.from]) control.addEventListener("change", () => void this.lay());
    this.play.addEventListener("click", () => this.toggle());
    this.listen();
    const field = (label: string, control: HTMLElement) => [h("label", { for: control.id }, label), control];
    this.element = h(
      "div",
      { class: "player" },
      h("h3", {}, "Play with the circuit"),
      h("p", {}, "Draw on the cells to damage them, and watch."),
      h("div", { class: "row" }, this.play, again, ...field("grid", this.size), ...field("from", this.from), ...field("speed", this.speed), ...field("brush", this.brush), ...field("brush size", this.radius)),
      this.canvas,
      this.told,
    );
    void this.lay();
  }

  private listen(): void {
    const paint = (event: PointerEvent) => {
      const box = this.canvas.getBoundingClientRect();
      const side = Number(this.size.value);
      this.at = [Math.floor(((event.clientX - box.left) * side) / box.width), Math.floor(((event.clientY - box.top) * side) / box.height)];
      this.stroke();
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      paint(event);
    });
    this.canvas.addEventListener("pointermove", (event) => event.buttons === 1 && paint(event));
    this.canvas.addEventListener("keydown", (event) => {
      const moves: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const move = moves[event.key];
      const side = Number(this.size.value);
      const far = Math.max(1, Math.round(side / 32));
      if (move) this.at = [0, 1].map((c) => (this.at[c]! + move[c]! * far + side) % side) as [number, number];
      else if (event.key !== " ") return;
      event.preventDefault();
      if (event.key === " ") this.stroke();
      else this.told.textContent = `The brush is at row ${this.at[1] + 1}, column ${this.at[0] + 1}.`;
    });
  }

  private stroke(): void {
    this.strokes.push(this.at);
    if (!this.playing) void this.frame();
  }

  private async lay(): Promise<void> {
    const side = Number(this.size.value);
    try {
      const laid = (await this.engine.call({ do: "play", circuit: this.circuit, size: [side, side], start: this.from.value, fire_rate: this.fireRate })) as { gates: number };
      this.gates = laid.gates;
      this.done = 0;
      this.pace = 1;
      this.at = [side >> 1, side >> 1];
      await this.show({ do: "steps", count: 0 });
      if (!this.playing && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.toggle();
    } catch (error) {
      this.told.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  private toggle(): void {
    this.playing = !this.playing;
    this.play.textContent = this.playing ? "Pause" : "Play";
    this.due = performance.now();
    if (this.playing) requestAnimationFrame(() => void this.frame());
  }

  private async frame(): Promise<void> {
    if (!this.busy && this.element.isConnected) {
      this.busy = true;
      try {
        for (const at of this.strokes.splice(0)) {
          const radius = Math.max(1, Math.round((Number(this.size.value) * Number(this.radius.value)) / 100));
          await this.show({ do: "paint", at, radius, value: this.brush.value === "fill" });
        }
        if (this.playing) await this.advance();
      } catch (error) {
        this.playing = false;
        this.told.textContent = error instanceof Error ? error.message : String(error);
      }
      this.busy = false;
    }
    if (this.playing && this.element.isConnected) requestAnimationFrame(() => void this.frame());
  }

  private async advance(): Promise<void> {
    const rate = Number(this.speed.value);
    const now = performance.now();
    if (rate > 0) {
      if (now < this.due) return;
      this.due = Math.max(this.due + 1000 / rate, now - 100);
      return this.show({ do: "steps", count: 1 });
    }
    await this.show({ do: "steps", count: this.pace });
    this.pace = Math.max(1, Math.round((this.pace * FRAME) / Math.max(performance.now() - now, 1)));
  }

  private async show(request: Shown): Promise<void> {
    const { cells } = (await this.engine.call(request)) as { cells: string };
    const side = Number(this.size.value);
    if (cells.length !== side * side) return;
    if (request.do === "steps") this.done += request.count;
    if (this.canvas.width !== side) this.canvas.width = this.canvas.height = side;
    const image = new ImageData(side, side);
    const words = new Uint32Array(image.data.buffer);
    const colours = Array.from({ length: 8 }, (_, bits) => {
      const level = (bit: number) => (bits & bit ? 0xe6 : 0x14);
      const [r, g, b] = this.colours ? [level(1), level(2), level(4)] : COLOURS[bits & 1]!;
      return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
    });
    for (let i = 0; i < cells.length; i++) words[i] = colours[cells.charCodeAt(i) - 48]!;
    this.canvas.getContext("2d")!.putImageData(image, 0, 0);
    this.told.textContent = `${this.gates} gates a cell, exact logic. Step ${this.done.toLocaleString("en")}.`;
  }
}
