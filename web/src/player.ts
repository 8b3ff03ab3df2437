// The exact circuit at play: cells that heal where they are wiped.
import { h } from "./dom";
import type { Engine } from "./engine";

const COLOURS: [number, number, number][] = [
  [0xf3, 0xef, 0xe4],
  [0x2b, 0x3a, 0x55],
];

export class Player {
  readonly element: HTMLElement;
  private canvas = h("canvas", { class: "grid", tabIndex: 0, role: "img" });
  private size = h("select", { id: "size" }, ...[32, 64, 128, 256, 512, 1024].map((n) => h("option", { value: String(n), selected: n === 64 }, `${n} × ${n}`)));
  private speed = h("input", { type: "range", min: "0", max: "60", value: "15", id: "speed" });
  private brush = h("select", { id: "brush" }, h("option", { value: "wipe" }, "wipe"), h("option", { value: "fill" }, "fill"));
  private play = h("button", { type: "button", class: "main" }, "Play");
  private told = h("p", { class: "told", "aria-live": "polite" });
  private playing = false;
  private busy = false;
  private due = 0;
  private strokes: [number, number][] = [];
  private start: string;
  private colours: boolean;
  private fireRate: number;

  constructor(
    private engine: Engine,
    private circuit: string,
    experiment: string,
  ) {
    const start = /^start = "(\w+)"/m.exec(experiment)?.[1] ?? "random";
    this.start = start === "bitmap" ? "zeros" : start;
    this.fireRate = Number(/^fire_rate = ([\d.]+)/m.exec(experiment)?.[1] ?? "1");
    this.colours = /colou?red|rgb/i.test(experiment);
    this.canvas.setAttribute("aria-label", "The cells of the learnt circuit");
    const again = h("button", { type: "button" }, "Start again");
    again.addEventListener("click", () => void this.lay());
    this.size.addEventListener("change", () => void this.lay());
    this.play.addEventListener("click", () => this.toggle());
    const paint = (event: PointerEvent) => {
      const box = this.canvas.getBoundingClientRect();
      const side = Number(this.size.value);
      this.strokes.push([Math.floor(((event.clientX - box.left) * side) / box.width), Math.floor(((event.clientY - box.top) * side) / box.height)]);
      if (!this.playing) void this.frame();
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      paint(event);
    });
    this.canvas.addEventListener("pointermove", (event) => event.buttons === 1 && paint(event));
    this.element = h(
      "div",
      { class: "player" },
      h("h3", {}, "Play with the circuit"),
      h("p", {}, "Draw on the cells to damage them, and watch."),
      h("div", { class: "row" }, this.play, again, h("label", { for: "size" }, "grid"), this.size, h("label", { for: "brush" }, "brush"), this.brush, h("label", { for: "speed" }, "speed"), this.speed),
      this.canvas,
      this.told,
    );
    void this.lay();
  }

  private async lay(): Promise<void> {
    const side = Number(this.size.value);
    try {
      const laid = (await this.engine.call({ do: "play", circuit: this.circuit, size: [side, side], start: this.start, fire_rate: this.fireRate })) as { gates: number };
      this.told.textContent = `${laid.gates} gates a cell, exact logic.`;
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
        for (const [x, y] of this.strokes.splice(0)) {
          const radius = Math.max(1, Math.round(Number(this.size.value) / 24));
          await this.show({ do: "paint", at: [x, y], radius, value: this.brush.value === "fill" });
        }
        const rate = Number(this.speed.value);
        if (this.playing && rate > 0 && performance.now() >= this.due) {
          this.due = performance.now() + 1000 / rate;
          await this.show({ do: "steps", count: 1 });
        }
      } catch (error) {
        this.playing = false;
        this.told.textContent = error instanceof Error ? error.message : String(error);
      }
      this.busy = false;
    }
    if (this.playing && this.element.isConnected) requestAnimationFrame(() => void this.frame());
  }

  private async show(request: { do: "steps"; count: number } | { do: "paint"; at: [number, number]; radius: number; value: boolean }): Promise<void> {
    const { cells } = (await this.engine.call(request)) as { cells: string };
    const side = Number(this.size.value);
    if (cells.length !== side * side) return;
    this.canvas.width = this.canvas.height = side;
    const image = new ImageData(side, side);
    for (let i = 0; i < cells.length; i++) {
      const bits = cells.charCodeAt(i) - 48;
      const level = (bit: number) => (bits & bit ? 0xe6 : 0x14);
      const [r, g, b] = this.colours ? [level(1), level(2), level(4)] : COLOURS[bits & 1]!;
      image.data.set([r, g, b, 255], i * 4);
    }
    this.canvas.getContext("2d")!.putImageData(image, 0, 0);
  }
}
