// The Kolmogorov-Arnold layer; the mathematics is in mod.rs.
//
// The layer is a matrix product of its features: with
//   phi[row] = (B_0(x_0) ... B_{G+k-1}(x_0), B_0(x_1) ..., silu(x_0), silu(x_1) ..., 1)
// and W the layer's tensors, which lie one after the other in the flat vector (spline weights
// [in][basis][out], base weights [in][out], bias [out]),
//   y = phi W,  d_W = phi^T d_y,  d_x_i = sum over the features of i of slope * (d_y W^T).
// The features and their slopes are evaluated once per (row, input).

override INPUTS: u32 = 2u;
override OUTPUTS: u32 = 3u;
override GRID: u32 = 5u;
override DEGREE: u32 = 3u;
override BASES: u32 = 8u;       // GRID + DEGREE
override BASE: u32 = 1u;        // 1 with silu
override BIAS: u32 = 0u;        // 1 with a bias
override FEATURES4: u32 = 5u;   // a row of phi in vec4s, padded
override CLAMP: bool = false;
override FREE: bool = false;    // knots of its own for every input
override LO: f32 = -1.0;
override INVERSE_STEP: f32 = 2.5;

struct Sizes {
    rows: u32,
    weight: u32,         // where W begins in the flat vector
    first_feature: u32,  // of those whose weights are trained
    end_feature: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// kan_basis
@group(0) @binding(1) var<storage, read> x_in: array<real>;
@group(0) @binding(2) var<storage, read> knots: array<f32>;
@group(0) @binding(3) var<storage, read_write> phi_out: array<real>;
@group(0) @binding(4) var<storage, read_write> slopes_out: array<real>;

@compute @workgroup_size(64)
fn kan_basis(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.rows * INPUTS) {
        return;
    }
    let row = index / INPUTS;
    let i = index % INPUTS;
    let k = i32(DEGREE);
    var x = f32(x_in[index]);
    var moves = 1.0;
    // The k+1 splines that are not 0, and those of degree k-1 for the derivative.
    var values: array<f32, 9>;
    var lower: array<f32, 9>;
    var slopes: array<f32, 9>;
    var interval: i32;
    values[0] = 1.0;
    if (FREE) {
        // knots holds DEGREE more on either side than the layer has, so that none is missing.
        let first = i * (GRID + 4u * DEGREE + 1u) + DEGREE;
        if (CLAMP) {
            let lo = knots[first + DEGREE];
            let hi = knots[first + DEGREE + GRID];
            moves = select(0.0, 1.0, x >= lo && x <= hi);
            x = clamp(x, lo, hi);
        }
        interval = -1;
        for (var n = 0u; n < GRID + 2u * DEGREE + 1u; n++) {
            interval += select(0, 1, knots[first + n] <= x);
        }
        let at = first + u32(clamp(interval, 0, i32(GRID) + 2 * k - 1));
        for (var j = 1u; j <= DEGREE; j++) {
            if (j == DEGREE) {
                lower = values;
            }
            var saved = 0.0;
            for (var r = 0u; r < j; r++) {
                let above = knots[at + r + 1u];
                let below = knots[at + r + 1u - j];
                let part = values[r] / (above - below);
                values[r] = saved + (above - x) * part;
                saved = (x - below) * part;
            }
            values[j] = saved;
        }
        for (var r = 0u; r <= DEGREE; r++) {
            var slope = 0.0;
            if (r > 0u) {
                slope = lower[r - 1u] / (knots[at + r] - knots[at + r - DEGREE]);
            }
            if (r < DEGREE) {
                slope -= lower[r] / (knots[at + r + 1u] - knots[at + r + 1u - DEGREE]);
            }
            slopes[r] = f32(DEGREE) * slope;
        }
    } else {
        // The same knots for all inputs: rounded to the nearest f32, then rounded up, which decides
        // x >= knot as exactly as f64 does.
        let count = GRID + 2u * DEGREE + 1u;
        if (CLAMP) {
            let lo = knots[DEGREE];
            let hi = knots[DEGREE + GRID];
            let hi_up = knots[count + DEGREE + GRID];
            let below = x < knots[count + DEGREE];
            let above = x > hi_up || (x == hi_up && hi_up > hi);
            moves = select(1.0, 0.0, below || above);
            x = select(select(x, hi, above), lo, below);
        }
        // A guess, off by one at most next to a knot; far outside it doesn't matter how far.
        let last = i32(count) - 2;
        var guess = i32(clamp(floor((x - LO) * INVERSE_STEP), -f32(DEGREE), f32(GRID + DEGREE))) + k;
        guess = clamp(guess, 0, last);
        guess -= select(0, 1, x < knots[count + u32(guess)]);
        guess += select(0, 1, x >= knots[count + u32(guess + 1)]);
        interval = guess;
        // From the knots on both sides: x - LO would lose the last bits, and with them those of a spline
        // that is near its end; so would 1 - below.
        let at = u32(clamp(guess, 0, last));
        let below = clamp((x - knots[at]) * INVERSE_STEP, 0.0, 1.0);
        let above = clamp((knots[at + 1u] - x) * INVERSE_STEP, 0.0, 1.0);
        for (var j = 1u; j <= DEGREE; j++) {
            if (j == DEGREE) {
                lower = values;
            }
            var saved = 0.0;
            for (var r = 0u; r < j; r++) {
                let part = values[r] / f32(j);
                values[r] = saved + (above + f32(r)) * part;
                saved = (below + f32(j - 1u - r)) * part;
            }
            values[j] = saved;
        }
        for (var r = 0u; r <= DEGREE; r++) {
            var slope = 0.0;
            if (r > 0u) {
                slope = lower[r - 1u];
            }
            if (r < DEGREE) {
                slope -= lower[r];
            }
            slopes[r] = slope * INVERSE_STEP;
        }
    }
    // Outside all knots no spline is left.
    let inside = interval >= 0 && interval < i32(GRID) + 2 * k;
    let stride = FEATURES4 * 4u;
    let phi_at = row * stride + i * BASES;
    let slope_at = index * (BASES + BASE);
    for (var m = 0u; m < BASES; m++) {
        var value = 0.0;
        var slope = 0.0;
        for (var r = 0u; r <= DEGREE; r++) {
            let hit = inside && interval - k + i32(r) == i32(m);
            value = select(value, values[r], hit);
            slope = select(slope, slopes[r], hit);
        }
        phi_out[phi_at + m] = real(value);
        slopes_out[slope_at + m] = real(moves * slope);
    }
    if (BASE == 1u) {
        phi_out[row * stride + INPUTS * BASES + i] = real(silu(x));
        slopes_out[slope_at + BASES] = real(moves * silu_slope(x));
    }
    if (i == 0u) {
        var f = INPUTS * (BASES + BASE);
        if (BIAS == 1u) {
            phi_out[row * stride + f] = real(1.0);
            f += 1u;
        }
        for (; f < stride; f++) {
            phi_out[row * stride + f] = real(0.0);
        }
    }
}

