// Scaled dot-product attention for many queries (flash attention: Dao et al., 2022, with the online softmax of
// attention.wgsl). A workgroup of 128 serves 32 neighbouring queries of one head and 64 columns of the values. Of 32 keys
// at a time, which pass through workgroup memory with their values, each of 4 slices takes 8; an invocation keeps its
// query, and its slice's sums, in registers, and all queries of a slice read the same key at once. In the end the slices
// meet. Queries wider than 64 pass by in pieces of 64. The generator gives q_base(b, t, h), k_base, v_base, and q4(base,
// d), k4, v4: four neighbours, 0 past the width.
var<workgroup> tile_k: array<vec4<f32>, 512>;
var<workgroup> tile_v: array<vec4<f32>, 512>;
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let group = wid.y * nwg.x + wid.x;
    let queries = ${QUERIES};
    let tiles = (queries + 31u) / 32u;
    let chunks = (${V_WIDTH} + 63u) / 64u;
    // Heads are innermost: those that share keys run side by side.
    let h = group % ${HEADS};
    let chunk = (group / ${HEADS}) % chunks;
    let b = group / (${HEADS} * chunks * tiles);
    if (b < ${BATCH}) {
        // The last queries first: under a causal mask they take longest.
        let t0 = (tiles - 1u - (group / (${HEADS} * chunks)) % tiles) * 32u;
        let kv_head = h / (${HEADS} / ${KV_HEADS});
        let query = lid % 32u;
        let slice = lid / 32u;
        let t = min(t0 + query, queries - 1u);
        let range = visible(t0, min(t0 + 32u, queries) - 1u);
        let own = q_base(b, t, h);
//#for c 4
//#for r 4
        var q_${c}_${r} = vec4<f32>(0.0);
        var acc_${c}_${r} = vec4<f32>(0.0);
//#end
//#end
        var top = T_LOWEST;
        var total = 0.0;
        for (var s0 = range.x; s0 < range.y; s0 += 32u) {
//#for j 8
            var score_${j} = 0.0;
//#end
            for (var d0 = 0u; d0 < ${WIDTH}; d0 += 64u) {
                workgroupBarrier();
                for (var i = lid; i < 512u; i += 128u) {
                    let s = min(s0 + i / 16u, range.y - 1u);
                    tile_k[i] = k4(k_base(b, s, kv_head), d0 + (i % 16u) * 4u);
                    if (d0 == 0u) {
                        tile_v[i] = v4(v_base(b, s, kv_head), chunk * 64u + (i % 16u) * 4u);
                    }
                }
                if (${WIDTH} > 64u || s0 == range.x) {
//#for c 4
//#for r 4
                    q_${c}_${r} = q4(own, d0 + ${c}u * 16u + ${r}u * 4u);
//#end
//#end
                }
                workgroupBarrier();
//#for j 8
//#for c 4
//#for r 4
                score_${j} += dot(q_${c}_${r}, tile_k[slice * 128u + ${j}u * 16u + ${c}u * 4u + ${r}u]);
//#end
//#end
//#end
            }
            var high = top;
//#for j 8
            let s_${j} = s0 + slice * 8u + ${j}u;
            var p_${j} = T_LOWEST;
            if (s_${j} < range.y && sees(t, s_${j})) {
                p_${j} = finish_score(score_${j}, b, h, t, s_${j});
            }
            high = max(high, p_${j});
//#end
            let shrink = t_exp(top - high);
            top = high;
            total *= shrink;
//#for c 4
//#for r 4
            acc_${c}_${r} *= shrink;
//#end
//#end
//#for j 8
            p_${j} = weight(p_${j}, high);
            total += p_${j};
//#for c 4
//#for r 4
            acc_${c}_${r} = fma(vec4<f32>(p_${j}), tile_v[slice * 128u + ${j}u * 16u + ${c}u * 4u + ${r}u], acc_${c}_${r});
//#end
//#end
//#end
        }
        workgroupBarrier();
        tile_v[lid] = vec4<f32>(top, total, 0.0, 0.0);
        workgroupBarrier();
        var highest = T_LOWEST;
        for (var i = query; i < 128u; i += 32u) {
            highest = max(highest, tile_v[i].x);
        }
        var sum = 0.0;
        for (var i = query; i < 128u; i += 32u) {
            sum += tile_v[i].y * t_exp(tile_v[i].x - highest);
        }
        let share = t_exp(top - highest) * select(0.0, 1.0 / sum, sum != 0.0);
        let out = ${OUT};
//#for c 4
//#for r 4
        tile_k[lid * 4u + ${r}u] = acc_${c}_${r} * share;
//#end
        workgroupBarrier();
        {
            let at = query * 4u + slice;
            let four = tile_k[at] + tile_k[at + 128u] + tile_k[at + 256u] + tile_k[at + 384u];
            let column = chunk * 64u + ${c}u * 16u + slice * 4u;
            for (var i = 0u; i < 4u; i++) {
                if (t0 + query < queries && column + i < ${V_WIDTH}) {
                    ${STORE}(out + column + i, four[i]);
                }
            }
        }
        workgroupBarrier();
//#end
    }
}
