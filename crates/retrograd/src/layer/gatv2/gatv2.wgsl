// Graph attention, second form; the mathematics is in mod.rs, the softmax in gat/attention.wgsl.

override HEADS: u32 = 1u;

const SLOPE = 0.2;

struct Sizes {
    rows: u32,
    width: u32,      // of all heads
    start: u32,      // where a side's starts are in the words,
    neighbour: u32,  // its neighbours,
    slot: u32,       // and by column the slots
    att: u32,        // where att begins in the flat vector
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> graph: array<u32>;
@group(0) @binding(2) var<storage, read> l: array<real>;
@group(0) @binding(3) var<storage, read> r: array<real>;
@group(0) @binding(4) var<storage, read> params: array<real>;

fn leaky(u: f32) -> f32 {
    return u * select(SLOPE, 1.0, u > 0.0);
}

// att . LeakyReLU(l + r) for every in-edge: an invocation owns a node and a head.
@group(0) @binding(5) var<storage, read_write> scores: array<real>;

@compute @workgroup_size(64)
fn gatv2_scores(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let i = index / HEADS;
    let h = index % HEADS;
    if (i >= sizes.rows) {
        return;
    }
    let head_width = sizes.width / HEADS;
    let end = graph[sizes.start + i + 1u];
    for (var p = graph[sizes.start + i]; p < end; p++) {
        let j = graph[sizes.neighbour + p];
        var sum = 0.0;
        for (var k = h * head_width; k < (h + 1u) * head_width; k++) {
            let u = f32(l[j * sizes.width + k]) + f32(r[i * sizes.width + k]);
            sum += f32(params[sizes.att + k]) * leaky(u);
        }
        scores[p * HEADS + h] = real(sum);
    }
}

// By target: the gradient of r, and every row's share of att's. An invocation owns a node and a
// column.
@group(0) @binding(5) var<storage, read> d_scores: array<real>;
@group(0) @binding(6) var<storage, read_write> d_r: array<real>;
@group(0) @binding(7) var<storage, read_write> d_att: array<real>;

@compute @workgroup_size(64)
fn gatv2_backward_target(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let i = index / sizes.width;
    let k = index % sizes.width;
    if (i >= sizes.rows) {
        return;
    }
    let h = k / (sizes.width / HEADS);
    let att = f32(params[sizes.att + k]);
    var sum = 0.0;
    var share = 0.0;
    let end = graph[sizes.start + i + 1u];
    for (var p = graph[sizes.start + i]; p < end; p++) {
        let j = graph[sizes.neighbour + p];
        let u = f32(l[j * sizes.width + k]) + f32(r[index]);
        let d = f32(d_scores[p * HEADS + h]);
        share += d * leaky(u);
        sum += d * att * select(SLOPE, 1.0, u > 0.0);
    }
    d_r[index] = real(sum);
    d_att[index] = real(share);
}

// By source: what the scores add to the gradient of l.
@compute @workgroup_size(64)
fn gatv2_backward_source(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let j = index / sizes.width;
    let k = index % sizes.width;
    if (j >= sizes.rows) {
        return;
    }
    let h = k / (sizes.width / HEADS);
    let att = f32(params[sizes.att + k]);
    var sum = 0.0;
    let end = graph[sizes.start + j + 1u];
    for (var q = graph[sizes.start + j]; q < end; q++) {
        let i = graph[sizes.neighbour + q];
        let u = f32(l[index]) + f32(r[i * sizes.width + k]);
        let d = f32(d_scores[graph[sizes.slot + q] * HEADS + h]);
        sum += d * att * select(SLOPE, 1.0, u > 0.0);
    }
    d_r[index] = real(f32(d_r[index]) + sum);
}