// kan_forward
@group(0) @binding(1) var<storage, read> phi: array<vec4<real>>;
@group(0) @binding(2) var<storage, read> params: array<real>;
@group(0) @binding(3) var<storage, read_write> y: array<real>;

// The products give an invocation 8 x 8 results: 16 numbers are read for 64 products. Its outputs are
// o, o + BLOCKS, o + 2 BLOCKS ...: neighbours read neighbours. What lies beyond the last output is
// read, and not stored.
override BLOCKS: u32 = 1u;      // OUTPUTS / 8, rounded up

// A feature's weights for four of an invocation's outputs.
fn weights_at(at: u32) -> vec4<real> {
    return vec4<real>(
        params[at],
        params[at + BLOCKS],
        params[at + 2u * BLOCKS],
        params[at + 3u * BLOCKS],
    );
}

// The same for the features f to f+3, as columns.
fn weights_of_four(at: u32) -> mat4x4<real> {
    return mat4x4<real>(
        weights_at(at),
        weights_at(at + OUTPUTS),
        weights_at(at + 2u * OUTPUTS),
        weights_at(at + 3u * OUTPUTS),
    );
}

fn store4(row: u32, o: u32, value: vec4<f32>) {
    let at = row * OUTPUTS;
    if (o < OUTPUTS) { y[at + o] = real(value.x); }
    if (o + BLOCKS < OUTPUTS) { y[at + o + BLOCKS] = real(value.y); }
    if (o + 2u * BLOCKS < OUTPUTS) { y[at + o + 2u * BLOCKS] = real(value.z); }
    if (o + 3u * BLOCKS < OUTPUTS) { y[at + o + 3u * BLOCKS] = real(value.w); }
}

