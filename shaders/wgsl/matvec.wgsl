// One right operand of a product with one row or few: part ${p}. A workgroup takes ${COLS} columns; ${S} invocations
// share a column and walk its k in units of 8 (of 32 where weights are quantized), each for ${CT} columns at once. Then they
// meet: in workgroup memory, by subgroup (SUB), or not at all (S = 1: no barriers). The generator gives
//   left_base(batch), x8(row base, k)            the left operand
//   right_base${p}(batch, j), w8_${p}(base, K, k)    the right operand
//   store_part${p}(batch, i, j, acc0, acc1)          the epilogue
fn part${p}(group: u32, lid: u32) {
    let n = ${N};
    let m = ${M_SIZE};
    let depth = ${K};
    let tiles = (n + ${COLS}u - 1u) / ${COLS}u;
    let batch = group / tiles;
    let tile = group % tiles;
//#if BY_K
    // Neighbours along k lie side by side, so neighbours take neighbouring units.
    let slice = lid % ${S}u;
    let strip = lid / ${S}u;
//#else
    let slice = lid / ${CW}u;
    let strip = lid % ${CW}u;
//#endif
    let col = tile * ${COLS}u + strip * ${CT}u;
    let left = left_base(batch);
//#for i M
    let row_${i} = left + ${i}u * ${LEFT_M};
//#end
//#if PROLOGUE
    var means: array<f32, ${M}>;
    var scales: array<f32, ${M}>;
    for (var i = 0u; i < m; i++) {
        let row = left + i * ${LEFT_M};
        var mean = 0.0;
//#if LAYER
        var sum = 0.0;
        for (var k = ${FIRST}; k < depth; k += ${STRIDE}u) {
            sum += x1(row, k);
        }
        mean = all_sum(sum, lid) / f32(depth);
//#endif
        var squares = 0.0;
        for (var k = ${FIRST}; k < depth; k += ${STRIDE}u) {
            let x = x1(row, k) - mean;
            squares += x * x;
        }
        means[i] = mean;
        scales[i] = 1.0 / sqrt(all_sum(squares, lid) / f32(depth) + ${EPS});
    }
//#for i M
    let mean_${i} = means[${i}];
    let scale_${i} = scales[${i}];
//#end
//#endif
//#if NVEC
    let right = right_base${p}(batch, min(col, (n - 1u) & 0xfffffffcu));
//#else
//#for c CT
    let right_${c} = right_base${p}(batch, min(col + ${c}u, n - 1u));
//#if PAIR
    let other_${c} = right_base${p}(batch, min(col + ${c}u, n - 1u) + ${OTHER});
//#endif
//#end
//#endif
//#for i M
//#for c CT
    var a_${i}_${c} = 0.0;
//#if PAIR
    var b_${i}_${c} = 0.0;
//#endif
//#end
//#end
    // Several units a turn: their loads are under way together, which is what memory needs to be busy.
    var at = slice * ${UNIT}u;
//#if UNROLL
    for (; at + ${LAST}u < depth; at += ${TURN}u) {
//#for g UNROLL
        {
        let k = at + ${g}u * ${STEP}u;
//#include matvec_unit.wgsl
        }
//#end
    }
//#endif
    for (; at < depth; at += ${STEP}u) {
        let k = at;
//#include matvec_unit.wgsl
    }
//#if SERIAL
//#for i M
//#for c CT
    if (${i}u < m && col + ${c}u < n) {
//#if PAIR
        store_part${p}(batch, ${i}u, col + ${c}u, a_${i}_${c}, b_${i}_${c});
//#else
        store_part${p}(batch, ${i}u, col + ${c}u, a_${i}_${c}, 0.0);
//#endif
    }
//#end
//#end
//#else
//#if SUB
//#for i M
//#for c CT
    let a_sum_${i}_${c} = subgroupAdd(a_${i}_${c});
//#if PAIR
    let b_sum_${i}_${c} = subgroupAdd(b_${i}_${c});
//#endif
    if (lid == (${i}u * ${CT}u + ${c}u) % ${WG}u && ${i}u < m && col + ${c}u < n) {
//#if PAIR
        store_part${p}(batch, ${i}u, col + ${c}u, a_sum_${i}_${c}, b_sum_${i}_${c});
//#else
        store_part${p}(batch, ${i}u, col + ${c}u, a_sum_${i}_${c}, 0.0);
//#endif
    }
//#end
//#end
//#else
//#for i M
//#for c CT
    red[(${i}u * ${CT}u + ${c}u) * ${WG}u + lid] = a_${i}_${c};
//#if PAIR
    red[(${M}u * ${CT}u + ${i}u * ${CT}u + ${c}u) * ${WG}u + lid] = b_${i}_${c};
//#endif
//#end
//#end
    workgroupBarrier();
    for (var o = lid; o < m * ${COLS}u; o += ${WG}u) {
        let i = o / ${COLS}u;
        let inside = o % ${COLS}u;
        let at = (i * ${CT}u + inside % ${CT}u) * ${WG}u;
        var acc0 = 0.0;
        var acc1 = 0.0;
        for (var s = 0u; s < ${S}u; s++) {
//#if BY_K
            let lane = (inside / ${CT}u) * ${S}u + s;
//#else
            let lane = s * ${CW}u + inside / ${CT}u;
//#endif
            acc0 += red[at + lane];
//#if PAIR
            acc1 += red[${M}u * ${CT}u * ${WG}u + at + lane];
//#endif
        }
        let j = tile * ${COLS}u + inside;
        if (j < n) {
            store_part${p}(batch, i, j, acc0, acc1);
        }
    }
//#endif
//#endif
}
