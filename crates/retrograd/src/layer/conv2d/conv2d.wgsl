// Convolution, and with inputs and outputs exchanged the transposed one; the mathematics is in mod.rs, the tiles
// and what they read and write are in blocks.rs. Weights [out][in/groups][k][k], the bias after them.
//
// A workgroup owns a tile of pixels of one sample and a block of channels of one group, or of the weights'
// gradients a block of both sorts of channels and a piece of the tiles. Pixels with those around them, weights
// and gradients come into workgroup memory; an invocation owns 8 pixels, or places of the kernel, of 4 or 8
// channels. A kernel that is too large for that comes place by place.

override INPUTS: u32 = 2u;
override OUTPUTS: u32 = 4u;
override HEIGHT: i32 = 5;
override WIDTH: i32 = 6;
override OUT_HEIGHT: i32 = 5;
override OUT_WIDTH: i32 = 6;
override KERNEL: u32 = 3u;
override STRIDE: i32 = 1;
override PADDING: i32 = 1;
override DILATION: i32 = 1;
override GROUPS: u32 = 1u;
override REFLECT: bool = false;
override BIAS: bool = true;
override GROUP_IN: u32 = 2u;    // INPUTS / GROUPS
override GROUP_OUT: u32 = 4u;   // OUTPUTS / GROUPS

override LANES: u32 = 64u;          // invocations of a workgroup
override LANE_CHANNELS: u32 = 2u;   // of them side by side in channels
override QUADS: u32 = 2u;           // an invocation's channels, in fours: 1 or 2
override TILE_HEIGHT: i32 = 16;     // pixels of a tile
override TILE_WIDTH: i32 = 16;
override SLICE: u32 = 4u;           // channels that are summed over, in workgroup memory
override TAPS: u32 = 3u;            // places of the kernel there, down and across: KERNEL or 1
override AREA_HEIGHT: i32 = 18;     // pixels of a channel there
override AREA_WIDTH: i32 = 18;
override SPREAD: i32 = 1;           // from one pixel of the tile to the next there
override STEP: i32 = 1;             // from one pixel there to the next in the image
override PHASES: i32 = 1;           // columns of a stride that are a workgroup's: STRIDE or 1
override TAP_STEP: u32 = 1u;        // from one place of the kernel that meets a pixel to the next
override PLACE_LANES: u32 = 8u;     // invocations side by side in places of the kernel
override SPLITS: u32 = 4u;          // and in pixels of a tile

