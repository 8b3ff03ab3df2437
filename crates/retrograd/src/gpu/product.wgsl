// Products of matrices, C = A B, in tiles: dense and KAN layers forward, and the gradients of their weights
// and inputs. What is read and written is counted in product.rs.
//
// A workgroup owns a tile of C of 8 LANE_ROWS x 8 LANE_COLUMNS results, and a piece of the products of each.
// Slices of A and B come into workgroup memory; an invocation owns 8 x 8 results, for which it reads 16
// numbers there for 64 products. They are two times two blocks of 4 x 4, half a tile apart, so that
// neighbours read neighbours. Products are added in runs of 64, runs in their order.

override LANE_ROWS: u32 = 8u;     // invocations of a workgroup, down
override LANE_COLUMNS: u32 = 8u;  // and across
override SLICE: u32 = 16u;        // products of a result that are in workgroup memory; divides 64
override A_BY_ROW: bool = true;   // A's neighbours in memory are in a row of it, else in a column
override B_BY_ROW: bool = true;   // and B's
override BIAS: bool = false;      // the bias is a row of B more, times 1
override SUMS: bool = false;      // B's columns are summed, too
override ADD: bool = false;       // results are added to what is there
override RELU: bool = false;      // and negative ones set to 0

struct Sizes {
    rows: u32,        // of C
    columns: u32,
    inner: u32,       // products of a result,
    piece: u32,       // and of a workgroup
    piece_step: u32,  // from one piece's results to the next
    a: u32,           // where A begins
    a_row: u32,       // from one row of it to the next
    a_column: u32,    // and from one column
    b: u32,
    b_row: u32,
    b_column: u32,
    c: u32,
    c_row: u32,
    c_column: u32,
    bias: u32,        // where the bias begins in B's buffer
    sums: u32,        // and the sums in C's
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> a: array<real>;
@group(0) @binding(2) var<storage, read> b: array<real>;

// Both slices, product by product: of each A's rows, or B's columns, in vec4s.
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
    sums_a: vec4<f32>,
    sums_b: vec4<f32>,
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
        s.sums_a + t.sums_a,
        s.sums_b + t.sums_b,
    );
}

// Where a workgroup's work lies.
struct Place {
    row: u32,     // its first
    column: u32,
    piece: u32,
    first: u32,   // of its products,
    end: u32,     // and behind the last
}

fn place_of(number: u32) -> Place {
    let across = (sizes.columns + 8u * LANE_COLUMNS - 1u) / (8u * LANE_COLUMNS);
    let down = max((sizes.rows + 8u * LANE_ROWS - 1u) / (8u * LANE_ROWS), 1u);
    let piece = number / (across * down);
    let products = sizes.inner + select(0u, 1u, BIAS);
    let first = piece * sizes.piece;
    return Place(
        number / across % down * 8u * LANE_ROWS,
        number % across * 8u * LANE_COLUMNS,
        piece,
        first,
        min(first + sizes.piece, products),
    );
}

fn a_at(row: u32, k: u32, end: u32) -> f32 {
    if (row >= sizes.rows || k >= end) {
        return 0.0;
    }
    if (BIAS && k == sizes.inner) {
        return 1.0;
    }
    return f32(a[sizes.a + row * sizes.a_row + k * sizes.a_column]);
}

fn b_at(k: u32, column: u32, end: u32) -> f32 {
    if (column >= sizes.columns || k >= end) {
        return 0.0;
    }
    if (BIAS && k == sizes.inner) {
        return f32(b[sizes.bias + column]);
    }
    return f32(b[sizes.b + k * sizes.b_row + column * sizes.b_column]);
}

// Products first to end of the tile's rows and columns.
fn bring(lane: u32, place: Place, first: u32, end: u32) {
    let lanes = LANE_ROWS * LANE_COLUMNS;
    let down = 2u * LANE_ROWS;
    for (var n = lane; n < down * SLICE; n += lanes) {
        let k = select(n / down, n % SLICE, A_BY_ROW);
        let quad = select(n % down, n / SLICE, A_BY_ROW);
        let row = place.row + 4u * quad;
        slices[k * down + quad] = vec4<f32>(
            a_at(row, first + k, end),
            a_at(row + 1u, first + k, end),
            a_at(row + 2u, first + k, end),
            a_at(row + 3u, first + k, end),
        );
    }
    let across = 2u * LANE_COLUMNS;
    for (var n = lane; n < across * SLICE; n += lanes) {
        let k = select(n % SLICE, n / across, B_BY_ROW);
        let quad = select(n / SLICE, n % across, B_BY_ROW);
        let column = place.column + 4u * quad;
        slices[down * SLICE + k * across + quad] = vec4<f32>(
            b_at(first + k, column, end),
            b_at(first + k, column + 1u, end),
            b_at(first + k, column + 2u, end),
            b_at(first + k, column + 3u, end),
        );
    }
}

// An invocation's results.
fn results_of(lane: u32, place: Place) -> Results {
    let lane_row = lane / LANE_COLUMNS;
    let lane_column = lane % LANE_COLUMNS;
    var total = Results();
    for (var run = place.first; run < place.end; run += 64u) {
        var s = Results();
        let run_end = min(run + 64u, place.end);
        for (var first = run; first < run_end; first += SLICE) {
            workgroupBarrier();
            bring(lane, place, first, run_end);
            workgroupBarrier();
            let count = min(SLICE, run_end - first);
            var of_a = lane_row;
            var of_b = 2u * LANE_ROWS * SLICE + lane_column;
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
                if (SUMS) {
                    s.sums_a += v;
                    s.sums_b += w;
                }
                of_a += 2u * LANE_ROWS;
                of_b += 2u * LANE_COLUMNS;
            }
        }
        total = sum_of(total, s);
    }
    return total;
}

