// Convolution; the mathematics is in mod.rs. Weights [out][in/groups][k][k], the bias after them.

override INPUTS: u32 = 2u;
override OUTPUTS: u32 = 4u;
override HEIGHT: i32 = 5;
override WIDTH: i32 = 6;
override OUT_HEIGHT: i32 = 5;
override OUT_WIDTH: i32 = 6;
override KERNEL: u32 = 3u;
override STRIDE: i32 = 1;
override PADDING: i32 = 1;
override DILATION: i32 = 1;
override GROUPS: u32 = 1u;
override REFLECT: bool = false;
override BIAS: bool = true;
override GROUP_IN: u32 = 2u;    // INPUTS / GROUPS
override GROUP_OUT: u32 = 4u;   // OUTPUTS / GROUPS

struct Sizes {
    samples: u32,
    weight: u32,         // where W begins in the flat vector
    bias: u32,           // and the bias
    trains_weight: u32,  // 1 where W is trained
    trains_bias: u32,
    piece_len: u32,      // positions in a piece of a long sum
    pieces: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// conv2d_forward
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read> params: array<real>;
@group(0) @binding(3) var<storage, read_write> y: array<real>;

// The pixel that the padded image shows at a row and column of the image, which may lie outside.
fn pixel(plane: u32, row: i32, column: i32) -> real {
    var r = row;
    var c = column;
    if (REFLECT) {
        r = HEIGHT - 1 - abs(HEIGHT - 1 - abs(r));
        c = WIDTH - 1 - abs(WIDTH - 1 - abs(c));
    }
    let inside = r >= 0 && r < HEIGHT && c >= 0 && c < WIDTH;
    let at = clamp(r, 0, HEIGHT - 1) * WIDTH + clamp(c, 0, WIDTH - 1);
    return select(real(0.0), x[plane + u32(at)], inside);
}

// An invocation owns 4 channels x 4 pixels.
@compute @workgroup_size(64)
fn conv2d_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let pixels = u32(OUT_HEIGHT * OUT_WIDTH);
    let tiles = (pixels + 3u) / 4u;
    let blocks = (GROUP_OUT + 3u) / 4u;
    let index = group_number(group, groups) * 64u + lane;
    let first = (index % tiles) * 4u;
    let block = (index / tiles) % (GROUPS * blocks);
    let n = index / (tiles * GROUPS * blocks);
    if (n >= sizes.samples) {
        return;
    }
    let g = block / blocks;
    let within = (block % blocks) * 4u;
    let o = g * GROUP_OUT + within;
    let p = min(vec4<u32>(first, first + 1u, first + 2u, first + 3u), vec4<u32>(pixels - 1u));
    let r = vec4<i32>(p / u32(OUT_WIDTH)) * STRIDE - PADDING;
    let c = vec4<i32>(p % u32(OUT_WIDTH)) * STRIDE - PADDING;
    let step = GROUP_IN * KERNEL * KERNEL;
    var s = array<vec4<f32>, 4>();
    if (BIAS) {
        for (var a = 0u; a < 4u; a++) {
            s[a] = vec4<f32>(f32(params[sizes.bias + min(o + a, OUTPUTS - 1u)]));
        }
    }
    for (var i = 0u; i < GROUP_IN; i++) {
        let plane = (n * INPUTS + g * GROUP_IN + i) * u32(HEIGHT * WIDTH);
        for (var u = 0u; u < KERNEL; u++) {
            for (var v = 0u; v < KERNEL; v++) {
                let down = i32(u) * DILATION;
                let right = i32(v) * DILATION;
                let seen = vec4<real>(
                    pixel(plane, r.x + down, c.x + right),
                    pixel(plane, r.y + down, c.y + right),
                    pixel(plane, r.z + down, c.z + right),
                    pixel(plane, r.w + down, c.w + right),
                );
                let at = sizes.weight + ((o * GROUP_IN + i) * KERNEL + u) * KERNEL + v;
                s[0] += vec4<f32>(params[at] * seen);
                s[1] += vec4<f32>(params[at + step] * seen);
                s[2] += vec4<f32>(params[at + 2u * step] * seen);
                s[3] += vec4<f32>(params[at + 3u * step] * seen);
            }
        }
    }
    for (var a = 0u; a < 4u; a++) {
        for (var b = 0u; b < 4u; b++) {
            if (within + a < GROUP_OUT && first + b < pixels) {
                y[(n * OUTPUTS + o + a) * pixels + first + b] = real(s[a][b]);
            }
        }
    }
}

// conv2d_backward_weight: partial sums over pieces of the positions (sample, pixel).
@group(0) @binding(2) var<storage, read> d_y: array<real>;
@group(0) @binding(3) var<storage, read_write> partial: array<f32>;

