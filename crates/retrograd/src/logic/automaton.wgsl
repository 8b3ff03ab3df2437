// Soft gates through all steps of an automaton, and back; the mathematics is in gates.rs and
// reference.rs. An invocation owns a cell and runs all gates of its own; what it keeps lies value by
// value, the cells side by side. A gate of weights p is bilinear: y = k . (1, a, b, ab).

override CHANNELS: u32 = 1u;
override PERCEPTION: u32 = 8u;   // gates of the perception circuit, which every channel has
override GATES: u32 = 16u;       // those and the update circuit's
override ZEROS: u32 = 3u;        // numbers of a cell whose gradient begins with 0
override ZERO: bool = false;     // beyond the border are zeros, else the opposite border
override FIRES: bool = false;    // cells fire by a mask, else all of them
override PRICE: f32 = 0.0;       // of a gate that does something
override SLICE: u32 = 128u;      // gates in workgroup memory, at most 128

struct Sizes {
    cells: u32,
    height: u32,
    width: u32,
    step: u32,
    old: u32,    // where the state before the step begins,
    fresh: u32,  // and the one after it
    first: u32,  // 1 where sums begin anew
    begin: u32,  // the gates of this kernel
    end: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

// The numbers that a channel keeps: its neighbourhood, then the gates.
const NEIGHBOURS = 9u;

// soften: the softmax of a gate's logits, and its coefficients.
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> softmax_out: array<f32>;
@group(0) @binding(3) var<storage, read_write> mixture_out: array<vec4<f32>>;

// The coefficients of (1, a, b, ab) of a gate, from its number's bits: its value where a and b are
// 0 0, 0 1, 1 0, 1 1.
fn table(gate: u32) -> vec4<f32> {
    let at = vec4<f32>(
        f32((gate >> 3u) & 1u),
        f32((gate >> 2u) & 1u),
        f32((gate >> 1u) & 1u),
        f32(gate & 1u),
    );
    return vec4<f32>(at.x, at.z - at.x, at.y - at.x, at.w - at.z - at.y + at.x);
}

@compute @workgroup_size(64)
fn soften(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let gate = group_number(group, groups) * 64u + lane;
    if (gate >= sizes.end) {
        return;
    }
    var p: array<f32, 16>;
    p[0] = logits[gate * 16u];
    var largest = p[0];
    for (var i = 1u; i < 16u; i++) {
        p[i] = logits[gate * 16u + i];
        largest = max(largest, p[i]);
    }
    var sum = 0.0;
    for (var i = 0u; i < 16u; i++) {
        p[i] = exp(p[i] - largest);
        sum += p[i];
    }
    var mixture = vec4<f32>();
    for (var i = 0u; i < 16u; i++) {
        let share = p[i] / sum;
        softmax_out[gate * 16u + i] = share;
        mixture += share * table(i);
    }
    mixture_out[gate] = mixture;
}

// step_forward
@group(0) @binding(1) var<storage, read> wires: array<u32>;             // every a, then every b, then ZEROS places
@group(0) @binding(2) var<storage, read> mixture: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> fire: array<u32>;              // by step and cell of a grid
@group(0) @binding(4) var<storage, read_write> states: array<f32>;
@group(0) @binding(5) var<storage, read_write> values: array<f32>;

fn fires(cell: u32) -> bool {
    if (!FIRES) {
        return true;
    }
    let grid = sizes.height * sizes.width;
    return fire[sizes.step * grid + cell % grid] != 0u;
}

// The cell at an offset of -1, 0 or 1 (given as 0, 1 or 2) in each direction; none outside.
fn neighbour(cell: u32, dy: u32, dx: u32) -> u32 {
    let x = cell % sizes.width;
    let row = cell / sizes.width;
    let y = row % sizes.height;
    let grid = row / sizes.height;
    let outside = (y == 0u && dy == 0u) || (y + 1u == sizes.height && dy == 2u)
        || (x == 0u && dx == 0u) || (x + 1u == sizes.width && dx == 2u);
    if (ZERO && outside) {
        return 0xffffffffu;
    }
    let other_y = (y + sizes.height + dy - 1u) % sizes.height;
    let other_x = (x + sizes.width + dx - 1u) % sizes.width;
    return (grid * sizes.height + other_y) * sizes.width + other_x;
}

// Where a gate's value is kept: those of a channel one after the other, then the update's.
fn place(gate: u32, channel: u32) -> u32 {
    if (gate < PERCEPTION) {
        return channel * (NEIGHBOURS + PERCEPTION) + NEIGHBOURS + gate;
    }
    return CHANNELS * (NEIGHBOURS + PERCEPTION) + gate - PERCEPTION;
}

// Where what a gate reads is kept; wires of the perception circuit are counted within a channel. The highest
// bit says that the gradient of what is read begins there.
fn input_of(wire: u32, gate: u32, channel: u32) -> u32 {
    return (wire & 0x7fffffffu) + select(0u, channel * (NEIGHBOURS + PERCEPTION), gate < PERCEPTION);
}

// SLICE gates at a time are in workgroup memory: what they read, and their coefficients.
var<workgroup> wires_a: array<u32, 128>;
var<workgroup> wires_b: array<u32, 128>;
var<workgroup> mixtures: array<vec4<f32>, 128>;

fn bring_gates(lane: u32, first: u32, end: u32) {
    workgroupBarrier();
    for (var gate = first + lane; gate < end; gate += 64u) {
        wires_a[gate - first] = wires[gate];
        wires_b[gate - first] = wires[GATES + gate];
        mixtures[gate - first] = mixture[gate];
    }
    workgroupBarrier();
}

// A gate of the slice from `first` on.
fn run_gate(first: u32, gate: u32, channel: u32, cell: u32) {
    let a = values[input_of(wires_a[gate - first], gate, channel) * sizes.cells + cell];
    let b = values[input_of(wires_b[gate - first], gate, channel) * sizes.cells + cell];
    let k = mixtures[gate - first];
    values[place(gate, channel) * sizes.cells + cell] = k.x + k.y * a + k.z * b + k.w * (a * b);
}

// Gates from one on, of every channel; a workgroup's invocations together, those that have a cell run them.
fn run_gates(lane: u32, begin: u32, end: u32, channels: u32, cell: u32, runs: bool) {
    for (var first = begin; first < end; first += SLICE) {
        let last = min(first + SLICE, end);
        bring_gates(lane, first, last);
        for (var c = 0u; c < select(0u, channels, runs); c++) {
            for (var gate = first; gate < last; gate++) {
                run_gate(first, gate, c, cell);
            }
        }
    }
}

// What a cell sees.
fn see(cell: u32) {
    for (var n = 0u; n < NEIGHBOURS; n++) {
        let other = neighbour(cell, n / 3u, n % 3u);
        for (var c = 0u; c < CHANNELS; c++) {
            var value = 0.0;
            if (other != 0xffffffffu) {
                value = states[sizes.old + other * CHANNELS + c];
            }
            values[(c * (NEIGHBOURS + PERCEPTION) + n) * sizes.cells + cell] = value;
        }
    }
}

fn run_cell(lane: u32, cell: u32, runs: bool) {
    if (runs) {
        see(cell);
    }
    run_gates(lane, 0u, PERCEPTION, CHANNELS, cell, runs);
    run_gates(lane, PERCEPTION, GATES, 1u, cell, runs);
}

@compute @workgroup_size(64)
fn step_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let cell = group_number(group, groups) * 64u + lane;
    let runs = cell < sizes.cells && fires(cell);
    run_cell(lane, cell, runs);
    if (cell >= sizes.cells) {
        return;
    }
    if (!runs) {
        for (var c = 0u; c < CHANNELS; c++) {
            states[sizes.fresh + cell * CHANNELS + c] = states[sizes.old + cell * CHANNELS + c];
        }
        return;
    }
    for (var c = 0u; c < CHANNELS; c++) {
        let last = place(GATES - CHANNELS + c, 0u);
        states[sizes.fresh + cell * CHANNELS + c] = values[last * sizes.cells + cell];
    }
}

