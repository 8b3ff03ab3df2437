// Copies, sums, and the normalisation with fixed statistics.

@group(0) @binding(1) var<storage, read> a: array<real>;
@group(0) @binding(2) var<storage, read_write> b: array<real>;

// Rows of a go into rows of b. sizes.a: rows, length, stride of a, offset in a;
// sizes.b: stride of b, offset in b, 1 to add.
@compute @workgroup_size(64)
fn copy_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.a.x * sizes.a.y) {
        return;
    }
    let row = index / sizes.a.y;
    let column = index % sizes.a.y;
    let value = a[row * sizes.a.z + sizes.a.w + column];
    let to = row * sizes.b.x + sizes.b.y + column;
    if (sizes.b.z == 1u) {
        b[to] = b[to] + value;
    } else {
        b[to] = value;
    }
}

// b = a + c. sizes.a.x: elements.
@group(0) @binding(3) var<storage, read> c: array<real>;

@compute @workgroup_size(64)
fn add(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.a.x) {
        b[index] = a[index] + c[index];
    }
}

// b = (a - mean) / std over the last axis.
@group(0) @binding(3) var<storage, read> statistics: array<f32>; // means, then deviations

// sizes.a: elements, width, 0 to leave the mean out.
@compute @workgroup_size(64)
fn normalize(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.a.x) {
        let i = index % sizes.a.y;
        let mean = select(0.0, statistics[i], sizes.a.z == 1u);
        b[index] = real((f32(a[index]) - mean) / statistics[sizes.a.y + i]);
    }
}
