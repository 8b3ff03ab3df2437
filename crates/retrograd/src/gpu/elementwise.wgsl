// Copies and sums.

struct Sizes {
    elements: u32,
    rows: u32,
    row_len: u32,
    from_stride: u32,  // between the rows of a
    from_start: u32,   // of the first row in a
    to_stride: u32,    // and of b
    to_start: u32,     // and in b
    adds: u32,         // 1 to add to what is in b
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> a: array<real>;
@group(0) @binding(2) var<storage, read_write> b: array<real>;

// Rows of a go into rows of b.
@compute @workgroup_size(64)
fn copy_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.rows * sizes.row_len) {
        return;
    }
    let row = index / sizes.row_len;
    let column = index % sizes.row_len;
    let value = a[row * sizes.from_stride + sizes.from_start + column];
    let to = row * sizes.to_stride + sizes.to_start + column;
    if (sizes.adds == 1u) {
        b[to] = b[to] + value;
    } else {
        b[to] = value;
    }
}

// b = a + c
@group(0) @binding(3) var<storage, read> c: array<real>;

@compute @workgroup_size(64)
fn add(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.elements) {
        b[index] = a[index] + c[index];
    }
}

// b = 0
@compute @workgroup_size(64)
fn zero(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.elements) {
        zeros[index] = real(0.0);
    }
}

@group(0) @binding(1) var<storage, read_write> zeros: array<real>;

// b where a is positive, else 0: the gradient before a ReLU that gave a.
@compute @workgroup_size(64)
fn gate(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.elements) {
        b[index] = select(real(0.0), b[index], a[index] > real(0.0));
    }
}
