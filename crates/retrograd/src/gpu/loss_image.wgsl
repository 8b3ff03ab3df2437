// The terms of the loss that see an image as an image, in the form for f32 that is derived in
// loss_image.rs. A workgroup owns 8 × 8 places or pixels of a plane; the window reaches 10 further.

override SIMILARITY: bool = false;
override DIFFERENCES: bool = false;
override C1: f32 = 1.0;
override C2: f32 = 1.0;

struct Sizes {
    width: u32,
    height: u32,
    planes: u32,
    columns: u32,     // places where the window fits, in a row
    rows: u32,
    across: u32,      // workgroups over a plane's width
    tiles: u32,       // workgroups of a plane
    first: u32,       // the kernel's first partial sum
    partials: u32,    // all of them
    similarity: u32,  // bits of floats: the weight of 1 - S at a place,
    beside: u32,      // of a squared difference between neighbours in a row,
    below: u32,       // and in a column
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

const WINDOW: u32 = 11u;
const SIDE: u32 = 18u;  // a workgroup's places with those that the window reaches

var<workgroup> near_y: array<f32, 324>;
var<workgroup> near_e: array<f32, 324>;
var<workgroup> near_maps: array<vec4<f32>, 324>;

// image_maps: 1 - S at every place, and what its gradient needs of the place.
@group(0) @binding(1) var<storage, read> y: array<real>;
@group(0) @binding(2) var<storage, read> target_values: array<f32>;
@group(0) @binding(3) var<storage, read> window: array<f32>;
@group(0) @binding(4) var<storage, read_write> partial: array<f32>;
@group(0) @binding(5) var<storage, read_write> maps_out: array<vec4<f32>>;

struct Similarity {
    loss: f32,       // 1 - S
    map: vec4<f32>,  // alpha, k, k v, mean of y
}

// Of the place whose window begins at (row, column) of what is near.
fn similarity(row: u32, column: u32) -> Similarity {
    var mean_y = 0.0;
    var mean_e = 0.0;
    for (var i = 0u; i < WINDOW; i++) {
        for (var j = 0u; j < WINDOW; j++) {
            let g = window[i] * window[j];
            let at = (row + i) * SIDE + column + j;
            mean_y += g * near_y[at];
            mean_e += g * near_e[at];
        }
    }
    // About their means: nothing cancels.
    var s_yy = 0.0;
    var s_tt = 0.0;
    var s_ee = 0.0;
    for (var i = 0u; i < WINDOW; i++) {
        for (var j = 0u; j < WINDOW; j++) {
            let g = window[i] * window[j];
            let at = (row + i) * SIDE + column + j;
            let of_y = near_y[at] - mean_y;
            let of_e = near_e[at] - mean_e;
            let of_t = of_y - of_e;
            s_yy += g * of_y * of_y;
            s_tt += g * of_t * of_t;
            s_ee += g * of_e * of_e;
        }
    }
    let mean_t = mean_y - mean_e;
    let b1 = mean_y * mean_y + mean_t * mean_t + C1;
    let b2 = s_yy + s_tt + C2;
    let u = mean_e * mean_e / b1;
    let v = s_ee / b2;
    let k = 2.0 * (1.0 - u) / b2;
    let alpha = k * mean_e + 2.0 * (1.0 - v) / b1 * (mean_y * u - mean_e);
    return Similarity(u + v - u * v, vec4<f32>(alpha, k, k * v, mean_y));
}

@compute @workgroup_size(64)
fn image_maps(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    let plane = number / sizes.tiles;
    let top = number % sizes.tiles / sizes.across * 8u;
    let left = number % sizes.tiles % sizes.across * 8u;
    for (var i = lane; i < SIDE * SIDE; i += 64u) {
        let row = top + i / SIDE;
        let column = left + i % SIDE;
        var of_y = 0.0;
        var of_e = 0.0;
        if (plane < sizes.planes && row < sizes.height && column < sizes.width) {
            let pixel = (plane * sizes.height + row) * sizes.width + column;
            of_y = f32(y[pixel]);
            of_e = of_y - target_values[pixel];
        }
        near_y[i] = of_y;
        near_e[i] = of_e;
    }
    workgroupBarrier();
    let row = top + lane / 8u;
    let column = left + lane % 8u;
    var loss = 0.0;
    if (plane < sizes.planes && row < sizes.rows && column < sizes.columns) {
        let found = similarity(lane / 8u, lane % 8u);
        loss = found.loss;
        maps_out[(plane * sizes.rows + row) * sizes.columns + column] = found.map;
    }
    let total = sum_lanes(lane, vec4<f32>(loss)).x;
    if (lane == 0u && plane < sizes.planes) {
        partial[sizes.first + number] = total * bitcast<f32>(sizes.similarity);
    }
}

// image_gradient: adds both terms' gradients to that of the pixels, and sums squared differences.
@group(0) @binding(5) var<storage, read> maps: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> d_y: array<real>;

// The first and the last of the step's constants; all of them are in optimizer.wgsl.
struct Step {
    scale: f32,
    share: f32,          // factor on the gradient
    unused_a: vec2<f32>,
    unused_b: vec4<f32>,
    unused_c: vec4<f32>,
    unused_d: f32,
    scale_at: u32,       // where the loss scale of mixed precision is
    slot: u32,
    before: u32,
}
@group(0) @binding(7) var<uniform> step: Step;
@group(0) @binding(8) var<storage, read> scales: array<vec4<f32>>; // Before of optimizer.wgsl

fn error_at(pixel: u32) -> f32 {
    return f32(y[pixel]) - target_values[pixel];
}

// The gradient of S, summed over the places whose window sees the pixel.
fn similarity_gradient(row: u32, column: u32, y: f32, e: f32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < WINDOW; i++) {
        for (var j = 0u; j < WINDOW; j++) {
            let map = near_maps[(row + 10u - i) * SIDE + column + 10u - j];
            sum += window[i] * window[j] * (map.x - map.y * e + map.z * (y - map.w));
        }
    }
    return sum;
}

