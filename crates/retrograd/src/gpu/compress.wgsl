// Gradients as 16-bit floats for the way to the CPU, with error feedback: what rounding takes away
// is kept and added to the next step's gradient.

struct Sizes {
    len: u32,  // of the flat vector
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> grads: array<f32>;
@group(0) @binding(2) var<storage, read_write> residual: array<f32>;
@group(0) @binding(3) var<storage, read_write> packed: array<u32>;

// An invocation owns two numbers.
@compute @workgroup_size(64)
fn compress(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let at = index * 2u;
    if (at >= sizes.len) {
        return;
    }
    let second = min(at + 1u, sizes.len - 1u);
    let wanted = vec2<f32>(grads[at] + residual[at], grads[second] + residual[second]);
    if (!is_finite(wanted.x) || !is_finite(wanted.y)) {
        // Not a number, twice; nothing to carry on.
        packed[index] = 0x7e007e00u;
        residual[at] = 0.0;
        residual[second] = 0.0;
        return;
    }
    let word = pack2x16float(clamp(wanted, vec2<f32>(-65504.0), vec2<f32>(65504.0)));
    let sent = unpack2x16float(word);
    packed[index] = word;
    residual[at] = wanted.x - sent.x;
    if (second != at) {
        residual[second] = wanted.y - sent.y;
    }
}
