// Cooperative matrices, part ${p}: a tile is ${TASKS} tasks, each ${TASK_ROWS} rows of 32 columns, so ${TR} x ${TC} matrices, and each
// subgroup takes one. How many subgroups there are is the driver's choice: where they are fewer than tasks, they take turns,
// each with a walk over k; where they are more, the others only carry.
    for (var turn = 0u; turn < ${TASKS}u; turn += all_subgroups) {
    let task = turn + own_subgroup;
    let task_row = (task / 2u) * ${TASK_ROWS}u;
    let task_col = (task % 2u) * 32u;
    for (var e = lid; e < ${CELLS}u; e += 256u) {
        tile_c[e] = 0.0;
    }
    workgroupBarrier();
//#for r TR
//#for c TC
    var sum_${r}_${c} = coopLoadT<coop_mat${S}x${S}<f32, C>>(&tile_c[0], ${S}u);
//#end
//#end
