// One row per graph from the rows of its nodes; the mathematics is in mod.rs.

override KIND: u32 = 0u;  // 0 sum, 1 mean, 2 max

struct Sizes {
    rows: u32,         // graphs forward, nodes backward
    width: u32,
    graph_start: u32,  // where the graphs' first nodes are in the words,
    graph_of: u32,     // and the graph of every node
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> graph: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<real>;
@group(0) @binding(3) var<storage, read_write> y: array<real>;
@group(0) @binding(4) var<storage, read_write> places: array<u32>;  // the node of every maximum

// An invocation owns a number of a graph. Nodes are added in runs of 64.
@compute @workgroup_size(64)
fn graph_pool_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let g = index / sizes.width;
    let k = index % sizes.width;
    if (g >= sizes.rows) {
        return;
    }
    let begin = graph[sizes.graph_start + g];
    let end = graph[sizes.graph_start + g + 1u];
    if (KIND == 2u) {
        var largest = real(0.0);
        var place = 0xffffffffu;
        for (var i = begin; i < end; i++) {
            let value = x[i * sizes.width + k];
            if (place == 0xffffffffu || value > largest) {
                largest = value;
                place = i;
            }
        }
        y[index] = largest;
        places[index] = place;
        return;
    }
    var total = 0.0;
    for (var first = begin; first < end; first += 64u) {
        var sum = 0.0;
        let last = min(first + 64u, end);
        for (var i = first; i < last; i++) {
            sum += f32(x[i * sizes.width + k]);
        }
        total += sum;
    }
    if (KIND == 1u && end > begin) {
        total *= 1.0 / f32(end - begin);
    }
    y[index] = real(total);
}

// An invocation owns a number of a node; one of no graph has no gradient.
@group(0) @binding(2) var<storage, read> d_y: array<real>;
@group(0) @binding(3) var<storage, read_write> d_x: array<real>;
@group(0) @binding(4) var<storage, read> places_in: array<u32>;

@compute @workgroup_size(64)
fn graph_pool_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let i = index / sizes.width;
    if (i >= sizes.rows) {
        return;
    }
    let g = graph[sizes.graph_of + i];
    if (g == 0xffffffffu) {
        d_x[index] = real(0.0);
        return;
    }
    let pooled = g * sizes.width + index % sizes.width;
    var d = f32(d_y[pooled]);
    if (KIND == 1u) {
        let nodes = graph[sizes.graph_start + g + 1u] - graph[sizes.graph_start + g];
        d *= 1.0 / f32(nodes);
    }
    if (KIND == 2u && places_in[pooled] != i) {
        d = 0.0;
    }
    d_x[index] = real(d);
}