struct Sizes {
    workgroups: u32,
    weight: u32,         // where W, or its gradient, begins
    bias: u32,           // and the bias
    trains_weight: u32,  // 1 where W is trained
    trains_bias: u32,
    tiles: u32,          // of all samples,
    piece: u32,          // and of a piece
    piece_step: u32,     // from one piece's sums to the next
    samples: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// Of every channel the tile's pixels and those around them, in rows of an odd length.
var<workgroup> pixels: array<f32, 2048>;
// Weights of four channels each, or gradients of four channels of a pixel.
var<workgroup> quads: array<vec4<f32>, 512>;

// An invocation's sums: of 8 pixels or places four channels, and four more.
struct Sums {
    a0: vec4<f32>,
    a1: vec4<f32>,
    a2: vec4<f32>,
    a3: vec4<f32>,
    a4: vec4<f32>,
    a5: vec4<f32>,
    a6: vec4<f32>,
    a7: vec4<f32>,
    b0: vec4<f32>,
    b1: vec4<f32>,
    b2: vec4<f32>,
    b3: vec4<f32>,
    b4: vec4<f32>,
    b5: vec4<f32>,
    b6: vec4<f32>,
    b7: vec4<f32>,
}

fn sum_of(s: Sums, t: Sums) -> Sums {
    return Sums(
        s.a0 + t.a0,
        s.a1 + t.a1,
        s.a2 + t.a2,
        s.a3 + t.a3,
        s.a4 + t.a4,
        s.a5 + t.a5,
        s.a6 + t.a6,
        s.a7 + t.a7,
        s.b0 + t.b0,
        s.b1 + t.b1,
        s.b2 + t.b2,
        s.b3 + t.b3,
        s.b4 + t.b4,
        s.b5 + t.b5,
        s.b6 + t.b6,
        s.b7 + t.b7,
    );
}

// 8 pixels, from one place in workgroup memory on.
struct Eight {
    a: vec4<f32>,
    b: vec4<f32>,
}

fn eight(at: u32, spread: u32) -> Eight {
    return Eight(
        vec4<f32>(
            pixels[at],
            pixels[at + spread],
            pixels[at + 2u * spread],
            pixels[at + 3u * spread],
        ),
        vec4<f32>(
            pixels[at + 4u * spread],
            pixels[at + 5u * spread],
            pixels[at + 6u * spread],
            pixels[at + 7u * spread],
        ),
    );
}

// The products of 8 numbers with four channels' are added, and with those of four more.
fn with_products(s: Sums, p: Eight, v: vec4<f32>, w: vec4<f32>) -> Sums {
    var t = s;
    t.a0 += p.a.x * v;
    t.a1 += p.a.y * v;
    t.a2 += p.a.z * v;
    t.a3 += p.a.w * v;
    t.a4 += p.b.x * v;
    t.a5 += p.b.y * v;
    t.a6 += p.b.z * v;
    t.a7 += p.b.w * v;
    if (QUADS == 2u) {
        t.b0 += p.a.x * w;
        t.b1 += p.a.y * w;
        t.b2 += p.a.z * w;
        t.b3 += p.a.w * w;
        t.b4 += p.b.x * w;
        t.b5 += p.b.y * w;
        t.b6 += p.b.z * w;
        t.b7 += p.b.w * w;
    }
    return t;
}

// The second four channels' quad, where there is one.
fn second(at: u32) -> vec4<f32> {
    if (QUADS == 1u) {
        return vec4<f32>();
    }
    return quads[at + LANE_CHANNELS];
}

fn pitch() -> i32 {
    return AREA_WIDTH | 1;
}

// conv2d_forward
@group(0) @binding(1) var<storage, read> x: array<real>;
@group(0) @binding(2) var<storage, read> params: array<real>;
@group(0) @binding(3) var<storage, read_write> y: array<real>;

// The pixel that the padded image shows at a row and column of the image, which may lie outside.
fn pixel(plane: u32, row: i32, column: i32) -> f32 {
    var r = row;
    var c = column;
    if (REFLECT) {
        r = HEIGHT - 1 - abs(HEIGHT - 1 - abs(r));
        c = WIDTH - 1 - abs(WIDTH - 1 - abs(c));
    }
    if (r < 0 || r >= HEIGHT || c < 0 || c >= WIDTH) {
        return 0.0;
    }
    return f32(x[plane + u32(r * WIDTH + c)]);
}

// What of a tile lies in the output: rows and columns.
fn inside(row: i32, column: i32) -> vec2<i32> {
    return min(vec2<i32>(TILE_HEIGHT, TILE_WIDTH), vec2<i32>(OUT_HEIGHT - row, OUT_WIDTH - column));
}

// Pixels of x of so many channels that a tile of the output sees at the places of the kernel from (u, v) on.
fn bring_pixels(lane: u32, channel: u32, count: u32, row: i32, column: i32, u: u32, v: u32) {
    let reach = i32(TAPS - 1u) * DILATION + 1;
    let seen = (inside(row, column) - vec2<i32>(1)) * SPREAD + vec2<i32>(reach);
    let first_row = row * STRIDE - PADDING + i32(u) * DILATION;
    let first_column = column * STRIDE - PADDING + i32(v) * DILATION;
    let area = u32(AREA_HEIGHT * AREA_WIDTH);
    for (var m = lane; m < count * area; m += LANES) {
        let c = i32(m % u32(AREA_WIDTH));
        let r = i32(m % area / u32(AREA_WIDTH));
        let i = m / area;
        var value = 0.0;
        if (r < seen.x && c < seen.y) {
            let plane = (channel + i) * u32(HEIGHT * WIDTH);
            value = pixel(plane, first_row + r * STEP, first_column + c * STEP);
        }
        pixels[(i32(i) * AREA_HEIGHT + r) * pitch() + c] = value;
    }
}

// A weight of a group; 0 beyond its channels.
fn weight_at(g: u32, o: u32, i: u32, u: u32, v: u32) -> f32 {
    if (o >= GROUP_OUT || i >= GROUP_IN) {
        return 0.0;
    }
    return f32(params[sizes.weight + (((g * GROUP_OUT + o) * GROUP_IN + i) * KERNEL + u) * KERNEL + v]);
}

// W of a block of a group's outputs, from the input i on.
fn bring_weights(lane: u32, g: u32, within: u32, i: u32, count: u32, u: u32, v: u32) {
    let width = LANE_CHANNELS * QUADS;
    let each = count * TAPS * TAPS;
    for (var m = lane; m < each * width; m += LANES) {
        let tap = m % each;
        let o = within + m / each * 4u;
        let start = i + tap / (TAPS * TAPS);
        let down = u + tap / TAPS % TAPS;
        let right = v + tap % TAPS;
        quads[tap * width + m / each] = vec4<f32>(
            weight_at(g, o, start, down, right),
            weight_at(g, o + 1u, start, down, right),
            weight_at(g, o + 2u, start, down, right),
            weight_at(g, o + 3u, start, down, right),
        );
    }
}

// The bias of a block of outputs.
fn bring_bias(lane: u32, g: u32, within: u32) {
    for (var m = lane; m < 4u * LANE_CHANNELS * QUADS; m += LANES) {
        if (within + m < GROUP_OUT) {
            quads[m / 4u][m % 4u] = f32(params[sizes.bias + g * GROUP_OUT + within + m]);
        }
    }
}

// Four channels of a pixel.
fn keep_y(plane: u32, within: u32, row: i32, column: i32, value: vec4<f32>) {
    if (row >= OUT_HEIGHT || column >= OUT_WIDTH) {
        return;
    }
    let at = u32(row * OUT_WIDTH + column);
    let step = u32(OUT_HEIGHT * OUT_WIDTH);
    if (within < GROUP_OUT) { y[plane * step + at] = real(value.x); }
    if (within + 1u < GROUP_OUT) { y[(plane + 1u) * step + at] = real(value.y); }
    if (within + 2u < GROUP_OUT) { y[(plane + 2u) * step + at] = real(value.z); }
    if (within + 3u < GROUP_OUT) { y[(plane + 3u) * step + at] = real(value.w); }
}

// An invocation owns 8 pixels side by side; neighbours are one below the other.
fn forward(lane: u32, number: u32) {
    let across = u32((OUT_WIDTH + TILE_WIDTH - 1) / TILE_WIDTH);
    let down = u32((OUT_HEIGHT + TILE_HEIGHT - 1) / TILE_HEIGHT);
    let block = 4u * LANE_CHANNELS * QUADS;
    let blocks = (GROUP_OUT + block - 1u) / block;
    let first_column = i32(number % across) * TILE_WIDTH;
    let first_row = i32(number / across % down) * TILE_HEIGHT;
    let g = number / (across * down * blocks) % GROUPS;
    let within = number / (across * down) % blocks * block;
    let n = number / (across * down * blocks * GROUPS);
    let lane_pixel = i32(lane / LANE_CHANNELS);
    let lane_channel = lane % LANE_CHANNELS;
    let row = lane_pixel % TILE_HEIGHT;
    let column = lane_pixel / TILE_HEIGHT * 8;
    var s = Sums();
    for (var i = 0u; i < GROUP_IN; i += SLICE) {
        let count = min(SLICE, GROUP_IN - i);
        let channel = n * INPUTS + g * GROUP_IN + i;
        for (var u = 0u; u < KERNEL; u += TAPS) {
            for (var v = 0u; v < KERNEL; v += TAPS) {
                workgroupBarrier();
                bring_pixels(lane, channel, count, first_row, first_column, u, v);
                bring_weights(lane, g, within, i, count, u, v);
                workgroupBarrier();
                for (var m = 0u; m < count * TAPS; m++) {
                    let below = i32(m / TAPS) * AREA_HEIGHT + row * SPREAD + i32(m % TAPS) * DILATION;
                    let at = u32(below * pitch() + column * SPREAD);
                    var p = eight(at, u32(SPREAD));
                    for (var t = 0u; t < TAPS; t++) {
                        if (t > 0u && SPREAD == DILATION) {
                            // One further, and one that is new.
                            let next = pixels[at + (7u + t) * u32(SPREAD)];
                            p.a = vec4<f32>(p.a.yzw, p.b.x);
                            p.b = vec4<f32>(p.b.yzw, next);
                        } else if (t > 0u) {
                            p = eight(at + t * u32(DILATION), u32(SPREAD));
                        }
                        let w = (m * TAPS + t) * LANE_CHANNELS * QUADS + lane_channel;
                        s = with_products(s, p, quads[w], second(w));
                    }
                }
            }
        }
    }
    if (BIAS) {
        workgroupBarrier();
        bring_bias(lane, g, within);
        workgroupBarrier();
        let v = quads[lane_channel];
        let w = second(lane_channel);
        s = sum_of(s, Sums(v, v, v, v, v, v, v, v, w, w, w, w, w, w, w, w));
    }
    if (column >= TILE_WIDTH) {
        return;
    }
    let o = within + 4u * lane_channel;
    let plane = n * OUTPUTS + g * GROUP_OUT + o;
    let r = first_row + row;
    let c = first_column + column;
    keep_y(plane, o, r, c, s.a0);
    keep_y(plane, o, r, c + 1, s.a1);
    keep_y(plane, o, r, c + 2, s.a2);
    keep_y(plane, o, r, c + 3, s.a3);
    keep_y(plane, o, r, c + 4, s.a4);
    keep_y(plane, o, r, c + 5, s.a5);
    keep_y(plane, o, r, c + 6, s.a6);
    keep_y(plane, o, r, c + 7, s.a7);
    if (QUADS == 2u) {
        let more = 4u * LANE_CHANNELS;
        keep_y(plane + more, o + more, r, c, s.b0);
        keep_y(plane + more, o + more, r, c + 1, s.b1);
        keep_y(plane + more, o + more, r, c + 2, s.b2);
        keep_y(plane + more, o + more, r, c + 3, s.b3);
        keep_y(plane + more, o + more, r, c + 4, s.b4);
        keep_y(plane + more, o + more, r, c + 5, s.b5);
        keep_y(plane + more, o + more, r, c + 6, s.b6);
        keep_y(plane + more, o + more, r, c + 7, s.b7);
    }
}

@compute @workgroup_size(64)
fn conv2d_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    if (number < sizes.workgroups) {
        forward(lane, number);
    }
}

