// The gradient of a transposed convolution's bias; its other kernels are the convolution's.

override OUTPUTS: u32 = 3u;
override PIXELS: u32 = 48u;  // of a channel of the output

struct Sizes {
    samples: u32,
    bias: u32,  // where the bias begins in the flat vector
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// conv_transpose2d_backward_bias
@group(0) @binding(1) var<storage, read> d_y: array<real>;
@group(0) @binding(2) var<storage, read_write> d_params: array<f32>;

// A workgroup owns one channel; lanes add runs of 64.
@compute @workgroup_size(64)
fn conv_transpose2d_backward_bias(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let o = group_number(group, groups);
    let count = sizes.samples * PIXELS;
    var total = 0.0;
    for (var first = 0u; first < count; first += 4096u) {
        var run = 0.0;
        let end = min(first + 4096u, count);
        for (var q = first + lane; q < end; q += 64u) {
            let at = ((q / PIXELS) * OUTPUTS + min(o, OUTPUTS - 1u)) * PIXELS + q % PIXELS;
            run += f32(d_y[at]);
        }
        total += run;
    }
    let sum = sum_lanes(lane, vec4<f32>(total, 0.0, 0.0, 0.0));
    if (lane == 0u && o < OUTPUTS) {
        d_params[sizes.bias + o] = sum.x;
    }
}