// step_backward: the gradient of every value of a cell, from that of its new state. Values are
// computed again.
@group(0) @binding(6) var<storage, read> d_new: array<f32>;
@group(0) @binding(7) var<storage, read_write> d_values: array<f32>;

fn back_gate(first: u32, gate: u32, channel: u32, cell: u32) {
    let at_a = input_of(wires_a[gate - first], gate, channel) * sizes.cells + cell;
    let at_b = input_of(wires_b[gate - first], gate, channel) * sizes.cells + cell;
    let a = values[at_a];
    let b = values[at_b];
    let g = d_values[place(gate, channel) * sizes.cells + cell];
    let k = mixtures[gate - first];
    var d_a = g * (k.y + k.w * b);
    if (!begins(wires_a[gate - first])) { d_a += d_values[at_a]; }
    d_values[at_a] = d_a;
    var d_b = g * (k.z + k.w * a);
    if (!begins(wires_b[gate - first])) { d_b += d_values[at_b]; }
    d_values[at_b] = d_b;
}

fn begins(wire: u32) -> bool {
    return wire >= 0x80000000u;
}

// From the last gate to the first.
fn back_gates(lane: u32, begin: u32, end: u32, channels: u32, cell: u32, runs: bool) {
    for (var last = end; last > begin; last -= min(SLICE, last - begin)) {
        let first = last - min(SLICE, last - begin);
        bring_gates(lane, first, last);
        for (var c = 0u; c < select(0u, channels, runs); c++) {
            for (var gate = last; gate > first; gate--) {
                back_gate(first, gate - 1u, c, cell);
            }
        }
    }
}

