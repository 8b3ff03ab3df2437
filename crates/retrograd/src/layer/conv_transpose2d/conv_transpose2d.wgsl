// Transposed convolution; the mathematics is in mod.rs. Weights [in][out][k][k], the bias after them.

override INPUTS: u32 = 2u;
override OUTPUTS: u32 = 3u;
override HEIGHT: i32 = 3;
override WIDTH: i32 = 4;
override OUT_HEIGHT: i32 = 6;
override OUT_WIDTH: i32 = 8;
override KERNEL: u32 = 2u;
override STRIDE: i32 = 2;
override PADDING: i32 = 0;
override BIAS: bool = true;

struct Sizes {
    samples: u32,
    weight: u32,         // where W begins in the flat vector
    bias: u32,           // and the bias
    piece_len: u32,      // positions in a piece of a long sum
    pieces: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// conv_transpose2d_forward
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read> params: array<real>;
@group(0) @binding(3) var<storage, read_write> y: array<real>;

// An invocation owns 4 channels of one pixel
// of the output, and gathers.
@compute @workgroup_size(64)
fn conv_transpose2d_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let pixels = u32(OUT_HEIGHT * OUT_WIDTH);
    let blocks = (OUTPUTS + 3u) / 4u;
    let index = group_number(group, groups) * 64u + lane;
    let p = index % pixels;
    let o = ((index / pixels) % blocks) * 4u;
    let n = index / (pixels * blocks);
    if (n >= sizes.samples) {
        return;
    }
    let step = KERNEL * KERNEL;
    var s = vec4<f32>();
    if (BIAS) {
        let b = sizes.bias + o;
        s = vec4<f32>(vec4<real>(params[b], params[b + 1u], params[b + 2u], params[b + 3u]));
    }
    for (var u = 0u; u < KERNEL; u++) {
        let down = i32(p) / OUT_WIDTH + PADDING - i32(u);
        let r = down / STRIDE;
        if (down < 0 || r * STRIDE != down || r >= HEIGHT) {
            continue;
        }
        for (var v = 0u; v < KERNEL; v++) {
            let right = i32(p) % OUT_WIDTH + PADDING - i32(v);
            let c = right / STRIDE;
            if (right < 0 || c * STRIDE != right || c >= WIDTH) {
                continue;
            }
            for (var i = 0u; i < INPUTS; i++) {
                let seen = x[(n * INPUTS + i) * u32(HEIGHT * WIDTH) + u32(r * WIDTH + c)];
                let at = sizes.weight + ((i * OUTPUTS + o) * KERNEL + u) * KERNEL + v;
                let w = vec4<real>(params[at], params[at + step], params[at + 2u * step], params[at + 3u * step]);
                s += vec4<f32>(seen * w);
            }
        }
    }
    for (var j = 0u; j < 4u; j++) {
        if (o + j < OUTPUTS) {
            y[(n * OUTPUTS + o + j) * pixels + p] = real(s[j]);
        }
    }
}

// conv_transpose2d_backward_weight
@group(0) @binding(2) var<storage, read> d_y: array<real>;
@group(0) @binding(3) var<storage, read_write> partial: array<f32>;

// A position is a sample and a pixel of the input. A workgroup owns the 4
// kernels from i to the output channels o .. o+3 at one place (u, v), in one piece.
// partial: [piece][in][out][k][k].
@compute @workgroup_size(64)
fn conv_transpose2d_backward_weight(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let pixels = u32(HEIGHT * WIDTH);
    let out_pixels = u32(OUT_HEIGHT * OUT_WIDTH);
    let blocks = (OUTPUTS + 3u) / 4u;
    let kk = KERNEL * KERNEL;
    let number = group_number(group, groups);
    let place = number % kk;
    let o = ((number / kk) % blocks) * 4u;
    let i = (number / (kk * blocks)) % INPUTS;
    let piece = number / (kk * blocks * INPUTS);
    let start = piece * sizes.piece_len;
    let end = min(start + sizes.piece_len, sizes.samples * pixels);
    var s = vec4<f32>();
    for (var q = start + lane; q < end; q += 64u) {
        let n = q / pixels;
        let p = q % pixels;
        let r = i32(p / u32(WIDTH)) * STRIDE + i32(place / KERNEL) - PADDING;
        let c = i32(p % u32(WIDTH)) * STRIDE + i32(place % KERNEL) - PADDING;
        if (r < 0 || r >= OUT_HEIGHT || c < 0 || c >= OUT_WIDTH) {
            continue;
        }
        let seen = x[(n * INPUTS + i) * pixels + p];
        let at = (n * OUTPUTS + o) * out_pixels + u32(r * OUT_WIDTH + c);
        let d = vec4<real>(d_y[at], d_y[at + out_pixels], d_y[at + 2u * out_pixels], d_y[at + 3u * out_pixels]);
        s += vec4<f32>(seen * d);
    }
    let total = sum_lanes(lane, s);
    if (lane < 4u && o + lane < OUTPUTS && piece < sizes.pieces) {
        partial[((piece * INPUTS + i) * OUTPUTS + o + lane) * kk + place] = total[lane];
    }
}

