// Graph attention; the mathematics is in mod.rs, the softmax in attention.wgsl.

override HEADS: u32 = 1u;

const SLOPE = 0.2;

struct Sizes {
    rows: u32,
    width: u32,      // of all heads
    start: u32,      // where a side's starts are in the words,
    neighbour: u32,  // its neighbours,
    slot: u32,       // and by column the slots
    source: u32,     // where att_src begins in the flat vector
    end: u32,        // and att_dst
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// gat_ends: att_src . z and att_dst . z of every node and head.
@group(0) @binding(1) var<storage, read> z: array<real>;
@group(0) @binding(2) var<storage, read> params: array<real>;
@group(0) @binding(3) var<storage, read_write> sent: array<real>;
@group(0) @binding(4) var<storage, read_write> received: array<real>;

@compute @workgroup_size(64)
fn gat_ends(
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
    var a = 0.0;
    var b = 0.0;
    for (var k = h * head_width; k < (h + 1u) * head_width; k++) {
        let value = z[i * sizes.width + k];
        a += f32(value * params[sizes.source + k]);
        b += f32(value * params[sizes.end + k]);
    }
    sent[index] = real(a);
    received[index] = real(b);
}

// gat_scores: LeakyReLU of their sum for every in-edge and head.
@group(0) @binding(1) var<storage, read> graph: array<u32>;
@group(0) @binding(2) var<storage, read> sent_in: array<real>;
@group(0) @binding(3) var<storage, read> received_in: array<real>;
@group(0) @binding(4) var<storage, read_write> scores: array<real>;

@compute @workgroup_size(64)
fn gat_scores(
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
    let end = graph[sizes.start + i + 1u];
    for (var p = graph[sizes.start + i]; p < end; p++) {
        let u = f32(sent_in[graph[sizes.neighbour + p] * HEADS + h]) + f32(received_in[index]);
        scores[p * HEADS + h] = real(u * select(SLOPE, 1.0, u > 0.0));
    }
}

// gat_backward_received: the kink's slope onto the scores' gradient, and its sum over the in-edges.
@group(0) @binding(5) var<storage, read_write> d_received: array<real>;

@compute @workgroup_size(64)
fn gat_backward_received(
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
    var sum = 0.0;
    let end = graph[sizes.start + i + 1u];
    for (var p = graph[sizes.start + i]; p < end; p++) {
        let at = p * HEADS + h;
        let u = f32(sent_in[graph[sizes.neighbour + p] * HEADS + h]) + f32(received_in[index]);
        let d = f32(scores[at]) * select(SLOPE, 1.0, u > 0.0);
        scores[at] = real(d);
        sum += d;
    }
    d_received[index] = real(sum);
}

// gat_backward_sent: the sum over the out-edges.
@group(0) @binding(2) var<storage, read> d_scores: array<real>;
@group(0) @binding(3) var<storage, read_write> d_sent: array<real>;

@compute @workgroup_size(64)
fn gat_backward_sent(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let j = index / HEADS;
    let h = index % HEADS;
    if (j >= sizes.rows) {
        return;
    }
    var sum = 0.0;
    let end = graph[sizes.start + j + 1u];
    for (var q = graph[sizes.start + j]; q < end; q++) {
        sum += f32(d_scores[graph[sizes.slot + q] * HEADS + h]);
    }
    d_sent[index] = real(sum);
}

// gat_backward_ends: what both ends add to the gradient of z.
@group(0) @binding(1) var<storage, read> d_sent_in: array<real>;
@group(0) @binding(3) var<storage, read> d_received_in: array<real>;
@group(0) @binding(4) var<storage, read_write> d_z: array<real>;

@compute @workgroup_size(64)
fn gat_backward_ends(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.rows * sizes.width) {
        return;
    }
    let k = index % sizes.width;
    let head = (index / sizes.width) * HEADS + k / (sizes.width / HEADS);
    let source = f32(d_sent_in[head]) * f32(params[sizes.source + k]);
    let end = f32(d_received_in[head]) * f32(params[sizes.end + k]);
    d_z[index] = real(f32(d_z[index]) + (source + end));
}