fn store8(row: u32, o: u32, a: vec4<f32>, b: vec4<f32>) {
    if (row < sizes.rows) {
        store4(row, o, a);
        store4(row, o + 4u * BLOCKS, b);
    }
}

// An invocation owns 8 rows x 8 outputs.
@compute @workgroup_size(32)
fn kan_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let rows = sizes.rows;
    let index = group_number(group, groups) * 32u + lane;
    let o = index % BLOCKS;
    let row = (index / BLOCKS) * 8u;
    if (row >= rows) {
        return;
    }
    let last = rows - 1u;
    let r0 = row * FEATURES4;
    let r1 = min(row + 1u, last) * FEATURES4;
    let r2 = min(row + 2u, last) * FEATURES4;
    let r3 = min(row + 3u, last) * FEATURES4;
    let r4 = min(row + 4u, last) * FEATURES4;
    let r5 = min(row + 5u, last) * FEATURES4;
    let r6 = min(row + 6u, last) * FEATURES4;
    let r7 = min(row + 7u, last) * FEATURES4;
    // The first and the last four outputs of every row.
    var a0 = vec4<f32>();
    var a1 = vec4<f32>();
    var a2 = vec4<f32>();
    var a3 = vec4<f32>();
    var a4 = vec4<f32>();
    var a5 = vec4<f32>();
    var a6 = vec4<f32>();
    var a7 = vec4<f32>();
    var b0 = vec4<f32>();
    var b1 = vec4<f32>();
    var b2 = vec4<f32>();
    var b3 = vec4<f32>();
    var b4 = vec4<f32>();
    var b5 = vec4<f32>();
    var b6 = vec4<f32>();
    var b7 = vec4<f32>();
    var at = sizes.weight + o;
    for (var f = 0u; f < FEATURES4; f++) {
        let v = weights_of_four(at);
        let w = weights_of_four(at + 4u * BLOCKS);
        at += 4u * OUTPUTS;
        let p0 = phi[r0 + f];
        let p1 = phi[r1 + f];
        let p2 = phi[r2 + f];
        let p3 = phi[r3 + f];
        let p4 = phi[r4 + f];
        let p5 = phi[r5 + f];
        let p6 = phi[r6 + f];
        let p7 = phi[r7 + f];
        a0 += vec4<f32>(v * p0);
        b0 += vec4<f32>(w * p0);
        a1 += vec4<f32>(v * p1);
        b1 += vec4<f32>(w * p1);
        a2 += vec4<f32>(v * p2);
        b2 += vec4<f32>(w * p2);
        a3 += vec4<f32>(v * p3);
        b3 += vec4<f32>(w * p3);
        a4 += vec4<f32>(v * p4);
        b4 += vec4<f32>(w * p4);
        a5 += vec4<f32>(v * p5);
        b5 += vec4<f32>(w * p5);
        a6 += vec4<f32>(v * p6);
        b6 += vec4<f32>(w * p6);
        a7 += vec4<f32>(v * p7);
        b7 += vec4<f32>(w * p7);
    }
    store8(row, o, a0, b0);
    store8(row + 1u, o, a1, b1);
    store8(row + 2u, o, a2, b2);
    store8(row + 3u, o, a3, b3);
    store8(row + 4u, o, a4, b4);
    store8(row + 5u, o, a5, b5);
    store8(row + 6u, o, a6, b6);
    store8(row + 7u, o, a7, b7);
}

