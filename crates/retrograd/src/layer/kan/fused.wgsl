// The gradients of the weights, of the bias and of x in one kernel; the mathematics is in mod.rs, the
// features in kan.wgsl, and what is read and written is counted in fused.rs.
//
// A workgroup owns OWNED inputs with all of their features, and a piece of the rows. It goes through its
// features in blocks of 32 and through the outputs in blocks of 64, and for each pair through its rows in
// tiles of 8: features, d_y and weights come into workgroup memory, and both products are made of what
// is there. A lane owns an output's weights of the 32 features, and 4 features of a row, whose share of
// d_x is their slopes times d_y W^T. Rows are added in runs of 64, runs in their order; with several
// pieces every piece leaves its sums in a place of its own, and product_add_pieces adds those in their order.

override INPUTS: u32 = 2u;
override OUTPUTS: u32 = 3u;
override BASES: u32 = 8u;       // splines of an input
override BASE: u32 = 1u;        // 1 with silu
override BIAS: u32 = 0u;        // 1 with a bias
override FEATURES4: u32 = 5u;   // a row of phi in vec4s, padded
override OWNED: u32 = 3u;       // inputs of a workgroup; one where an input has more than 32 features

struct Sizes {
    rows: u32,
    piece: u32,          // rows of a workgroup
    pieces: u32,
    weight: u32,         // where W begins in the flat vector
    d_weight: u32,       // where its gradient begins in d_params
    piece_step: u32,     // from one piece's sums to the next
    trains_splines: u32, // 1 where the splines' weights are trained
    trains_base: u32,
    trains_bias: u32,
    wants_input: u32,    // 1 where d_x is
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// kan_backward
@group(0) @binding(1) var<storage, read> phi: array<real>;
@group(0) @binding(2) var<storage, read> slopes: array<real>;
@group(0) @binding(3) var<storage, read> params: array<real>;
@group(0) @binding(4) var<storage, read> d_y: array<real>;
@group(0) @binding(5) var<storage, read_write> d_params: array<f32>;
@group(0) @binding(6) var<storage, read_write> d_x: array<real>;

var<workgroup> w_tile: array<vec4<f32>, 512>;     // 64 outputs x 32 features
var<workgroup> phi_tile: array<vec4<f32>, 64>;    // 8 rows x 32 features
var<workgroup> d_tile: array<f32, 512>;           // 8 rows x 64 outputs
var<workgroup> share_tile: array<f32, 256>;       // 8 rows x 32 features

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

// The workgroup's features are numbered input by input, an input's base behind its splines. Where one
// lies among all: its row of W, its column of phi.
fn place_of(input: u32, feature: u32) -> u32 {
    let each = BASES + BASE;
    let i = input + feature / each;
    let m = feature % each;
    return select(INPUTS * BASES + i, i * BASES + m, m < BASES);
}

fn is_trained(feature: u32) -> bool {
    let m = feature % (BASES + BASE);
    return select(sizes.trains_base, sizes.trains_splines, m < BASES) == 1u;
}

fn weight_at(input: u32, feature: u32, end: u32, o: u32) -> f32 {
    if (feature >= end || o >= OUTPUTS) {
        return 0.0;
    }
    return f32(params[sizes.weight + place_of(input, feature) * OUTPUTS + o]);
}

fn phi_at(row: u32, last: u32, input: u32, feature: u32, end: u32) -> f32 {
    if (row >= last || feature >= end || !is_trained(feature)) {
        return 0.0;
    }
    return f32(phi[row * FEATURES4 * 4u + place_of(input, feature)]);
}

fn slope_at(row: u32, last: u32, input: u32, feature: u32, end: u32) -> f32 {
    if (row >= last || feature >= end) {
        return 0.0;
    }
    return f32(slopes[(row * INPUTS + input) * (BASES + BASE) + feature]);
}

fn d_y_at(row: u32, last: u32, o: u32) -> f32 {
    if (row >= last || o >= OUTPUTS) {
        return 0.0;
    }
    return f32(d_y[row * OUTPUTS + o]);
}

// W of a block of features and of outputs.
fn bring_weights(lane: u32, input: u32, feature: u32, end: u32, output: u32) {
    for (var n = lane; n < 512u; n += 64u) {
        let o = output + n / 8u;
        let f = feature + n % 8u * 4u;
        w_tile[n] = vec4<f32>(
            weight_at(input, f, end, o),
            weight_at(input, f + 1u, end, o),
            weight_at(input, f + 2u, end, o),
            weight_at(input, f + 3u, end, o),
        );
    }
}

// Features and d_y of a tile of rows.
fn bring_rows(lane: u32, row: u32, last: u32, input: u32, feature: u32, end: u32, output: u32) {
    let r = row + lane / 8u;
    let f = feature + lane % 8u * 4u;
    phi_tile[lane] = vec4<f32>(
        phi_at(r, last, input, f, end),
        phi_at(r, last, input, f + 1u, end),
        phi_at(r, last, input, f + 2u, end),
        phi_at(r, last, input, f + 3u, end),
    );
    for (var n = lane; n < 512u; n += 64u) {
        d_tile[n] = d_y_at(row + n / 64u, last, output + n % 64u);
    }
}

// A lane owns 4 features of a row of the tile: their slopes times d_y W^T.
fn bring_shares(lane: u32, row: u32, last: u32, input: u32, feature: u32, end: u32, output: u32) {
    let r = lane / 8u;
    let column = lane % 8u;
    var sum = vec4<f32>();
    let outputs = min(64u, OUTPUTS - output);
    for (var o = 0u; o < outputs; o++) {
        sum += d_tile[r * 64u + o] * w_tile[o * 8u + column];
    }
    let f = feature + column * 4u;
    share_tile[lane * 4u] = sum.x * slope_at(row + r, last, input, f, end);
    share_tile[lane * 4u + 1u] = sum.y * slope_at(row + r, last, input, f + 1u, end);
    share_tile[lane * 4u + 2u] = sum.z * slope_at(row + r, last, input, f + 2u, end);
    share_tile[lane * 4u + 3u] = sum.w * slope_at(row + r, last, input, f + 3u, end);
}

// d_x of the tile's rows and inputs from one block of features and outputs; later blocks add to it.
fn add_shares(lane: u32, row: u32, last: u32, input: u32, width: u32, is_first: bool) {
    let each = min(BASES + BASE, width);
    let inputs = width / each;
    for (var n = lane; n < 8u * inputs; n += 64u) {
        let r = n / inputs;
        let i = n % inputs;
        if (row + r >= last) {
            continue;
        }
        var sum = 0.0;
        for (var f = 0u; f < each; f++) {
            sum += share_tile[r * 32u + i * each + f];
        }
        let at = (row + r) * INPUTS + input + i;
        if (!is_first) {
            sum += f32(d_x[at]);
        }
        d_x[at] = real(sum);
    }
}

fn keep_weight(to: u32, input: u32, feature: u32, end: u32, value: f32) {
    if (feature < end && is_trained(feature)) {
        d_params[to + place_of(input, feature) * OUTPUTS] = value;
    }
}

// An output's gradients of four features.
fn keep_weights(to: u32, input: u32, feature: u32, end: u32, value: vec4<f32>) {
    keep_weight(to, input, feature, end, value.x);
    keep_weight(to, input, feature + 1u, end, value.y);
    keep_weight(to, input, feature + 2u, end, value.z);
    keep_weight(to, input, feature + 3u, end, value.w);
}

@compute @workgroup_size(64)
fn kan_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let blocks = (INPUTS + OWNED - 1u) / OWNED;
    let number = group_number(group, groups);
    let input = number % blocks * OWNED;
    let piece = number / blocks;
    if (piece >= sizes.pieces) {
        return;
    }
    let first = piece * sizes.piece;
    let last = min(first + sizes.piece, sizes.rows);
    let end = min(OWNED, INPUTS - input) * (BASES + BASE);
    let to = piece * sizes.piece_step + sizes.d_weight;
    for (var feature = 0u; feature < end; feature += 32u) {
        let width = min(32u, end - feature);
        for (var output = 0u; output < OUTPUTS; output += 64u) {
            let is_first = feature == 0u && output == 0u;
            workgroupBarrier();
            if (sizes.wants_input == 1u) {
                bring_weights(lane, input, feature, end, output);
            }
            var total = Sums();
            var total_bias = 0.0;
            for (var run = first; run < last; run += 64u) {
                var sum = Sums();
                var bias = 0.0;
                let run_end = min(run + 64u, last);
                for (var row = run; row < run_end; row += 8u) {
                    workgroupBarrier();
                    bring_rows(lane, row, run_end, input, feature, end, output);
                    workgroupBarrier();
                    for (var r = 0u; r < 8u; r++) {
                        let d = d_tile[r * 64u + lane];
                        bias += d;
                        sum.n0 += d * phi_tile[r * 8u];
                        sum.n1 += d * phi_tile[r * 8u + 1u];
                        sum.n2 += d * phi_tile[r * 8u + 2u];
                        sum.n3 += d * phi_tile[r * 8u + 3u];
                        sum.n4 += d * phi_tile[r * 8u + 4u];
                        sum.n5 += d * phi_tile[r * 8u + 5u];
                        sum.n6 += d * phi_tile[r * 8u + 6u];
                        sum.n7 += d * phi_tile[r * 8u + 7u];
                    }
                    if (sizes.wants_input == 1u) {
                        bring_shares(lane, row, run_end, input, feature, end, output);
                        workgroupBarrier();
                        add_shares(lane, row, run_end, input, width, is_first);
                    }
                }
                total_bias += bias;
                total = sum_of(total, sum);
            }
            let o = output + lane;
            if (o < OUTPUTS) {
                keep_weights(to + o, input, feature, end, total.n0);
                keep_weights(to + o, input, feature + 4u, end, total.n1);
                keep_weights(to + o, input, feature + 8u, end, total.n2);
                keep_weights(to + o, input, feature + 12u, end, total.n3);
                keep_weights(to + o, input, feature + 16u, end, total.n4);
                keep_weights(to + o, input, feature + 20u, end, total.n5);
                keep_weights(to + o, input, feature + 24u, end, total.n6);
                keep_weights(to + o, input, feature + 28u, end, total.n7);
                if (feature == 0u && input == 0u && BIAS == 1u && sizes.trains_bias == 1u) {
                    d_params[to + INPUTS * (BASES + BASE) * OUTPUTS + o] = total_bias;
                }
            }
        }
    }
}
