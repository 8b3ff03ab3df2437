// The browser's WebGPU for the engine: every function that its backend imports (web/engine/src/webgpu/host.rs), and a
// table of the objects that are numbers there. Where the engine waits for the device it is suspended by JavaScript
// Promise Integration, so that the library's own code, which waits where it stands, runs as it is.

/** The engine's memory and its exports, once it is there. */
export interface Host {
  memory: () => WebAssembly.Memory;
}

/** JavaScript Promise Integration, where the browser has it; no library of types does yet. */
const JSPI = WebAssembly as unknown as {
  Suspending?: new (wait: (...given: number[]) => Promise<unknown>) => WebAssembly.ImportValue;
  promising?: (call: () => number) => () => Promise<number>;
};

/** A function of the engine's that may be suspended. */
export function promising(call: () => number): () => Promise<number> {
  return JSPI.promising!(call);
}

/** What the library needs of an adapter, said with every one that has less. */
const LIMITS = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupsPerDimension",
  "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupSizeY",
  "maxComputeWorkgroupSizeZ",
] as const;

interface Opened {
  device: GPUDevice;
  /** What it said and the engine has not heard: a letter and words. */
  troubles: string[];
}

interface Part {
  buffer: number;
  offset: number;
  size: number | null;
}

/** What the engine says in JSON to be made. */
type Made =
  | { what: "bindings"; entries: { binding: number; type: GPUBufferBindingType }[] }
  | { what: "layout"; bindings: number[] }
  | { what: "group"; layout: number; entries: (Part & { binding: number })[] }
  | { what: "pipeline"; module: number; entry: string; layout: number | null; constants: [string, number][] };

/** The name of an adapter, as far as a browser says it. */
function nameOf(info: GPUAdapterInfo): string {
  const words = [info.description, [info.vendor, info.architecture].filter(Boolean).join(" "), info.device];
  return words.find((text) => text !== "") ?? "the browser's GPU";
}

export class WebGpu {
  private table = new Map<number, unknown>();
  private next = 1;
  private mappings = new Map<number, { state: 0 | 1 | 2; done: Promise<void> }>();
  private said: Uint8Array = new Uint8Array();
  private adapter: GPUAdapter | null = null;
  private why = "";
  private lost = false;

  constructor(private host: Host) {}

  /** Asks the browser for an adapter: its name, or an error that says why there is none. */
  async find(): Promise<string> {
    if (!JSPI.Suspending || !JSPI.promising) {
      throw new Error("This browser can't suspend WebAssembly while the GPU computes (JavaScript Promise Integration), so its GPU can't be used here; the processor computes.");
    }
    if (!navigator.gpu) throw new Error("This browser has no WebGPU, so the processor computes.");
    this.adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    if (!this.adapter) throw new Error("This browser has WebGPU, but no GPU that it would use, so the processor computes.");
    return nameOf(this.adapter.info);
  }

  /** Whether a device went away that the engine has. */
  isLost(): boolean {
    return this.lost;
  }

  /** What the engine imports. */
  imports(): WebAssembly.ModuleImports {
    return { ...this.texts(), ...this.waits(), ...this.objects(), ...this.buffers(), ...this.commands() };
  }

  private put(object: unknown): number {
    this.table.set(this.next, object);
    return this.next++;
  }

  private get<T>(number: number): T {
    return this.table.get(number) as T;
  }