// kan_backward_weight
@group(0) @binding(2) var<storage, read> d_y: array<real>;
@group(0) @binding(3) var<storage, read_write> d_params: array<f32>;

fn store_d(at: u32, is_first: bool, value: f32) {
    d_params[at] = select(d_params[at] + value, value, is_first);
}

fn store4_d(at: u32, o: u32, is_first: bool, value: vec4<f32>) {
    if (o < OUTPUTS) { store_d(at + o, is_first, value.x); }
    if (o + BLOCKS < OUTPUTS) { store_d(at + o + BLOCKS, is_first, value.y); }
    if (o + 2u * BLOCKS < OUTPUTS) { store_d(at + o + 2u * BLOCKS, is_first, value.z); }
    if (o + 3u * BLOCKS < OUTPUTS) { store_d(at + o + 3u * BLOCKS, is_first, value.w); }
}

fn store8_d(feature: u32, o: u32, is_first: bool, a: vec4<f32>, b: vec4<f32>) {
    if (feature >= sizes.first_feature && feature < sizes.end_feature) {
        let at = sizes.weight + feature * OUTPUTS;
        store4_d(at, o, is_first, a);
        store4_d(at, o + 4u * BLOCKS, is_first, b);
    }
}

fn d_y_at(at: u32) -> vec4<real> {
    return vec4<real>(d_y[at], d_y[at + BLOCKS], d_y[at + 2u * BLOCKS], d_y[at + 3u * BLOCKS]);
}

// An invocation owns 8 features x 8 outputs; rows are added in runs of 64, and the runs in memory
// that no other invocation touches.
@compute @workgroup_size(32)
fn kan_backward_weight(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let rows = sizes.rows;
    let index = group_number(group, groups) * 32u + lane;
    let o = index % BLOCKS;
    let feature = (index / BLOCKS + sizes.first_feature / 8u) * 8u;
    if (feature >= sizes.end_feature) {
        return;
    }
    for (var first = 0u; first < rows; first += 64u) {
        // The first and the last four outputs of every feature.
        var a0 = vec4<f32>();
        var a1 = vec4<f32>();
        var a2 = vec4<f32>();
        var a3 = vec4<f32>();
        var a4 = vec4<f32>();
        var a5 = vec4<f32>();
        var a6 = vec4<f32>();
        var a7 = vec4<f32>();
        var b0 = vec4<f32>();
        var b1 = vec4<f32>();
        var b2 = vec4<f32>();
        var b3 = vec4<f32>();
        var b4 = vec4<f32>();
        var b5 = vec4<f32>();
        var b6 = vec4<f32>();
        var b7 = vec4<f32>();
        let end = min(first + 64u, rows);
        for (var r = first; r < end; r++) {
            let p = phi[r * FEATURES4 + feature / 4u];
            let q = phi[r * FEATURES4 + feature / 4u + 1u];
            let d = d_y_at(r * OUTPUTS + o);
            let e = d_y_at(r * OUTPUTS + o + 4u * BLOCKS);
            a0 += vec4<f32>(p.x * d);
            b0 += vec4<f32>(p.x * e);
            a1 += vec4<f32>(p.y * d);
            b1 += vec4<f32>(p.y * e);
            a2 += vec4<f32>(p.z * d);
            b2 += vec4<f32>(p.z * e);
            a3 += vec4<f32>(p.w * d);
            b3 += vec4<f32>(p.w * e);
            a4 += vec4<f32>(q.x * d);
            b4 += vec4<f32>(q.x * e);
            a5 += vec4<f32>(q.y * d);
            b5 += vec4<f32>(q.y * e);
            a6 += vec4<f32>(q.z * d);
            b6 += vec4<f32>(q.z * e);
            a7 += vec4<f32>(q.w * d);
            b7 += vec4<f32>(q.w * e);
        }
        let is_first = first == 0u;
        store8_d(feature, o, is_first, a0, b0);
        store8_d(feature + 1u, o, is_first, a1, b1);
        store8_d(feature + 2u, o, is_first, a2, b2);
        store8_d(feature + 3u, o, is_first, a3, b3);
        store8_d(feature + 4u, o, is_first, a4, b4);
        store8_d(feature + 5u, o, is_first, a5, b5);
        store8_d(feature + 6u, o, is_first, a6, b6);
        store8_d(feature + 7u, o, is_first, a7, b7);
    }
}

