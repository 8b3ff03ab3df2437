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