@compute @workgroup_size(256)
fn conv2d_forward_wide(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    if (number < sizes.workgroups) {
        forward(lane, number);
    }
}

// conv2d_backward_weight: of a piece of the tiles; pieces' sums have a place each.
@group(0) @binding(2) var<storage, read> d_y: array<real>;
@group(0) @binding(3) var<storage, read_write> d_params: array<f32>;

// The gradient of a pixel of a group's output; 0 beyond its channels.
fn gradient_at(n: u32, g: u32, o: u32, at: u32) -> f32 {
    if (o >= GROUP_OUT) {
        return 0.0;
    }
    return f32(d_y[(n * OUTPUTS + g * GROUP_OUT + o) * u32(OUT_HEIGHT * OUT_WIDTH) + at]);
}

// Gradients of a tile's pixels, of a block of a group's outputs.
fn bring_gradients(lane: u32, n: u32, g: u32, within: u32, row: i32, column: i32) {
    let tile = u32(TILE_HEIGHT * TILE_WIDTH);
    let width = LANE_CHANNELS * QUADS;
    let is_in = inside(row, column);
    for (var m = lane; m < tile * width; m += LANES) {
        let r = i32(m % tile) / TILE_WIDTH;
        let c = i32(m % tile) % TILE_WIDTH;
        var d = vec4<f32>();
        if (r < is_in.x && c < is_in.y) {
            let at = u32((row + r) * OUT_WIDTH + column + c);
            let o = within + m / tile * 4u;
            d = vec4<f32>(
                gradient_at(n, g, o, at),
                gradient_at(n, g, o + 1u, at),
                gradient_at(n, g, o + 2u, at),
                gradient_at(n, g, o + 3u, at),
            );
        }
        quads[m % tile * width + m / tile] = d;
    }
}

