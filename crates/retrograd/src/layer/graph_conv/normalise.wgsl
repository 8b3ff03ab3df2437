// The entries of gcn's matrix where edges have weights, and the weights' gradient; mod.rs derives it.

struct Sizes {
    rows: u32,
    start: u32,             // where the looped rows' starts are in the words,
    neighbour: u32,         // their neighbours,
    edge: u32,              // their edges,
    column_start: u32,      // and the same by column
    column_neighbour: u32,
    slot: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> graph: array<u32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;

// The weight of a slot; an added self-loop has no edge and weight 1.
fn weight_of(p: u32) -> f32 {
    let edge = graph[sizes.edge + p];
    if (edge == 0xffffffffu) {
        return 1.0;
    }
    return weights[edge];
}

// 1 / sqrt(degree), 0 where that is not positive. An invocation owns a node.
@group(0) @binding(3) var<storage, read_write> scale_out: array<f32>;

@compute @workgroup_size(64)
fn gcn_scale(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= sizes.rows) {
        return;
    }
    var degree = 0.0;
    let end = graph[sizes.start + i + 1u];
    for (var p = graph[sizes.start + i]; p < end; p++) {
        degree += weight_of(p);
    }
    var scale = 0.0;
    if (degree > 0.0) {
        scale = 1.0 / sqrt(degree);
    }
    scale_out[i] = scale;
}

@group(0) @binding(3) var<storage, read> scale: array<f32>;
@group(0) @binding(4) var<storage, read_write> entries: array<real>;

@compute @workgroup_size(64)
fn gcn_entries(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= sizes.rows) {
        return;
    }
    let end = graph[sizes.start + i + 1u];
    for (var p = graph[sizes.start + i]; p < end; p++) {
        let j = graph[sizes.neighbour + p];
        entries[p] = real(scale[j] * weight_of(p) * scale[i]);
    }
}

// Adds to the weights' gradient, given that of the entries: an edge is in one row.
@group(0) @binding(4) var<storage, read> d_entries: array<real>;
@group(0) @binding(5) var<storage, read_write> d_weights: array<f32>;

@compute @workgroup_size(64)
fn gcn_backward_weights(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= sizes.rows) {
        return;
    }
    let begin = graph[sizes.start + i];
    let end = graph[sizes.start + i + 1u];
    var d_scale = 0.0;
    for (var p = begin; p < end; p++) {
        d_scale += f32(d_entries[p]) * weight_of(p) * scale[graph[sizes.neighbour + p]];
    }
    let last = graph[sizes.column_start + i + 1u];
    for (var q = graph[sizes.column_start + i]; q < last; q++) {
        let p = graph[sizes.slot + q];
        d_scale += f32(d_entries[p]) * weight_of(p) * scale[graph[sizes.column_neighbour + q]];
    }
    let s = scale[i];
    let d_degree = -0.5 * s * s * s * d_scale;
    for (var p = begin; p < end; p++) {
        let edge = graph[sizes.edge + p];
        if (edge != 0xffffffffu) {
            let j = graph[sizes.neighbour + p];
            d_weights[edge] += f32(d_entries[p]) * s * scale[j] + d_degree;
        }
    }
}