// conv_transpose2d_reduce_weight: adds the pieces in order.
@group(0) @binding(1) var<storage, read> partial_in: array<f32>;
@group(0) @binding(2) var<storage, read_write> d_params: array<f32>;

@compute @workgroup_size(64)
fn conv_transpose2d_reduce_weight(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let len = INPUTS * OUTPUTS * KERNEL * KERNEL;
    let index = group_number(group, groups) * 64u + lane;
    if (index >= len) {
        return;
    }
    var total = 0.0;
    for (var piece = 0u; piece < sizes.pieces; piece++) {
        total += partial_in[piece * len + index];
    }
    d_params[sizes.weight + index] = total;
}

// conv_transpose2d_backward_bias
@group(0) @binding(1) var<storage, read> d_y_in: array<real>;

// A workgroup owns one channel; lanes add runs of 64.
@compute @workgroup_size(64)
fn conv_transpose2d_backward_bias(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let o = group_number(group, groups);
    let pixels = u32(OUT_HEIGHT * OUT_WIDTH);
    let count = sizes.samples * pixels;
    var total = 0.0;
    for (var first = 0u; first < count; first += 4096u) {
        var run = 0.0;
        let end = min(first + 4096u, count);
        for (var q = first + lane; q < end; q += 64u) {
            let at = ((q / pixels) * OUTPUTS + min(o, OUTPUTS - 1u)) * pixels + q % pixels;
            run += f32(d_y_in[at]);
        }
        total += run;
    }
    let sum = sum_lanes(lane, vec4<f32>(total, 0.0, 0.0, 0.0));
    if (lane == 0u && o < OUTPUTS) {
        d_params[sizes.bias + o] = sum.x;
    }
}

// conv_transpose2d_backward_input
@group(0) @binding(3) var<storage, read_write> d_x: array<real>;

// An invocation owns 4 input channels of one pixel.
@compute @workgroup_size(64)
fn conv_transpose2d_backward_input(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let pixels = u32(HEIGHT * WIDTH);
    let out_pixels = u32(OUT_HEIGHT * OUT_WIDTH);
    let blocks = (INPUTS + 3u) / 4u;
    let index = group_number(group, groups) * 64u + lane;
    let p = index % pixels;
    let i = ((index / pixels) % blocks) * 4u;
    let n = index / (pixels * blocks);
    if (n >= sizes.samples) {
        return;
    }
    let step = OUTPUTS * KERNEL * KERNEL;
    var s = vec4<f32>();
    for (var o = 0u; o < OUTPUTS; o++) {
        for (var u = 0u; u < KERNEL; u++) {
            for (var v = 0u; v < KERNEL; v++) {
                let r = (i32(p) / WIDTH) * STRIDE + i32(u) - PADDING;
                let c = (i32(p) % WIDTH) * STRIDE + i32(v) - PADDING;
                if (r < 0 || r >= OUT_HEIGHT || c < 0 || c >= OUT_WIDTH) {
                    continue;
                }
                let d = d_y_in[(n * OUTPUTS + o) * out_pixels + u32(r * OUT_WIDTH + c)];
                let at = sizes.weight + ((i * OUTPUTS + o) * KERNEL + u) * KERNEL + v;
                let w = vec4<real>(params[at], params[at + step], params[at + 2u * step], params[at + 3u * step]);
                s += vec4<f32>(d * w);
            }
        }
    }
    for (var j = 0u; j < 4u; j++) {
        if (i + j < INPUTS) {
            d_x[(n * INPUTS + i + j) * pixels + p] = real(s[j]);
        }
    }
}
