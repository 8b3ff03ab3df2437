// Self-attention among the nodes of each graph; the mathematics is in mod.rs. An invocation owns a
// node and a head. The scores of graph g begin at its place times the heads, a square for each head.

override HEADS: u32 = 1u;

struct Sizes {
    rows: u32,
    width: u32,
    graph_start: u32,  // where the graphs' first nodes are in the words,
    graph_of: u32,     // the graph of every node,
    score_start: u32,  // and the graphs' first scores
}
@group(0) @binding(0) var<uniform> sizes: Sizes;

@group(0) @binding(1) var<storage, read> graph: array<u32>;
@group(0) @binding(2) var<storage, read> qkv: array<real>;
@group(0) @binding(3) var<storage, read_write> alpha: array<real>;
@group(0) @binding(4) var<storage, read_write> summed: array<real>;

// The first and the last node of a node's graph, and the scores of a head there.
struct Seat {
    begin: u32,
    end: u32,
    scores: u32,
}

fn seat(i: u32, h: u32) -> Seat {
    let g = graph[sizes.graph_of + i];
    let begin = graph[sizes.graph_start + g];
    let end = graph[sizes.graph_start + g + 1u];
    let n = end - begin;
    return Seat(begin, end, graph[sizes.score_start + g] * HEADS + h * n * n);
}

// Where q (0), k (1) or v (2) of a node's head begins.
fn row(i: u32, part: u32, h: u32) -> u32 {
    return (i * 3u + part) * sizes.width + h * (sizes.width / HEADS);
}

@compute @workgroup_size(64)
fn self_attention_forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let i = index / HEADS;
    let h = index % HEADS;
    if (i >= sizes.rows) {
        return;
    }
    let head_width = sizes.width / HEADS;
    let o = i * sizes.width + h * head_width;
    if (graph[sizes.graph_of + i] == 0xffffffffu) {
        for (var k = 0u; k < head_width; k++) {
            summed[o + k] = real(0.0);
        }
        return;
    }
    let s = seat(i, h);
    let n = s.end - s.begin;
    let at = s.scores + (i - s.begin) * n;
    let scale = 1.0 / sqrt(f32(head_width));
    let q = row(i, 0u, h);
    var largest = 0.0;
    for (var j = 0u; j < n; j++) {
        let key = row(s.begin + j, 1u, h);
        var score = 0.0;
        for (var k = 0u; k < head_width; k++) {
            score += f32(qkv[q + k] * qkv[key + k]);
        }
        score *= scale;
        alpha[at + j] = real(score);
        largest = select(max(largest, score), score, j == 0u);
    }
    var sum = 0.0;
    for (var j = 0u; j < n; j++) {
        let e = exp(f32(alpha[at + j]) - largest);
        alpha[at + j] = real(e);
        sum += e;
    }
    for (var j = 0u; j < n; j++) {
        alpha[at + j] = real(f32(alpha[at + j]) / sum);
    }
    for (var k = 0u; k < head_width; k++) {
        var value = 0.0;
        for (var j = 0u; j < n; j++) {
            value += f32(alpha[at + j] * qkv[row(s.begin + j, 2u, h) + k]);
        }
        summed[o + k] = real(value);
    }
}

// By the node that looks: the gradients of its scores and of q.
@group(0) @binding(3) var<storage, read> alpha_in: array<real>;
@group(0) @binding(4) var<storage, read> d_summed: array<real>;
@group(0) @binding(5) var<storage, read_write> d_scores: array<real>;
@group(0) @binding(6) var<storage, read_write> d_qkv: array<real>;

@compute @workgroup_size(64)
fn self_attention_backward_looking(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let i = index / HEADS;
    let h = index % HEADS;
    if (i >= sizes.rows) {
        return;
    }
    let head_width = sizes.width / HEADS;
    let q = row(i, 0u, h);
    if (graph[sizes.graph_of + i] == 0xffffffffu) {
        for (var k = 0u; k < head_width; k++) {
            d_qkv[q + k] = real(0.0);
        }
        return;
    }
    let s = seat(i, h);
    let n = s.end - s.begin;
    let at = s.scores + (i - s.begin) * n;
    let o = i * sizes.width + h * head_width;
    let scale = 1.0 / sqrt(f32(head_width));
    var mean = 0.0;
    for (var j = 0u; j < n; j++) {
        let value = row(s.begin + j, 2u, h);
        var d = 0.0;
        for (var k = 0u; k < head_width; k++) {
            d += f32(d_summed[o + k] * qkv[value + k]);
        }
        d_scores[at + j] = real(d);
        mean += f32(alpha_in[at + j]) * d;
    }
    for (var j = 0u; j < n; j++) {
        let d = f32(alpha_in[at + j]) * (f32(d_scores[at + j]) - mean) * scale;
        d_scores[at + j] = real(d);
    }
    for (var k = 0u; k < head_width; k++) {
        var sum = 0.0;
        for (var j = 0u; j < n; j++) {
            sum += f32(d_scores[at + j] * qkv[row(s.begin + j, 1u, h) + k]);
        }
        d_qkv[q + k] = real(sum);
    }
}

// By the node that is looked at: the gradients of k and v.
@compute @workgroup_size(64)
fn self_attention_backward_seen(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_number(group, groups) * 64u + lane;
    let j = index / HEADS;
    let h = index % HEADS;
    if (j >= sizes.rows) {
        return;
    }
    let head_width = sizes.width / HEADS;
    let inside = graph[sizes.graph_of + j] != 0xffffffffu;
    var s = Seat(0u, 0u, 0u);
    if (inside) {
        s = seat(j, h);
    }
    let n = s.end - s.begin;
    for (var k = 0u; k < head_width; k++) {
        var key = 0.0;
        var value = 0.0;
        for (var i = 0u; i < n; i++) {
            let at = s.scores + i * n + (j - s.begin);
            key += f32(d_scores[at] * qkv[row(s.begin + i, 0u, h) + k]);
            let d = d_summed[(s.begin + i) * sizes.width + h * head_width + k];
            value += f32(alpha_in[at] * d);
        }
        d_qkv[row(j, 1u, h) + k] = real(key);
        d_qkv[row(j, 2u, h) + k] = real(value);
    }
}
