// Which element an invocation holds is the driver's secret, so sums go through workgroup memory, one matrix of each task at
// a time, and from there to the epilogue, a result an invocation. Both tasks of a row, and so a pair, are of one turn.
    let tasks = min(all_subgroups, ${TASKS}u - turn);
    for (var f = 0u; f < ${TR}u * ${TC}u; f++) {
        for (var slot = task; slot < ${TASKS}u; slot = ${TASKS}u) {
//#for r TR
//#for c TC
            if (f == ${r}u * ${TC}u + ${c}u) {
                coopStoreT(sum_${r}_${c}, &tile_c[slot * ${SQ}u], ${S}u);
            }
//#end
//#end
        }
        workgroupBarrier();
//#if PAIR
        for (var e = lid; e < tasks / 2u * ${SQ}u; e += 256u) {
            let owner = turn + e / ${SQ}u * 2u;
//#else
        for (var e = lid; e < tasks * ${SQ}u; e += 256u) {
            let owner = turn + e / ${SQ}u;
//#endif
            let cell = e % ${SQ}u;
            let i = row0 + (owner / 2u) * ${TASK_ROWS}u + (f / ${TC}u) * ${S}u + cell / ${S}u;
//#if PAIR
            let j = col0 + (f % ${TC}u) * ${S}u + cell % ${S}u;
            if (i < m && j < n) {
                ${KEEP}(${SPLIT_ARGS}batch, i, j, tile_c[owner * ${SQ}u + cell], tile_c[(owner + 1u) * ${SQ}u + cell]);
            }
//#else
            let j = col0 + (owner % 2u) * 32u + (f % ${TC}u) * ${S}u + cell % ${S}u;
            if (i < m && j < n) {
                ${KEEP}(${SPLIT_ARGS}batch, i, j, tile_c[owner * ${SQ}u + cell], 0.0);
            }
//#endif
        }
        workgroupBarrier();
    }
    }
