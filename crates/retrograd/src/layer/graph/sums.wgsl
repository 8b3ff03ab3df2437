// Sums over all rows, a column at a time: gradients of biases, of attention vectors and of eps.

override PRODUCT: bool = false;  // of a and b, else of a alone

struct Sizes {
    rows: u32,
    width: u32,
    b_width: u32,  // of b's rows: each of its numbers belongs to width / b_width columns
    out: u32,      // where the first sum goes
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> a: array<real>;
@group(0) @binding(2) var<storage, read> b: array<real>;
@group(0) @binding(3) var<storage, read_write> sums: array<f32>;

// A workgroup owns a column; lanes add runs of 64.
@compute @workgroup_size(64)
fn column_sums(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    let column = min(number, sizes.width - 1u);
    let of_b = column / (sizes.width / sizes.b_width);
    var total = 0.0;
    for (var first = 0u; first < sizes.rows; first += 4096u) {
        var run = 0.0;
        let end = min(first + 4096u, sizes.rows);
        for (var row = first + lane; row < end; row += 64u) {
            var value = f32(a[row * sizes.width + column]);
            if (PRODUCT) {
                value *= f32(b[row * sizes.b_width + of_b]);
            }
            run += value;
        }
        total += run;
    }
    let sum = sum_lanes(lane, vec4<f32>(total)).x;
    if (lane == 0u && number < sizes.width) {
        sums[sizes.out + column] = sum;
    }
}

// The sum of all sums, by one workgroup.
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> sum_out: array<f32>;

@compute @workgroup_size(64)
fn sum_all(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var total = 0.0;
    for (var i = lane; i < sizes.rows; i += 64u) {
        total += parts[i];
    }
    let sum = sum_lanes(lane, vec4<f32>(total)).x;
    if (lane == 0u && group.x == 0u) {
        sum_out[sizes.out] = sum;
    }
}