// product: C are activations, or their gradients.
@group(0) @binding(3) var<storage, read_write> c: array<real>;

fn keep(row: u32, column: u32, result: f32) {
    if (row >= sizes.rows || column >= sizes.columns) {
        return;
    }
    let at = sizes.c + row * sizes.c_row + column * sizes.c_column;
    var value = result;
    if (ADD) { value += f32(c[at]); }
    if (RELU) { value = max(value, 0.0); }
    c[at] = real(value);
}

fn keep8(row: u32, column: u32, first: vec4<f32>, second: vec4<f32>) {
    let half = 4u * LANE_COLUMNS;
    keep(row, column, first.x);
    keep(row, column + 1u, first.y);
    keep(row, column + 2u, first.z);
    keep(row, column + 3u, first.w);
    keep(row, column + half, second.x);
    keep(row, column + half + 1u, second.y);
    keep(row, column + half + 2u, second.z);
    keep(row, column + half + 3u, second.w);
}

fn product_of(lane: u32, number: u32) {
    let place = place_of(number);
    let s = results_of(lane, place);
    if (place.first >= place.end) {
        return;
    }
    let row = place.row + lane / LANE_COLUMNS * 4u;
    let column = place.column + lane % LANE_COLUMNS * 4u;
    let half = 4u * LANE_ROWS;
    keep8(row, column, s.a0, s.b0);
    keep8(row + 1u, column, s.a1, s.b1);
    keep8(row + 2u, column, s.a2, s.b2);
    keep8(row + 3u, column, s.a3, s.b3);
    keep8(row + half, column, s.a4, s.b4);
    keep8(row + half + 1u, column, s.a5, s.b5);
    keep8(row + half + 2u, column, s.a6, s.b6);
    keep8(row + half + 3u, column, s.a7, s.b7);
}

@compute @workgroup_size(64)
fn product(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    product_of(lane, group_number(group, groups));
}

@compute @workgroup_size(256)
fn product_wide(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    product_of(lane, group_number(group, groups));
}

// product_weights: C are the gradients of weights, or a piece's share of them.
@group(0) @binding(3) var<storage, read_write> d_params: array<f32>;

fn keep_weight(piece: u32, row: u32, column: u32, result: f32) {
    if (row < sizes.rows && column < sizes.columns) {
        let at = sizes.c + row * sizes.c_row + column * sizes.c_column;
        d_params[piece * sizes.piece_step + at] = result;
    }
}

fn keep_weights8(piece: u32, row: u32, column: u32, first: vec4<f32>, second: vec4<f32>) {
    let half = 4u * LANE_COLUMNS;
    keep_weight(piece, row, column, first.x);
    keep_weight(piece, row, column + 1u, first.y);
    keep_weight(piece, row, column + 2u, first.z);
    keep_weight(piece, row, column + 3u, first.w);
    keep_weight(piece, row, column + half, second.x);
    keep_weight(piece, row, column + half + 1u, second.y);
    keep_weight(piece, row, column + half + 2u, second.z);
    keep_weight(piece, row, column + half + 3u, second.w);
}

fn keep_sums(piece: u32, column: u32, sums: vec4<f32>) {
    for (var n = 0u; n < 4u; n++) {
        if (column + n < sizes.columns) {
            d_params[piece * sizes.piece_step + sizes.sums + column + n] = sums[n];
        }
    }
}

fn product_weights_of(lane: u32, number: u32) {
    let place = place_of(number);
    let s = results_of(lane, place);
    if (place.first >= place.end) {
        return;
    }
    let row = place.row + lane / LANE_COLUMNS * 4u;
    let column = place.column + lane % LANE_COLUMNS * 4u;
    let half = 4u * LANE_ROWS;
    keep_weights8(place.piece, row, column, s.a0, s.b0);
    keep_weights8(place.piece, row + 1u, column, s.a1, s.b1);
    keep_weights8(place.piece, row + 2u, column, s.a2, s.b2);
    keep_weights8(place.piece, row + 3u, column, s.a3, s.b3);
    keep_weights8(place.piece, row + half, column, s.a4, s.b4);
    keep_weights8(place.piece, row + half + 1u, column, s.a5, s.b5);
    keep_weights8(place.piece, row + half + 2u, column, s.a6, s.b6);
    keep_weights8(place.piece, row + half + 3u, column, s.a7, s.b7);
    // The first invocation of every column has its sum.
    if (SUMS && row == 0u) {
        keep_sums(place.piece, column, s.sums_a);
        keep_sums(place.piece, column + 4u * LANE_COLUMNS, s.sums_b);
    }
}

@compute @workgroup_size(64)
fn product_weights(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    product_weights_of(lane, group_number(group, groups));
}

@compute @workgroup_size(256)
fn product_weights_wide(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    product_weights_of(lane, group_number(group, groups));
}

// product_add_pieces: sums of the pieces' results, in their order. An invocation owns a parameter.
@group(0) @binding(1) var<storage, read> partial_sums: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums_out: array<f32>;

@compute @workgroup_size(64)
fn product_add_pieces(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.inner) {
        return;
    }
    var sum = 0.0;
    for (var piece = 0u; piece < sizes.piece; piece++) {
        sum += partial_sums[piece * sizes.piece_step + sizes.a + index];
    }
    sums_out[sizes.c + index] = sum;
}
