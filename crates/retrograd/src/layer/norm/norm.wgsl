// Layer, group and batch normalisation; the mathematics is in mod.rs.

override KIND: u32 = 0u;      // 0 layer, 1 group, 2 batch
override CHANNELS: u32 = 4u;
override PLANE: u32 = 1u;
override GROUPS: u32 = 1u;
override FIXED: bool = false; // running statistics instead of the set's own
override EPS: f32 = 1e-5;

struct Sizes {
    sets: u32,
    set_len: u32,        // elements of a set
    channel_len: u32,    // elements of a channel in the batch
    weight: u32,         // where the weight begins in the flat vector
    bias: u32,           // and the bias
    trains_weight: u32,  // 1 where the weight is trained
    trains_bias: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// Place and channel of the j-th element of set s.
fn place(s: u32, j: u32, size: u32) -> vec2<u32> {
    if (KIND == 0u) {
        return vec2<u32>(s * size + j, j);
    }
    if (KIND == 1u) {
        return vec2<u32>(s * size + j, (s % GROUPS) * (CHANNELS / GROUPS) + j / PLANE);
    }
    return vec2<u32>(((j / PLANE) * CHANNELS + s) * PLANE + j % PLANE, s);
}

// norm_forward
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read> params: array<f32>;
@group(0) @binding(3) var<storage, read> running: array<f32>; // means, then variances
@group(0) @binding(4) var<storage, read_write> stats: array<vec2<f32>>; // mean, 1/sqrt(var + eps)
@group(0) @binding(5) var<storage, read_write> y: array<real>;

// A workgroup owns a set.
@compute @workgroup_size(64)
fn norm_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    let s = min(number, sizes.sets - 1u);
    let size = sizes.set_len;
    var sum = 0.0;
    for (var j = lane; j < size; j += 64u) {
        sum += f32(x[place(s, j, size).x]);
    }
    var mean = sum_lanes(lane, vec4<f32>(sum)).x / f32(size);
    var squares = 0.0;
    for (var j = lane; j < size; j += 64u) {
        let d = f32(x[place(s, j, size).x]) - mean;
        squares += d * d;
    }
    var variance = sum_lanes(lane, vec4<f32>(squares)).x / f32(size);
    if (FIXED) {
        mean = running[s];
        variance = running[CHANNELS + s];
    }
    let inverse = 1.0 / sqrt(variance + EPS);
    if (number >= sizes.sets) {
        return;
    }
    if (lane == 0u) {
        stats[s] = vec2<f32>(mean, inverse);
    }
    for (var j = lane; j < size; j += 64u) {
        let at = place(s, j, size);
        let normal = (f32(x[at.x]) - mean) * inverse;
        y[at.x] = real(normal * params[sizes.weight + at.y] + params[sizes.bias + at.y]);
    }
}

// norm_backward_input
@group(0) @binding(3) var<storage, read> stats_in: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> d_y: array<real>;
@group(0) @binding(5) var<storage, read_write> d_x: array<real>;

@compute @workgroup_size(64)
fn norm_backward_input(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    let s = min(number, sizes.sets - 1u);
    let size = sizes.set_len;
    let mean = stats_in[s].x;
    let inverse = stats_in[s].y;
    var sum = vec4<f32>();
    for (var j = lane; j < size; j += 64u) {
        let at = place(s, j, size);
        let g = params[sizes.weight + at.y] * f32(d_y[at.x]);
        sum += vec4<f32>(g, g * (f32(x[at.x]) - mean) * inverse, 0.0, 0.0);
    }
    var means = sum_lanes(lane, sum) / f32(size);
    if (FIXED) {
        means = vec4<f32>();
    }
    if (number >= sizes.sets) {
        return;
    }
    for (var j = lane; j < size; j += 64u) {
        let at = place(s, j, size);
        let g = params[sizes.weight + at.y] * f32(d_y[at.x]);
        let normal = (f32(x[at.x]) - mean) * inverse;
        d_x[at.x] = real(inverse * (g - means.x - normal * means.y));
    }
}

// norm_backward_weight
@group(0) @binding(2) var<storage, read> stats_of: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> d_y_in: array<real>;
@group(0) @binding(4) var<storage, read_write> d_params: array<f32>;

// A workgroup owns a channel; lanes add runs of 64.
@compute @workgroup_size(64)
fn norm_backward_weight(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    let c = min(number, CHANNELS - 1u);
    var total = vec4<f32>();
    for (var first = 0u; first < sizes.channel_len; first += 4096u) {
        var run = vec4<f32>();
        let end = min(first + 4096u, sizes.channel_len);
        for (var e = first + lane; e < end; e += 64u) {
            var at = e * CHANNELS + c;
            var s = e;
            if (KIND != 0u) {
                at = ((e / PLANE) * CHANNELS + c) * PLANE + e % PLANE;
                s = select(c, (e / PLANE) * GROUPS + c / (CHANNELS / GROUPS), KIND == 1u);
            }
            let d = f32(d_y_in[at]);
            run += vec4<f32>(d * (f32(x[at]) - stats_of[s].x) * stats_of[s].y, d, 0.0, 0.0);
        }
        total += run;
    }
    let sum = sum_lanes(lane, total);
    if (lane == 0u && number < CHANNELS) {
        if (sizes.trains_weight == 1u) { d_params[sizes.weight + c] = sum.x; }
        if (sizes.trains_bias == 1u) { d_params[sizes.bias + c] = sum.y; }
    }
}

// norm_absorb: running statistics follow a training step.
@group(0) @binding(1) var<storage, read> stats_new: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> running_out: array<f32>;

@compute @workgroup_size(64)
fn norm_absorb(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let c = group_number(group, groups) * 64u + lane;
    if (c >= CHANNELS) {
        return;
    }
    let n = f32(sizes.channel_len);
    let fresh = stats_new[c];
    let variance = max(1.0 / (fresh.y * fresh.y) - EPS, 0.0) * n / max(n - 1.0, 1.0);
    running_out[c] += 0.1 * (fresh.x - running_out[c]);
    running_out[CHANNELS + c] += 0.1 * (variance - running_out[CHANNELS + c]);
}