// Where the pixel that a place of the kernel sees lies, from the tile's pixel on; anywhere beyond the last.
fn place_offset(place: u32) -> u32 {
    let i = i32(place / (TAPS * TAPS));
    let u = i32(place / TAPS % TAPS);
    let v = i32(place % TAPS);
    return select(0u, u32((i * AREA_HEIGHT + u * DILATION) * pitch() + v * DILATION), i < i32(SLICE));
}

// Invocations that share results have pixels of their own: their sums are added, in their order.
fn add_splits(lane: u32, value: vec4<f32>) -> vec4<f32> {
    if (SPLITS == 1u) {
        return value;
    }
    let each = LANE_CHANNELS * PLACE_LANES;
    workgroupBarrier();
    quads[lane] = value;
    workgroupBarrier();
    var sum = vec4<f32>();
    for (var n = 0u; n < SPLITS; n++) {
        sum += quads[lane % each + n * each];
    }
    return sum;
}

// Four channels' gradients of a place (i, u, v).
fn keep_places(piece: u32, g: u32, o: u32, i: u32, tap: u32, value: vec4<f32>) {
    if (i >= GROUP_IN) {
        return;
    }
    let step = GROUP_IN * KERNEL * KERNEL;
    let at = piece * sizes.piece_step + sizes.weight + (g * GROUP_OUT + o) * step + i * KERNEL * KERNEL + tap;
    if (o < GROUP_OUT) { d_params[at] = value.x; }
    if (o + 1u < GROUP_OUT) { d_params[at + step] = value.y; }
    if (o + 2u < GROUP_OUT) { d_params[at + 2u * step] = value.z; }
    if (o + 3u < GROUP_OUT) { d_params[at + 3u * step] = value.w; }
}

