// The weights as the kernels of mixed precision read them.

struct Sizes {
    len: u32,  // of the flat vector
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> source: array<f32>;
@group(0) @binding(2) var<storage, read_write> to: array<real>;

@compute @workgroup_size(64)
fn cast_weights(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.len) {
        to[index] = real(source[index]);
    }
}
