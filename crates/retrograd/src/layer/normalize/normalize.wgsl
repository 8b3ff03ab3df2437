// The normalisation with fixed statistics over the last axis.

struct Sizes {
    elements: u32,
    width: u32,           // of the last axis
    subtracts_mean: u32,  // 1 forward, 0 backward
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> a: array<real>;
@group(0) @binding(2) var<storage, read_write> b: array<real>;
@group(0) @binding(3) var<storage, read> statistics: array<f32>; // means, then deviations

// b = (a - mean) / std
@compute @workgroup_size(64)
fn normalize(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.elements) {
        let i = index % sizes.width;
        let mean = select(0.0, statistics[i], sizes.subtracts_mean == 1u);
        b[index] = real((f32(a[index]) - mean) / statistics[sizes.width + i]);
    }
}
