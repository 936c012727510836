// Scaled dot-product attention, one pass over the keys (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018). A workgroup of 64 serves ${QT} neighbouring queries of one head. Of 64 keys at a time, each invocation
// scores one; then each sums up to four columns of the values. The generator gives q_base(b, t, h), k_base, v_base,
// tails and store.
// With SPLIT, several workgroups share the keys (flash decoding, Dao et al., 2023): each leaves what it found in scratch
// memory, [batch, query, head][split][top, total, the unscaled sums], and a second launch combines them. Where the keys
// are few, one workgroup takes them all and stores the result at once.
var<workgroup> scores: array<f32, ${SCORES}>;
var<workgroup> weights: array<f32, ${SCORES}>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let group = wid.y * nwg.x + wid.x;
    let queries = ${QUERIES};
    let tiles = (queries + ${QT}u - 1u) / ${QT}u;
    let chunks = (${V_WIDTH} + 255u) / 256u;
    // Heads are innermost: those that share keys run side by side.
    let h = group % ${HEADS};
    let chunk = (group / ${HEADS}) % chunks;
    let tile = (group / (${HEADS} * chunks)) % tiles;
//#if SPLIT
    let splits = ${SPLITS};
    let split = (group / (${HEADS} * chunks * tiles)) % splits;
    let b = group / (${HEADS} * chunks * tiles * splits);
//#else
    let b = group / (${HEADS} * chunks * tiles);
//#endif
    if (b < ${BATCH}) {
        let kv_head = h / (${HEADS} / ${KV_HEADS});
        let t0 = tile * ${QT}u;
//#if SPLIT
        var range = visible(t0, min(t0 + ${QT}u, queries) - 1u);
        if (splits > 1u) {
            let share = ((range.y - range.x + splits - 1u) / splits + 63u) & 0xffffffc0u;
            range.x = min(range.x + split * share, range.y);
            range.y = min(range.x + share, range.y);
        }
//#else
        let range = visible(t0, min(t0 + ${QT}u, queries) - 1u);
//#endif
//#for q QT
        let q_${q} = q_base(b, min(t0 + ${q}u, queries - 1u), h);
        var top_${q} = T_LOWEST;
        var total_${q} = 0.0;
//#for r 4
        var acc_${q}_${r} = 0.0;
//#end
//#end
        let column = chunk * 256u + lid;
        for (var s0 = range.x; s0 < range.y; s0 += 64u) {
            let s = s0 + lid;
//#for q QT
            var score_${q} = T_LOWEST;
//#end
            if (s < range.y) {
                let key = k_base(b, s, kv_head);
//#for q QT
                var dot_${q} = 0.0;
//#end
                let whole = select(0u, ${WIDTH} & 0xfffffffcu, ${ALIGNED});
                for (var d = 0u; d < whole; d += 4u) {
                    let k = ${K4}(key + d);
//#for q QT
                    dot_${q} += dot(${Q4}(q_${q} + d), k);
//#end
                }
                for (var d = whole; d < ${WIDTH}; d++) {
                    let k = ${K1}(key + d);
//#for q QT
                    dot_${q} += ${Q1}(q_${q} + d) * k;
//#end
                }
//#for q QT
                if (sees(t0 + ${q}u, s)) {
                    score_${q} = finish_score(dot_${q}, b, h, min(t0 + ${q}u, queries - 1u), s);
                }
//#end
            }
//#for q QT
            scores[${q}u * 64u + lid] = score_${q};
//#end
            workgroupBarrier();
//#for q QT
            var new_${q} = top_${q};
            for (var j = 0u; j < 64u; j++) {
                new_${q} = max(new_${q}, scores[${q}u * 64u + j]);
            }
            weights[${q}u * 64u + lid] = weight(score_${q}, new_${q});
            let shrink_${q} = t_exp(top_${q} - new_${q});
            total_${q} *= shrink_${q};
//#for r 4
            acc_${q}_${r} *= shrink_${q};
//#end
            top_${q} = new_${q};
//#end
            workgroupBarrier();
            let count = min(64u, range.y - s0);
            for (var j = 0u; j < count; j++) {
                let value = v_base(b, s0 + j, kv_head);
//#for q QT
                let p_${q} = weights[${q}u * 64u + j];
                total_${q} += p_${q};
//#end
//#for r 4
                if (column + ${r}u * 64u < ${V_WIDTH}) {
                    let v = ${V1}(value + column + ${r}u * 64u);
//#for q QT
                    acc_${q}_${r} += p_${q} * v;
//#end
                }
//#end
            }
        }
//#for q QT
        if (t0 + ${q}u < queries) {
            let t = t0 + ${q}u;
//#if SPLIT
            if (splits > 1u) {
                let at = (((b * queries + t) * ${HEADS} + h) * splits + split) * (${V_WIDTH} + 2u);
                if (lid == 0u && chunk == 0u) {
                    scratch[at] = bitcast<u32>(top_${q});
                    scratch[at + 1u] = bitcast<u32>(total_${q});
                }
//#for r 4
                if (column + ${r}u * 64u < ${V_WIDTH}) {
                    scratch[at + 2u + column + ${r}u * 64u] = bitcast<u32>(acc_${q}_${r});
                }
//#end
            } else {
//#endif
            let out_${q} = ${OUT};
            let share = select(0.0, 1.0 / total_${q}, total_${q} != 0.0);
//#for r 4
            if (column + ${r}u * 64u < ${V_WIDTH}) {
                ${STORE}(out_${q} + column + ${r}u * 64u, acc_${q}_${r} * share);
            }
//#end
//#if SPLIT
            }
//#endif
        }
//#end
    }
}
//#if SPLIT
// One column of one result each.
@compute @workgroup_size(64)
fn combine(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let i = (wid.y * nwg.x + wid.x) * 64u + lid;
    let item = i / ${V_WIDTH};
    let column = i % ${V_WIDTH};
    let h = item % ${HEADS};
    let t = (item / ${HEADS}) % ${QUERIES};
    let b = item / (${HEADS} * ${QUERIES});
    if (b >= ${BATCH}) {
        return;
    }
    let size = ${V_WIDTH} + 2u;
    let first = item * ${SPLITS} * size;
    var top = T_LOWEST;
    for (var s = 0u; s < ${SPLITS}; s++) {
        top = max(top, bitcast<f32>(scratch[first + s * size]));
    }
    var total = 0.0;
    var sum = 0.0;
    for (var s = 0u; s < ${SPLITS}; s++) {
        let at = first + s * size;
        let shrink = t_exp(bitcast<f32>(scratch[at]) - top);
        total += bitcast<f32>(scratch[at + 1u]) * shrink;
        sum += bitcast<f32>(scratch[at + 2u + column]) * shrink;
    }
    ${STORE}(${OUT} + column, sum * select(0.0, 1.0 / total, total != 0.0));
}
//#endif