@compute @workgroup_size(64)
fn step_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let cell = group_number(group, groups) * 64u + lane;
    let runs = cell < sizes.cells && fires(cell);
    run_cell(lane, cell, runs);
    if (runs) {
        for (var n = 0u; n < ZEROS; n++) {
            d_values[wires[2u * GATES + n] * sizes.cells + cell] = 0.0;
        }
        for (var c = 0u; c < CHANNELS; c++) {
            let last = place(GATES - CHANNELS + c, 0u);
            d_values[last * sizes.cells + cell] = d_new[cell * CHANNELS + c];
        }
    }
    back_gates(lane, PERCEPTION, GATES, 1u, cell, runs);
    back_gates(lane, 0u, PERCEPTION, CHANNELS, cell, runs);
}

// step_sums: of g, g a, g b and g a b over all cells, and channels where they share a gate. A
// workgroup owns a gate; lanes add runs of 64.
@group(0) @binding(2) var<storage, read> values_in: array<f32>;
@group(0) @binding(4) var<storage, read> d_values_in: array<f32>;
@group(0) @binding(5) var<storage, read_write> sums: array<vec4<f32>>;

@compute @workgroup_size(64)
fn step_sums(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group_number(group, groups);
    let gate = min(number, GATES - 1u);
    let channels = select(1u, CHANNELS, gate < PERCEPTION);
    var total = vec4<f32>();
    for (var c = 0u; c < channels; c++) {
        let at_a = input_of(wires[gate], gate, c) * sizes.cells;
        let at_b = input_of(wires[GATES + gate], gate, c) * sizes.cells;
        let at_g = place(gate, c) * sizes.cells;
        for (var first = 0u; first < sizes.cells; first += 4096u) {
            var run = vec4<f32>();
            let end = min(first + 4096u, sizes.cells);
            for (var cell = first + lane; cell < end; cell += 64u) {
                if (fires(cell)) {
                    let a = values_in[at_a + cell];
                    let b = values_in[at_b + cell];
                    run += d_values_in[at_g + cell] * vec4<f32>(1.0, a, b, a * b);
                }
            }
            total += run;
        }
    }
    let sum = sum_lanes(lane, total);
    if (lane == 0u && number < GATES) {
        if (sizes.first == 1u) {
            sums[gate] = sum;
        } else {
            sums[gate] = sums[gate] + sum;
        }
    }
}

// step_gather: the gradient of the state before, by the cell that owns it.
@group(0) @binding(1) var<storage, read> d_values_of: array<f32>;
@group(0) @binding(2) var<storage, read> d_after: array<f32>;
@group(0) @binding(4) var<storage, read_write> d_before: array<f32>;

