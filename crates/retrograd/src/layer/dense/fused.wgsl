// The gradients of W, of the bias and of x in one kernel; the mathematics is in mod.rs, what it reads and
// writes is counted in fused.rs.
//
// A workgroup owns 32 inputs and a piece of the rows. It goes through the outputs in blocks of 64, and
// for each through its rows in tiles of 16: x, d_y and W come into workgroup memory, and both products
// are made of what is there. A lane owns an output's weights of the 32 inputs, and 8 inputs of a row.
// Rows are added in runs of 64, runs in their order; with several pieces every piece leaves its sums in
// a place of its own, and product_add_pieces adds those in their order.

override INPUTS: u32 = 3u;
override OUTPUTS: u32 = 2u;
override OUT_STEP: u32 = 3u;     // from one output to the next in W
override IN_STEP: u32 = 1u;      // from one input to the next
override BIAS: bool = true;

struct Sizes {
    rows: u32,
    piece: u32,          // rows of a workgroup
    weight: u32,         // where W begins in the flat vector
    d_weight: u32,       // where the gradient of W begins in d_params
    d_bias: u32,
    piece_step: u32,     // from one piece's sums to the next
    trains_weight: u32,  // 1 where W is trained
    trains_bias: u32,
    wants_input: u32,    // 1 where d_x is
    pieces: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// dense_backward
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read> d_y: array<real>;
@group(0) @binding(3) var<storage, read> params: array<real>;
@group(0) @binding(4) var<storage, read_write> d_params: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_x: array<real>;

var<workgroup> w_tile: array<vec4<f32>, 512>;   // 64 outputs x 32 inputs
var<workgroup> x_tile: array<vec4<f32>, 128>;   // 16 rows x 32 inputs
var<workgroup> d_tile: array<f32, 1024>;        // 16 rows x 64 outputs

// 32 of a lane's sums.
struct Sums {
    n0: vec4<f32>,
    n1: vec4<f32>,
    n2: vec4<f32>,
    n3: vec4<f32>,
    n4: vec4<f32>,
    n5: vec4<f32>,
    n6: vec4<f32>,
    n7: vec4<f32>,
}

fn sum_of(s: Sums, t: Sums) -> Sums {
    return Sums(
        s.n0 + t.n0,
        s.n1 + t.n1,
        s.n2 + t.n2,
        s.n3 + t.n3,
        s.n4 + t.n4,
        s.n5 + t.n5,
        s.n6 + t.n6,
        s.n7 + t.n7,
    );
}

fn weight_at(o: u32, i: u32) -> f32 {
    if (o >= OUTPUTS || i >= INPUTS) {
        return 0.0;
    }
    return f32(params[sizes.weight + o * OUT_STEP + i * IN_STEP]);
}

fn x_at(row: u32, end: u32, i: u32) -> f32 {
    if (row >= end || i >= INPUTS) {
        return 0.0;
    }
    return f32(x[row * INPUTS + i]);
}

fn d_y_at(row: u32, end: u32, o: u32) -> f32 {
    if (row >= end || o >= OUTPUTS) {
        return 0.0;
    }
    return f32(d_y[row * OUTPUTS + o]);
}

// W of a block of outputs and of inputs.
fn bring_weights(lane: u32, output: u32, input: u32) {
    for (var n = lane; n < 512u; n += 64u) {
        let o = output + n / 8u;
        let i = input + n % 8u * 4u;
        w_tile[n] = vec4<f32>(
            weight_at(o, i),
            weight_at(o, i + 1u),
            weight_at(o, i + 2u),
            weight_at(o, i + 3u),
        );
    }
}

// x and d_y of a tile of rows.
fn bring_rows(lane: u32, row: u32, end: u32, output: u32, input: u32) {
    if (sizes.trains_weight == 1u) {
        for (var n = lane; n < 128u; n += 64u) {
            let r = row + n / 8u;
            let i = input + n % 8u * 4u;
            x_tile[n] = vec4<f32>(
                x_at(r, end, i),
                x_at(r, end, i + 1u),
                x_at(r, end, i + 2u),
                x_at(r, end, i + 3u),
            );
        }
    }
    for (var n = lane; n < 1024u; n += 64u) {
        d_tile[n] = d_y_at(row + n / 64u, end, output + n % 64u);
    }
}

// d_x of a row and an input from one block of outputs; later blocks add to it.
fn store_d_x(row: u32, end: u32, i: u32, is_first: bool, value: f32) {
    if (row >= end || i >= INPUTS) {
        return;
    }
    let at = row * INPUTS + i;
    var sum = value;
    if (!is_first) {
        sum += f32(d_x[at]);
    }
    d_x[at] = real(sum);
}

// A lane owns a row of the tile and 8 inputs.
fn input_gradient(lane: u32, row: u32, end: u32, output: u32, input: u32) {
    let r = lane / 4u;
    let column = lane % 4u * 2u;
    var a = vec4<f32>();
    var b = vec4<f32>();
    let outputs = min(64u, OUTPUTS - output);
    for (var o = 0u; o < outputs; o++) {
        let d = d_tile[r * 64u + o];
        a += d * w_tile[o * 8u + column];
        b += d * w_tile[o * 8u + column + 1u];
    }
    let i = input + column * 4u;
    let is_first = output == 0u;
    store_d_x(row + r, end, i, is_first, a.x);
    store_d_x(row + r, end, i + 1u, is_first, a.y);
    store_d_x(row + r, end, i + 2u, is_first, a.z);
    store_d_x(row + r, end, i + 3u, is_first, a.w);
    store_d_x(row + r, end, i + 4u, is_first, b.x);
    store_d_x(row + r, end, i + 5u, is_first, b.y);
    store_d_x(row + r, end, i + 6u, is_first, b.z);
    store_d_x(row + r, end, i + 7u, is_first, b.w);
}

// An output's gradients of four inputs.
fn keep_weights(at: u32, i: u32, value: vec4<f32>) {
    if (i < INPUTS) { d_params[at + i * IN_STEP] = value.x; }
    if (i + 1u < INPUTS) { d_params[at + (i + 1u) * IN_STEP] = value.y; }
    if (i + 2u < INPUTS) { d_params[at + (i + 2u) * IN_STEP] = value.z; }
    if (i + 3u < INPUTS) { d_params[at + (i + 3u) * IN_STEP] = value.w; }
}

@compute @workgroup_size(64)
fn dense_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let blocks = (INPUTS + 31u) / 32u;
    let number = group_number(group, groups);
    let input = number % blocks * 32u;
    let piece = number / blocks;
    if (piece >= sizes.pieces) {
        return;
    }
    let first = piece * sizes.piece;
    let last = min(first + sizes.piece, sizes.rows);
    for (var output = 0u; output < OUTPUTS; output += 64u) {
        workgroupBarrier();
        if (sizes.wants_input == 1u) {
            bring_weights(lane, output, input);
        }
        var total = Sums();
        var total_bias = 0.0;
        for (var run = first; run < last; run += 64u) {
            var sum = Sums();
            var bias = 0.0;
            let end = min(run + 64u, last);
            for (var row = run; row < end; row += 16u) {
                workgroupBarrier();
                bring_rows(lane, row, end, output, input);
                workgroupBarrier();
                for (var r = 0u; r < 16u; r++) {
                    let d = d_tile[r * 64u + lane];
                    bias += d;
                    sum.n0 += d * x_tile[r * 8u];
                    sum.n1 += d * x_tile[r * 8u + 1u];
                    sum.n2 += d * x_tile[r * 8u + 2u];
                    sum.n3 += d * x_tile[r * 8u + 3u];
                    sum.n4 += d * x_tile[r * 8u + 4u];
                    sum.n5 += d * x_tile[r * 8u + 5u];
                    sum.n6 += d * x_tile[r * 8u + 6u];
                    sum.n7 += d * x_tile[r * 8u + 7u];
                }
                if (sizes.wants_input == 1u) {
                    input_gradient(lane, row, end, output, input);
                }
            }
            total_bias += bias;
            total = sum_of(total, sum);
        }
        let o = output + lane;
        if (o < OUTPUTS && sizes.trains_weight == 1u) {
            let at = piece * sizes.piece_step + sizes.d_weight + o * OUT_STEP;
            keep_weights(at, input, total.n0);
            keep_weights(at, input + 4u, total.n1);
            keep_weights(at, input + 8u, total.n2);
            keep_weights(at, input + 12u, total.n3);
            keep_weights(at, input + 16u, total.n4);
            keep_weights(at, input + 20u, total.n5);
            keep_weights(at, input + 24u, total.n6);
            keep_weights(at, input + 28u, total.n7);
        }
        if (o < OUTPUTS && input == 0u && BIAS && sizes.trains_bias == 1u) {
            d_params[piece * sizes.piece_step + sizes.d_bias + o] = total_bias;
        }
    }
}
