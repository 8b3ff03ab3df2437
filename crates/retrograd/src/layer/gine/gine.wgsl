// GIN with edge features; the mathematics is in mod.rs. An invocation owns a number of a row.

struct Sizes {
    rows: u32,
    width: u32,
    start: u32,      // where a side's starts are in the words,
    neighbour: u32,  // its neighbours,
    slot: u32,       // by column the slots,
    edge: u32,       // the edges of the slots,
    sources: u32,    // and the ends of every edge
    targets: u32,
    eps: u32,        // where eps is in the flat vector
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> graph: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<real>;
@group(0) @binding(3) var<storage, read> l: array<real>;
@group(0) @binding(4) var<storage, read> master: array<f32>;
@group(0) @binding(5) var<storage, read_write> m: array<real>;

@compute @workgroup_size(64)
fn gine_messages(
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
        let j = graph[sizes.neighbour + p];
        let e = graph[sizes.edge + p];
        sum += max(f32(x[j * sizes.width + k]) + f32(l[e * sizes.width + k]), 0.0);
    }
    m[index] = real(sum + (1.0 + master[sizes.eps]) * f32(x[index]));
}

// The gradient of l: that of the target where the message was open. A row is an edge; one that was
// added to round their number up has no ends and no gradient.
@group(0) @binding(4) var<storage, read> d_m: array<real>;
@group(0) @binding(5) var<storage, read_write> d_l: array<real>;

@compute @workgroup_size(64)
fn gine_backward_edges(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let e = index / sizes.width;
    let k = index % sizes.width;
    if (e >= sizes.rows) {
        return;
    }
    let source = graph[sizes.sources + e];
    if (source == 0xffffffffu) {
        d_l[index] = real(0.0);
        return;
    }
    let u = f32(x[source * sizes.width + k]) + f32(l[index]);
    let d = d_m[graph[sizes.targets + e] * sizes.width + k];
    d_l[index] = select(real(0.0), d, u > 0.0);
}

// The gradient of x: its own share, and what its out-edges bring.
@group(0) @binding(2) var<storage, read> d_l_in: array<real>;
@group(0) @binding(3) var<storage, read> d_m_in: array<real>;

@compute @workgroup_size(64)
fn gine_backward_nodes(
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
    var sum = (1.0 + master[sizes.eps]) * f32(d_m_in[index]);
    let end = graph[sizes.start + j + 1u];
    for (var q = graph[sizes.start + j]; q < end; q++) {
        let e = graph[sizes.edge + graph[sizes.slot + q]];
        sum += f32(d_l_in[e * sizes.width + k]);
    }
    m[index] = real(sum);
}
