// The gradient of x, in tiles: d_x_i is the sum over the features of i of their slope times d_y W^T. What is
// read and written is counted in input.rs.
//
// A workgroup owns 8 LANE_ROWS rows and OWNED inputs with all of their features, side by side as columns; an
// input's base is behind its splines. Slices of d_y and W come into workgroup memory; an invocation owns 8 x 8
// products, two times two blocks of 4 x 4, half a tile apart. Times their slopes they go through workgroup
// memory, a quarter of the rows at a time, to the invocations that add the features of an input. Products are
// added in runs of 64 outputs, runs in their order.

override INPUTS: u32 = 2u;
override OUTPUTS: u32 = 3u;
override BASES: u32 = 8u;         // splines of an input
override BASE: u32 = 1u;          // 1 with silu
override OWNED: u32 = 7u;         // inputs of a workgroup
override LANE_ROWS: u32 = 8u;     // invocations of a workgroup, down
override LANE_COLUMNS: u32 = 8u;  // and across
override SLICE: u32 = 16u;        // outputs that are in workgroup memory; divides 64

struct Sizes {
    rows: u32,
    weight: u32,      // where W begins in the flat vector
    workgroups: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> slopes: array<real>;
@group(0) @binding(2) var<storage, read> params: array<real>;
@group(0) @binding(3) var<storage, read> d_y: array<real>;
@group(0) @binding(4) var<storage, read_write> d_x: array<real>;

// Both slices, output by output: of each the rows, or the features, in vec4s. Then shares of d_x.
var<workgroup> slices: array<vec4<f32>, 1024>;

// An invocation's 8 x 8 results: of every row the columns of the first half of the tile, and of the second.
struct Results {
    a0: vec4<f32>,
    a1: vec4<f32>,
    a2: vec4<f32>,
    a3: vec4<f32>,
    a4: vec4<f32>,
    a5: vec4<f32>,
    a6: vec4<f32>,
    a7: vec4<f32>,
    b0: vec4<f32>,
    b1: vec4<f32>,
    b2: vec4<f32>,
    b3: vec4<f32>,
    b4: vec4<f32>,
    b5: vec4<f32>,
    b6: vec4<f32>,
    b7: vec4<f32>,
}

fn sum_of(s: Results, t: Results) -> Results {
    return Results(
        s.a0 + t.a0,
        s.a1 + t.a1,
        s.a2 + t.a2,
        s.a3 + t.a3,
        s.a4 + t.a4,
        s.a5 + t.a5,
        s.a6 + t.a6,
        s.a7 + t.a7,
        s.b0 + t.b0,
        s.b1 + t.b1,
        s.b2 + t.b2,
        s.b3 + t.b3,
        s.b4 + t.b4,
        s.b5 + t.b5,
        s.b6 + t.b6,
        s.b7 + t.b7,
    );
}

// Inputs of a workgroup that there are, from its first on.
fn own_inputs(input: u32) -> u32 {
    return min(OWNED, INPUTS - input);
}

fn d_y_at(row: u32, o: u32) -> f32 {
    if (row >= sizes.rows || o >= OUTPUTS) {
        return 0.0;
    }
    return f32(d_y[row * OUTPUTS + o]);
}

// A feature's weight; 0 beyond the workgroup's inputs.
fn weight_at(input: u32, feature: u32, o: u32) -> f32 {
    let each = BASES + BASE;
    if (feature >= own_inputs(input) * each || o >= OUTPUTS) {
        return 0.0;
    }
    let i = input + feature / each;
    let m = feature % each;
    let place = select(INPUTS * BASES + i, i * BASES + m, m < BASES);
    return f32(params[sizes.weight + place * OUTPUTS + o]);
}

// Outputs from one on, of the tile's rows and features.
fn bring(lane: u32, row: u32, input: u32, output: u32) {
    let lanes = LANE_ROWS * LANE_COLUMNS;
    let down = 2u * LANE_ROWS;
    for (var n = lane; n < down * SLICE; n += lanes) {
        let o = output + n % SLICE;
        let r = row + n / SLICE * 4u;
        slices[n % SLICE * down + n / SLICE] = vec4<f32>(
            d_y_at(r, o),
            d_y_at(r + 1u, o),
            d_y_at(r + 2u, o),
            d_y_at(r + 3u, o),
        );
    }
    let across = 2u * LANE_COLUMNS;
    for (var n = lane; n < across * SLICE; n += lanes) {
        let o = output + n % SLICE;
        let f = n / SLICE * 4u;
        slices[down * SLICE + n % SLICE * across + n / SLICE] = vec4<f32>(
            weight_at(input, f, o),
            weight_at(input, f + 1u, o),
            weight_at(input, f + 2u, o),
            weight_at(input, f + 3u, o),
        );
    }
}

// An invocation's results: d_y W^T.
fn results_of(lane: u32, row: u32, input: u32) -> Results {
    var total = Results();
    for (var run = 0u; run < OUTPUTS; run += 64u) {
        var s = Results();
        for (var first = run; first < min(run + 64u, OUTPUTS); first += SLICE) {
            workgroupBarrier();
            bring(lane, row, input, first);
            workgroupBarrier();
            let count = min(SLICE, OUTPUTS - first);
            var of_a = lane / LANE_COLUMNS;
            var of_b = 2u * LANE_ROWS * SLICE + lane % LANE_COLUMNS;
            for (var k = 0u; k < count; k++) {
                let p = slices[of_a];
                let q = slices[of_a + LANE_ROWS];
                let v = slices[of_b];
                let w = slices[of_b + LANE_COLUMNS];
                s.a0 += p.x * v;
                s.b0 += p.x * w;
                s.a1 += p.y * v;
                s.b1 += p.y * w;
                s.a2 += p.z * v;
                s.b2 += p.z * w;
                s.a3 += p.w * v;
                s.b3 += p.w * w;
                s.a4 += q.x * v;
                s.b4 += q.x * w;
                s.a5 += q.y * v;
                s.b5 += q.y * w;
                s.a6 += q.z * v;
                s.b6 += q.z * w;
                s.a7 += q.w * v;
                s.b7 += q.w * w;
                of_a += 2u * LANE_ROWS;
                of_b += 2u * LANE_COLUMNS;
            }
        }
        total = sum_of(total, s);
    }
    return total;
}

fn slope_at(row: u32, input: u32, feature: u32) -> f32 {
    let each = BASES + BASE;
    if (row >= sizes.rows || feature >= own_inputs(input) * each) {
        return 0.0;
    }
    return f32(slopes[(row * INPUTS + input) * each + feature]);
}

fn slopes_at(row: u32, input: u32, feature: u32) -> vec4<f32> {
    return vec4<f32>(
        slope_at(row, input, feature),
        slope_at(row, input, feature + 1u),
        slope_at(row, input, feature + 2u),
        slope_at(row, input, feature + 3u),
    );
}

// An invocation's features of two rows of its own, upper and lower half of the tile, as shares of d_x; then d_x
// of those rows of all invocations.
fn add_shares(lane: u32, row: u32, input: u32, of_upper: array<vec4<f32>, 2>, of_lower: array<vec4<f32>, 2>) {
    let column = lane % LANE_COLUMNS;
    let line = lane / LANE_COLUMNS;
    let upper = row + 4u * line;
    let lower = upper + 4u * LANE_ROWS;
    let half = LANE_COLUMNS;
    workgroupBarrier();
    let at = line * 2u * LANE_COLUMNS + column;
    slices[at] = of_upper[0] * slopes_at(upper, input, 4u * column);
    slices[at + half] = of_upper[1] * slopes_at(upper, input, 4u * (column + half));
    let below = at + LANE_ROWS * 2u * LANE_COLUMNS;
    slices[below] = of_lower[0] * slopes_at(lower, input, 4u * column);
    slices[below + half] = of_lower[1] * slopes_at(lower, input, 4u * (column + half));
    workgroupBarrier();
    let inputs = own_inputs(input);
    let each = BASES + BASE;
    for (var n = lane; n < 2u * LANE_ROWS * inputs; n += LANE_ROWS * LANE_COLUMNS) {
        let i = n % inputs;
        let r = row + 4u * (n / inputs);
        if (r < sizes.rows) {
            var sum = 0.0;
            for (var f = i * each; f < (i + 1u) * each; f++) {
                sum += slices[n / inputs * 2u * LANE_COLUMNS + f / 4u][f % 4u];
            }
            d_x[r * INPUTS + input + i] = real(sum);
        }
    }
}

fn backward_input(lane: u32, number: u32) {
    let blocks = (INPUTS + OWNED - 1u) / OWNED;
    let input = number % blocks * OWNED;
    let row = number / blocks * 8u * LANE_ROWS;
    let s = results_of(lane, row, input);
    add_shares(lane, row, input, array<vec4<f32>, 2>(s.a0, s.b0), array<vec4<f32>, 2>(s.a4, s.b4));
    add_shares(lane, row + 1u, input, array<vec4<f32>, 2>(s.a1, s.b1), array<vec4<f32>, 2>(s.a5, s.b5));
    add_shares(lane, row + 2u, input, array<vec4<f32>, 2>(s.a2, s.b2), array<vec4<f32>, 2>(s.a6, s.b6));
    add_shares(lane, row + 3u, input, array<vec4<f32>, 2>(s.a3, s.b3), array<vec4<f32>, 2>(s.a7, s.b7));
}

@compute @workgroup_size(64)
fn kan_backward_input(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    if (number < sizes.workgroups) {
        backward_input(lane, number);
    }
}

@compute @workgroup_size(256)
fn kan_backward_input_wide(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    if (number < sizes.workgroups) {
        backward_input(lane, number);
    }
}
