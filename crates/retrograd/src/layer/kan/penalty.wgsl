// Sparsity of a Kolmogorov-Arnold layer; the mathematics is in penalty.rs. An edge is an invocation:
// its size, then, with the sums over all of them, what it adds to the gradient.

override OUTPUTS: u32 = 3u;
override BASES: u32 = 8u;       // splines of an edge
override BASE: u32 = 1u;        // 1 with a base function
override L1: f32 = 0.0;
override ENTROPY: f32 = 0.0;

struct Sizes {
    edges: u32,
    spline_weight: u32,  // where the spline weights [in][basis][out] begin in the flat vector
    base_weight: u32,    // and the base weights [in][out]
    trains_spline: u32,  // 1 where they are trained
    trains_base: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

fn log_of(size: f32) -> f32 {
    if (size > 0.0) {
        return log(size);
    }
    return 0.0;
}

// kan_penalty_edges
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(0) @binding(2) var<storage, read_write> edges_out: array<f32>;

@compute @workgroup_size(64)
fn kan_penalty_edges(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let edge = group_number(group, groups) * 64u + lane;
    if (edge >= sizes.edges) {
        return;
    }
    let input = edge / OUTPUTS;
    let output = edge % OUTPUTS;
    var size = 0.0;
    for (var m = 0u; m < BASES; m++) {
        size += abs(weights[sizes.spline_weight + (input * BASES + m) * OUTPUTS + output]);
    }
    size /= f32(BASES);
    if (BASE == 1u) {
        size += abs(weights[sizes.base_weight + edge]);
    }
    edges_out[edge] = size;
}

// kan_penalty_sums
@group(0) @binding(1) var<storage, read> edges: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums_out: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> losses: array<f32>;

// One workgroup: the edges' total and their mean logarithm; the penalty joins the loss.
@compute @workgroup_size(64)
fn kan_penalty_sums(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    var sum = vec4<f32>();
    for (var e = lane; e < sizes.edges; e += 64u) {
        sum.x += edges[e];
        sum.y += edges[e] * log_of(edges[e]);
    }
    let all = sum_lanes(lane, sum);
    if (lane == 0u && number == 0u) {
        // 0 edges have neither a logarithm nor a penalty; what is not a number goes on.
        if (all.x <= 0.0) {
            sums_out[0] = vec2<f32>(0.0, 0.0);
        } else {
            let mean_log = all.y / all.x;
            sums_out[0] = vec2<f32>(all.x, mean_log);
            losses[0] += L1 * all.x + ENTROPY * (log(all.x) - mean_log);
        }
    }
}

// kan_penalty_gradient
@group(0) @binding(1) var<storage, read> weights_in: array<f32>;
@group(0) @binding(2) var<storage, read> edges_in: array<f32>;
@group(0) @binding(3) var<storage, read> sums: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> grads: array<f32>;

@compute @workgroup_size(64)
fn kan_penalty_gradient(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let edge = group_number(group, groups) * 64u + lane;
    let total = sums[0].x;
    if (edge >= sizes.edges || total == 0.0) {
        return;
    }
    let input = edge / OUTPUTS;
    let output = edge % OUTPUTS;
    let d_size = L1 + ENTROPY * (sums[0].y - log_of(edges_in[edge])) / total;
    if (sizes.trains_spline == 1u) {
        for (var m = 0u; m < BASES; m++) {
            let at = sizes.spline_weight + (input * BASES + m) * OUTPUTS + output;
            grads[at] += d_size * sign(weights_in[at]) / f32(BASES);
        }
    }
    if (BASE == 1u && sizes.trains_base == 1u) {
        let at = sizes.base_weight + edge;
        grads[at] += d_size * sign(weights_in[at]);
    }
}
