// Losses and their gradients; the table is in loss.rs.

override KIND: u32 = 0u;         // 0 mse and sum_squares, 1 l1, 2 huber, 3 bce_logits
override WEIGHTED: bool = false;

struct Sizes {
    elements: u32,
    rows: u32,
    classes: u32,
    pieces: u32,  // of the sum, one per workgroup
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// The first and the last of the step's constants; all of them are in optimizer.wgsl.
struct Step {
    scale: f32,          // 1 / W
    share: f32,          // factor on the gradient
    unused_a: vec2<f32>,
    unused_b: vec4<f32>,
    unused_c: vec4<f32>,
    unused_d: f32,
    scale_at: u32,       // where the loss scale of mixed precision is
    slot: u32,
    before: u32,
}

@group(0) @binding(1) var<storage, read> y: array<real>;
@group(0) @binding(2) var<storage, read> target_values: array<f32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> d_y: array<real>;
@group(0) @binding(5) var<storage, read_write> partial: array<f32>;
@group(0) @binding(6) var<uniform> step: Step;
@group(0) @binding(7) var<storage, read> scales: array<vec4<f32>>; // Before of optimizer.wgsl

// What the gradient is multiplied by.
fn gradient_scale() -> f32 {
    return step.scale * step.share * scales[step.scale_at].x;
}

// Value and derivative of one element.
fn element(y: f32, t: f32) -> vec2<f32> {
    let d = y - t;
    switch KIND {
        case 1u: { return vec2<f32>(abs(d), sign(d)); }
        case 2u: {
            let inner = vec2<f32>(0.5 * d * d, d);
            let outer = vec2<f32>(abs(d) - 0.5, sign(d));
            return select(outer, inner, abs(d) <= 1.0);
        }
        case 3u: {
            let value = max(y, 0.0) - y * t + log(1.0 + exp(-abs(y)));
            return vec2<f32>(value, sigmoid(y) - t);
        }
        default: { return vec2<f32>(d * d, 2.0 * d); }
    }
}

// A workgroup owns 1024 elements.
@compute @workgroup_size(64)
fn loss_elements(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    let end = min(number * 1024u + 1024u, sizes.elements);
    let scale = gradient_scale();
    var sum = 0.0;
    for (var i = number * 1024u + lane; i < end; i += 64u) {
        var w = 1.0;
        if (WEIGHTED) {
            w = weights[i];
        }
        let both = element(f32(y[i]), target_values[i]);
        sum += w * both.x;
        d_y[i] = real(w * both.y * scale);
    }
    let total = sum_lanes(lane, vec4<f32>(sum)).x;
    if (lane == 0u && number < sizes.pieces) {
        partial[number] = total * step.scale;
    }
}

// Cross-entropy: an invocation owns a row.
@group(0) @binding(2) var<storage, read> target_classes: array<u32>;

@compute @workgroup_size(64)
fn loss_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    let row = number * 64u + lane;
    var value = 0.0;
    if (row < sizes.rows) {
        let classes = sizes.classes;
        let at = row * classes;
        var w = 1.0;
        if (WEIGHTED) {
            w = weights[row];
        }
        var largest = f32(y[at]);
        for (var c = 1u; c < classes; c++) {
            largest = max(largest, f32(y[at + c]));
        }
        var sum = 0.0;
        for (var c = 0u; c < classes; c++) {
            sum += exp(f32(y[at + c]) - largest);
        }
        let class_of_row = target_classes[row];
        value = w * (log(sum) + (largest - f32(y[at + class_of_row])));
        // p - 1 of the right class from the others' share, without cancellation.
        let factor = w * gradient_scale() / sum;
        var others = 0.0;
        for (var c = 0u; c < classes; c++) {
            let p = exp(f32(y[at + c]) - largest) * factor;
            if (c != class_of_row) {
                d_y[at + c] = real(p);
                others += p;
            }
        }
        d_y[at + class_of_row] = real(-others);
    }
    let total = sum_lanes(lane, vec4<f32>(value)).x;
    if (lane == 0u && number < sizes.pieces) {
        partial[number] = total * step.scale;
    }
}