// kan_backward_input
@group(0) @binding(1) var<storage, read> slopes_in: array<real>;
@group(0) @binding(3) var<storage, read> d_y_in: array<real>;
@group(0) @binding(4) var<storage, read_write> d_x: array<real>;

// The slopes of splines m to m+3 of an input; 0 beyond the last.
fn slopes_at(row: u32, i: u32, m: u32) -> vec4<f32> {
    let at = (row * INPUTS + i) * (BASES + BASE) + m;
    return vec4<f32>(
        f32(slopes_in[at]),
        select(0.0, f32(slopes_in[at + 1u]), m + 1u < BASES),
        select(0.0, f32(slopes_in[at + 2u]), m + 2u < BASES),
        select(0.0, f32(slopes_in[at + 3u]), m + 3u < BASES),
    );
}

fn base_slope(row: u32, i: u32) -> f32 {
    return f32(slopes_in[(row * INPUTS + i) * (BASES + BASE) + BASES]);
}

// The weights of an output for splines m to m+3, whose first is at f; those beyond the last meet a
// slope of 0.
fn spline_weights(f: u32) -> vec4<real> {
    return vec4<real>(
        params[f],
        params[f + OUTPUTS],
        params[f + 2u * OUTPUTS],
        params[f + 3u * OUTPUTS],
    );
}

fn store_d_x(row: u32, i: u32, value: vec4<f32>) {
    let rows = sizes.rows;
    if (row < rows) { d_x[row * INPUTS + i] = real(value.x); }
    if (row + 1u < rows) { d_x[(row + 1u) * INPUTS + i] = real(value.y); }
    if (row + 2u < rows) { d_x[(row + 2u) * INPUTS + i] = real(value.z); }
    if (row + 3u < rows) { d_x[(row + 3u) * INPUTS + i] = real(value.w); }
}

