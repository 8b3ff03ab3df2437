// Sums over the neighbours of a row, gathered by the row that owns them; ops/aggregate.rs says what.
// A side of a pattern lies in the graph's words: where each row starts, the neighbour of every slot.

override COEFFICIENT: u32 = 0u;  // 0 one, 1 by slot, 2 by the slot of the other side, 3 1/degree of
                                 // the neighbour
override HEADS: u32 = 1u;        // with coefficients of their own, of equal width
override OWN: bool = false;      // the row itself takes part, times 1 + eps
override MEAN: bool = false;     // divided by the number of neighbours
override BIAS: bool = false;
override RELU: bool = false;     // negative results set to 0
override ADD: bool = false;      // results are added to what is there

struct Sizes {
    rows: u32,
    width: u32,
    start: u32,      // where the rows' starts are in the words,
    neighbour: u32,  // the neighbours,
    slot: u32,       // the slots of the other side,
    degrees: u32,    // and the starts of what the neighbour's degree is counted in
    x: u32,          // where the first row of x is
    bias: u32,       // where the bias begins in the flat vector
    eps: u32,        // and eps
    out: u32,        // where the first row of the result goes
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> graph: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<real>;
@group(0) @binding(3) var<storage, read> coefficients: array<real>;
@group(0) @binding(4) var<storage, read> params: array<real>;
@group(0) @binding(5) var<storage, read> master: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<real>;

// The columns of four results; beyond the last column it is read again.
fn four(column: u32) -> vec4<u32> {
    return min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(sizes.width - 1u));
}

fn read4(at: u32, columns: vec4<u32>) -> vec4<real> {
    let k = columns + at;
    return vec4<real>(x[k.x], x[k.y], x[k.z], x[k.w]);
}

fn coefficient(p: u32, j: u32, heads: vec4<u32>) -> vec4<real> {
    if (COEFFICIENT == 0u) {
        return vec4<real>(real(1.0));
    }
    if (COEFFICIENT == 3u) {
        let degree = graph[sizes.degrees + j + 1u] - graph[sizes.degrees + j];
        return vec4<real>(real(1.0 / f32(degree)));
    }
    var at = p;
    if (COEFFICIENT == 2u) {
        at = graph[sizes.slot + p];
    }
    if (HEADS == 1u) {
        return vec4<real>(coefficients[at]);
    }
    let k = heads + at * HEADS;
    return vec4<real>(coefficients[k.x], coefficients[k.y], coefficients[k.z], coefficients[k.w]);
}

// Four results of a row. Neighbours are added in runs of 64.
fn gathered(row: u32, columns: vec4<u32>) -> vec4<f32> {
    let begin = graph[sizes.start + row];
    let end = graph[sizes.start + row + 1u];
    let heads = columns / vec4<u32>(sizes.width / HEADS);
    var total = vec4<f32>();
    for (var first = begin; first < end; first += 64u) {
        var sum = vec4<f32>();
        let last = min(first + 64u, end);
        for (var p = first; p < last; p++) {
            let j = graph[sizes.neighbour + p];
            sum += vec4<f32>(coefficient(p, j, heads) * read4(sizes.x + j * sizes.width, columns));
        }
        total += sum;
    }
    if (OWN) {
        let own = 1.0 + master[sizes.eps];
        total += own * vec4<f32>(read4(sizes.x + row * sizes.width, columns));
    }
    if (MEAN && end > begin) {
        total *= 1.0 / f32(end - begin);
    }
    if (BIAS) {
        let k = columns + sizes.bias;
        total += vec4<f32>(vec4<real>(params[k.x], params[k.y], params[k.z], params[k.w]));
    }
    return total;
}

// An invocation owns four columns of a row.
@compute @workgroup_size(64)
fn gather(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let blocks = (sizes.width + 3u) / 4u;
    let index = group_number(group, groups) * 64u + lane;
    let column = (index % blocks) * 4u;
    let row = index / blocks;
    if (row >= sizes.rows) {
        return;
    }
    let sums = gathered(row, four(column));
    for (var k = 0u; k < 4u; k++) {
        if (column + k < sizes.width) {
            let to = sizes.out + row * sizes.width + column + k;
            var value = sums[k];
            if (ADD) { value += f32(y[to]); }
            if (RELU) { value = max(value, 0.0); }
            y[to] = real(value);
        }
    }
}

// The same into the gradient of a weight.
@group(0) @binding(6) var<storage, read_write> d_params: array<f32>;

@compute @workgroup_size(64)
fn gather_weight(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let blocks = (sizes.width + 3u) / 4u;
    let index = group_number(group, groups) * 64u + lane;
    let column = (index % blocks) * 4u;
    let row = index / blocks;
    if (row >= sizes.rows) {
        return;
    }
    let sums = gathered(row, four(column));
    for (var k = 0u; k < 4u; k++) {
        if (column + k < sizes.width) {
            d_params[sizes.out + row * sizes.width + column + k] = sums[k];
        }
    }
}

// The gradient of a coefficient: the product of a row's gradient and the neighbour's row. An
// invocation owns the slots of a row.
@group(0) @binding(3) var<storage, read> d_y: array<real>;
@group(0) @binding(4) var<storage, read_write> d_slot: array<real>;

@compute @workgroup_size(64)
fn gather_dot(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_number(group, groups) * 64u + lane;
    if (row >= sizes.rows) {
        return;
    }
    let width = sizes.width;
    let end = graph[sizes.start + row + 1u];
    for (var p = graph[sizes.start + row]; p < end; p++) {
        let j = graph[sizes.neighbour + p];
        var sum = 0.0;
        for (var k = 0u; k < width; k++) {
            sum += f32(d_y[row * width + k] * x[sizes.x + j * width + k]);
        }
        if (ADD) { sum += f32(d_slot[p]); }
        d_slot[p] = real(sum);
    }
}
