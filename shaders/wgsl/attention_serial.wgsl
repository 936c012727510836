// Scaled dot-product attention without barriers: an invocation serves one query of one head, and 64 columns of the
// values. For devices where barriers are dear. Functions as in attention.wgsl.
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let item = (wid.y * nwg.x + wid.x) * 32u + lid;
    let queries = ${QUERIES};
    let chunks = (${V_WIDTH} + 63u) / 64u;
    let h = item % ${HEADS};
    let chunk = (item / ${HEADS}) % chunks;
    let t = (item / (${HEADS} * chunks)) % queries;
    let b = item / (${HEADS} * chunks * queries);
    if (b >= ${BATCH}) {
        return;
    }
    let kv_head = h / (${HEADS} / ${KV_HEADS});
    let range = visible(t, t);
    let query = q_base(b, t, h);
    let column = chunk * 64u;
    let columns = min(64u, ${V_WIDTH} - column);
    var acc: array<vec4<f32>, 16>;
    for (var j = 0u; j < 16u; j++) {
        acc[j] = vec4<f32>(0.0);
    }
    var top = T_LOWEST;
    var total = 0.0;
    let whole = select(0u, ${WIDTH} & 0xfffffffcu, ${ALIGNED});
    for (var s = range.x; s < range.y; s++) {
        let key = k_base(b, s, kv_head);
        var sum = 0.0;
        for (var d = 0u; d < whole; d += 4u) {
            sum += dot(${Q4}(query + d), ${K4}(key + d));
        }
        for (var d = whole; d < ${WIDTH}; d++) {
            sum += ${Q1}(query + d) * ${K1}(key + d);
        }
        let score = finish_score(sum, b, h, t, s);
        if (score > top) {
            let shrink = t_exp(top - score);
            total *= shrink;
            for (var j = 0u; j * 4u < columns; j++) {
                acc[j] *= shrink;
            }
            top = score;
        }
        let p = weight(score, top);
        total += p;
        let value = v_base(b, s, kv_head) + column;
        for (var j = 0u; j * 4u < columns; j++) {
            acc[j] += p * v4(value, j * 4u, columns);
        }
    }
    let share = select(0.0, 1.0 / total, total != 0.0);
    let out = ${OUT} + column;
    for (var d = 0u; d < columns; d++) {
        ${STORE}(out + d, acc[d >> 2u][d & 3u] * share);
    }
}