// An invocation owns 8 rows of one input; 8 x 8 of them share rows
// of d_y and of W. The features go in runs of 8 splines, the base with the first: with the usual
// grid d_y is read once.
@compute @workgroup_size(8, 8)
fn kan_backward_input(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    let rows = sizes.rows;
    let blocks = (INPUTS + 7u) / 8u;
    let number = group_number(group, groups);
    let i = (number % blocks) * 8u + local.x;
    let row = ((number / blocks) * 8u + local.y) * 8u;
    if (row >= rows || i >= INPUTS) {
        return;
    }
    let last = rows - 1u;
    let r1 = min(row + 1u, last);
    let r2 = min(row + 2u, last);
    let r3 = min(row + 3u, last);
    let r4 = min(row + 4u, last);
    let r5 = min(row + 5u, last);
    let r6 = min(row + 6u, last);
    let r7 = min(row + 7u, last);
    let base_at = sizes.weight + (INPUTS * BASES + i) * OUTPUTS;
    var sums = vec4<f32>();
    var more = vec4<f32>();
    for (var m = 0u; m < BASES; m += 8u) {
        let with_second = m + 4u < BASES;
        let with_base = BASE == 1u && m == 0u;
        // Of every row: d_y times the first four splines' weights, and times the last four's.
        var a0 = vec4<f32>();
        var a1 = vec4<f32>();
        var a2 = vec4<f32>();
        var a3 = vec4<f32>();
        var a4 = vec4<f32>();
        var a5 = vec4<f32>();
        var a6 = vec4<f32>();
        var a7 = vec4<f32>();
        var b0 = vec4<f32>();
        var b1 = vec4<f32>();
        var b2 = vec4<f32>();
        var b3 = vec4<f32>();
        var b4 = vec4<f32>();
        var b5 = vec4<f32>();
        var b6 = vec4<f32>();
        var b7 = vec4<f32>();
        var base = vec4<f32>();
        var base_more = vec4<f32>();
        let f = sizes.weight + (i * BASES + m) * OUTPUTS;
        for (var o = 0u; o < OUTPUTS; o++) {
            let d = vec4<real>(
                d_y_in[row * OUTPUTS + o],
                d_y_in[r1 * OUTPUTS + o],
                d_y_in[r2 * OUTPUTS + o],
                d_y_in[r3 * OUTPUTS + o],
            );
            let e = vec4<real>(
                d_y_in[r4 * OUTPUTS + o],
                d_y_in[r5 * OUTPUTS + o],
                d_y_in[r6 * OUTPUTS + o],
                d_y_in[r7 * OUTPUTS + o],
            );
            let v = spline_weights(f + o);
            a0 += vec4<f32>(d.x * v);
            a1 += vec4<f32>(d.y * v);
            a2 += vec4<f32>(d.z * v);
            a3 += vec4<f32>(d.w * v);
            a4 += vec4<f32>(e.x * v);
            a5 += vec4<f32>(e.y * v);
            a6 += vec4<f32>(e.z * v);
            a7 += vec4<f32>(e.w * v);
            if (with_second) {
                let w = spline_weights(f + 4u * OUTPUTS + o);
                b0 += vec4<f32>(d.x * w);
                b1 += vec4<f32>(d.y * w);
                b2 += vec4<f32>(d.z * w);
                b3 += vec4<f32>(d.w * w);
                b4 += vec4<f32>(e.x * w);
                b5 += vec4<f32>(e.y * w);
                b6 += vec4<f32>(e.z * w);
                b7 += vec4<f32>(e.w * w);
            }
            if (with_base) {
                let w = params[base_at + o];
                base += vec4<f32>(w * d);
                base_more += vec4<f32>(w * e);
            }
        }
        sums += vec4<f32>(
            dot(a0, slopes_at(row, i, m)),
            dot(a1, slopes_at(r1, i, m)),
            dot(a2, slopes_at(r2, i, m)),
            dot(a3, slopes_at(r3, i, m)),
        );
        more += vec4<f32>(
            dot(a4, slopes_at(r4, i, m)),
            dot(a5, slopes_at(r5, i, m)),
            dot(a6, slopes_at(r6, i, m)),
            dot(a7, slopes_at(r7, i, m)),
        );
        if (with_second) {
            sums += vec4<f32>(
                dot(b0, slopes_at(row, i, m + 4u)),
                dot(b1, slopes_at(r1, i, m + 4u)),
                dot(b2, slopes_at(r2, i, m + 4u)),
                dot(b3, slopes_at(r3, i, m + 4u)),
            );
            more += vec4<f32>(
                dot(b4, slopes_at(r4, i, m + 4u)),
                dot(b5, slopes_at(r5, i, m + 4u)),
                dot(b6, slopes_at(r6, i, m + 4u)),
                dot(b7, slopes_at(r7, i, m + 4u)),
            );
        }
        if (with_base) {
            sums += base * vec4<f32>(
                base_slope(row, i),
                base_slope(r1, i),
                base_slope(r2, i),
                base_slope(r3, i),
            );
            more += base_more * vec4<f32>(
                base_slope(r4, i),
                base_slope(r5, i),
                base_slope(r6, i),
                base_slope(r7, i),
            );
        }
    }
    store_d_x(row, i, sums);
    store_d_x(row + 4u, i, more);
}