@compute @workgroup_size(64)
fn step_gather(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let cell = index / CHANNELS;
    let c = index % CHANNELS;
    if (cell >= sizes.cells) {
        return;
    }
    var sum = 0.0;
    for (var n = 0u; n < NEIGHBOURS; n++) {
        // The cell that sees this one at n lies the other way.
        let other = neighbour(cell, 2u - n / 3u, 2u - n % 3u);
        if (other != 0xffffffffu && fires(other)) {
            sum += d_values_of[(c * (NEIGHBOURS + PERCEPTION) + n) * sizes.cells + other];
        }
    }
    if (!fires(cell)) {
        sum += d_after[index];
    }
    d_before[index] = sum;
}

// gate_gradients: p_i (h_i - sum p_j h_j) = p_i sum p_j (h_i - h_j), with h = table . sums. In
// differences: h_i and the mean are nearly equal where a gate has made up its mind.
@group(0) @binding(1) var<storage, read> softmax: array<f32>;
@group(0) @binding(2) var<storage, read> sums_in: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> d_logits: array<f32>;

@compute @workgroup_size(64)
fn gate_gradients(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let gate = sizes.begin + group_number(group, groups) * 64u + lane;
    if (gate >= sizes.end) {
        return;
    }
    let sum = sums_in[gate];
    var p: array<f32, 16>;
    for (var i = 0u; i < 16u; i++) {
        p[i] = softmax[gate * 16u + i];
    }
    for (var i = 0u; i < 16u; i++) {
        var d = 0.0;
        for (var j = 0u; j < 16u; j++) {
            d += p[j] * dot(table(i) - table(j), sum);
        }
        d_logits[gate * 16u + i] = p[i] * d;
    }
}

// gate_prices: PRICE times the gates that do something joins the loss; every gate counts with its chance
// to, 1 - p_a - p_b, which is the sum of the others. One workgroup.
@group(0) @binding(2) var<storage, read_write> losses: array<f32>;

// The gates that pass their first or second input on; as in gates.rs.
const PASS_A = 3u;
const PASS_B = 5u;

fn activity(gate: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < 16u; i++) {
        if (i != PASS_A && i != PASS_B) {
            sum += softmax[gate * 16u + i];
        }
    }
    return sum;
}

@compute @workgroup_size(64)
fn gate_prices(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    var own = vec4<f32>();
    for (var gate = lane; gate < sizes.end; gate += 64u) {
        own.x += activity(gate);
    }
    let all = sum_lanes(lane, own).x;
    if (lane == 0u && group_number(group, groups) == 0u) {
        losses[0] += PRICE * all;
    }
}

// gate_price_gradients: adds PRICE p_i (p_a + p_b - [i passes]), where p_a + p_b - 1 is less what the
// others have.
@group(0) @binding(2) var<storage, read_write> d_priced: array<f32>;

@compute @workgroup_size(64)
fn gate_price_gradients(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let gate = sizes.begin + group_number(group, groups) * 64u + lane;
    if (gate >= sizes.end) {
        return;
    }
    let passing = softmax[gate * 16u + PASS_A] + softmax[gate * 16u + PASS_B];
    let others = activity(gate);
    for (var i = 0u; i < 16u; i++) {
        let at = gate * 16u + i;
        let passes = i == PASS_A || i == PASS_B;
        d_priced[at] += PRICE * softmax[at] * select(passing, -others, passes);
    }
}

// Between activations and states, which are f32 in either precision.
@group(0) @binding(1) var<storage, read> activations: array<real>;
@group(0) @binding(2) var<storage, read_write> numbers: array<f32>;

@compute @workgroup_size(64)
fn state_in(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.cells * CHANNELS) {
        numbers[sizes.fresh + index] = f32(activations[index]);
    }
}

@group(0) @binding(1) var<storage, read> numbers_in: array<f32>;
@group(0) @binding(2) var<storage, read_write> activations_out: array<real>;

@compute @workgroup_size(64)
fn state_out(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    if (index < sizes.cells * CHANNELS) {
        activations_out[index] = real(numbers_in[sizes.old + index]);
    }
}
