// Clipping by the global norm and the optimizers, over the flat vectors; the definitions are in
// optim/mod.rs. A step whose loss or gradient is not finite changes nothing and says so.

override KIND: u32 = 1u;         // 0 sgd, 1 sgd with momentum, 2 adam and adamw
override SLOTS: u32 = 1024u;     // of the rings of status and loss scales
override GROWTH: f32 = 2000.0;   // good steps until the loss scale is doubled

struct Sizes {
    len: u32,            // of the flat vector
    first: u32,          // parameter of the norm or update
    end: u32,            // of the norm or update
    norm_first: u32,     // where its pieces of the norm begin
    norm_pieces: u32,
    loss_pieces: u32,
    writes_status: u32,  // 1 for one update of a step
    not_a_number: u32,   // the bits of a NaN, which WGSL cannot write
    is_first: u32,       // 1 for the first of the batches that are accumulated,
    is_last: u32,        // and for the last
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

struct Step {
    scale: f32,
    share: f32,
    clip_norm: f32,        // 0 is none
    clip_element: f32,     // 0 is none
    left_out: u32,         // steps that the CPU knew to have been left out
    momentum: f32,         // sgd's momentum, adam's 1 - beta1
    beta2: f32,
    take2: f32,            // 1 - beta2
    eps: f32,
    decay: f32,            // added to the gradient
    shrink: f32,           // factor on the parameter
    batch_share: f32,      // of an accumulated batch's gradient in the step's
    nesterov: f32,
    scale_at: u32,         // where the loss scale is: this step's slot, or after the ring where it is 1
    slot: u32,             // of this step's status
    before: u32,           // slot of a step whose failure stops this one; itself for none
    loss_share: f32,       // of an accumulated batch's loss in the step's
    unused_a: f32,
    unused_b: vec2<f32>,
    // What depends on t, the updates made: sgd's rate and 1; adam's lr / (1 - beta1^t) and
    // sqrt(1 - beta2^t). The first pair is for the t that the CPU expects, the next for one less ...:
    // steps may have been left out of which it didn't know yet.
    of_t: array<vec4<f32>, 32>,
}

// What a step knows of those before it.
struct Before {
    scale: f32,            // of the loss
    good: f32,             // steps with it
    left_out: f32,         // steps that changed nothing
    unused: f32,
}

// What a step's status says beside its loss.
const UPDATED: f32 = 0.0;
const FAILED: f32 = 1.0;
const OVERFLOWED: f32 = 2.0;

// Four parameters at a time: those that begin at 4j. Which of them are in first .. end?
fn within(j: u32, first: u32, end: u32) -> vec4<bool> {
    let at = vec4<u32>(4u * j) + vec4<u32>(0u, 1u, 2u, 3u);
    return (at >= vec4<u32>(first)) & (at < vec4<u32>(end));
}

fn clipped(g: vec4<f32>, limit: f32) -> vec4<f32> {
    let infinite = vec4<u32>(0x7f800000u);
    let finite = (bitcast<vec4<u32>>(g) & infinite) != infinite;
    let inside = clamp(g, vec4<f32>(-limit), vec4<f32>(limit));
    return select(g, inside, finite & vec4<bool>(limit > 0.0));
}

// optimizer_unscale: takes the loss scale off the gradient.
@group(0) @binding(1) var<storage, read_write> grads_out: array<f32>;
@group(0) @binding(2) var<storage, read> scales_in: array<Before>;
@group(0) @binding(3) var<uniform> unscale_step: Step;

// Scales are powers of two: nothing is rounded.
@compute @workgroup_size(64)
fn optimizer_unscale(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.len) {
        let scale = unscale_step.share * scales_in[unscale_step.scale_at].scale;
        grads_out[index] = grads_out[index] / scale;
    }
}

// optimizer_accumulate: adds the gradient of a batch to those before it; the last leaves the sum in the
// gradient's own place, where penalty, norm and update find it. A number that is not finite stays so.
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
@group(0) @binding(3) var<uniform> sum_step: Step;

@compute @workgroup_size(64)
fn optimizer_accumulate(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index >= sizes.len) {
        return;
    }
    var sum = sum_step.batch_share * grads_out[index];
    if (sizes.is_first == 0u) {
        sum += sums[index];
    }
    if (sizes.is_last == 1u) {
        grads_out[index] = sum;
    } else {
        sums[index] = sum;
    }
}

// optimizer_accumulate_loss: the same for the loss, whose sum is behind the gradient's. One workgroup.
@group(0) @binding(1) var<storage, read_write> loss_pieces: array<f32>;

@compute @workgroup_size(64)
fn optimizer_accumulate_loss(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    var own = vec4<f32>();
    for (var i = lane; i < sizes.loss_pieces; i += 64u) {
        own.x += loss_pieces[i];
    }
    var sum = sum_step.loss_share * sum_lanes(lane, own).x;
    if (lane == 0u && group_number(group, groups) == 0u) {
        if (sizes.is_first == 0u) {
            sum += sums[sizes.len];
        }
        if (sizes.is_last == 1u) {
            loss_pieces[0] = sum;
        } else {
            sums[sizes.len] = sum;
        }
    }
}