  private bytes(at: number, length: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.host.memory().buffer as ArrayBuffer, at, length);
  }

  private text(at: number, length: number): string {
    return new TextDecoder().decode(this.bytes(at, length));
  }

  /** A text for the engine to take: its length. */
  private say(text: string): number {
    this.said = new TextEncoder().encode(text);
    return this.said.length;
  }

  private texts(): WebAssembly.ModuleImports {
    return {
      describe: () => (this.adapter ? this.say(JSON.stringify(described(this.adapter))) : 0),
      take: (to: number) => this.bytes(to, this.said.length).set(this.said),
      trouble: (device: number) => {
        const told = device === 0 ? this.why : this.get<Opened>(device).troubles.shift();
        return told ? this.say(told) : 0;
      },
      release: (number: number) => {
        const object = this.table.get(number);
        if (object instanceof GPUBuffer) object.destroy();
        this.table.delete(number);
        this.mappings.delete(number);
      },
    };
  }

  /** What the engine waits for. Without a way to suspend it, they are never called: `find` fails. */
  private waits(): WebAssembly.ModuleImports {
    const all = {
      open: async () => {
        // An adapter gives one device.
        const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
        try {
          const device = await opened(adapter);
          void device.device.lost.then(() => (this.lost = true));
          return this.put(device);
        } catch (error) {
          this.why = error instanceof Error ? error.message : String(error);
          return 0;
        }
      },
      wait: async (device: number) => {
        const { queue } = this.get<Opened>(device).device;
        const mapped = [...this.mappings.values()].filter(({ state }) => state === 0).map(({ done }) => done);
        await Promise.all([queue.onSubmittedWorkDone().catch(() => {}), ...mapped]);
      },
      pop_scope: async (device: number) => {
        const error = await this.get<Opened>(device).device.popErrorScope().catch(() => null);
        return error ? this.say(letter(error) + error.message) : 0;
      },
    };
    if (!JSPI.Suspending) return all;
    return Object.fromEntries(Object.entries(all).map(([name, wait]) => [name, new JSPI.Suspending!(wait)]));
  }

  private objects(): WebAssembly.ModuleImports {
    return {
      destroy_device: (device: number) => this.get<Opened>(device).device.destroy(),
      push_scope: (device: number, memory: number) => this.get<Opened>(device).device.pushErrorScope(memory ? "out-of-memory" : "validation"),
      shader: (device: number, at: number, length: number) => this.put(this.get<Opened>(device).device.createShaderModule({ code: this.text(at, length) })),
      make: (device: number, at: number, length: number) => this.put(this.made(this.get<Opened>(device).device, JSON.parse(this.text(at, length)))),
      bindings_of: (pipeline: number, index: number) => this.put(this.get<GPUComputePipeline>(pipeline).getBindGroupLayout(index)),
    };
  }

  private made(device: GPUDevice, made: Made): unknown {
    switch (made.what) {
      case "bindings":
        return device.createBindGroupLayout({
          entries: made.entries.map(({ binding, type }) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } })),
        });
      case "layout":
        return device.createPipelineLayout({ bindGroupLayouts: made.bindings.map((number) => this.get<GPUBindGroupLayout>(number)) });
      case "group":
        return device.createBindGroup({
          layout: this.get<GPUBindGroupLayout>(made.layout),
          entries: made.entries.map(({ binding, buffer, offset, size }) => ({
            binding,
            resource: { buffer: this.get<GPUBuffer>(buffer), offset, ...(size === null ? {} : { size }) },
          })),
        });
      case "pipeline":
        return device.createComputePipeline({
          layout: made.layout === null ? "auto" : this.get<GPUPipelineLayout>(made.layout),
          compute: {
            module: this.get<GPUShaderModule>(made.module),
            entryPoint: made.entry,
            constants: Object.fromEntries(made.constants),
          },
        });
    }
  }

  private buffers(): WebAssembly.ModuleImports {
    return {
      buffer: (device: number, size: number, usage: number, mapped: number) => {
        const opened = this.get<Opened>(device);
        try {
          return this.put(opened.device.createBuffer({ size, usage, mappedAtCreation: mapped === 1 }));
        } catch (error) {
          // What is mapped at once, and doesn't fit.
          opened.troubles.push(`o${error instanceof Error ? error.message : error}`);
          return this.put(null);
        }
      },
      destroy_buffer: (buffer: number) => this.get<GPUBuffer | null>(buffer)?.destroy(),
      write: (device: number, buffer: number, offset: number, at: number, length: number) => {
        this.get<Opened>(device).device.queue.writeBuffer(this.get<GPUBuffer>(buffer), offset, this.bytes(at, length));
      },
      map: (_: number, buffer: number, mode: number, offset: number, length: number) => {
        const mapping: { state: 0 | 1 | 2; done: Promise<void> } = { state: 0, done: Promise.resolve() };
        const mapped = this.get<GPUBuffer>(buffer).mapAsync(mode, offset, length);
        mapping.done = mapped.then(
          () => void (mapping.state = 1),
          () => void (mapping.state = 2),
        );
        this.mappings.set(buffer, mapping);
      },
      mapped: (buffer: number) => this.mappings.get(buffer)?.state ?? 2,
      read: (buffer: number, offset: number, to: number, length: number) => {
        if (this.mappings.get(buffer)?.state !== 1) return 0;
        this.bytes(to, length).set(new Uint8Array(this.get<GPUBuffer>(buffer).getMappedRange(offset, length)));
        return 1;
      },
      fill: (buffer: number, offset: number, at: number, length: number) => {
        const range = this.get<GPUBuffer | null>(buffer)?.getMappedRange(offset, length);
        if (range) new Uint8Array(range).set(this.bytes(at, length));
      },
      unmap: (buffer: number) => {
        this.mappings.delete(buffer);
        this.get<GPUBuffer | null>(buffer)?.unmap();
      },
    };
  }

  private commands(): WebAssembly.ModuleImports {
    const encoder = (number: number) => this.get<GPUCommandEncoder>(number);
    const pass = (number: number) => this.get<GPUComputePassEncoder>(number);
    return {
      encoder: (device: number) => this.put(this.get<Opened>(device).device.createCommandEncoder()),
      copy: (to: number, source: number, from: number, target: number, at: number, length: number) => {
        const buffer = this.get<GPUBuffer>(source);
        encoder(to).copyBufferToBuffer(buffer, from, this.get<GPUBuffer>(target), at, length < 0 ? buffer.size - from : length);
      },
      clear: (to: number, buffer: number, offset: number, length: number) => encoder(to).clearBuffer(this.get<GPUBuffer>(buffer), offset, length < 0 ? undefined : length),
      pass: (of: number) => this.put(encoder(of).beginComputePass()),
      set_pipeline: (of: number, pipeline: number) => pass(of).setPipeline(this.get<GPUComputePipeline>(pipeline)),
      set_group: (of: number, index: number, group: number) => pass(of).setBindGroup(index, this.get<GPUBindGroup>(group)),
      dispatch: (of: number, x: number, y: number, z: number) => pass(of).dispatchWorkgroups(x, y, z),
      end: (of: number) => pass(of).end(),
      finish: (of: number) => this.put(encoder(of).finish()),
      submit: (device: number, commands: number) => this.get<Opened>(device).device.queue.submit([this.get<GPUCommandBuffer>(commands)]),
    };
  }
}

