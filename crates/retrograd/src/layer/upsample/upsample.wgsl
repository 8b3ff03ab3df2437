// Nearest upsampling; the mathematics is in mod.rs. Rows of all planes follow one another.

override SCALE: u32 = 2u;
override WIDTH: u32 = 3u;

struct Sizes {
    elements: u32,  // of y forward, of x backward
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> source: array<real>;
@group(0) @binding(2) var<storage, read_write> to: array<real>;

@compute @workgroup_size(64)
fn upsample_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.elements) {
        return;
    }
    let wide = WIDTH * SCALE;
    to[index] = source[(index / wide / SCALE) * WIDTH + (index % wide) / SCALE];
}

@compute @workgroup_size(64)
fn upsample_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.elements) {
        return;
    }
    let wide = WIDTH * SCALE;
    let corner = (index / WIDTH) * SCALE * wide + (index % WIDTH) * SCALE;
    var s = 0.0;
    for (var u = 0u; u < SCALE; u++) {
        for (var v = 0u; v < SCALE; v++) {
            s += f32(source[corner + u * wide + v]);
        }
    }
    to[index] = real(s);
}
