// The dense layer, W of shape [out][in], or [in][out] in graph networks; the mathematics is in mod.rs.
// An invocation owns a tile of 4 x 4 results.

override INPUTS: u32 = 3u;
override OUTPUTS: u32 = 2u;
override OUT_STEP: u32 = 3u;     // from one output to the next in W
override IN_STEP: u32 = 1u;      // from one input to the next
override BIAS: bool = true;
override ADD: bool = false;      // results are added to what is there
override RELU: bool = false;     // and negative ones set to 0

struct Sizes {
    rows: u32,
    weight: u32,         // where W begins in the flat vector
    bias: u32,           // and the bias
    trains_weight: u32,  // 1 where W is trained
    trains_bias: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// dense_forward
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read> params: array<real>;
@group(0) @binding(3) var<storage, read_write> y: array<real>;

@compute @workgroup_size(64)
fn dense_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let rows = sizes.rows;
    let blocks = (OUTPUTS + 3u) / 4u;
    let index = group_number(group, groups) * 64u + lane;
    let o = (index % blocks) * 4u;
    let row = (index / blocks) * 4u;
    if (row >= rows) {
        return;
    }
    let last = rows - 1u;
    let r = vec4<u32>(row, min(row + 1u, last), min(row + 2u, last), min(row + 3u, last)) * INPUTS;
    let w = vec4<u32>(o, min(o + 1u, OUTPUTS - 1u), min(o + 2u, OUTPUTS - 1u), min(o + 3u, OUTPUTS - 1u));
    let at = w * OUT_STEP + sizes.weight;
    var start = vec4<f32>();
    if (BIAS) {
        let b = w + sizes.bias;
        start = vec4<f32>(vec4<real>(params[b.x], params[b.y], params[b.z], params[b.w]));
    }
    var s = array<vec4<f32>, 4>(start, start, start, start);
    for (var i = 0u; i < INPUTS; i++) {
        let k = i * IN_STEP;
        let v = vec4<real>(params[at.x + k], params[at.y + k], params[at.z + k], params[at.w + k]);
        s[0] += vec4<f32>(x[r.x + i] * v);
        s[1] += vec4<f32>(x[r.y + i] * v);
        s[2] += vec4<f32>(x[r.z + i] * v);
        s[3] += vec4<f32>(x[r.w + i] * v);
    }
    for (var a = 0u; a < 4u; a++) {
        for (var b = 0u; b < 4u; b++) {
            if (row + a < rows && o + b < OUTPUTS) {
                let to = (row + a) * OUTPUTS + o + b;
                var value = s[a][b];
                if (ADD) { value += f32(y[to]); }
                if (RELU) { value = max(value, 0.0); }
                y[to] = real(value);
            }
        }
    }
}

// dense_backward_weight
@group(0) @binding(2) var<storage, read> d_y: array<real>;
@group(0) @binding(3) var<storage, read_write> d_params: array<f32>;

// Column INPUTS is the bias, whose x is 1. Rows are added in runs of 64.
@compute @workgroup_size(64)
fn dense_backward_weight(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let rows = sizes.rows;
    let columns = INPUTS + select(0u, 1u, BIAS);
    let blocks = (columns + 3u) / 4u;
    let index = group_number(group, groups) * 64u + lane;
    let i = (index % blocks) * 4u;
    let o = (index / blocks) * 4u;
    if (o >= OUTPUTS) {
        return;
    }
    var t = array<vec4<f32>, 4>();
    for (var first = 0u; first < rows; first += 64u) {
        var s = array<vec4<f32>, 4>();
        let end = min(first + 64u, rows);
        for (var r = first; r < end; r++) {
            let at = r * INPUTS + i;
            let v = vec4<real>(
                select(real(1.0), x[at], i < INPUTS),
                select(real(1.0), x[at + 1u], i + 1u < INPUTS),
                select(real(1.0), x[at + 2u], i + 2u < INPUTS),
                select(real(1.0), x[at + 3u], i + 3u < INPUTS),
            );
            let d = r * OUTPUTS + o;
            s[0] += vec4<f32>(d_y[d] * v);
            s[1] += vec4<f32>(d_y[d + 1u] * v);
            s[2] += vec4<f32>(d_y[d + 2u] * v);
            s[3] += vec4<f32>(d_y[d + 3u] * v);
        }
        for (var a = 0u; a < 4u; a++) {
            t[a] += s[a];
        }
    }
    for (var a = 0u; a < 4u; a++) {
        for (var b = 0u; b < 4u; b++) {
            if (o + a < OUTPUTS && i + b < INPUTS && sizes.trains_weight == 1u) {
                d_params[sizes.weight + (o + a) * OUT_STEP + (i + b) * IN_STEP] = t[a][b];
            } else if (o + a < OUTPUTS && i + b == INPUTS && BIAS && sizes.trains_bias == 1u) {
                d_params[sizes.bias + o + a] = t[a][b];
            }
        }
    }
}

// dense_backward_input
@group(0) @binding(1) var<storage, read> d_y_in: array<real>;
@group(0) @binding(3) var<storage, read_write> d_x: array<real>;

@compute @workgroup_size(64)
fn dense_backward_input(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let rows = sizes.rows;
    let blocks = (INPUTS + 3u) / 4u;
    let index = group_number(group, groups) * 64u + lane;
    let i = (index % blocks) * 4u;
    let row = (index / blocks) * 4u;
    if (row >= rows) {
        return;
    }
    let last = rows - 1u;
    let r = vec4<u32>(row, min(row + 1u, last), min(row + 2u, last), min(row + 3u, last)) * OUTPUTS;
    var s = array<vec4<f32>, 4>();
    for (var o = 0u; o < OUTPUTS; o++) {
        let at = sizes.weight + o * OUT_STEP + i * IN_STEP;
        let w = vec4<real>(
            params[at],
            params[at + IN_STEP],
            params[at + 2u * IN_STEP],
            params[at + 3u * IN_STEP],
        );
        s[0] += vec4<f32>(d_y_in[r.x + o] * w);
        s[1] += vec4<f32>(d_y_in[r.y + o] * w);
        s[2] += vec4<f32>(d_y_in[r.z + o] * w);
        s[3] += vec4<f32>(d_y_in[r.w + o] * w);
    }
    for (var a = 0u; a < 4u; a++) {
        for (var b = 0u; b < 4u; b++) {
            if (row + a < rows && i + b < INPUTS) {
                let to = (row + a) * INPUTS + i + b;
                var value = s[a][b];
                if (ADD) { value += f32(d_x[to]); }
                d_x[to] = real(value);
            }
        }
    }
}
