// Networks on a directed acyclic graph; the mathematics is in mod.rs. Places are nodes in the order of
// their levels; of a place the samples lie side by side. Activations are those of layers.

struct Sizes {
    samples: u32,
    first: u32,      // places of this kernel: from one,
    count: u32,      // that many; or edges
    inputs: u32,     // nodes that hold the sample
    outputs: u32,
    weight: u32,     // where the edges' weights begin in the flat vector,
    bias: u32,       // and the biases
    start: u32,      // where a side's starts are in the words,
    neighbour: u32,  // its neighbours,
    edge: u32,       // and their edges;
    own: u32,        // the bias of every place;
    output: u32,     // the output that every place is;
    sources: u32,    // and the ends of every edge
    targets: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> graph: array<u32>;

// dag_sum: u of a place and a sample.
@group(0) @binding(2) var<storage, read> params: array<real>;
@group(0) @binding(3) var<storage, read> a: array<real>;
@group(0) @binding(4) var<storage, read_write> u: array<real>;

@compute @workgroup_size(64)
fn dag_sum(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.count * sizes.samples) {
        return;
    }
    let v = sizes.first + index / sizes.samples;
    let b = index % sizes.samples;
    var sum = f32(params[sizes.bias + graph[sizes.own + v]]);
    let end = graph[sizes.start + v + 1u];
    for (var p = graph[sizes.start + v]; p < end; p++) {
        let w = params[sizes.weight + graph[sizes.edge + p]];
        sum += f32(w * a[graph[sizes.neighbour + p] * sizes.samples + b]);
    }
    u[v * sizes.samples + b] = real(sum);
}

// dag_back: the gradient of a place's value, from the output that it may be and its out-edges.
@group(0) @binding(3) var<storage, read> d_y: array<real>;
@group(0) @binding(4) var<storage, read> d_u: array<real>;
@group(0) @binding(5) var<storage, read_write> d_a: array<real>;

@compute @workgroup_size(64)
fn dag_back(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.count * sizes.samples) {
        return;
    }
    let v = sizes.first + index / sizes.samples;
    let b = index % sizes.samples;
    var sum = 0.0;
    let output = graph[sizes.output + v];
    if (output != 0xffffffffu) {
        sum = f32(d_y[b * sizes.outputs + output]);
    }
    let end = graph[sizes.start + v + 1u];
    for (var q = graph[sizes.start + v]; q < end; q++) {
        let w = params[sizes.weight + graph[sizes.edge + q]];
        sum += f32(w * d_u[graph[sizes.neighbour + q] * sizes.samples + b]);
    }
    d_a[v * sizes.samples + b] = real(sum);
}

// The gradients of the weights, then of the biases: an invocation owns one. Samples are added in
// runs of 64.
@group(0) @binding(2) var<storage, read> values: array<real>;
@group(0) @binding(3) var<storage, read> d_values: array<real>;
@group(0) @binding(4) var<storage, read_write> d_params: array<f32>;

@compute @workgroup_size(64)
fn dag_weights(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let e = group_number(group, groups) * 64u + lane;
    if (e >= sizes.count) {
        return;
    }
    let from_source = graph[sizes.sources + e] * sizes.samples;
    let from_target = graph[sizes.targets + e] * sizes.samples;
    var total = 0.0;
    for (var first = 0u; first < sizes.samples; first += 64u) {
        var sum = 0.0;
        let last = min(first + 64u, sizes.samples);
        for (var b = first; b < last; b++) {
            sum += f32(values[from_source + b] * d_values[from_target + b]);
        }
        total += sum;
    }
    d_params[sizes.weight + e] = total;
}

@group(0) @binding(2) var<storage, read> d_places: array<real>;
@group(0) @binding(3) var<storage, read_write> d_biases: array<f32>;

@compute @workgroup_size(64)
fn dag_biases(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let v = sizes.first + group_number(group, groups) * 64u + lane;
    if (v >= sizes.first + sizes.count) {
        return;
    }
    var total = 0.0;
    for (var first = 0u; first < sizes.samples; first += 64u) {
        var sum = 0.0;
        let last = min(first + 64u, sizes.samples);
        for (var b = first; b < last; b++) {
            sum += f32(d_places[v * sizes.samples + b]);
        }
        total += sum;
    }
    d_biases[sizes.bias + graph[sizes.own + v]] = total;
}

// Between samples one after the other and places: inputs are the first places.
@group(0) @binding(1) var<storage, read> rows: array<real>;
@group(0) @binding(2) var<storage, read_write> places: array<real>;

@compute @workgroup_size(64)
fn dag_inputs(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.inputs * sizes.samples) {
        let b = index % sizes.samples;
        places[index] = rows[b * sizes.inputs + index / sizes.samples];
    }
}

@group(0) @binding(1) var<storage, read> places_in: array<real>;
@group(0) @binding(2) var<storage, read_write> rows_out: array<real>;

@compute @workgroup_size(64)
fn dag_d_inputs(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.inputs * sizes.samples) {
        let b = index % sizes.samples;
        rows_out[b * sizes.inputs + index / sizes.samples] = places_in[index];
    }
}

@group(0) @binding(3) var<storage, read_write> y: array<real>;

@compute @workgroup_size(64)
fn dag_outputs(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.count * sizes.samples) {
        return;
    }
    let v = sizes.first + index / sizes.samples;
    let b = index % sizes.samples;
    let output = graph[sizes.output + v];
    if (output != 0xffffffffu) {
        y[b * sizes.outputs + output] = values[v * sizes.samples + b];
    }
}
