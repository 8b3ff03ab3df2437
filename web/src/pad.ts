// A pattern drawn by hand, or taken from a picture.
import { h } from "./dom";

const CELL = 16;

export class Pad {
  readonly element: HTMLElement;
  private side = 12;
  private cells: boolean[][] = [];
  private canvas = h("canvas", { class: "pad", tabIndex: 0, role: "application" });
  private at: [number, number] = [0, 0];

  constructor(private what: string) {
    let value = true;
    this.canvas.addEventListener("pointerdown", (event) => {
      const [x, y] = this.place(event);
      value = !this.cells[y]![x]!;
      this.canvas.setPointerCapture(event.pointerId);
      this.set(x, y, value);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons === 1) this.set(...this.place(event), value);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    const clear = h("button", { type: "button" }, "Clear");
    clear.addEventListener("click", () => {
      this.cells.forEach((row) => row.fill(false));
      this.draw();
    });
    this.element = h("div", { class: "drawing" }, this.canvas, clear);
    this.resize(12);
    this.ring();
  }

  drawn(): boolean[][] {
    return this.cells.map((row) => [...row]);
  }

  resize(side: number): void {
    const old = this.cells;
    this.side = side;
    this.cells = Array.from({ length: side }, (_, y) => Array.from({ length: side }, (_, x) => old[y]?.[x] ?? false));
    this.at = [Math.floor(side / 2), Math.floor(side / 2)];
    this.canvas.width = this.canvas.height = side * CELL;
    this.canvas.setAttribute("aria-label", `${this.what}, ${side} by ${side} cells: arrows move, space changes a cell`);
    this.draw();
  }

  /** Something to begin with. */
  ring(): void {
    const middle = (this.side - 1) / 2;
    const far = (x: number, y: number) => Math.hypot(x - middle, y - middle) / this.side;
    this.cells.forEach((row, y) => row.forEach((_, x) => (row[x] = far(x, y) > 0.26 && far(x, y) < 0.42)));
    this.draw();
  }

  /** One cell in the middle. */
  dot(): void {
    const middle = Math.floor(this.side / 2);
    this.cells.forEach((row, y) => row.forEach((_, x) => (row[x] = x === middle && y === middle)));
    this.draw();
  }

  /** The dark parts of a picture, in the middle of the pad. */
  async take(file: Blob): Promise<void> {
    const picture = await createImageBitmap(file).catch(() => {
      throw new Error("the picture can't be read; the browser takes PNG, JPEG, GIF and WebP");
    });
    const scale = this.side / Math.max(picture.width, picture.height);
    const [width, height] = [picture.width * scale, picture.height * scale];
    const canvas = h("canvas", { width: this.side, height: this.side });
    const pen = canvas.getContext("2d", { willReadFrequently: true })!;
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, this.side, this.side);
    pen.imageSmoothingQuality = "high";
    pen.drawImage(picture, (this.side - width) / 2, (this.side - height) / 2, width, height);
    const { data } = pen.getImageData(0, 0, this.side, this.side);
    const light = (i: number) => 0.2126 * data[i]! + 0.7152 * data[i + 1]! + 0.0722 * data[i + 2]!;
    const all = Array.from({ length: this.side ** 2 }, (_, i) => light(4 * i));
    // Between the darkest and the lightest: a pale drawing counts, too.
    const edge = (Math.min(...all) + Math.max(...all)) / 2;
    this.cells.forEach((row, y) => row.forEach((_, x) => (row[x] = all[y * this.side + x]! < edge)));
    this.draw();
  }

  private place(event: PointerEvent): [number, number] {
    const box = this.canvas.getBoundingClientRect();
    const cell = (offset: number, size: number) => Math.min(this.side - 1, Math.max(0, Math.floor((offset * this.side) / size)));
    return [cell(event.clientX - box.left, box.width), cell(event.clientY - box.top, box.height)];
  }

  private key(event: KeyboardEvent): void {
    const moves: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const move = moves[event.key];
    const [x, y] = this.at;
    if (move) this.at = [(x + move[0] + this.side) % this.side, (y + move[1] + this.side) % this.side];
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
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.cells.forEach((row, y) =>
      row.forEach((on, x) => {
        pen.fillStyle = on ? "#2b3a55" : "#f3efe4";
        pen.fillRect(x * CELL, y * CELL, CELL - 1, CELL - 1);
      }),
    );
    pen.strokeStyle = "#d55e00";
    pen.lineWidth = 2;
    pen.strokeRect(this.at[0] * CELL + 1, this.at[1] * CELL + 1, CELL - 3, CELL - 3);
  }
}
