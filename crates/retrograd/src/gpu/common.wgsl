// Shared by all kernels: workgroups of 64 invocations, sums over a workgroup in a fixed order, and
// functions with a stated accuracy. After it comes a kernel's file, which begins with the numbers
// that depend on the batch: `struct Sizes`, of up to 16 u32, which Rust sets by name.

// Activations, their gradients and the weights that kernels read. Mixed precision compiles the same
// files with f16 here; sums, statistics, losses and the weights' gradients stay f32.
alias real = f32;

// The number of a workgroup whose grid was folded into two dimensions.
fn group_number(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.y * groups.x + group.x;
}

var<workgroup> lanes: array<vec4<f32>, 64>;

// The sum over a workgroup's 64 invocations, as a tree: the same bits every time.
fn sum_lanes(lane: u32, value: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
    lanes[lane] = value;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half = half / 2u) {
        if (lane < half) {
            lanes[lane] = lanes[lane] + lanes[lane + half];
        }
        workgroupBarrier();
    }
    return lanes[0];
}

// 1 / (1 + e^-x) without overflow.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

fn silu(x: f32) -> f32 {
    return x * sigmoid(x);
}

fn silu_slope(x: f32) -> f32 {
    let s = sigmoid(x);
    return s * (1.0 + x * (1.0 - s));
}

// A finite number? Asked of the bits: compilers may take x == x for granted.
fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}