fn keep_bias(piece: u32, g: u32, o: u32, value: vec4<f32>) {
    let at = piece * sizes.piece_step + sizes.bias + g * GROUP_OUT + o;
    if (o < GROUP_OUT) { d_params[at] = value.x; }
    if (o + 1u < GROUP_OUT) { d_params[at + 1u] = value.y; }
    if (o + 2u < GROUP_OUT) { d_params[at + 2u] = value.z; }
    if (o + 3u < GROUP_OUT) { d_params[at + 3u] = value.w; }
}

// An invocation owns 8 places of the kernel, and of a tile's pixels every SPLITS-th.
fn backward_weight(lane: u32, number: u32) {
    let across = u32((OUT_WIDTH + TILE_WIDTH - 1) / TILE_WIDTH);
    let down = u32((OUT_HEIGHT + TILE_HEIGHT - 1) / TILE_HEIGHT);
    let block = 4u * LANE_CHANNELS * QUADS;
    let blocks = (GROUP_OUT + block - 1u) / block;
    let slices = (GROUP_IN + SLICE - 1u) / SLICE;
    let taps = KERNEL / TAPS;
    let first_v = number % taps * TAPS;
    let first_u = number / taps % taps * TAPS;
    let first_in = number / (taps * taps) % slices * SLICE;
    let within = number / (taps * taps * slices) % blocks * block;
    let g = number / (taps * taps * slices * blocks) % GROUPS;
    let piece = number / (taps * taps * slices * blocks * GROUPS);
    let lane_channel = lane % LANE_CHANNELS;
    let lane_place = lane / LANE_CHANNELS % PLACE_LANES;
    let split = lane / (LANE_CHANNELS * PLACE_LANES);
    let own = 8u * lane_place;
    let count = min(SLICE, GROUP_IN - first_in);
    let at = array<u32, 8>(
        place_offset(own),
        place_offset(own + 1u),
        place_offset(own + 2u),
        place_offset(own + 3u),
        place_offset(own + 4u),
        place_offset(own + 5u),
        place_offset(own + 6u),
        place_offset(own + 7u),
    );
    // Those that are left over have no pixels.
    let end = select(0u, u32(TILE_HEIGHT * TILE_WIDTH), split < SPLITS);
    var total = Sums();
    var total_bias = Eight();
    for (var tile = piece * sizes.piece; tile < min((piece + 1u) * sizes.piece, sizes.tiles); tile++) {
        let column = i32(tile % across) * TILE_WIDTH;
        let row = i32(tile / across % down) * TILE_HEIGHT;
        let n = tile / (across * down);
        workgroupBarrier();
        bring_pixels(lane, n * INPUTS + g * GROUP_IN + first_in, count, row, column, first_u, first_v);
        bring_gradients(lane, n, g, within, row, column);
        workgroupBarrier();
        var s = Sums();
        var bias = Eight();
        for (var q = split; q < end; q += SPLITS) {
            let r = i32(q) / TILE_WIDTH * SPREAD;
            let c = i32(q) % TILE_WIDTH * SPREAD;
            let start = u32(r * pitch() + c);
            let p = Eight(
                vec4<f32>(
                    pixels[start + at[0]],
                    pixels[start + at[1]],
                    pixels[start + at[2]],
                    pixels[start + at[3]],
                ),
                vec4<f32>(
                    pixels[start + at[4]],
                    pixels[start + at[5]],
                    pixels[start + at[6]],
                    pixels[start + at[7]],
                ),
            );
            let d = q * LANE_CHANNELS * QUADS + lane_channel;
            let v = quads[d];
            let w = second(d);
            s = with_products(s, p, v, w);
            bias = Eight(bias.a + v, bias.b + w);
        }
        total = sum_of(total, s);
        total_bias = Eight(total_bias.a + bias.a, total_bias.b + bias.b);
    }
    keep_gradients(lane, piece, g, within + 4u * lane_channel, vec3<u32>(first_in, first_u, first_v), total);
    if (BIAS) {
        let a = add_splits(lane, total_bias.a);
        let b = add_splits(lane, total_bias.b);
        if (lane < LANE_CHANNELS && first_in + first_u + first_v == 0u && sizes.trains_bias == 1u) {
            let o = within + 4u * lane_channel;
            keep_bias(piece, g, o, a);
            if (QUADS == 2u) {
                keep_bias(piece, g, o + 4u * LANE_CHANNELS, b);
            }
        }
    }
}

