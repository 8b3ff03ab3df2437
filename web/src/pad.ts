// A pattern drawn by hand.
import { h } from "./dom";

const SIDE = 12;

export class Pad {
  readonly element: HTMLElement;
  private cells = Array.from({ length: SIDE }, (_, y) =>
    Array.from({ length: SIDE }, (_, x) => Math.hypot(x - 5.5, y - 5.5) > 3.2 && Math.hypot(x - 5.5, y - 5.5) < 5),
  );
  private canvas = h("canvas", { width: SIDE * 16, height: SIDE * 16, class: "pad", tabIndex: 0, role: "application" });
  private at: [number, number] = [5, 5];

  constructor(use: (cells: boolean[][]) => void) {
    this.canvas.setAttribute("aria-label", `A drawing of ${SIDE} by ${SIDE} cells: arrows move, space changes a cell`);
    let value = true;
    const place = (event: PointerEvent): [number, number] => {
      const box = this.canvas.getBoundingClientRect();
      const cell = (offset: number, size: number) => Math.min(SIDE - 1, Math.max(0, Math.floor((offset * SIDE) / size)));
      return [cell(event.clientX - box.left, box.width), cell(event.clientY - box.top, box.height)];
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      const [x, y] = place(event);
      value = !this.cells[y]![x]!;
      this.canvas.setPointerCapture(event.pointerId);
      this.set(x, y, value);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons === 1) this.set(...place(event), value);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    const button = h("button", { type: "button" }, "Use the drawing");
    button.addEventListener("click", () => use(this.cells));
    const clear = h("button", { type: "button" }, "Clear");
    clear.addEventListener("click", () => {
      this.cells.forEach((row) => row.fill(false));
      this.draw();
    });
    this.element = h("div", {}, this.canvas, h("div", { class: "row" }, button, clear));
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const moves: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const move = moves[event.key];
    const [x, y] = this.at;
    if (move) this.at = [(x + move[0] + SIDE) % SIDE, (y + move[1] + SIDE) % SIDE];
    else if (event.key === " ") this.cells[y]![x] = !this.cells[y]![x];
    else return;
    event.preventDefault();
    this.draw();
  }

  private set(x: number, y: number, value: boolean): void {
    this.cells[y]![x] = value;
    this.draw();
  }

  private draw(): void {
    const pen = this.canvas.getContext("2d")!;
    this.cells.forEach((row, y) =>
      row.forEach((on, x) => {
        pen.fillStyle = on ? "#2b3a55" : "#f3efe4";
        pen.fillRect(x * 16, y * 16, 15, 15);
      }),
    );
    pen.strokeStyle = "#d97706";
    pen.strokeRect(this.at[0] * 16 + 0.5, this.at[1] * 16 + 0.5, 14, 14);
  }
}
