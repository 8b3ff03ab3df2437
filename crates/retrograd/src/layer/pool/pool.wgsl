// Pooling; the mathematics is in mod.rs.

override KERNEL: u32 = 2u;
override STRIDE: u32 = 2u;
override HEIGHT: u32 = 4u;
override WIDTH: u32 = 6u;
override OUT_HEIGHT: u32 = 2u;
override OUT_WIDTH: u32 = 3u;
override LARGEST: bool = true;

struct Sizes {
    elements: u32,  // of y forward, of x backward
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// pool_forward
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read_write> y: array<real>;
@group(0) @binding(3) var<storage, read_write> chosen: array<u32>;

// chosen: the place in its plane of each maximum.
@compute @workgroup_size(64)
fn pool_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.elements) {
        return;
    }
    let p = index % (OUT_HEIGHT * OUT_WIDTH);
    let plane = index / (OUT_HEIGHT * OUT_WIDTH) * (HEIGHT * WIDTH);
    let corner = (p / OUT_WIDTH) * STRIDE * WIDTH + (p % OUT_WIDTH) * STRIDE;
    var best = corner;
    var largest = f32(x[plane + corner]);
    var sum = 0.0;
    for (var u = 0u; u < KERNEL; u++) {
        for (var v = 0u; v < KERNEL; v++) {
            let at = corner + u * WIDTH + v;
            let value = f32(x[plane + at]);
            sum += value;
            if (value > largest) {
                largest = value;
                best = at;
            }
        }
    }
    if (LARGEST) {
        // A sum that is not a number shows a window that holds one.
        y[index] = real(select(sum, largest, is_finite(sum) || is_finite(sum - sum)));
    } else {
        y[index] = real(sum / f32(KERNEL * KERNEL));
    }
    chosen[index] = best;
}

// pool_backward
@group(0) @binding(1) var<storage, read> d_y: array<real>;
@group(0) @binding(2) var<storage, read> chosen_in: array<u32>;
@group(0) @binding(3) var<storage, read_write> d_x: array<real>;

// An invocation gathers from the windows that hold its pixel.
@compute @workgroup_size(64)
fn pool_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.elements) {
        return;
    }
    let p = index % (HEIGHT * WIDTH);
    let plane = index / (HEIGHT * WIDTH) * (OUT_HEIGHT * OUT_WIDTH);
    let row = p / WIDTH;
    let column = p % WIDTH;
    // Windows r with r * STRIDE <= row < r * STRIDE + KERNEL.
    let first_r = select(0u, (row - KERNEL) / STRIDE + 1u, row >= KERNEL);
    let first_c = select(0u, (column - KERNEL) / STRIDE + 1u, column >= KERNEL);
    var s = 0.0;
    for (var r = first_r; r < OUT_HEIGHT && r * STRIDE <= row; r++) {
        for (var c = first_c; c < OUT_WIDTH && c * STRIDE <= column; c++) {
            let at = plane + r * OUT_WIDTH + c;
            if (LARGEST) {
                s += select(0.0, f32(d_y[at]), chosen_in[at] == p);
            } else {
                s += f32(d_y[at]) / f32(KERNEL * KERNEL);
            }
        }
    }
    d_x[index] = real(s);
}