// optimizer_norm: sums of squares over pieces of 4096.
@group(0) @binding(1) var<storage, read> grads: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> status_in: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> norms: array<f32>;
@group(0) @binding(4) var<uniform> norm_step: Step;

@compute @workgroup_size(64)
fn optimizer_norm(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    let start = sizes.first / 4u + number * 1024u;
    let end = min(start + 1024u, (sizes.end + 3u) / 4u);
    var sum = vec4<f32>();
    for (var j = start + lane; j < end; j += 64u) {
        let g = select(vec4<f32>(), grads[j], within(j, sizes.first, sizes.end));
        let c = clipped(g, norm_step.clip_element);
        sum += c * c;
    }
    let sums = sum_lanes(lane, sum);
    var total = (sums.x + sums.y) + (sums.z + sums.w);
    if (norm_step.before != norm_step.slot && status_in[norm_step.before].y == FAILED) {
        total = bitcast<f32>(sizes.not_a_number);
    }
    if (lane == 0u && number < sizes.norm_pieces) {
        norms[sizes.norm_first + number] = total;
    }
}

// optimizer_update
@group(0) @binding(1) var<storage, read_write> params: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> grads_in: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> first_state: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> second_state: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> norms_in: array<f32>;
@group(0) @binding(6) var<storage, read> losses: array<f32>;
@group(0) @binding(7) var<storage, read_write> status: array<vec2<f32>>;
@group(0) @binding(8) var<uniform> step: Step;
@group(0) @binding(9) var<storage, read_write> scales: array<Before>;

// A gradient that is not finite while the loss is: the loss scale may have been too large. The
// step is left out and the next one takes half of it; after GROWTH good steps it is doubled.
fn next_scale(now: Before, flag: f32) -> vec2<f32> {
    if (flag == OVERFLOWED) {
        return vec2<f32>(now.scale * 0.5, 0.0);
    }
    if (flag == UPDATED && now.good + 1.0 >= GROWTH) {
        return vec2<f32>(min(now.scale * 2.0, 16777216.0), 0.0);
    }
    return vec2<f32>(now.scale, now.good + select(0.0, 1.0, flag == UPDATED));
}

// A workgroup owns 1024 parameters, each sums the pieces of the norm anew, which costs more
// than the update of 256; an invocation takes four at a time, which halves the time of the update on
// software Vulkan.
@compute @workgroup_size(64)
fn optimizer_update(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    var both = vec4<f32>();
    for (var i = lane; i < sizes.norm_pieces; i += 64u) {
        both.x += norms_in[sizes.norm_first + i];
    }
    for (var i = lane; i < sizes.loss_pieces; i += 64u) {
        both.y += losses[i];
    }
    let totals = sum_lanes(lane, both);
    let good = is_finite(totals.x) && is_finite(totals.y);
    let now = scales[step.slot];
    if (sizes.writes_status == 1u && number == 0u && lane == 0u) {
        let is_scaled = step.scale_at == step.slot;
        var flag = UPDATED;
        if (!good) {
            let stopped = step.before != step.slot && status[step.before].y == FAILED;
            let overflowed = is_scaled && now.scale > 1.0 && is_finite(totals.y) && !stopped;
            flag = select(FAILED, OVERFLOWED, overflowed);
        }
        status[step.slot] = vec2<f32>(totals.y, flag);
        let scale = next_scale(now, flag);
        let left_out = now.left_out + select(1.0, 0.0, flag == UPDATED);
        scales[(step.slot + 1u) % SLOTS] = Before(scale.x, scale.y, left_out, 0.0);
    }
    if (!good) {
        return;
    }
    var factor = 1.0;
    if (step.clip_norm > 0.0) {
        factor = min(1.0, step.clip_norm / (sqrt(totals.x) + 1e-6));
    }
    let unknown = min(u32(now.left_out) - step.left_out, 63u);
    let pair = step.of_t[unknown / 2u];
    let rate = select(pair.x, pair.z, unknown % 2u == 1u);
    let correction2_sqrt = select(pair.y, pair.w, unknown % 2u == 1u);
    let start = sizes.first / 4u + number * 256u;
    let end = min(start + 256u, (sizes.end + 3u) / 4u);
    for (var j = start + lane; j < end; j += 64u) {
        let mine = within(j, sizes.first, sizes.end);
        let before = params[j];
        var p = before;
        var g = clipped(grads_in[j], step.clip_element) * factor + step.decay * p;
        if (KIND == 2u) {
            let m_before = first_state[j];
            let v_before = second_state[j];
            let m = m_before + step.momentum * (g - m_before);
            let v = step.beta2 * v_before + step.take2 * g * g;
            first_state[j] = select(m_before, m, mine);
            second_state[j] = select(v_before, v, mine);
            p = step.shrink * p - rate * (m / (sqrt(v) / correction2_sqrt + step.eps));
        } else {
            if (KIND == 1u) {
                let b_before = first_state[j];
                let b = step.momentum * b_before + g;
                first_state[j] = select(b_before, b, mine);
                g = select(b, g + step.momentum * b, step.nesterov == 1.0);
            }
            p -= rate * g;
        }
        params[j] = select(before, p, mine);
    }
}
