// Dropout with the CPU's mask: ChaCha8 keyed by the step and the layer; see rng.rs.

override LEAST: u32 = 32768u;  // kept where its half of a word reaches this
override SCALE: f32 = 2.0;

struct Sizes {
    elements: u32,
    key: u32,  // first word of the key
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> mask: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<real>;

fn rotate(x: u32, n: u32) -> u32 {
    return (x << n) | (x >> (32u - n));
}

// An invocation owns one block of 16 words, two elements each: the lower half of a word first.
@compute @workgroup_size(64)
fn dropout_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = group_number(group, groups) * 64u + lane;
    let first = block * 32u;
    if (first >= sizes.elements) {
        return;
    }
    var start: array<u32, 16>;
    start[0] = 0x61707865u;
    start[1] = 0x3320646eu;
    start[2] = 0x79622d32u;
    start[3] = 0x6b206574u;
    for (var i = 0u; i < 8u; i++) {
        start[4u + i] = keys[sizes.key + i];
    }
    start[12] = block;
    var w = start;
    for (var round = 0u; round < 4u; round++) {
        for (var q = 0u; q < 8u; q++) {
            // Columns, then diagonals.
            let turn = q / 4u;
            let a = q % 4u;
            let b = 4u + (a + turn) % 4u;
            let c = 8u + (a + 2u * turn) % 4u;
            let d = 12u + (a + 3u * turn) % 4u;
            w[a] += w[b];
            w[d] = rotate(w[d] ^ w[a], 16u);
            w[c] += w[d];
            w[b] = rotate(w[b] ^ w[c], 12u);
            w[a] += w[b];
            w[d] = rotate(w[d] ^ w[a], 8u);
            w[c] += w[d];
            w[b] = rotate(w[b] ^ w[c], 7u);
        }
    }
    for (var i = 0u; i < 32u; i++) {
        if (first + i < sizes.elements) {
            let word = w[i / 2u] + start[i / 2u];
            let kept = ((word >> (16u * (i % 2u))) & 0xffffu) >= LEAST;
            let m = select(0.0, SCALE, kept);
            mask[first + i] = m;
            y[first + i] = real(m * f32(x[first + i]));
        }
    }
}

// dropout_backward
@group(0) @binding(2) var<storage, read> mask_in: array<f32>;
@group(0) @binding(3) var<storage, read_write> d_x: array<real>;

@compute @workgroup_size(64)
fn dropout_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.elements) {
        d_x[index] = real(mask_in[index] * f32(x[index]));
    }
}