// A workgroup owns one place (i, u, v) of the
// kernel, or the bias after them, of 4 output channels, in one piece.
// partial: [piece][out][places].
@compute @workgroup_size(64)
fn conv2d_backward_weight(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let pixels = u32(OUT_HEIGHT * OUT_WIDTH);
    let blocks = (GROUP_OUT + 3u) / 4u;
    let places = GROUP_IN * KERNEL * KERNEL + select(0u, 1u, BIAS);
    let number = group_number(group, groups);
    let place = number % places;
    let block = (number / places) % (GROUPS * blocks);
    let piece = number / (places * GROUPS * blocks);
    let g = block / blocks;
    let within = (block % blocks) * 4u;
    let o = g * GROUP_OUT + within;
    let is_bias = place == GROUP_IN * KERNEL * KERNEL;
    let i = min(place / (KERNEL * KERNEL), GROUP_IN - 1u);
    let down = i32((place / KERNEL) % KERNEL) * DILATION - PADDING;
    let right = i32(place % KERNEL) * DILATION - PADDING;
    let start = piece * sizes.piece_len;
    let end = min(start + sizes.piece_len, sizes.samples * pixels);
    var s = vec4<f32>();
    for (var q = start + lane; q < end; q += 64u) {
        let n = q / pixels;
        let p = q % pixels;
        let r = i32(p / u32(OUT_WIDTH)) * STRIDE + down;
        let c = i32(p % u32(OUT_WIDTH)) * STRIDE + right;
        let plane = (n * INPUTS + g * GROUP_IN + i) * u32(HEIGHT * WIDTH);
        let seen = select(pixel(plane, r, c), real(1.0), is_bias);
        let at = (n * OUTPUTS + o) * pixels + p;
        let d = vec4<real>(d_y[at], d_y[at + pixels], d_y[at + 2u * pixels], d_y[at + 3u * pixels]);
        s += vec4<f32>(seen * d);
    }
    let total = sum_lanes(lane, s);
    if (lane < 4u && within + lane < GROUP_OUT && piece < sizes.pieces) {
        partial[(piece * OUTPUTS + o + lane) * places + place] = total[lane];
    }
}

// conv2d_reduce_weight: adds the pieces in order.
@group(0) @binding(1) var<storage, read> partial_in: array<f32>;
@group(0) @binding(2) var<storage, read_write> d_params: array<f32>;

@compute @workgroup_size(64)
fn conv2d_reduce_weight(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let kernel = GROUP_IN * KERNEL * KERNEL;
    let places = kernel + select(0u, 1u, BIAS);
    let index = group_number(group, groups) * 64u + lane;
    if (index >= OUTPUTS * places) {
        return;
    }
    var total = 0.0;
    for (var piece = 0u; piece < sizes.pieces; piece++) {
        total += partial_in[piece * OUTPUTS * places + index];
    }
    let o = index / places;
    let place = index % places;
    if (place < kernel && sizes.trains_weight == 1u) {
        d_params[sizes.weight + o * kernel + place] = total;
    } else if (place == kernel && sizes.trains_bias == 1u) {
        d_params[sizes.bias + o] = total;
    }
}

// conv2d_backward_input
@group(0) @binding(1) var<storage, read> d_y_in: array<real>;
@group(0) @binding(3) var<storage, read_write> d_x: array<real>;

// The padded rows (or columns) that show a pixel: its own, and with reflection its mirrors.
fn shown(at: i32, size: i32, which: i32) -> i32 {
    if (which == 0) {
        return at + PADDING;
    }
    // Mirrored at the first, and at the last pixel; -1 where it isn't.
    if (which == 1) {
        return select(-1, PADDING - at, at >= 1 && at <= PADDING);
    }
    let mirrored = 2 * (size - 1) - at;
    return select(-1, mirrored + PADDING, at < size - 1 && mirrored < size + PADDING);
}

// An invocation owns 4 input channels of one pixel.
@compute @workgroup_size(64)
fn conv2d_backward_input(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let pixels = u32(HEIGHT * WIDTH);
    let blocks = (GROUP_IN + 3u) / 4u;
    let index = group_number(group, groups) * 64u + lane;
    let p = index % pixels;
    let block = (index / pixels) % (GROUPS * blocks);
    let n = index / (pixels * GROUPS * blocks);
    if (n >= sizes.samples) {
        return;
    }
    let g = block / blocks;
    let within = (block % blocks) * 4u;
    let step = KERNEL * KERNEL;
    let mirrors = select(1, 3, REFLECT);
    var s = vec4<f32>();
    for (var a = 0; a < mirrors; a++) {
        let row = shown(i32(p) / WIDTH, HEIGHT, a);
        for (var b = 0; b < mirrors; b++) {
            let column = shown(i32(p) % WIDTH, WIDTH, b);
            if (row < 0 || column < 0) {
                continue;
            }
            for (var u = 0u; u < KERNEL; u++) {
                let down = row - i32(u) * DILATION;
                let r = down / STRIDE;
                if (down < 0 || r * STRIDE != down || r >= OUT_HEIGHT) {
                    continue;
                }
                for (var v = 0u; v < KERNEL; v++) {
                    let right = column - i32(v) * DILATION;
                    let c = right / STRIDE;
                    if (right < 0 || c * STRIDE != right || c >= OUT_WIDTH) {
                        continue;
                    }
                    for (var q = 0u; q < GROUP_OUT; q++) {
                        let o = g * GROUP_OUT + q;
                        let d = d_y_in[(n * OUTPUTS + o) * u32(OUT_HEIGHT * OUT_WIDTH) + u32(r * OUT_WIDTH + c)];
                        let at = sizes.weight + ((o * GROUP_IN + within) * KERNEL + u) * KERNEL + v;
                        let w = vec4<real>(params[at], params[at + step], params[at + 2u * step], params[at + 3u * step]);
                        s += vec4<f32>(d * w);
                    }
                }
            }
        }
    }
    for (var j = 0u; j < 4u; j++) {
        if (within + j < GROUP_IN) {
            d_x[(n * INPUTS + g * GROUP_IN + within + j) * pixels + p] = real(s[j]);
        }
    }
}