// One of an invocation's places.
fn keep_gradient(lane: u32, piece: u32, g: u32, o: u32, start: vec3<u32>, place: u32, a: vec4<f32>, b: vec4<f32>) {
    let v = add_splits(lane, a);
    let w = add_splits(lane, b);
    let is_own = lane < LANE_CHANNELS * PLACE_LANES && place < SLICE * TAPS * TAPS;
    if (!is_own || sizes.trains_weight == 0u) {
        return;
    }
    let i = start.x + place / (TAPS * TAPS);
    let tap = (start.y + place / TAPS % TAPS) * KERNEL + start.z + place % TAPS;
    keep_places(piece, g, o, i, tap, v);
    if (QUADS == 2u) {
        keep_places(piece, g, o + 4u * LANE_CHANNELS, i, tap, w);
    }
}

fn keep_gradients(lane: u32, piece: u32, g: u32, o: u32, start: vec3<u32>, s: Sums) {
    let own = lane / LANE_CHANNELS % PLACE_LANES * 8u;
    keep_gradient(lane, piece, g, o, start, own, s.a0, s.b0);
    keep_gradient(lane, piece, g, o, start, own + 1u, s.a1, s.b1);
    keep_gradient(lane, piece, g, o, start, own + 2u, s.a2, s.b2);
    keep_gradient(lane, piece, g, o, start, own + 3u, s.a3, s.b3);
    keep_gradient(lane, piece, g, o, start, own + 4u, s.a4, s.b4);
    keep_gradient(lane, piece, g, o, start, own + 5u, s.a5, s.b5);
    keep_gradient(lane, piece, g, o, start, own + 6u, s.a6, s.b6);
    keep_gradient(lane, piece, g, o, start, own + 7u, s.a7, s.b7);
}

@compute @workgroup_size(64)
fn conv2d_backward_weight(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    if (number < sizes.workgroups) {
        backward_weight(lane, number);
    }
}

@compute @workgroup_size(256)
fn conv2d_backward_weight_wide(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    if (number < sizes.workgroups) {
        backward_weight(lane, number);
    }
}

// conv2d_backward_input, which is a transposed convolution's forward; then the bias is its own.
override TRANSPOSED_BIAS: bool = false;

@group(0) @binding(1) var<storage, read> d_y_in: array<real>;
@group(0) @binding(3) var<storage, read_write> d_x: array<real>;

fn floor_of(a: i32, b: i32) -> i32 {
    return a / b - select(0, 1, a % b < 0);
}

fn ceiling_of(a: i32, b: i32) -> i32 {
    return a / b + select(0, 1, a % b > 0);
}

// Where the gradients begin that meet a tile of x at the places of the kernel from (u, v) on.
fn first_met(row: i32, column: i32, u: u32, v: u32) -> vec2<i32> {
    let last = i32(TAPS - 1u);
    return vec2<i32>(
        ceiling_of(row + PADDING - (i32(u) + last) * DILATION, STRIDE),
        ceiling_of(column + PADDING - (i32(v) + last) * DILATION, STRIDE),
    );
}

// Those gradients, of so many channels; zeros outside.
fn bring_met(lane: u32, channel: u32, count: u32, row: i32, column: i32, u: u32, v: u32) {
    let first = first_met(row, column, u, v);
    let last_row = min(row + TILE_HEIGHT, HEIGHT) - 1;
    let last_column = min(column + TILE_WIDTH * STRIDE, WIDTH) - 1;
    let end_row = min(floor_of(last_row + PADDING - i32(u) * DILATION, STRIDE) + 1, OUT_HEIGHT);
    let end_column = min(floor_of(last_column + PADDING - i32(v) * DILATION, STRIDE) + 1, OUT_WIDTH);
    let area = u32(AREA_HEIGHT * AREA_WIDTH);
    for (var m = lane; m < count * area; m += LANES) {
        let c = i32(m % u32(AREA_WIDTH));
        let r = i32(m % area / u32(AREA_WIDTH));
        let o = m / area;
        let at_row = first.x + r;
        let at_column = first.y + c;
        var value = 0.0;
        if (at_row >= 0 && at_row < end_row && at_column >= 0 && at_column < end_column) {
            let plane = (channel + o) * u32(OUT_HEIGHT * OUT_WIDTH);
            value = f32(d_y_in[plane + u32(at_row * OUT_WIDTH + at_column)]);
        }
        pixels[(i32(o) * AREA_HEIGHT + r) * pitch() + c] = value;
    }
}