function described(adapter: GPUAdapter): unknown {
  const { info, limits, features } = adapter;
  return {
    name: nameOf(info),
    driver: "",
    software: info.isFallbackAdapter || /swiftshader|llvmpipe|warp|basic render/i.test(`${info.vendor} ${info.architecture} ${info.description}`),
    f16: features.has("shader-f16"),
    limits: Object.fromEntries(LIMITS.map((name) => [name, limits[name]])),
  };
}

/** A device with all that the library may use of its adapter. */
async function opened(adapter: GPUAdapter | null): Promise<Opened> {
  if (!adapter) throw new Error("the browser gives no GPU any more");
  const device = await adapter.requestDevice({
    requiredFeatures: adapter.features.has("shader-f16") ? ["shader-f16"] : [],
    requiredLimits: Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]])),
  });
  const troubles: string[] = [];
  device.addEventListener("uncapturederror", (event) => {
    const { error } = event as GPUUncapturedErrorEvent;
    troubles.push(letter(error) + error.message);
    // It is told by the engine.
    event.preventDefault();
  });
  void device.lost.then((lost) => troubles.push(`l${lost.reason}: ${lost.message}`));
  return { device, troubles };
}

function letter(error: GPUError): string {
  if (error instanceof GPUOutOfMemoryError) return "o";
  return error instanceof GPUValidationError ? "v" : "i";
}
