// What both forms of graph attention do with their scores: the softmax over the in-edges of a node,
// for every head apart, and its gradient. An invocation owns a node and a head.

override HEADS: u32 = 1u;
override DROPPED: bool = false;  // some weights were dropped

struct Sizes {
    rows: u32,
    width: u32,      // of all heads
    start: u32,      // where the looped rows' starts are in the words,
    neighbour: u32,  // and their neighbours
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> graph: array<u32>;

// Scores to weights, in place.
@group(0) @binding(2) var<storage, read_write> scores: array<real>;

@compute @workgroup_size(64)
fn attention_softmax(
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
    let begin = graph[sizes.start + i];
    let end = graph[sizes.start + i + 1u];
    if (begin == end) {
        return;
    }
    var largest = f32(scores[begin * HEADS + h]);
    for (var p = begin + 1u; p < end; p++) {
        largest = max(largest, f32(scores[p * HEADS + h]));
    }
    var sum = 0.0;
    for (var p = begin; p < end; p++) {
        let e = exp(f32(scores[p * HEADS + h]) - largest);
        scores[p * HEADS + h] = real(e);
        sum += e;
    }
    for (var p = begin; p < end; p++) {
        scores[p * HEADS + h] = real(f32(scores[p * HEADS + h]) / sum);
    }
}

// The gradient of the scores: that of a weight is d_y . z of the neighbour, times its dropout mask.
@group(0) @binding(2) var<storage, read> d_y: array<real>;
@group(0) @binding(3) var<storage, read> z: array<real>;
@group(0) @binding(4) var<storage, read> alpha: array<real>;
@group(0) @binding(5) var<storage, read> mask: array<f32>;
@group(0) @binding(6) var<storage, read_write> d_scores: array<real>;

@compute @workgroup_size(64)
fn attention_backward(
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
    let column = h * head_width;
    let begin = graph[sizes.start + i];
    let end = graph[sizes.start + i + 1u];
    var mean = 0.0;
    for (var p = begin; p < end; p++) {
        let j = graph[sizes.neighbour + p];
        var d = 0.0;
        for (var k = column; k < column + head_width; k++) {
            d += f32(d_y[i * sizes.width + k] * z[j * sizes.width + k]);
        }
        if (DROPPED) {
            d *= mask[p * HEADS + h];
        }
        d_scores[p * HEADS + h] = real(d);
        mean += f32(alpha[p * HEADS + h]) * d;
    }
    for (var p = begin; p < end; p++) {
        let at = p * HEADS + h;
        d_scores[at] = real(f32(alpha[at]) * (f32(d_scores[at]) - mean));
    }
}