// W of a block of a group's inputs, from the output o on.
fn bring_weights_of_inputs(lane: u32, g: u32, within: u32, o: u32, count: u32, u: u32, v: u32) {
    let width = LANE_CHANNELS * QUADS;
    let each = TAPS * TAPS * width;
    for (var m = lane; m < count * each; m += LANES) {
        let tap = m % (TAPS * TAPS);
        let quad = m % each / (TAPS * TAPS);
        let start = o + m / each;
        let i = within + 4u * quad;
        let down = u + tap / TAPS;
        let right = v + tap % TAPS;
        quads[(m / each * TAPS * TAPS + tap) * width + quad] = vec4<f32>(
            weight_at(g, start, i, down, right),
            weight_at(g, start, i + 1u, down, right),
            weight_at(g, start, i + 2u, down, right),
            weight_at(g, start, i + 3u, down, right),
        );
    }
}

fn bring_transposed_bias(lane: u32, g: u32, within: u32) {
    for (var m = lane; m < 4u * LANE_CHANNELS * QUADS; m += LANES) {
        if (within + m < GROUP_IN) {
            quads[m / 4u][m % 4u] = f32(params[sizes.bias + g * GROUP_IN + within + m]);
        }
    }
}

// The first place of the kernel at which a distance is a number of strides; TAPS where there is none.
fn first_tap(distance: i32) -> u32 {
    for (var t = 0u; t < TAPS; t++) {
        if ((distance - i32(t) * DILATION) % STRIDE == 0) {
            return t;
        }
    }
    return TAPS;
}

// Four channels of a pixel.
fn keep_d_x(plane: u32, within: u32, row: i32, column: i32, value: vec4<f32>) {
    if (row >= HEIGHT || column >= WIDTH) {
        return;
    }
    let at = u32(row * WIDTH + column);
    let step = u32(HEIGHT * WIDTH);
    if (within < GROUP_IN) { d_x[plane * step + at] = real(value.x); }
    if (within + 1u < GROUP_IN) { d_x[(plane + 1u) * step + at] = real(value.y); }
    if (within + 2u < GROUP_IN) { d_x[(plane + 2u) * step + at] = real(value.z); }
    if (within + 3u < GROUP_IN) { d_x[(plane + 3u) * step + at] = real(value.w); }
}

