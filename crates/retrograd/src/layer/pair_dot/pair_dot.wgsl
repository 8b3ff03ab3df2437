// Scores of pairs of nodes; the mathematics is in mod.rs.

struct Sizes {
    rows: u32,     // pairs forward, nodes backward
    width: u32,
    pairs: u32,    // where the two nodes of every pair are in the words;
    start: u32,    // by node the starts,
    pair_of: u32,  // the pairs
    other: u32,    // and the other nodes
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> graph: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<real>;
@group(0) @binding(3) var<storage, read_write> y: array<real>;

@compute @workgroup_size(64)
fn pair_dot_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let p = group_number(group, groups) * 64u + lane;
    if (p >= sizes.rows) {
        return;
    }
    let a = graph[sizes.pairs + 2u * p] * sizes.width;
    let b = graph[sizes.pairs + 2u * p + 1u] * sizes.width;
    var sum = 0.0;
    for (var k = 0u; k < sizes.width; k++) {
        sum += f32(x[a + k] * x[b + k]);
    }
    y[p] = real(sum);
}

// An invocation owns a number of a node, and adds what the pairs that it is in bring.
@group(0) @binding(3) var<storage, read> d_y: array<real>;
@group(0) @binding(4) var<storage, read_write> d_x: array<real>;

@compute @workgroup_size(64)
fn pair_dot_backward(
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
    var sum = 0.0;
    let end = graph[sizes.start + i + 1u];
    for (var p = graph[sizes.start + i]; p < end; p++) {
        let other = graph[sizes.other + p];
        sum += f32(d_y[graph[sizes.pair_of + p]] * x[other * sizes.width + k]);
    }
    d_x[index] = real(sum);
}
