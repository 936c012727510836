// One right operand of a product with many rows: part ${p}. A workgroup of 256 computes a tile of ${ROWS} rows and 64
// columns (32 columns twice where the part is paired), each invocation ${RM} x 4 of it: rows ty + 16 i, columns tx + 16 j.
// Both operands pass through workgroup memory, ${BK} of k at a time; what lies at unit u of a row is stored at
// u ^ SWIZZLE(row), so that the eight invocations that one memory cycle serves read different banks. The next step's
// operands are loaded into registers before this step is computed, which hides the way to memory. With SPLIT, a tile's k
// is shared by several workgroups: matmul_combine.wgsl. Functions as in matvec.wgsl.
// COOP (tier T4) multiplies by cooperative matrices of ${S} x ${S} instead, with sums in f32: the files matmul_coop_*.wgsl.
fn part${p}(group: u32, lid: u32) {
    let n = ${N};
    let m = ${M_SIZE};
    let depth = ${K};
    let tiles_n = (n + ${COLS}u - 1u) / ${COLS}u;
    let tiles_m = (m + ${ROWS}u - 1u) / ${ROWS}u;
//#if SPLIT
    let splits = ${SPLITS};
    let all = tiles_n * tiles_m * ${BATCH};
    let split = group / all;
    let tile = group % all;
    // Whole steps, so that no two workgroups take the same k.
    let share = ((depth + splits - 1u) / splits + 63u) & 0xffffffc0u;
    let k_from = split * share;
    let k_to = min(depth, k_from + share);
//#else
    let tile = group;
    let k_from = 0u;
    let k_to = depth;
//#endif
    let batch = tile / (tiles_n * tiles_m);
    // Bands of 8 rows of tiles, column by column: workgroups that run at one time share both operands in the cache.
    let inside = tile % (tiles_n * tiles_m);
    let band = inside / (tiles_n * 8u);
    let high = min(tiles_m - band * 8u, 8u);
    let row0 = (band * 8u + (inside % (tiles_n * 8u)) % high) * ${ROWS}u;
    let col0 = ((inside % (tiles_n * 8u)) / high) * ${COLS}u;
    let tx = lid % 16u;
    let ty = lid / 16u;
//#if !COOP
//#for i RM
//#for j 4
    var acc_${i}_${j} = 0.0;
//#end
//#end
//#endif
//#if Q8
    // ${BLOCKS} blocks of 32: so many times the rows round them, as many invocations as there are columns fetch those.
    let fetches = lid >= ${ROUNDERS}u;
    let turn = select(lid, lid - ${ROUNDERS}u, fetches);
    let mine = turn % select(${ROWS}u, 64u, fetches);
    let block = turn / select(${ROWS}u, 64u, fetches);
    let left = left_base(batch) + min(row0 + mine, m - 1u) * ${LEFT_M};
    let column = mine % 64u;
//#else
    let mine = lid / ${UNITS}u;
    let left = left_base(batch) + min(row0 + mine, m - 1u) * ${LEFT_M};
    let left_unit = lid % ${UNITS}u;
//#if BY_K
    let column = (lid / ${UNITS}u) % 64u;
    let right_unit = lid % ${UNITS}u;
//#else
    let column = lid % 64u;
    let right_unit = (lid / 64u) % ${UNITS}u;
//#endif
//#endif
//#if PAIR
    let right = right_base${p}(batch, min(col0 + column % 32u, n - 1u) + select(0u, ${OTHER}, column >= 32u));
//#else
    let right = right_base${p}(batch, min(col0 + column, n - 1u));
//#endif
//#if Q8
    for (var k0 = k_from; k0 < k_to; k0 += ${BK}u) {
        let k = k0 + block * 32u;
        let at = (block * select(${ROWS}u, 64u, fetches) + mine);
        if (k < k_to) {
            if (!fetches) {
                let x = round8(x8(left, k), x8(left, k + 8u), x8(left, k + 16u), x8(left, k + 24u));
                for (var w = 0u; w < 8u; w++) {
                    tile_a[at * 8u + (w ^ (mine & 7u))] = x.q[w];
                }
                scale_a[at] = vec2<f32>(x.d, x.s);
            } else if (block < ${BLOCKS}u) {
                let q = wq_${p}(right, depth, k);
                for (var w = 0u; w < 8u; w++) {
                    tile_b[at * 8u + (w ^ (mine & 7u))] = q.q[w];
                }
                scale_b[at] = vec4<f32>(q.d0, q.d1, q.m, 0.0);
            }
        }
        workgroupBarrier();
        for (var b = 0u; b < ${BLOCKS}u && k0 + b * 32u < k_to; b++) {
            let rows = b * ${ROWS}u + ty;
            let columns = b * 64u + tx;
//#for i RM
            let xs_${i} = scale_a[rows + ${i}u * 16u];
//#end
//#for j 4
            let ws_${j} = scale_b[columns + ${j}u * 16u];
//#end
//#for i RM
//#for j 4
            var low_${i}_${j} = 0;
            var high_${i}_${j} = 0;
//#end
//#end
            for (var w = 0u; w < 4u; w++) {
//#for j 4
                let b_${j} = tile_b[(columns + ${j}u * 16u) * 8u + (w ^ (tx & 7u))];
                let d_${j} = tile_b[(columns + ${j}u * 16u) * 8u + ((w + 4u) ^ (tx & 7u))];
//#end
//#for i RM
                let a_${i} = tile_a[(rows + ${i}u * 16u) * 8u + (w ^ (ty & 7u))];
                let c_${i} = tile_a[(rows + ${i}u * 16u) * 8u + ((w + 4u) ^ (ty & 7u))];
//#for j 4
                low_${i}_${j} += ${DOT}(a_${i}, b_${j});
                high_${i}_${j} += ${DOT}(c_${i}, d_${j});
//#end
//#end
            }
//#for i RM
//#for j 4
            acc_${i}_${j} += xs_${i}.x * (ws_${j}.x * f32(low_${i}_${j}) + ws_${j}.y * f32(high_${i}_${j})) + xs_${i}.y * ws_${j}.z;
//#end
//#end
        }
        workgroupBarrier();
    }
//#else
//#if COOP
//#include matmul_coop_begin.wgsl
//#endif
    var x = x8(left, k_from + left_unit * 8u);
    var w = w8_${p}(right, depth, k_from + right_unit * 8u);
    for (var k0 = k_from; k0 < k_to; k0 += ${BK}u) {
//#if COOP
        stage_a(mine * ${LD}u + left_unit * 8u, x);
        if (lid < 64u * ${UNITS}u) {
            stage_b(column * ${LD}u + right_unit * 8u, w);
        }
//#else
        tile_a[mine * ${U}u + ((left_unit * 2u) ^ ((mine >> ${SHIFT}u) & ${MASK}u))] = x.a;
        tile_a[mine * ${U}u + ((left_unit * 2u + 1u) ^ ((mine >> ${SHIFT}u) & ${MASK}u))] = x.b;
        if (lid < 64u * ${UNITS}u) {
            tile_b[column * ${U}u + ((right_unit * 2u) ^ ((column >> ${SHIFT}u) & ${MASK}u))] = w.a;
            tile_b[column * ${U}u + ((right_unit * 2u + 1u) ^ ((column >> ${SHIFT}u) & ${MASK}u))] = w.b;
        }
//#endif
        workgroupBarrier();
        if (k0 + ${BK}u < k_to) {
            x = x8(left, k0 + ${BK}u + left_unit * 8u);
            if (lid < 64u * ${UNITS}u) {
                w = w8_${p}(right, depth, k0 + ${BK}u + right_unit * 8u);
            }
        }
//#if COOP
//#include matmul_coop_step.wgsl
//#else
        for (var u = 0u; u < ${U}u; u++) {
//#for j 4
            let b_${j} = tile_b[(tx + ${j}u * 16u) * ${U}u + (u ^ ((tx >> ${SHIFT}u) & ${MASK}u))];
//#end
//#for i RM
            let a_${i} = tile_a[(ty + ${i}u * 16u) * ${U}u + (u ^ ((ty >> ${SHIFT}u) & ${MASK}u))];
//#end
            // One fused operation each: a dot product of four takes a fifth.
//#for c 4
//#for i RM
//#for j 4
            acc_${i}_${j} = fma(a_${i}[${c}], b_${j}[${c}], acc_${i}_${j});
//#end
//#end
//#end
        }
//#endif
        workgroupBarrier();
    }
//#endif
//#if COOP
//#include matmul_coop_end.wgsl
//#else
//#for i RM
    if (row0 + ty + ${i}u * 16u < m) {
        let i = row0 + ty + ${i}u * 16u;
//#if PAIR
        if (col0 + tx < n) {
            ${KEEP}(${SPLIT_ARGS}batch, i, col0 + tx, acc_${i}_0, acc_${i}_2);
        }
        if (col0 + tx + 16u < n) {
            ${KEEP}(${SPLIT_ARGS}batch, i, col0 + tx + 16u, acc_${i}_1, acc_${i}_3);
        }
//#else
//#for j 4
        if (col0 + tx + ${j}u * 16u < n) {
            ${KEEP}(${SPLIT_ARGS}batch, i, col0 + tx + ${j}u * 16u, acc_${i}_${j}, 0.0);
        }
//#end
//#endif
    }
//#end
//#endif
}
