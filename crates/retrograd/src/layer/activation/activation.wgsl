// Activation functions; the table of values and derivatives is in mod.rs.

override KIND: u32 = 0u;  // 0 identity, 1 relu, 2 leaky relu, 3 silu, 4 gelu, 5 tanh, 6 sigmoid, 7 elu
override SLOPE: f32 = 0.01;  // of leaky relu; elu's alpha

struct Sizes {
    elements: u32,
    first: u32,  // of them
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read_write> y: array<real>;

// The error function, by Kummer's series: erf x = 2x/sqrt(pi) e^(-x^2) sum_n (2x^2)^n / (2n+1)!!.
// All terms are positive, so nothing cancels; at |x| = 4, where erf is 1 to 1.5e-8, the 44th term
// is below 1e-8 of the sum.
fn erf(x: f32) -> f32 {
    let a = min(abs(x), 4.0);
    let q = 2.0 * a * a;
    var term = 1.0;
    var sum = 1.0;
    for (var n = 1u; n < 44u; n++) {
        term = term * q / f32(2u * n + 1u);
        sum += term;
    }
    let value = min(1.0, 1.1283791670955126 * a * exp(-a * a) * sum);
    return select(-value, value, x >= 0.0);
}

fn normal_cdf(x: f32) -> f32 {
    return 0.5 * (1.0 + erf(x * 0.7071067811865476));
}

// tanh: near 0 the odd series (to x^13, next term below 2e-9 relative at 0.4), else by e^(2|x|).
fn tanh_exact(x: f32) -> f32 {
    let a = abs(x);
    let s = x * x;
    let series = x * (1.0 + s * (-0.33333333333 + s * (0.13333333333 + s * (-0.05396825397
        + s * (0.02186948854 + s * (-0.00886323553 + s * 0.00359212804))))));
    let e = exp(-2.0 * a);
    let far = (1.0 - e) / (1.0 + e);
    return select(select(-far, far, x >= 0.0), series, a < 0.4);
}

// alpha (e^x - 1) by tanh, without cancellation.
fn elu(x: f32) -> f32 {
    let t = tanh_exact(0.5 * min(x, 0.0));
    return select(2.0 * SLOPE * t / (1.0 - t), x, x > 0.0);
}

fn value_at(x: f32) -> f32 {
    switch KIND {
        case 1u: { return max(x, 0.0); }
        case 2u: { return select(SLOPE * x, x, x > 0.0); }
        case 3u: { return silu(x); }
        case 4u: { return x * normal_cdf(x); }
        case 5u: { return tanh_exact(x); }
        case 6u: { return sigmoid(x); }
        case 7u: { return elu(x); }
        default: { return x; }
    }
}

fn slope_at(x: f32, y: f32) -> f32 {
    switch KIND {
        case 1u: { return select(0.0, 1.0, x > 0.0); }
        case 2u: { return select(SLOPE, 1.0, x > 0.0); }
        case 3u: { return silu_slope(x); }
        case 4u: { return normal_cdf(x) + x * 0.3989422804014327 * exp(-0.5 * x * x); }
        case 5u: { return 1.0 - y * y; }
        case 6u: { return y * (1.0 - y); }
        case 7u: { return select(y + SLOPE, 1.0, x > 0.0); }
        default: { return 1.0; }
    }
}

@compute @workgroup_size(64)
fn activation_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = sizes.first + group_number(group, groups) * 64u + lane;
    if (index < sizes.first + sizes.elements) {
        y[index] = real(value_at(f32(x[index])));
    }
}

// activation_backward
@group(0) @binding(2) var<storage, read> y_in: array<real>;
@group(0) @binding(3) var<storage, read> d_y: array<real>;
@group(0) @binding(4) var<storage, read_write> d_x: array<real>;

@compute @workgroup_size(64)
fn activation_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = sizes.first + group_number(group, groups) * 64u + lane;
    if (index < sizes.first + sizes.elements) {
        let slope = slope_at(f32(x[index]), f32(y_in[index]));
        d_x[index] = real(f32(d_y[index]) * slope);
    }
}