// An invocation owns 8 pixels that are a stride apart: the same places of the kernel meet them all.
fn backward_input(lane: u32, number: u32) {
    let wide = TILE_WIDTH * STRIDE;
    let across = u32((WIDTH + wide - 1) / wide);
    let down = u32((HEIGHT + TILE_HEIGHT - 1) / TILE_HEIGHT);
    let phases = u32(STRIDE / PHASES);
    let block = 4u * LANE_CHANNELS * QUADS;
    let blocks = (GROUP_IN + block - 1u) / block;
    let phase = i32(number % phases) * PHASES;
    let first_column = i32(number / phases % across) * wide;
    let first_row = i32(number / (phases * across) % down) * TILE_HEIGHT;
    let tile = number / (phases * across * down);
    let within = tile % blocks * block;
    let g = tile / blocks % GROUPS;
    let n = tile / (blocks * GROUPS);
    let lane_pixel = i32(lane / LANE_CHANNELS);
    let lane_channel = lane % LANE_CHANNELS;
    let row = first_row + lane_pixel % TILE_HEIGHT;
    let run = lane_pixel / TILE_HEIGHT / PHASES;
    let column = first_column + phase + lane_pixel / TILE_HEIGHT % PHASES + 8 * run * STRIDE;
    let is_own = 8 * run < TILE_WIDTH;
    var s = Sums();
    for (var o = 0u; o < GROUP_OUT; o += SLICE) {
        let count = min(SLICE, GROUP_OUT - o);
        let channel = n * OUTPUTS + g * GROUP_OUT + o;
        for (var u = 0u; u < KERNEL; u += TAPS) {
            for (var v = 0u; v < KERNEL; v += TAPS) {
                workgroupBarrier();
                bring_met(lane, channel, count, first_row, first_column, u, v);
                bring_weights_of_inputs(lane, g, within, o, count, u, v);
                workgroupBarrier();
                let first = first_met(first_row, first_column, u, v);
                let above = row + PADDING - i32(u) * DILATION;
                let left = column + PADDING - i32(v) * DILATION;
                let first_a = select(TAPS, first_tap(above), is_own);
                let first_b = first_tap(left);
                for (var m = 0u; m < count; m++) {
                    for (var a = first_a; a < TAPS; a += TAP_STEP) {
                        let r = (above - i32(a) * DILATION) / STRIDE - first.x;
                        let line = (i32(m) * AREA_HEIGHT + r) * pitch();
                        var p = Eight();
                        for (var b = first_b; b < TAPS; b += TAP_STEP) {
                            let at = u32(line + (left - i32(b) * DILATION) / STRIDE - first.y);
                            if (b > 0u && STRIDE == 1 && DILATION == 1) {
                                // One back, and one that is new.
                                p.b = vec4<f32>(p.a.w, p.b.xyz);
                                p.a = vec4<f32>(pixels[at], p.a.xyz);
                            } else {
                                p = eight(at, 1u);
                            }
                            let w = ((m * TAPS + a) * TAPS + b) * LANE_CHANNELS * QUADS + lane_channel;
                            s = with_products(s, p, quads[w], second(w));
                        }
                    }
                }
            }
        }
    }
    if (TRANSPOSED_BIAS) {
        workgroupBarrier();
        bring_transposed_bias(lane, g, within);
        workgroupBarrier();
        let v = quads[lane_channel];
        let w = second(lane_channel);
        s = sum_of(s, Sums(v, v, v, v, v, v, v, v, w, w, w, w, w, w, w, w));
    }
    if (!is_own) {
        return;
    }
    let i = within + 4u * lane_channel;
    let plane = n * INPUTS + g * GROUP_IN + i;
    keep_d_x(plane, i, row, column, s.a0);
    keep_d_x(plane, i, row, column + STRIDE, s.a1);
    keep_d_x(plane, i, row, column + 2 * STRIDE, s.a2);
    keep_d_x(plane, i, row, column + 3 * STRIDE, s.a3);
    keep_d_x(plane, i, row, column + 4 * STRIDE, s.a4);
    keep_d_x(plane, i, row, column + 5 * STRIDE, s.a5);
    keep_d_x(plane, i, row, column + 6 * STRIDE, s.a6);
    keep_d_x(plane, i, row, column + 7 * STRIDE, s.a7);
    if (QUADS == 2u) {
        let more = 4u * LANE_CHANNELS;
        keep_d_x(plane + more, i + more, row, column, s.b0);
        keep_d_x(plane + more, i + more, row, column + STRIDE, s.b1);
        keep_d_x(plane + more, i + more, row, column + 2 * STRIDE, s.b2);
        keep_d_x(plane + more, i + more, row, column + 3 * STRIDE, s.b3);
        keep_d_x(plane + more, i + more, row, column + 4 * STRIDE, s.b4);
        keep_d_x(plane + more, i + more, row, column + 5 * STRIDE, s.b5);
        keep_d_x(plane + more, i + more, row, column + 6 * STRIDE, s.b6);
        keep_d_x(plane + more, i + more, row, column + 7 * STRIDE, s.b7);
    }
}

@compute @workgroup_size(64)
fn conv2d_backward_input(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    if (number < sizes.workgroups) {
        backward_input(lane, number);
    }
}

@compute @workgroup_size(256)
fn conv2d_backward_input_wide(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    if (number < sizes.workgroups) {
        backward_input(lane, number);
    }
}

// conv2d_fold: gradients of a padded image are added to the pixels that it showed.
@group(0) @binding(1) var<storage, read> d_padded: array<real>;
@group(0) @binding(2) var<storage, read_write> d_x_out: array<real>;

// The padded rows (or columns) that show a pixel: its own, and with reflection its mirrors.
fn shown(at: i32, size: i32, which: i32) -> i32 {
    if (which == 0) {
        return at + PADDING;
    }
    // Mirrored at the first, and at the last pixel; -1 where it isn't.
    if (which == 1) {
        return select(-1, PADDING - at, at >= 1 && at <= PADDING);
    }
    let mirrored = 2 * (size - 1) - at;
    return select(-1, mirrored + PADDING, at < size - 1 && mirrored < size + PADDING);
}

// An invocation owns a pixel of a channel.
@compute @workgroup_size(64)
fn conv2d_fold(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let p = i32(index % u32(HEIGHT * WIDTH));
    let channel = index / u32(HEIGHT * WIDTH);
    if (channel >= sizes.samples * INPUTS) {
        return;
    }
    let plane = channel * u32((HEIGHT + 2 * PADDING) * (WIDTH + 2 * PADDING));
    var sum = 0.0;
    for (var a = 0; a < 3; a++) {
        let row = shown(p / WIDTH, HEIGHT, a);
        for (var b = 0; b < 3; b++) {
            let column = shown(p % WIDTH, WIDTH, b);
            if (row >= 0 && column >= 0) {
                sum += f32(d_padded[plane + u32(row * (WIDTH + 2 * PADDING) + column)]);
            }
        }
    }
    d_x_out[index] = real(sum);
}