@compute @workgroup_size(64)
fn image_gradient(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    let plane = number / sizes.tiles;
    let top = number % sizes.tiles / sizes.across * 8u;
    let left = number % sizes.tiles % sizes.across * 8u;
    if (SIMILARITY) {
        for (var i = lane; i < SIDE * SIDE; i += 64u) {
            // Places begin 10 before the pixels; numbers below 0 wrap and are large.
            let row = top + i / SIDE - 10u;
            let column = left + i % SIDE - 10u;
            var map = vec4<f32>(0.0);
            if (plane < sizes.planes && row < sizes.rows && column < sizes.columns) {
                map = maps[(plane * sizes.rows + row) * sizes.columns + column];
            }
            near_maps[i] = map;
        }
        workgroupBarrier();
    }
    let row = top + lane / 8u;
    let column = left + lane % 8u;
    var squares = vec2<f32>(0.0);
    if (plane < sizes.planes && row < sizes.height && column < sizes.width) {
        let pixel = (plane * sizes.height + row) * sizes.width + column;
        let e = error_at(pixel);
        var slope = 0.0;
        if (SIMILARITY) {
            let sum = similarity_gradient(lane / 8u, lane % 8u, f32(y[pixel]), e);
            slope -= bitcast<f32>(sizes.similarity) * sum;
        }
        if (DIFFERENCES) {
            var beside = 0.0;
            var below = 0.0;
            if (column > 0u) {
                beside += e - error_at(pixel - 1u);
            }
            if (column + 1u < sizes.width) {
                let d = error_at(pixel + 1u) - e;
                beside -= d;
                squares.x = d * d;
            }
            if (row > 0u) {
                below += e - error_at(pixel - sizes.width);
            }
            if (row + 1u < sizes.height) {
                let d = error_at(pixel + sizes.width) - e;
                below -= d;
                squares.y = d * d;
            }
            slope += 2.0 * (bitcast<f32>(sizes.beside) * beside + bitcast<f32>(sizes.below) * below);
        }
        let scale = step.share * scales[step.scale_at].x;
        d_y[pixel] = real(f32(d_y[pixel]) + slope * scale);
    }
    let total = sum_lanes(lane, vec4<f32>(squares, 0.0, 0.0));
    if (lane == 0u && plane < sizes.planes) {
        partial[sizes.first + number] =
            total.x * bitcast<f32>(sizes.beside) + total.y * bitcast<f32>(sizes.below);
    }
}

// image_total: adds the partial sums to the loss.
@group(0) @binding(1) var<storage, read> partials: array<f32>;
@group(0) @binding(2) var<storage, read_write> losses: array<f32>;

@compute @workgroup_size(64)
fn image_total(@builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    for (var i = lane; i < sizes.partials; i += 64u) {
        sum += partials[i];
    }
    let total = sum_lanes(lane, vec4<f32>(sum)).x;
    if (lane == 0u) {
        losses[0] += total;
    }
}
