// Networks on a directed acyclic graph; the mathematics is in mod.rs. Places are nodes in the order of
// their levels; of a place the samples lie side by side. Activations are those of layers.

override SIDE: u32 = 64u;  // samples side by side in a workgroup of sums: a power of two, at most 64

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
    longest: u32,    // the most neighbours of a place of this kernel
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> graph: array<u32>;

// Edges of a workgroup's places, as many of each as it has samples side by side: the neighbour's values and
// the weight.
var<workgroup> neighbours: array<u32, 64>;
var<workgroup> weights: array<f32, 64>;

// Where a place's edges begin and end, and a word of its own.
var<workgroup> heads: array<vec3<u32>, 64>;

// A place and a sample of an invocation, and the place's edges and word.
struct Own {
    place: u32,
    sample: u32,
    start: u32,
    end: u32,
    word: u32,
    exists: bool,
}

fn own(number: u32, lane: u32, words: u32) -> Own {
    let blocks = (sizes.samples + SIDE - 1u) / SIDE;
    let place = number / blocks * (64u / SIDE) + lane / SIDE;
    let sample = number % blocks * SIDE + lane % SIDE;
    let v = sizes.first + place;
    if (lane % SIDE == 0u && place < sizes.count) {
        heads[lane] = vec3<u32>(
            graph[sizes.start + v],
            graph[sizes.start + v + 1u],
            graph[words + v],
        );
    }
    workgroupBarrier();
    let head = heads[lane / SIDE * SIDE];
    return Own(v, sample, head.x, head.y, head.z, place < sizes.count && sample < sizes.samples);
}

// dag_sum: u of a place and a sample.
@group(0) @binding(2) var<storage, read> params: array<real>;
@group(0) @binding(3) var<storage, read> a: array<real>;
@group(0) @binding(4) var<storage, read_write> u: array<real>;

// The edges from a number of them on.
fn bring_edges(lane: u32, mine: Own, first: u32) {
    workgroupBarrier();
    let p = mine.start + first + lane % SIDE;
    if (mine.place < sizes.first + sizes.count && p < mine.end) {
        neighbours[lane] = graph[sizes.neighbour + p] * sizes.samples;
        weights[lane] = f32(params[sizes.weight + graph[sizes.edge + p]]);
    }
    workgroupBarrier();
}

// How many of those there are for an invocation that has a sample.
fn edges_left(mine: Own, first: u32) -> u32 {
    let all = select(0u, mine.end - mine.start, mine.exists);
    return min(SIDE, all - min(first, all));
}

@compute @workgroup_size(64)
fn dag_sum(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let mine = own(group_number(group, groups), lane, sizes.own);
    var sum = 0.0;
    if (mine.exists) {
        sum = f32(params[sizes.bias + mine.word]);
    }
    for (var first = 0u; first < sizes.longest; first += SIDE) {
        bring_edges(lane, mine, first);
        let count = edges_left(mine, first);
        for (var n = 0u; n < count; n++) {
            let edge = lane / SIDE * SIDE + n;
            sum += weights[edge] * f32(a[neighbours[edge] + mine.sample]);
        }
    }
    if (mine.exists) {
        u[mine.place * sizes.samples + mine.sample] = real(sum);
    }
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
    let mine = own(group_number(group, groups), lane, sizes.output);
    var sum = 0.0;
    if (mine.exists && mine.word != 0xffffffffu) {
        sum = f32(d_y[mine.sample * sizes.outputs + mine.word]);
    }
    for (var first = 0u; first < sizes.longest; first += SIDE) {
        bring_edges(lane, mine, first);
        let count = edges_left(mine, first);
        for (var n = 0u; n < count; n++) {
            let edge = lane / SIDE * SIDE + n;
            sum += weights[edge] * f32(d_u[neighbours[edge] + mine.sample]);
        }
    }
    if (mine.exists) {
        d_a[mine.place * sizes.samples + mine.sample] = real(sum);
    }
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
